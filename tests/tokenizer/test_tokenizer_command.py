"""`maskwright tokenizer`: refused before the work, and a report on what there is."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from maskwright.base.errors import OutputError
from maskwright.base.storage.commit import verify
from maskwright.cli.main import main
from maskwright.learn.pretrain import prepare
from maskwright.learn.pretrain.prepare import train_and_report
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from tokenizer.toy_tokenizers import prose, slow_wordpiece, trained


def run(texts: list[str], folder: Path, reading: ReadingOptions | None = None) -> Tokenizer:
    path = folder / "text.jsonl"
    rows = [json.dumps({"text": text}) for text in texts]
    path.write_text("\n".join([*rows, "{broken"] if reading else rows) + "\n")
    more = {} if reading is None else {"reading": reading}
    return train_and_report(
        [str(path)], folder / "out", kind="bpe", vocabulary=200, lowercase=False, **more
    )


@pytest.mark.parametrize("what", ["folder", "file", "link"])
def test_a_place_that_is_taken_is_refused_before_the_work(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    {"folder": out.mkdir, "file": out.touch, "link": lambda: out.symlink_to("nowhere")}[what]()
    with pytest.raises(OutputError) as at_the_end:
        trained("bpe").save(out)
    monkeypatch.setattr(prepare, "train_tokenizer", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(OutputError) as at_once:
        run(["the cat sat"], tmp_path)
    assert str(at_once.value) == str(at_the_end.value)


def test_a_free_place_is_trained_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of the test before."""
    monkeypatch.setattr(prepare, "train_tokenizer", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(["the cat sat"], tmp_path)


@pytest.mark.parametrize("texts", [["aa aa aa"], [prose()[0] * 20], list(prose(300))])
def test_the_report_has_figures(
    texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = run(texts, tmp_path)
    said = capsys.readouterr().out
    assert "nan" not in said and "–" not in said.splitlines()[-1]
    assert "0 bytes" not in said and " 0% of them" not in said
    assert Tokenizer.load(tmp_path / "out").fingerprint == made.fingerprint


def test_nothing_held_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare.CorpusText, "held_out", lambda self: iter(()))
    run(["the cat sat on the mat"] * 3, tmp_path)
    said = capsys.readouterr().out
    assert "measured on the training text" in said and "nan" not in said


def test_skipped_rows_are_listed_beside_the_folder(tmp_path: Path) -> None:
    run(list(prose(300)), tmp_path, ReadingOptions(on_bad="skip"))
    verify(tmp_path / "out")
    listed = (tmp_path / "out-rejects" / "rejects.jsonl").read_text().splitlines()
    assert len(listed) == 1


def test_wordpiece_says_how_it_was_trained_and_is_trained_as_published_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text("\n\n".join(prose(200)), encoding="utf-8")
    told: dict[str, str] = {}
    for name, options in {"floored": [], "published": ["--wordpiece", "published"]}.items():
        command = ["tokenizer", "--text", str(tmp_path / "text.txt"), "--vocabulary", "400"]
        assert main([*command, *options, "--out", str(tmp_path / name)]) == 0
        told[name] = capsys.readouterr().out
    assert "a floor that falls to 2" in told["floored"]
    assert "the other training method: --wordpiece published" in told["floored"]
    assert "as published" in told["published"] and "--wordpiece floored" in told["published"]
    made = {name: Tokenizer.load(tmp_path / name) for name in told}
    assert made["floored"].vocabulary != made["published"].vocabulary
    # The published score by the plain trainer, on the words that are counted.
    pairs = [["low", "low", "lower", "newest", "newest", "widest"]] * 3
    words = Counter(word for row in pairs for word in row)
    choice = TokenizerChoice(kind="wordpiece", vocabulary=60, min_frequency=2)
    learned = train([" ".join(row) for row in pairs], choice)
    for left, right in slow_wordpiece(dict(words), 4):
        assert learned.id(left + right.removeprefix("##")) is not None
    for wrong in (["--wordpiece", "publisht"], ["--kind", "bpe", "--wordpiece", "published"]):
        command = ["tokenizer", "--text", str(tmp_path / "text.txt"), *wrong]
        assert main([*command, "--out", str(tmp_path / "x")]) == 64
