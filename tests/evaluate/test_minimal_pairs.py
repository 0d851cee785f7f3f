"""Minimal pairs: perfect, reversed and silent models; ties; parts; files; the real pairs; what the
command prints and saves."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from labelled.tables import write_rows
from maskwright.ask.evaluate import minimal_pairs
from maskwright.ask.evaluate.minimal_pairs import (
    Paradigm,
    judge,
    outcomes,
    pair_baselines,
    read_paradigms,
    select_part,
)
from maskwright.base.errors import DataError, UsageError
from maskwright.cli import main as cli
from maskwright.learn.pretrain import run
from maskwright.model.inference import likelihood as text_likelihood
from maskwright.model.opening.open import open_model
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from tinyrun import recipe, text_file

PARADIGMS = [
    Paradigm("one", ("the cat sits", "a dog runs"), ("the cat sit", "a dog run")),
    Paradigm("two", tuple(f"good {i}" for i in range(20)), tuple(f"bad {i}" for i in range(20))),
]


def perfect(sentences: Sequence[str]) -> np.ndarray:
    good = {s for p in PARADIGMS for s in p.good}
    return np.array([0.0 if s in good else -1.0 for s in sentences])


def test_a_perfect_model_gets_all_and_a_reversed_one_none() -> None:
    right, wrong = judge(PARADIGMS, perfect), judge(PARADIGMS, lambda s: -perfect(s))
    assert right.accuracies == {"one": 1.0, "two": 1.0} and right.mean == 1.0
    assert wrong.mean == 0.0 and wrong.bootstrap is None
    # The mean counts each paradigm once.
    signs = {"good": 1.0, "bad": 1.0}
    half = judge(PARADIGMS, lambda s: perfect(s) * [signs.get(x.split()[0], -1.0) for x in s])
    assert half.accuracies == {"one": 0.0, "two": 1.0} and half.mean == 0.5


def test_a_model_that_says_nothing_gets_one_half_wherever_the_good_one_stands() -> None:
    """The control of the rule for ties: with `>=` or `>` alone it would be 1 or 0."""
    silent = judge(PARADIGMS, lambda s: np.full(len(s), -3.7))
    assert silent.mean == 0.5 and silent.ties("two") == 20
    assert silent.bootstrap is None


def test_scores_that_float32_cannot_tell_apart_tie() -> None:
    good, bad = np.array([-50.0, -50.0, 0.0, 1e-9]), np.array([-50.00001, -50.01, 0.0, 0.0])
    assert outcomes(good, bad).tolist() == [0.5, 1.0, 0.5, 1.0]


def test_parts_are_disjoint_whole_and_of_the_declared_size() -> None:
    many = [Paradigm("p", tuple(map(str, range(105))), tuple(f"-{i}" for i in range(105)))]
    chosen, rest = select_part(many, "choosing")[0], select_part(many, "reporting")[0]
    assert len(chosen.good) == 10 and len(rest.good) == 95
    assert set(chosen.good) | set(rest.good) == set(many[0].good)
    assert all(b == f"-{g}" for g, b in zip(chosen.good, chosen.bad, strict=True))
    assert select_part(many, "all") == many and select_part(many, "choosing")[0] == chosen
    assert [int(g) for g in chosen.good] != list(range(10))
    with pytest.raises(UsageError, match="'choosing'"):
        select_part(many, "chosing")
    with pytest.raises(DataError, match="no pair"):
        select_part([Paradigm("few", ("a",), ("b",))], "choosing")


def test_baselines_by_hand() -> None:
    choice = TokenizerChoice(kind="wordpiece", vocabulary=80, min_frequency=1)
    tokenizer = train([s for p in PARADIGMS for s in (*p.good, *p.bad)] * 2, choice)
    counts = np.zeros(tokenizer.vocabulary_size, dtype=np.int64)
    counts[tokenizer.encode("good")] = 90
    found = pair_baselines(tokenizer, counts)
    assert judge(PARADIGMS, found["constant"]).mean == 0.5
    assert judge(PARADIGMS, found["unigram"]).accuracies["two"] == 1.0
    share = 1 / (90 + len(counts))
    ids = len(tokenizer.encode("the cat"))
    assert found["unigram"](["the cat"])[0] == pytest.approx(ids * np.log(share))
    assert found["length"](["the cat", "the"]).tolist() == [-ids, -1.0]
    assert "unigram" not in pair_baselines(tokenizer, None)


def test_a_folder_is_read_in_order_plain_or_compressed(tmp_path: Path) -> None:
    row = {"sentence_good": "a", "sentence_bad": "b", "UID": "x"}
    write_rows(tmp_path / "second.jsonl", [row])
    write_rows(tmp_path / "first.jsonl.gz", [row, row | {"sentence_good": "c"}])
    (tmp_path / "README.md").write_text("not pairs")
    paradigms = read_paradigms(tmp_path)
    assert [p.name for p in paradigms] == ["first", "second"]
    assert paradigms[0] == Paradigm("first", ("a", "c"), ("b", "b"))
    assert read_paradigms(tmp_path / "second.jsonl") == paradigms[1:]
    assert minimal_pairs.identity(paradigms) != minimal_pairs.identity(paradigms[::-1])
    write_rows(tmp_path / "second.jsonl.gz", [row])  # would take the other's place in the mean
    with pytest.raises(DataError):
        read_paradigms(tmp_path)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"sentence_good": "a"}, "sentence_bad"),
        ({"sentence_good": "a", "sentence_bad": ""}, "one empty sentence"),
        ({"sentence_good": 1, "sentence_bad": "b"}, "not a text"),
    ],
)
def test_rows_that_are_no_pairs_are_named(tmp_path: Path, row: dict[str, str], says: str) -> None:
    rows = [{"sentence_good": "a", "sentence_bad": "b"}, row]
    with pytest.raises(DataError, match=says) as caught:
        read_paradigms(write_rows(tmp_path / "p.jsonl", rows))
    assert re.search(r"p\.jsonl(:|, line )2", str(caught.value.where))


def test_a_folder_without_pairs_and_scores_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read_paradigms(tmp_path)
    (tmp_path / "one.txt").write_text("The cat sat.")
    with pytest.raises(UsageError, match=r"one\.txt"):
        read_paradigms(tmp_path / "one.txt")
    with pytest.raises(DataError):
        judge(PARADIGMS, lambda s: np.full(len(s), np.nan))


def test_the_real_pairs_and_their_lengths(real_data: Path) -> None:
    """Counted from the files: 20 paradigms of 1,000 pairs; a silent model gets exactly one half."""
    paradigms = read_paradigms(real_data / "blimp")
    assert len(paradigms) == 20 and {len(p.good) for p in paradigms} == {1000}
    assert not any(g == b for p in paradigms for g, b in zip(p.good, p.bad, strict=True))
    choice = TokenizerChoice(kind="byte-bpe", vocabulary=2000, style="gpt2")
    baselines = pair_baselines(train([s for p in paradigms for s in p.good], choice), None)
    silent, shorter = (judge(paradigms, baselines[n]) for n in ("constant", "length"))
    assert silent.mean == 0.5
    assert 0.3 < shorter.mean < 0.7 and shorter.mean != 0.5


# ------------------------------------------------------------------------------ a run
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
