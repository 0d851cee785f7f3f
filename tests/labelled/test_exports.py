"""What programs for annotation export becomes the rows that it says, and is never half read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labelled.tables import findings, refusal, write
from maskwright.base.errors import DataError, MaskwrightError, UsageError
from maskwright.text.corpus.files import find
from maskwright.text.tables.files import load
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.read import read_rows
from maskwright.text.tables.reading_options import how_read

SIZE = 40
MARK = {"start": 3, "end": 8, "text": "Berun"}
Make = Callable[[int], Any]


def text(n: int) -> str:
    return f"so Berun went {n}"


def result(kind: str, value: dict[str, Any], name: str = "label") -> dict[str, Any]:
    return {"id": "x", "from_name": name, "to_name": "text", "type": kind, "value": value}


MARKED = result("labels", {**MARK, "labels": ["PER"]})


def chosen(*names: str) -> dict[str, Any]:
    return result("choices", {"choices": list(names)}, "mood")


def task(n: int, *results: dict[str, Any], **more: Any) -> dict[str, Any]:
    told = [{"id": n, "completed_by": 1, "result": list(results), "was_cancelled": False}]
    return {"id": n, "data": {"text": text(n)}, "annotations": told, "predictions": []} | more


def short(n: int, **told: Any) -> dict[str, Any]:
    """Label Studio's short form."""
    row = {"text": text(n), "id": n, "annotator": 1 + n % 2, "annotation_id": n, "lead_time": 1.5}
    return row | told


def doccano(n: int, **told: Any) -> dict[str, Any]:
    return {"id": n, "text": text(n), "Comments": []} | told


def prodigy(n: int, **told: Any) -> dict[str, Any]:
    return {"text": text(n), "_input_hash": n, "answer": "accept"} | told


def flags(n: int) -> dict[str, int]:
    return {"A": 1 - n % 2, "B": n % 2}


def words(n: int, ner: str = "U-PER") -> list[dict[str, Any]]:
    return [{"id": 0, "orth": "Berun", "ner": ner}, {"id": 1, "orth": str(n), "ner": "O"}]


def document(n: int, ner: str = "U-PER") -> dict[str, Any]:
    return {"id": n, "paragraphs": [{"sentences": [{"tokens": words(n, ner)}]}]}


ENTITIES = {"entities": [[3, 8, "PER"]]}
SPAN = {**MARK, "label": "PER"}
SPANS: dict[str, Make] = {
    "Label Studio": lambda n: task(n, MARKED),
    "Label Studio, marks and choices": lambda n: task(n, MARKED, chosen("A")),
    "Label Studio, stored": lambda n: {"result": [MARKED], "task": {"data": {"text": text(n)}}},
    "Label Studio, short": lambda n: short(n, label=[{**MARK, "labels": ["PER"]}]),
    "doccano": lambda n: doccano(n, label=[[3, 8, "PER"]]),
    "doccano, relations": lambda n: doccano(
        n,
        entities=[{"id": n, "label": "PER", "start_offset": 3, "end_offset": 8}],
        relations=[{"id": 1, "from_id": n, "to_id": n, "type": "is"}],
    ),
    "spaCy": lambda n: [text(n), ENTITIES],
    "spaCy, a list": lambda n: [text(n), [[3, 8, "PER"]]],
    "spaCy, with cats": lambda n: [text(n), {**ENTITIES, "cats": flags(n)}],
    "spaCy, a document": lambda n: {
        "text": text(n),
        "ents": [{"start": 3, "end": 8, "label": "PER"}],
        "sents": [{"start": 0, "end": len(text(n))}],
        "tokens": [{"id": 0, "start": 0, "end": 2, "tag": "RB", "pos": "ADV"}],
    },
    "Prodigy": lambda n: prodigy(n, spans=[{**SPAN, "token_start": 1}]),
}
OPTIONS = [{"id": "A"}, {"id": "B"}]
CLASSES: dict[str, Make] = {
    "Label Studio": lambda n: task(n, chosen("AB"[n % 2])),
    "Label Studio, short": lambda n: short(n, mood="AB"[n % 2]),
    "doccano": lambda n: doccano(n, label=["AB"[n % 2]]),
    "spaCy": lambda n: [text(n), {"cats": flags(n)}],
    "spaCy, a row": lambda n: {"text": text(n), "cats": flags(n)},
    "Prodigy": lambda n: prodigy(n, options=OPTIONS, accept=["AB"[n % 2]]),
}
SEVERAL: dict[str, Make] = {
    "Label Studio": lambda n: task(n, chosen(*"AB"[: 1 + n % 2])),
    "Label Studio, short": lambda n: short(n, mood={"choices": ["A", "B"]} if n % 2 else "A"),
    "doccano": lambda n: doccano(n, label=[*"AB"[: 1 + n % 2]]),
    "spaCy": lambda n: [text(n), {"cats": {"A": 1, "B": n % 2}}],
    "Prodigy": lambda n: prodigy(n, options=OPTIONS, accept=[*"AB"[: 1 + n % 2]]),
}


def wrote(folder: Path, value: Any, name: str = "data.json") -> Path:
    lines = map(json.dumps, value if name.endswith("l") else [value])
    return write(folder / name, "\n".join(lines))


def read(folder: Path, make: Make, name: str = "data.json", **options: Any) -> Dataset:
    return prepare(wrote(folder, [make(n) for n in range(SIZE)], name), **options)


def every(made: Dataset) -> list[Any]:
    return [example for part in made.parts.values() for example in part]


@pytest.mark.parametrize("name", ["data.json", "data.jsonl"])
@pytest.mark.parametrize("form", SPANS)
def test_marks_are_tags_at_their_places(form: str, name: str, tmp_path: Path) -> None:
    if form.startswith("Label") and name == "data.jsonl":
        return  # which that program does not write
    made = read(tmp_path, SPANS[form], name)
    assert made.task.name == "tagging" and len(every(made)) == SIZE
    for row in every(made):
        assert row.tokens[:3] == ("so", "Berun", "went")
        assert [made.labels.names[tag] for tag in row.tags] == ["O", "B-PER", "O", "O"]


@pytest.mark.parametrize("form", CLASSES)
def test_one_label_in_every_row_is_a_class(form: str, tmp_path: Path) -> None:
    options = {"columns": {"label": "mood"}} if "short" in form else {}
    made = read(tmp_path, CLASSES[form], **options)
    assert made.task.name == "classification"
    for row in every(made):
        assert made.labels.names[row.label] == "AB"[int(row.text.split()[-1]) % 2]


@pytest.mark.parametrize("form", SEVERAL)
def test_several_labels_in_some_rows_are_several_in_all(form: str, tmp_path: Path) -> None:
    options = {"columns": {"label": "mood"}} if form.startswith("Label") else {}
    made = read(tmp_path, SEVERAL[form], **options)
    assert made.task.name == "multi-label"
    for row in every(made):
        assert row.label == ((0, 1) if int(row.text.split()[-1]) % 2 else (0,))


def test_what_label_studio_has_besides_is_told_and_its_places_are_those_of_tasks(
    tmp_path: Path,
) -> None:
    tasks = [task(n, MARKED) for n in range(SIZE)]
    tasks[0]["annotations"][0]["was_cancelled"] = True
    tasks[1]["annotations"] = []
    tasks[2] |= {"annotations": [], "predictions": [{"result": [MARKED]}]}
    tasks[3]["annotations"] += [{"id": 1, "result": []}]
    tasks[4]["annotations"] += [{"id": 1, "result": [], "ground_truth": True}]
    tasks[5]["annotations"][0]["result"] += [
        {"type": "relation", "from_id": "x", "to_id": "x"},
        result("choices", {**MARK, "choices": ["A"]}, "of_part"),
    ]
    path = wrote(tmp_path, tasks)
    made = prepare(path)
    told = " ".join(findings(made))
    for what in ("cancelled", "no annotation", "predictions", "several annotations", "true"):
        assert what in told
    assert "relation" in told and "choices of a part" in told
    rows = every(made)
    assert len(rows) == SIZE - 3 + 1
    truth = next(row for row in rows if row.where.endswith("item 5"))
    assert set(truth.tags) == {0}  # which marks nothing
    assert any(row.where.endswith(f"item {SIZE}") for row in rows)
    # They are texts to be answered, all of them.
    assert len({row.values["text"] for row in read_rows(find(path)[0])}) == SIZE


@pytest.mark.parametrize(
    "make",
    [
        lambda n: task(n, *([MARKED] if n % 3 else [])),
        lambda n: short(n, **({"label": [{**MARK, "labels": ["PER"]}]} if n % 3 else {})),
        lambda n: prodigy(n, **({"spans": [SPAN]} if n % 3 else {})),
    ],
)
def test_where_nothing_is_marked_there_is_nothing(make: Make, tmp_path: Path) -> None:
    unmarked = [row for row in every(read(tmp_path, make)) if set(row.tags) == {0}]
    assert len(unmarked) == (SIZE + 2) // 3


def test_numbers_and_texts_of_label_studio(tmp_path: Path) -> None:
    rated = read(tmp_path, lambda n: task(n, result("rating", {"rating": n % 5}, "rating")))
    assert rated.task.name == "classification" and len(rated.labels.names) == 5
    other = read(tmp_path, lambda n: short(n, rating=[{"rating": n % 5}]))
    assert other.labels.names == rated.labels.names
    columns = {"source": "text", "target": "answer"}
    written = [task(n, result("textarea", {"text": [f"to {n}"]}, "answer")) for n in range(SIZE)]
    made = prepare(wrote(tmp_path, written), columns=columns)
    assert every(made)[0].target == "to 0"


@pytest.mark.parametrize(
    ("name", "value", "other", "kind"),
    [
        ("label", [{**MARK, "labels": ["PER"]}], "", "tagging"),
        ("sentiment", {"choices": ["A", "B"]}, "A", "multi-label"),
    ],
)
def test_cells_of_a_table_hold_the_same(
    name: str, value: Any, other: str, kind: str, tmp_path: Path
) -> None:
    cells = [json.dumps(value).replace('"', '""') if n % 2 else other for n in range(SIZE)]
    rows = (f'{n},1,{n},1.5,{text(n)},"{cell}"\n' for n, cell in enumerate(cells))
    header = f"annotation_id,annotator,id,lead_time,text,{name}\n"
    made = prepare(write(tmp_path / "a.csv", header + "".join(rows)))
    marked = sum(1 in row.tags if name == "label" else len(row.label) == 2 for row in every(made))
    assert made.task.name == kind and marked == SIZE / 2


def test_files_that_hold_all_rows_in_an_object(tmp_path: Path) -> None:
    pairs = [[text(n), ENTITIES] if n else None for n in range(SIZE)]
    made = prepare(wrote(tmp_path, {"classes": ["PER"], "annotations": pairs}))
    assert len(every(made)) == SIZE - 1 and "1 null" in " ".join(findings(made))
    assert every(made)[0].where.endswith("item 2")


def test_trees_of_spacy_2_are_sentences(tmp_path: Path) -> None:
    made = read(tmp_path, document)
    assert made.task.name == "tagging" and made.labels.names == ("O", "U-PER")
    file = wrote(tmp_path, [document(n, "U-PER" if n != 5 else "-") for n in range(SIZE)])
    assert "item 6" in str(refusal(DataError, lambda: prepare(file)).where)
    skip = how_read(["on_bad=skip", "max_bad_fraction=1.0"])
    assert len(every(prepare(file, read=skip))) == SIZE - 1


NO_FLAG = {"A": 1, "B": 1}, {"A": 1}


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda n: task(n, result("hypertextlabels", {**MARK, "start": "/p"})), "character spans"),
        (lambda n: {"text": text(n), "annotations": [{"label": 3, "user": 1}]}, "annotations"),
        (lambda n: short(n, label=[{**MARK, "labels": [*"AB"[: 1 + n % 2]]}]), "marked part with"),
        (lambda n: short(n, label=[{**MARK, "labels": ["A"][: n % 2]}]), "marked part with"),
        (lambda n: task(n, result("labels", {**MARK, "start": 4, "labels": ["A"]})), "another"),
        (lambda n: [text(n), {"cats": NO_FLAG[n % 2]}], "no flag for some"),
        (lambda n: task(n, annotations=[]), "nothing to learn from"),
        (lambda n: task(n, annotations=[7]), "no annotation of Label Studio"),
    ],
)
def test_what_cannot_be_read_is_named(make: Make, told: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=told) as caught:
        read(tmp_path, make)
    assert caught.value.do and caught.value.where


def test_other_files_of_these_programs_are_named_with_the_way(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="DocBin"):
        load(write(tmp_path / "train.spacy", "x"))
    for n in range(3):
        write(tmp_path / "brat" / f"{n}.txt", text(n))
        write(tmp_path / "brat" / f"{n}.ann", "T1\tPER 3 8\tBerun\n")
    web = write(tmp_path / "web.tsv", "#FORMAT=WebAnno TSV 3.3\n\n1-1\t0-5\tBerun\t_\n")
    for path in (web, tmp_path / "brat"):
        with pytest.raises(MaskwrightError):
            load(path)


def test_other_arrays_are_what_they_were(tmp_path: Path) -> None:
    """The controls: plain rows, and arrays that are neither rows nor pairs of a text and marks."""
    plain = read(tmp_path, lambda n: {"text": text(n), "label": "AB"[n % 2]})
    assert plain.task.name == "classification"
    listed = read(tmp_path, lambda n: {"text": text(n), "label": ["AB"[n % 2]]})
    assert listed.task.name == "multi-label"
    with pytest.raises(DataError, match="no table"):
        read(tmp_path, lambda n: [text(n), "AB"[n % 2]])
