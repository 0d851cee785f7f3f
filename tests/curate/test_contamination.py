"""Decontamination: what counts as a shared text, what is told of each file, what is cut."""

from __future__ import annotations

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from curate.folders import write_rows
from curate.in_process import InProcess, batch_of, removed, run
from maskwright.text.curate.steps.contamination import Settings

LONG = "the quick brown fox jumps over the lazy dog while fourteen other animals look on"
SHORT = "how far is it to the sea"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """An evaluation file of three rows: a long text, a short one, one too short."""
    texts = [LONG, SHORT + "?", "Yes."]
    lines = [{"sentence1": text, "label": n} for n, text in enumerate(texts)]
    return write_rows(tmp_path / "test.jsonl", lines)


def settings(path: Path, **others: Any) -> Settings:
    return Settings(evaluation=(str(path),), **others)


@pytest.mark.parametrize(
    ("text", "contaminated"),
    [
        (f"Before it. {LONG.upper()}! After it.", True),
        ("fox " + " ".join(LONG.split()[:13]) + " behaves otherwise", True),
        ("fox " + " ".join(LONG.split()[:12]) + " behaves otherwise", False),
        (f"He asked me something. {SHORT.capitalize()}? I did not know.", True),
        (f"A: {SHORT}\nB: no idea", True),
        (f"I do not know {SHORT} from here", False),  # not a sentence of its own
        (f"{SHORT} from here?", False),
        ("Yes. Yes.\nYes.", False),
    ],
)
def test_what_is_found(rows: Path, text: str, contaminated: bool) -> None:
    gone = removed(settings(rows), [batch_of(["first of all", text])])
    assert gone == ({"d1": "contaminated"} if contaminated else {})


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("中华人民共和国第十四届全国人民代表大会第一次会议在北京人民大会堂开幕", 26),
        ("มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิต่างมีเหตุผลและมโนธรรม", 52),
    ],
)
def test_letters_of_unspaced_scripts_are_no_words(tmp_path: Path, text: str, letters: int) -> None:
    path = tmp_path / "test.txt"
    path.write_text(text + "\n" + "ใช่ 是的\n")
    words = batch_of([text]).words
    assert words.counts[0] > letters
    shared, fewer = (text[: words.ends[n - 1]] for n in (letters, letters - 1))
    batch = batch_of([f"{fewer}夏天 ", f"夏天{shared}", f"「{text}」"])
    assert set(removed(settings(path), [batch])) == {"d1", "d2"}


def test_every_file_is_told_of(rows: Path, tmp_path: Path) -> None:
    clean, short = tmp_path / "other.txt", tmp_path / "test.csv"
    clean.write_text("A text of nine words that nobody else has.\n")
    short.write_text("text,label\nyes,1\nno,0\n")
    step = Settings(evaluation=(str(rows), str(clean), str(short)))
    corpus = InProcess([batch_of([LONG, "x " + LONG, "free text", "Yes."]), batch_of([SHORT])])
    assert step.gather(corpus, step.open()).num_rows == 3
    dirty, free, too_short = corpus.findings
    assert re.match(r"2 \D*3 ", dirty.what) and re.findall(r"\d+", dirty.evidence) == ["3", "1"]
    assert re.match(r"0 \D*1 ", free.what) and not free.evidence
    assert too_short.severity == "warning" != free.severity


def test_shared_words_are_cut_out(rows: Path) -> None:
    text = f"Kept first.\n{LONG}.\nKept next: {SHORT}? And kept last."
    (outcome,) = run(settings(rows, action="cut"), [batch_of(["free", text])])
    assert outcome.texts == ["free", "Kept first.\nKept next: And kept last."]
    assert [change.where for change in outcome.changes] == [
        f"characters {text.index(shared)} to {text.index(shared) + len(shared)}"
        for shared in (LONG, SHORT)
    ]
    assert not outcome.removals


@pytest.mark.parametrize("name", ["words.conllu", "squad.json.gz", "folder"])
def test_nested_texts_lists_of_words_and_folders_are_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "words.conllu":
        words = enumerate(LONG.split(), 1)
        lines = "".join(f"{n}\t{w}\t{w}\tNOUN\t_\t_\t0\troot\t_\t_\n" for n, w in words)
        path.write_text(lines + "\n")
    elif name == "squad.json.gz":
        answers = [{"text": "fox", "answer_start": 16}]
        questions = [{"id": "1", "question": "Who jumps?", "answers": answers}]
        data = {"data": [{"title": "t", "paragraphs": [{"context": LONG, "qas": questions}]}]}
        path.write_bytes(gzip.compress(json.dumps(data).encode()))
    else:
        write_rows(path / "test.jsonl", [{"text": LONG, "label": 0}])
        (path / "labels.json").write_text('["no", "yes"]')
    assert removed(settings(path), [batch_of([LONG, "free"])]) == {"d0": "contaminated"}


# ------------------------------------------------------------------------------ beside plain sets
def pairs_one_by_one(documents: list[str], texts: list[str], overlap: int) -> list[set[int]]:
    """Of each document the texts with which it shares `overlap` words, by comparing all pairs."""

    def runs(text: str) -> set[tuple[str, ...]]:
        words = text.lower().replace(".", " ").split()
        return {tuple(words[n : n + overlap]) for n in range(len(words) - overlap + 1)}

    sought = [runs(text) for text in texts]
    return [{n for n, those in enumerate(sought) if runs(text) & those} for text in documents]


@pytest.mark.parametrize("seed", range(6))
def test_shared_prompts_give_what_pairs_give(tmp_path: Path, seed: int) -> None:
    """Prompts that many texts begin with, in turn or nested, and documents with several texts."""
    draw = random.Random(seed)

    def some(count: int) -> str:
        return " ".join(draw.choices([f"w{n}" for n in range(30)], k=count))

    prompts = [some(9) for _ in range(3)]
    prompts.append(f"{prompts[0]} {some(4)}")
    texts = [
        f"{' '.join(draw.sample(prompts, draw.randint(0, 2)))} {some(draw.randint(6, 12))}"
        for _ in range(60)
    ]
    documents = [". ".join([some(4), *draw.sample(texts, draw.randint(0, 3))]) for _ in range(40)]
    files = [
        write_rows(tmp_path / f"{n}.jsonl", [{"text": text} for text in texts[n * 30 :][:30]])
        for n in (0, 1)
    ]
    step = Settings(evaluation=tuple(map(str, files)), overlap=6, shortest=6)
    corpus = InProcess([batch_of(documents[:25]), batch_of(documents[25:])])
    table = step.gather(corpus, step.open()).sort_by("document").to_pydict()
    pairs = pairs_one_by_one(documents, texts, 6)
    hit = [number for number, numbers in enumerate(pairs) if numbers]
    rows = [(number >> 32) * 25 + (number & 0xFFFFFFFF) for number in table["document"]]
    assert rows == hit and any(len(numbers) > 3 for numbers in pairs)
    assert table["text"] == [min(pairs[number]) for number in hit]
    for file, finding in enumerate(corpus.findings):
        of_file = [{n for n in numbers if n // 30 == file} for numbers in pairs]
        assert finding.what.startswith(f"{len(set().union(*of_file))} of 30 rows")
        assert finding.evidence == f"in {sum(map(bool, of_file))} documents"
