"""Minimal pairs scored with a small run: the table, the figures, the page."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from labelled.tables import write_rows
from maskwright.ask.evaluate import minimal_pairs
from maskwright.base.errors import DataError
from maskwright.cli import main as cli
from maskwright.learn.pretrain import run
from maskwright.model.inference import likelihood as text_likelihood
from maskwright.model.opening.open import open_model
from tinyrun import recipe, text_file

PAIRS = [("The cat sat on the mat.", "The cat sat on mat the."), ("One dog ran.", "Dog one ran.")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and a folder of two paradigms."""
    folder = tmp_path_factory.mktemp("made")
    run.pretrain(recipe(text_file(folder), steps=4), folder / "run", stream=io.StringIO())
    rows = [{"sentence_good": good, "sentence_bad": bad} for good, bad in PAIRS]
    write_rows(folder / "pairs" / "first.jsonl", rows)
    write_rows(folder / "pairs" / "second.jsonl", rows * 10)
    return folder / "run", folder / "pairs"


def test_the_command_prints_saves_and_shows(
    made: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, data = made
    assert cli.main(["evaluate", str(folder), "--data", str(data)]) == 0
    said = capsys.readouterr().out
    assert "mean over paradigms" in said and "unigram" in said and "constant" in said
    paradigms = minimal_pairs.read_paradigms(data)
    plain = json.loads(minimal_pairs.figures_path(folder, "masked", "all", paradigms).read_text())
    loaded = open_model(folder)
    tokenizer = loaded.tokenizer
    result = minimal_pairs.score(loaded.network, tokenizer, paradigms, "masked")
    assert plain["mean"] == pytest.approx(result.mean)
    good, bad = text_likelihood.scores(loaded.network, tokenizer, PAIRS[0], "masked")
    assert plain["paradigms"]["first"]["outcomes"][0] == ("1" if good > bad else "0")
    assert plain["baselines"]["constant"] == 0.5
    page = (folder / "report.html").read_text()
    assert "Minimal pairs, pairs, scored masked" in page and "mean over paradigms" in page


def test_saved_outcomes_are_read_back_and_only_for_the_same_pairs(
    made: tuple[Path, Path], tmp_path: Path
) -> None:
    folder, data = made
    how = "masked-within-word"
    result = minimal_pairs.evaluate_pairs(folder, data, tmp_path, how=how, say=lambda text: None)
    paradigms = minimal_pairs.read_paradigms(data)
    path = minimal_pairs.figures_path(tmp_path, how, "all", paradigms)
    assert path != minimal_pairs.figures_path(tmp_path, how, "all", paradigms[:1])
    fingerprint = open_model(folder).fingerprint
    again = minimal_pairs.load(path, paradigms, fingerprint)
    assert again is not None and again.accuracies == result.accuracies
    assert minimal_pairs.load(path, paradigms[:1], fingerprint) is None
    assert minimal_pairs.load(path, paradigms, "another model's hash") is None
    assert minimal_pairs.load(tmp_path / "none.json", paradigms, fingerprint) is None
    path.write_text("{}")
    with pytest.raises(DataError):
        minimal_pairs.load(path, paradigms, fingerprint)


def test_options_that_would_do_nothing_are_refused(
    made: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, data = made
    for options in (
        "--how causal",
        "--part choosing",
        "--column text=foo",
        f"--out {tmp_path / 'out'}",
        f"--data {data} --column text=foo",
        f"--data {data} --read encoding=latin-1",
    ):
        assert cli.main(["evaluate", str(folder), *options.split()]) == 64
        printed = capsys.readouterr().err
        assert "has no effect here" in printed and options.split()[-2] in printed
    assert not (tmp_path / "out").exists()


def test_mistakes_are_answered(made: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder, data = made
    evaluate = ["evaluate", str(folder), "--data"]
    assert cli.main([*evaluate, str(data), "--how", "causl"]) == 64
    assert "'causal'" in capsys.readouterr().err
    assert cli.main([*evaluate, "nowhere"]) == 64
    for options in (["--how", "replaced"], ["--part", "choosing"]):
        assert cli.main([*evaluate, str(data), *options]) == 65
