"""The estimated share of wrong labels, in simulations of known probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from maskwright.ask.doctor.label_errors import RATIO, estimate_noise
from maskwright.ask.doctor.repetitions import near_copies


def drawn(seed: int, classes: int, share: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Log probabilities of 500 rows up to a constant and a factor, and labels drawn by them, of
    which `share` are replaced."""
    generator = np.random.default_rng(seed)
    odds = generator.normal(size=(500, classes)) * 3
    labels = (odds + generator.gumbel(size=odds.shape)).argmax(1)
    wrong = generator.random(500) < share
    labels[wrong] = (labels[wrong] + generator.integers(1, classes, size=wrong.sum())) % classes
    return odds * 1.7, labels


@pytest.mark.parametrize("classes", [2, 5])
def test_labels_that_follow_their_probabilities_are_not_called_wrong(classes: int) -> None:
    ratios = [estimate_noise(*drawn(seed, classes, 0.0)).ratio for seed in range(60)]
    assert max(ratios) < RATIO and np.mean(np.array(ratios) > 3.84) <= 0.1
    noisy = [estimate_noise(*drawn(seed, classes, 0.1)) for seed in range(20)]
    assert np.mean([noise.ratio > RATIO for noise in noisy]) >= 0.5, "the control"
    assert np.mean([noise.share for noise in noisy]) == pytest.approx(0.1, abs=0.02)


def test_a_list_is_as_precise_as_it_says() -> None:
    right, expected = list[float](), list[float]()
    for seed in range(20):
        odds, labels = drawn(seed, 4, 0.1)
        wrong = labels != drawn(seed, 4, 0.0)[1]
        noise = estimate_noise(odds, labels)
        suspects = noise.posterior >= 0.5
        expected += noise.posterior[suspects].tolist()
        right += wrong[suspects].tolist()
    assert np.mean(right) >= np.mean(expected) - 0.05


def test_several_labels_are_rows_of_two_classes() -> None:
    odds, labels = drawn(1, 2, 0.1)
    one = estimate_noise(odds, labels)
    several = estimate_noise((odds[:, 1] - odds[:, 0]).reshape(250, 2), labels.reshape(250, 2))
    assert several.ratio == pytest.approx(one.ratio, abs=0.1) and several.posterior.shape == (
        250,
        2,
    )


def test_near_copies_are_those_of_all_pairs() -> None:
    """Beside a plain comparison of all pairs of texts."""
    generator = np.random.default_rng(0)
    texts = [" ".join(f"w{n}" for n in generator.integers(9, size=12)) for _ in range(30)]
    texts += [f"{text} w{n}" for n, text in enumerate(texts[:8])] + [texts[0].upper() + "!", "", ""]

    def shingles(text: str) -> set[tuple[str, ...]]:
        words = text.lower().rstrip("!").split()
        return {tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))}

    groups = np.arange(len(texts))
    for i, one in enumerate(map(shingles, texts)):
        for j, two in enumerate(map(shingles, texts)):
            if len(one & two) >= 0.7 * len(one | two):
                groups[groups == groups[j]] = groups[i]
    found_groups = near_copies(texts)
    assert len(set(groups.tolist())) < len(texts) - 8, "the control: there are some"
    assert ((found_groups[:, None] == found_groups) == (groups[:, None] == groups)).all()
