"""Whatever stands in a file: examples, or a refusal in our words; never another exception."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.files_at_hand import write
from labelled.tables import table_of, write_rows
from maskwright.base.errors import DataError, MaskwrightError, UsageError
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.files import load
from maskwright.text.tables.infer import infer
from maskwright.text.tables.prepare import build, prepare
from maskwright.text.tables.reading_options import TableReadingOptions, how_read
from maskwright.text.tables.rows import Table
from maskwright.text.tables.shapes import shapes
from maskwright.text.tables.splits import split_dataset
from maskwright.text.tables.survey import survey

SKIP = ReadingOptions(on_bad="skip", max_bad_fraction=1.0, on_nul="strip")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 9),
    st.sampled_from([10**30, -(10**25), 0.0, -0.5, 1e300]),
    st.sampled_from(["", " ", "a", "b", "A", "a|b", "1", "-1", "2.5", "nan", "inf", "1e999"]),
    st.sampled_from(["O", "B-x", "I-x", "some words in a row", "\u00e9\u0301", "\ufffd"]),
    st.text(max_size=8),
)
CELLS = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=3),
    st.dictionaries(
        st.sampled_from(["text", "answer_start", "en", "de"]),
        st.one_of(SCALARS, st.lists(SCALARS, max_size=2)),
        max_size=3,
    ),
)


WORDS = st.sampled_from(["x y z", "the river and the stone", "O", "\u00e9 x"])
NUMBERS = st.sampled_from([0, 1, 2, 1.0, "1", "2", True])
NAMES = st.sampled_from(["pos", "neg", "pos", "neg", "Pos", "a|b"])
TAGS = st.lists(st.sampled_from(["O", "B-x", "I-x"]), min_size=2, max_size=3)
STARTS = st.one_of(NUMBERS, st.lists(NUMBERS, max_size=2))
ANSWERS = st.fixed_dictionaries({"text": st.lists(WORDS, max_size=2), "answer_start": STARTS})
TABLES: list[dict[str, st.SearchStrategy[Any]]] = [
    {"text": WORDS, "label": NUMBERS},
    {"text": WORDS, "label": NAMES},
    {"text": WORDS, "label": NUMBERS, "label_name": NAMES},
    {"text": WORDS, "score": st.floats(0, 5).map(lambda x: round(x, 2))},
    {"text": WORDS, "labels": st.lists(NAMES, max_size=2)},
    {"sentence1": WORDS, "sentence2": WORDS, "label": st.one_of(NUMBERS, NAMES)},
    {"tokens": st.lists(WORDS, min_size=2, max_size=3), "tags": TAGS},
    {"question": WORDS, "context": WORDS, "answers": st.one_of(ANSWERS, st.lists(ANSWERS))},
    {"question": WORDS, "choices": st.lists(WORDS, min_size=2, max_size=3), "label": NUMBERS},
    {"premise": WORDS, "choice1": WORDS, "choice2": NAMES, "label": NUMBERS},
    {"src": WORDS, "tgt": WORDS},
    {"translation": st.fixed_dictionaries({"en": WORDS, "de": WORDS})},
]


def understand(table: Table, reading: ReadingOptions, kind: str | None) -> str:
    """What became of the table: its task, or the first words of the refusal."""
    try:
        task = infer(table, task=kind)
        examples = build(table, task, read=TableReadingOptions(reading))
        assert survey(examples).tables()
    except MaskwrightError as error:
        assert error.what and (error.found is not None or error.wanted)
        return error.what
    try:
        parts = split_dataset(examples).parts
        assert sum(map(len, parts.values())) == sum(map(len, examples.parts.values()))
    except MaskwrightError as error:
        assert error.what.startswith("no rows are left for validation")
    return task.name


QUESTION = {"question": "q", "context": "the ring of Saturn"}
PLACES = {"text": ["Saturn"], "answer_start": 12}


@pytest.mark.parametrize("answers", [PLACES, [PLACES, "x"]])
def test_answers_of_unlike_shapes_are_refused_in_our_words(answers: Any) -> None:
    table = table_of(*[{**QUESTION, "answers": answers}] * 12)
    with pytest.raises(MaskwrightError):
        build(table, infer(table))


@given(st.data(), st.sampled_from(TABLES), st.sampled_from([None, None, *shapes()]), st.booleans())
def test_any_rows(data: st.DataObject, cells: dict[str, Any], kind: str | None, skip: bool) -> None:
    count = data.draw(st.integers(1, 8))
    rows = [{name: data.draw(cell) for name, cell in cells.items()} for _ in range(count)]
    for _ in range(data.draw(st.integers(0, 2))):
        rows[data.draw(st.integers(0, count - 1))][data.draw(st.sampled_from([*cells]))] = (
            data.draw(CELLS)
        )
    understand(table_of(*rows), SKIP if skip else ReadingOptions(), kind)


@given(st.binary(max_size=80), st.sampled_from(["csv", "tsv", "jsonl", "json"]), st.booleans())
def test_any_bytes(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str, begun: bool
) -> None:
    start = {"csv": b"text,label\na b,1\n", "tsv": b"text\tlabel\na b\t1\n"}.get(
        suffix, b'{"text": "a b", "label": 1}\n'
    )
    path = write(tmp_path_factory.mktemp("any"), f"a.{suffix}", (start if begun else b"") + data)
    for reading in (ReadingOptions(), SKIP):
        try:
            table = load(path, reading=reading)
        except MaskwrightError as error:
            assert error.where is not None and str(path) in error.where
            continue
        assert all(type(name) is str for row in table.first for name in row.values)
        understand(table, reading, None)


def test_a_translation_that_the_first_row_lacks(tmp_path: Path) -> None:
    rows = [{"id": n, "translation": {"en": f"word {n}", "de": f"Wort {n}"}} for n in range(30)]
    path = write_rows(tmp_path / "rows.jsonl", [{"id": 99}, *rows])
    made = prepare(path, read=how_read(["on_bad=skip", "max_bad_fraction=0.5"]))
    assert made.task.name == "sequence-to-sequence" and len(made.dropped) == 1


def test_names_of_classes_in_another_encoding(tmp_path: Path) -> None:
    write_rows(tmp_path / "train.jsonl", [{"text": f"a {n}", "label": n % 2} for n in range(30)])
    (tmp_path / "labels.json").write_bytes('["grün", "rot"]'.encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8"):
        prepare(tmp_path)
    (tmp_path / "labels.json").write_bytes('\ufeff["grün", "rot"]'.encode())
    assert prepare(tmp_path).labels.names == ("grün", "rot")


def test_what_only_running_text_is_read_by(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "r.jsonl", [{"text": f"a {n}", "label": n % 2} for n in range(30)])
    with pytest.raises(UsageError, match="--column ROLE=NAME"):
        prepare(path, read=how_read("column=body"))


def test_a_missing_label_is_the_same_number_however_it_is_written() -> None:
    labels = ("0.0", "1.0", "-1.0")
    table = table_of(*({"text": f"a {n}", "label": labels[n % 3]} for n in range(60)))
    made = build(table, infer(table, no_label="-1"), read=how_read("no_label=-1"))
    assert made.labels.names == ("0", "1") and made.unlabelled == 20
