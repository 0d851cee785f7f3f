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
    monkeypatch.setattr(prepare, "train_tokenizer", lambda *_: 1 / 0)
    with pytest.raises(OutputError) as at_once:
        run(["the cat sat"], tmp_path)
    assert str(at_once.value) == str(at_the_end.value)
    out.rename(tmp_path / "elsewhere")
    with pytest.raises(ZeroDivisionError):  # the control
        run(["the cat sat"], tmp_path)


@pytest.mark.parametrize("texts", [["aa aa aa"], [prose()[0] * 20], list(prose(300))])
def test_the_report_has_figures(
    texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = run(texts, tmp_path)
    output = capsys.readouterr().out
    assert "nan" not in output and "–" not in output.splitlines()[-1]
    assert "0 bytes" not in output and " 0% of them" not in output
    assert Tokenizer.load(tmp_path / "out").fingerprint == tokenizer.fingerprint


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
    command = ["tokenizer", "--text", str(tmp_path / "text.txt"), "--vocabulary", "400"]
    vocabularies = []
    for options, other in (([], "published"), (["--wordpiece", "published"], "floored")):
        out = tmp_path / f"not-{other}"
        assert main([*command, *options, "--out", str(out)]) == 0
        assert f"--wordpiece {other}" in capsys.readouterr().out
        vocabularies.append(Tokenizer.load(out).vocabulary)
    assert vocabularies[0] != vocabularies[1]
    # The published score by the plain trainer, on the words that are counted.
    pairs = [["low", "low", "lower", "newest", "newest", "widest"]] * 3
    words = Counter(word for row in pairs for word in row)
    choice = TokenizerChoice(kind="wordpiece", vocabulary=60, min_frequency=2)
    learned = train([" ".join(row) for row in pairs], choice)
    for left, right in slow_wordpiece(dict(words), 4):
        assert learned.id(left + right.removeprefix("##")) is not None
    for wrong in (["--wordpiece", "publisht"], ["--kind", "bpe", "--wordpiece", "published"]):
        assert main([*command, *wrong, "--out", str(tmp_path / "x")]) == 64
