"""Before and after: what each small model learns from, what judges them, and the verdict."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from curate.folders import write_rows
from maskwright.ask.evaluate import prove_curation as proving
from maskwright.base.errors import DataError, UsageError
from maskwright.text.curate.curation import curate, work_folder
from maskwright.text.curate.recipe import make

pytest.importorskip("daft")
WORDS = [
    *("river", "stone", "letter", "window", "garden", "winter"),
    *("judge", "answer", "bridge", "paper", "silver", "candle"),
]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 texts with an id of their own, half of them twice and some of them nearly."""
    folder, rows = tmp_path_factory.mktemp("prove"), []
    for number in range(400):
        text = f"{number} {' '.join(random.Random(number).choices(WORDS, k=40))}"
        texts = [text, *[text.upper()] * (number % 2), *[text + " again"] * (number % 5 == 0)]
        rows += [{"id": f"{n}-{number}", "text": text} for n, text in enumerate(texts)]
    random.Random(7).shuffle(rows)
    raw = write_rows(folder / "text.jsonl", rows)
    curate(raw, folder / "clean", make(["exact-duplicates", "near-duplicates"]))
    return folder / "clean"


def numbers(path: Path) -> list[str]:
    """Which of the 400 texts a file holds."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"].split()[0] for line in lines]


def test_no_model_learns_from_a_copy_of_what_judges_it(
    clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proving, "HELD_OUT_SHARE", 0.1)
    counts = proving._write_texts(clean, tmp_path, ())
    before, after, judge, kept = (
        numbers(tmp_path / f"{n}.jsonl") for n in ("before", "after", "held-out", "held-out-kept")
    )
    assert counts == (len(before), len(after), len(judge), len(kept)) and len(judge) >= 20
    assert 0 < len(kept) < len(judge) and set(kept) <= set(judge)
    assert not set(judge) & set(after) and not set(judge) & set(before)
    assert set(before) == set(after) and len(before) > 1.4 * len(after)
    monkeypatch.setattr(proving, "_find_copies", lambda clean, chosen: set())
    proving._write_texts(clean, tmp_path / "control", ())
    assert set(judge) & set(numbers(tmp_path / "control" / "before.jsonl"))


def test_what_judges_is_drawn_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proving, "HELD_OUT_SHARE", 0.2)
    draw = random.Random(3)
    sizes = [draw.choice((60, 200)) for _ in range(300)]
    texts = [f"{n} {' '.join(draw.choices(WORDS, k=size))}" for n, size in enumerate(sizes)]
    raw = write_rows(tmp_path / "text.jsonl", [{"text": text} for text in texts])
    settings = {"gopher-quality": {"max_doc_words": 130, "min_stop_words": 0}}
    curate(raw, tmp_path / "clean", make(["gopher-quality"], settings))
    proving._write_texts(tmp_path / "clean", tmp_path / "texts", ())

    def long(name: str) -> float:
        drawn = numbers(tmp_path / "texts" / f"{name}.jsonl")
        return sum(sizes[int(number)] > 130 for number in drawn) / len(drawn)

    assert abs(long("held-out") - sizes.count(200) / 300) < 0.15
    assert abs(long("before") - sizes.count(200) / 300) < 0.1
    assert long("held-out-kept") == long("after") == 0  # the control: what is drawn of the rest


def test_the_verdict_is_that_of_the_interval() -> None:
    def verdict(after: list[float]) -> str:
        before = {0: 2.0, 1: 2.01, 2: 1.99}
        return proving._proof(before, dict(enumerate(after)), (3, 2, 1), "b", "r").sentence

    assert "pays" in verdict([1.5, 1.51, 1.49]) and "costs" in verdict([2.5, 2.51, 2.49])
    assert "no difference" in verdict([2.2, 1.8, 2.0]) and "no verdict" in verdict([1.0])


def test_refusals(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError):
        proving.prove(tmp_path)
    monkeypatch.setattr(proving, "HELD_OUT_SHARE", 0.001)  # which are drawn hangs on their path
    with pytest.raises(DataError):
        proving._write_texts(clean, tmp_path / "few", ())
    work = work_folder(clean)
    work.rename(work.with_name("elsewhere"))
    with pytest.raises(UsageError, match="is gone"):
        proving._write_texts(clean, tmp_path / "lost", ())
    work.with_name("elsewhere").rename(work)


@pytest.mark.proof
def test_a_proof_from_beginning_to_end(clean: Path, tmp_path: Path) -> None:
    (tmp_path / "judge.txt").write_text("\n\n".join(" ".join(WORDS) for _ in range(30)))
    small = ["rows.length=64", "training.batch=8", "tokenizer.vocabulary=400"]
    options = {"budget": "tokens=2e4", "seeds": 2, "held_out": [tmp_path / "judge.txt"]}
    proof = proving.prove(clean, tmp_path / "out", settings=small, **options)
    saved = json.loads((tmp_path / "out" / "proof.json").read_text())
    assert saved["sentence"] == proof.sentence and len(proof.after) == 2
    assert proof.survivors is None  # the text that judges is the user's
