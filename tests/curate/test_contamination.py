"""Decontamination: what counts as a shared text, what is told of each file, what is cut."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curate.dirty import dirty_texts
from curate.in_process import InProcess, batch_of, removed, run
from maskwright.text.curate.steps.contamination import Settings, TextSets

LONG = "the quick brown fox jumps over the lazy dog while fourteen other animals look on"
SHORT = "how far is it to the sea"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """An evaluation file of three rows: a long text, a short one, one too short."""
    path = tmp_path / "test.jsonl"
    texts = [LONG, SHORT + "?", "Yes."]
    lines = [json.dumps({"sentence1": text, "label": n}) for n, text in enumerate(texts)]
    path.write_text("\n".join(lines) + "\n")
    return path


def settings(path: Path, **others: Any) -> Settings:
    return Settings(evaluation=(str(path),), **others)


@pytest.mark.parametrize(
    "text, contaminated",
    [
        (f"Before it. {LONG.upper()}! After it.", True),
        ("fox " + " ".join(LONG.split()[:13]) + " behaves otherwise", True),
        ("fox " + " ".join(LONG.split()[:12]) + " behaves otherwise", False),
        (f"He asked me something. {SHORT.capitalize()}? I did not know.", True),
        (f"A: {SHORT}\nB: no idea", True),
        (f"I do not know {SHORT} from here", False),  # not a sentence of its own
        (f"{SHORT} from here?", False),
        ("Yes. Yes.\nYes.", False),
        ("nothing of these at all", False),
    ],
)
def test_what_is_found(rows: Path, text: str, contaminated: bool) -> None:
    found = removed(settings(rows), [batch_of(["first of all", text])])
    assert found == ({"d1": "contaminated"} if contaminated else {})


@pytest.mark.parametrize(
    "text, letters",
    [
        (
            "中华人民共和国第十四届全国人民代表大会第一次会议在北京人民大会堂开幕代表们听取了报告",
            26,
        ),
        ("มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิต่างมีเหตุผลและมโนธรรมและควรปฏิบัติต่อกัน", 52),
    ],
)
def test_letters_are_no_words_in_scripts_without_spaces(
    tmp_path: Path, text: str, letters: int
) -> None:
    path = tmp_path / "test.txt"
    path.write_text(text + "\n" + "ใช่ 是的\n")
    words = batch_of([text]).words
    assert words.counts[0] > letters
    shared, fewer = (text[: words.ends[n - 1]] for n in (letters, letters - 1))
    batch = batch_of([f"{fewer}夏天 ", f"夏天{shared}", f"「{text}」"])
    assert set(removed(settings(path), [batch])) == {"d1", "d2"}


def test_the_removal_names_row_and_place(rows: Path) -> None:
    text = f"So. {SHORT}? {LONG}."
    (outcome,) = run(settings(rows), [batch_of([text])])
    (removal,) = outcome.removals
    assert removal.value == f"{rows}, line 1, sentence1 and 1 further text"
    # Both stand side by side: one place.
    assert removal.where == f"characters 4 to {len(text) - 1}"


def test_every_file_is_told_of(rows: Path, tmp_path: Path) -> None:
    clean = tmp_path / "other.txt"
    clean.write_text("A text of nine words that nobody else has.\n")
    step = Settings(evaluation=(str(rows), str(clean)))
    corpus = InProcess([batch_of([LONG, "x " + LONG, "free text"]), batch_of([SHORT])])
    step.gather(corpus, step.open())
    dirty, free = corpus.findings
    assert re.match(r"2 \D*3 ", dirty.what) and re.findall(r"\d+", dirty.evidence) == ["3", "1"]
    assert re.match(r"0 \D*1 ", free.what) and not free.evidence


def test_a_file_of_short_texts_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "test.csv"
    path.write_text("text,label\nyes,1\nno,0\n")
    corpus = InProcess([batch_of(["Yes.", "no"])])
    step = settings(path)
    assert step.gather(corpus, step.open()).num_rows == 0
    assert [found.severity for found in corpus.findings] == ["warning"]


def test_shared_words_are_cut_out(rows: Path) -> None:
    last = "And kept last."
    text = f"Kept first.\n{LONG}.\nKept next: {SHORT}? {last}"
    (outcome,) = run(settings(rows, action="cut"), [batch_of(["free", text])])
    assert outcome.texts == ["free", f"Kept first.\nKept next: {last}"]
    assert [change.where for change in outcome.changes] == [
        f"characters {text.index(LONG)} to {text.index(LONG) + len(LONG)}",
        f"characters {text.index(SHORT)} to {text.index(SHORT) + len(SHORT)}",
    ]
    assert not outcome.removals


@pytest.mark.parametrize("name", ["words.conllu", "squad.json.gz"])
def test_nested_texts_and_lists_of_words_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "words.conllu":
        words = enumerate(LONG.split(), 1)
        path.write_text(
            "".join(f"{n}\t{w}\t{w}\tNOUN\t_\t_\t0\troot\t_\t_\n" for n, w in words) + "\n"
        )
    else:
        answers = [{"text": "fox", "answer_start": 16}]
        questions = [{"id": "1", "question": "Who jumps?", "answers": answers}]
        data = {"data": [{"title": "t", "paragraphs": [{"context": LONG, "qas": questions}]}]}
        path.write_bytes(gzip.compress(json.dumps(data).encode()))
    assert removed(settings(path), [batch_of([LONG, "free"])]) == {"d0": "contaminated"}


def test_a_folder_with_names_of_classes(rows: Path) -> None:
    (rows.parent / "labels.json").write_text('["no", "yes"]')
    assert removed(settings(rows.parent), [batch_of([LONG])]) == {"d0": "contaminated"}


def test_planted_rows_are_found_in_dirty_text(real_data: Path) -> None:
    batch, truth = dirty_texts(real_data)
    planted = {name for name, row in truth.items() if row["flags"]["contaminated"]}
    files = {truth[name]["contaminated_with"]["file"] for name in planted}
    step = Settings(evaluation=tuple(str(real_data / file) for file in sorted(files)))
    found = set(removed(step, [batch]))
    assert len(found & planted) >= 0.95 * len(planted)
    assert len(found & planted) >= 0.95 * len(found)


# ------------------------------------------------------------------------------ beside plain sets
def pairs_one_by_one(documents: list[str], texts: list[str], overlap: int) -> list[set[int]]:
    """Of each document the texts with which it shares `overlap` words, by comparing all pairs."""

    def runs(text: str) -> set[tuple[str, ...]]:
        parts = text.lower().replace(".", " ").split()
        return {tuple(parts[n : n + overlap]) for n in range(len(parts) - overlap + 1)}

    sought = [runs(text) for text in texts]
    return [
        {number for number, those in enumerate(sought) if runs(text) & those} for text in documents
    ]


@pytest.mark.parametrize("seed", range(6))
def test_shared_prompts_give_what_pairs_give(tmp_path: Path, seed: int) -> None:
    """Prompts that many texts begin with, in turn or nested, and documents with several texts."""
    draw = random.Random(seed)
    words = [f"w{n}" for n in range(30)]

    def some(count: int) -> str:
        return " ".join(draw.choices(words, k=count))

    prompts = [some(9) for _ in range(3)]
    prompts.append(f"{prompts[0]} {some(4)}")
    texts = [
        f"{' '.join(draw.sample(prompts, draw.randint(0, 2)))} {some(draw.randint(6, 12))}"
        for _ in range(60)
    ]
    documents = [". ".join([some(4), *draw.sample(texts, draw.randint(0, 3))]) for _ in range(40)]
    files = []
    for part in (0, 1):  # the rows of two files
        path = tmp_path / f"{part}.jsonl"
        rows = [json.dumps({"text": text}) for text in texts[part * 30 : part * 30 + 30]]
        path.write_text("\n".join(rows))
        files.append(str(path))
    step = Settings(evaluation=tuple(files), overlap=6, shortest=6)
    batches = [batch_of(documents[:25]), batch_of(documents[25:])]
    corpus = InProcess(batches)
    known = step.gather(corpus, step.open()).sort_by("document").to_pydict()
    pairs = pairs_one_by_one(documents, texts, 6)
    hit = [number for number, own in enumerate(pairs) if own]
    places = [(number >> 32) * 25 + (number & 0xFFFFFFFF) for number in known["document"]]
    assert places == hit and any(len(own) > 3 for own in pairs)
    assert known["text"] == [min(pairs[number]) for number in hit]
    assert known["texts"] == [len(pairs[number]) for number in hit]
    for part, finding in enumerate(corpus.findings):
        rows = {one - part * 30 for own in pairs for one in own if one // 30 == part}
        holders = sum(any(one // 30 == part for one in own) for own in pairs)
        assert finding.what.startswith(f"{len(rows)} of 30 rows")
        assert finding.evidence == f"in {holders} documents"


def test_a_union_that_forgets_a_set_is_seen() -> None:
    """The control: two sets with a text in common, counted apart, give one too many."""
    sets = TextSets(np.array([0, 3, 5, 6]), np.array([0, 1, 2, 2, 3, 4]))
    assert sets.union_sizes([(0, 1), (0,), (0, 1, 2), (1,), ()]) == [4, 3, 5, 2, 0]
    assert len(sets.of(0)) + len(sets.of(1)) == 5
