"""The classifier of quality: learned from a file, honest about how well, the same in any order."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from curate.in_process import InProcess, batch_of, removed, run
from maskwright.ask.curate.steps.classifier import Settings, features_of, train_classifier
from maskwright.base.errors import DataError, MaskwrightError

SUBJECTS = ["the enzyme", "a membrane", "the protein", "each sample", "the cell", "the tissue"]
VERBS = ["shows", "inhibits", "produces", "binds", "measures", "confirms"]
ADVERTS = ["buy now", "click here", "best price", "free offer", "subscribe today", "hot deal"]
Rows = list[tuple[str, object]]


def good_text(seed: int) -> str:
    draw = np.random.default_rng(seed)
    return " ".join(
        f"{SUBJECTS[draw.integers(6)]} {VERBS[draw.integers(6)]} {SUBJECTS[draw.integers(6)]}."
        for _ in range(6)
    )


def bad_text(seed: int) -> str:
    draw = np.random.default_rng(10_000 + seed)
    parts = [ADVERTS[draw.integers(6)], SUBJECTS[draw.integers(6)]]
    return "! ".join(parts[int(draw.integers(4) == 0)] for n in range(12))


def write(path: Path, rows: Rows) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return str(path)


ROWS: Rows = [row for n in range(60) for row in ((good_text(n), "yes"), (bad_text(n), "no"))]
BATCH = batch_of([text(n) for text in (good_text, bad_text) for n in range(500, 540)])
GOOD, BAD = ({f"d{n}" for n in range(a, a + 40)} for a in (0, 40))


@pytest.fixture
def examples(tmp_path: Path) -> str:
    return write(tmp_path / "judged.csv", ROWS)


def test_bad_texts_are_removed_and_the_quality_is_noted(examples: str) -> None:
    step = Settings(examples=examples, least=0.5)
    assert removed(step, [BATCH]) == dict.fromkeys(BAD, "quality")
    (outcome,) = run(step, [BATCH])
    quality = [float(q or 0) for q in outcome.notes["quality"]]
    assert min(quality[:40]) > 0.8 and max(quality[40:]) < 0.2
    # The control: with the classes exchanged the others go, and without a limit none.
    assert set(removed(Settings(examples=examples, least=0.5, good_label="no"), [BATCH])) == GOOD
    assert removed(Settings(examples=examples), [BATCH]) == {}


def test_the_best_share_is_kept(examples: str) -> None:
    gone = set(removed(Settings(examples=examples, keep_share=0.25), [BATCH]))
    assert gone >= BAD and 20 <= len(GOOD - gone) <= 24


def test_success_is_not_that_on_examples_it_has_learned() -> None:
    batch = batch_of([good_text(n) for n in range(100)])
    good = np.random.default_rng(5).random(100) < 0.5
    linear, trial = train_classifier(batch, good)
    assert trial.area < 0.7
    probabilities = linear.probabilities(features_of(batch))
    by_heart = np.mean((probabilities > np.median(probabilities)) == good)
    assert max(by_heart, 1 - by_heart) > 0.9  # the control: those that it learned it knows


def test_probabilities_are_calibrated() -> None:
    """A text's class depends on its share of adverts, so that the probability should be the share
    of good ones among texts of its probability."""

    def texts_of(draw: np.random.Generator) -> tuple[list[str], np.ndarray]:
        shares = draw.random(300)
        kinds = [[ADVERTS if draw.random() < s else SUBJECTS for _ in range(20)] for s in shares]
        texts = [". ".join(words[draw.integers(6)] for words in row) for row in kinds]
        return texts, draw.random(300) > shares

    texts, good = texts_of(np.random.default_rng(1))
    linear, _ = train_classifier(batch_of(texts), good)
    texts, good = texts_of(np.random.default_rng(2))
    probabilities = linear.probabilities(features_of(batch_of(texts)))
    for low in (0.0, 0.25, 0.5, 0.75):
        within = (probabilities >= low) & (probabilities < low + 0.25)
        assert within.sum() > 25
        assert good[within].mean() == pytest.approx(probabilities[within].mean(), abs=0.2)


@pytest.mark.parametrize("names", [("good", "bad"), ("Keep", "drop"), (1, 0), ("true", "false")])
def test_names_of_classes_that_say_it(names: tuple[object, object], tmp_path: Path) -> None:
    rows = [(text, names[label == "no"]) for text, label in ROWS]
    gone = removed(Settings(examples=write(tmp_path / "j.csv", rows), least=0.5), [BATCH])
    assert set(gone) == BAD


def test_bad_examples_are_refused(tmp_path: Path) -> None:
    def refused(rows: Rows, **settings: str) -> MaskwrightError:
        path = write(tmp_path / "judged.csv", rows)
        with pytest.raises(MaskwrightError) as refusal:
            Settings(examples=path, **settings).gather(InProcess([BATCH]), None)
        assert refusal.value.do
        return refusal.value

    unclear = refused([(t, "a" if n == "yes" else "b") for t, n in ROWS])
    assert unclear.where == "classifier.good_label" == refused(ROWS, good_label="yess").where
    three = [(t, ("a", "b", "c")[i % 3]) for i, (t, _) in enumerate(ROWS)]
    for rows in (ROWS[:20], three):
        assert str(refused(rows).where).startswith("classifier.examples, ")
    assert " and " in str(refused([*ROWS, (ROWS[0][0], "no")]).where)  # one text in both classes
    labels = np.random.default_rng(3).integers(0, 2, 120)
    by_chance = refused([(good_text(n), ("yes", "no")[label]) for n, label in enumerate(labels)])
    assert isinstance(by_chance, DataError) and "chance" in str(by_chance)
    assert str(tmp_path / "judged.csv") in str(by_chance.where)
    with pytest.raises(MaskwrightError, match=r"none\.csv"):
        Settings(examples=str(tmp_path / "none.csv")).gather(InProcess([BATCH]), None)
