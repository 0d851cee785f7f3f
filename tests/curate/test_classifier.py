"""The classifier of quality: learned from a file, honest about how well, the same in any order."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from tests.curate.in_process import InProcess, batch_of, removed, run

from maskwright.base.errors import DataError, MaskwrightError
from maskwright.text.curate.steps.classifier import Settings, features_of, train_classifier

SUBJECTS = ["the enzyme", "a membrane", "the protein", "each sample", "the cell", "the tissue"]
VERBS = ["shows", "inhibits", "produces", "binds", "measures", "confirms"]
ADVERTS = ["buy now", "click here", "best price", "free offer", "subscribe today", "hot deal"]


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


def write(path: Path, rows: list[tuple[str, object]]) -> str:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerows([("text", "label"), *rows])
    return str(path)


ROWS: list[tuple[str, object]] = [
    row for n in range(60) for row in ((good_text(n), "yes"), (bad_text(n), "no"))
]
TEXTS = [good_text(n) for n in range(500, 540)] + [bad_text(n) for n in range(500, 540)]


@pytest.fixture
def examples(tmp_path: Path) -> str:
    return write(tmp_path / "judged.csv", ROWS)


def test_bad_texts_are_removed_and_the_quality_is_noted(examples: str) -> None:
    step = Settings(examples=examples, least=0.5)
    gone = removed(step, [batch_of(TEXTS)])
    assert gone == dict.fromkeys((f"d{n}" for n in range(40, 80)), "quality")
    (outcome,) = run(step, [batch_of(TEXTS)])
    quality = [float(q or 0) for q in outcome.notes["quality"]]
    assert min(quality[:40]) > 0.8 and max(quality[40:]) < 0.2
    # The control: with the classes exchanged the others go.
    other = removed(Settings(examples=examples, least=0.5, good_label="no"), [batch_of(TEXTS)])
    assert set(other) == {f"d{n}" for n in range(40)}


def test_without_a_limit_all_are_kept(examples: str) -> None:
    assert removed(Settings(examples=examples), [batch_of(TEXTS)]) == {}


def test_the_best_share_is_kept(examples: str) -> None:
    gone = removed(Settings(examples=examples, keep_share=0.25), [batch_of(TEXTS)])
    left = {f"d{n}" for n in range(80)} - set(gone)
    assert 20 <= len(left) <= 24 and left <= {f"d{n}" for n in range(40)}


def test_success_on_unseen_examples_is_reported(examples: str) -> None:
    corpus = InProcess([batch_of(TEXTS)])
    Settings(examples=examples).gather(corpus, None)
    (found,) = corpus.findings
    assert found.name == "quality-classifier" and "120 examples, 60" in found.evidence


def test_a_classifier_no_better_than_chance_is_refused(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    rows = [(good_text(n), ("yes", "no")[draw.integers(2)]) for n in range(120)]
    path = write(tmp_path / "judged.csv", rows)
    with pytest.raises(DataError, match="chance") as refusal:
        Settings(examples=path).gather(InProcess([batch_of(TEXTS)]), None)
    assert path in str(refusal.value.where) and refusal.value.do


def test_success_is_not_that_on_examples_it_has_learned() -> None:
    texts = [good_text(n) for n in range(100)]
    good = np.random.default_rng(5).random(100) < 0.5
    linear, trial = train_classifier(batch_of(texts), good)
    assert trial.area < 0.7
    own = linear.probabilities(features_of(batch_of(texts)))
    by_heart = np.mean((own > np.median(own)) == good)
    assert max(by_heart, 1 - by_heart) > 0.9  # the control: those that it learned it knows


def test_probabilities_are_calibrated() -> None:
    """A text's class depends on its share of adverts, so that the probability should be the share
    of good ones among texts of its probability."""

    def made(seed: int) -> tuple[list[str], np.ndarray]:
        draw = np.random.default_rng(seed)
        shares = draw.random(300)
        texts = [
            ". ".join(
                (ADVERTS if draw.random() < share else SUBJECTS)[draw.integers(6)]
                for _ in range(20)
            )
            for share in shares
        ]
        return texts, draw.random(300) > shares

    texts, good = made(1)
    linear, _ = train_classifier(batch_of(texts), good)
    texts, good = made(2)
    found = linear.probabilities(features_of(batch_of(texts)))
    for low in (0.0, 0.25, 0.5, 0.75):
        here = (found >= low) & (found < low + 0.25)
        assert here.sum() > 25
        assert good[here].mean() == pytest.approx(found[here].mean(), abs=0.2)


@pytest.mark.parametrize(
    ("names", "good"),
    [(("good", "bad"), "good"), (("Keep", "drop"), "Keep"), ((1, 0), "1"), (("true", "false"), "")],
)
def test_names_of_classes_that_say_it(
    names: tuple[object, object], good: str, tmp_path: Path
) -> None:
    rows = [(text, names[label == "no"]) for text, label in ROWS]
    gone = removed(Settings(examples=write(tmp_path / "j.csv", rows), least=0.5), [batch_of(TEXTS)])
    assert set(gone) == {f"d{n}" for n in range(40, 80)}


def test_bad_examples_are_refused(tmp_path: Path) -> None:
    def refused(rows: list[tuple[str, object]], **settings: str) -> MaskwrightError:
        path = write(tmp_path / "judged.csv", rows)
        with pytest.raises(MaskwrightError) as refusal:
            Settings(examples=path, **settings).gather(InProcess([batch_of(TEXTS)]), None)
        assert refusal.value.do
        return refusal.value

    unclear = refused([(t, "a" if n == "yes" else "b") for t, n in ROWS])
    assert unclear.where == "classifier.good_label" == refused(ROWS, good_label="yess").where
    three = [(t, ("a", "b", "c")[i % 3]) for i, (t, _) in enumerate(ROWS)]
    for rows in (ROWS[:20], three):
        assert str(refused(rows).where).startswith("classifier.examples, ")
    assert " and " in str(refused([*ROWS, (ROWS[0][0], "no")]).where)  # one text in both classes
    with pytest.raises(MaskwrightError, match=r"none\.csv"):
        Settings(examples=str(tmp_path / "none.csv")).gather(InProcess([batch_of(TEXTS)]), None)
