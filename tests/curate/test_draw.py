"""sample, limit and balance: shares and limits hold, and neither order nor cuts matter."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from curate.in_process import InProcess, batch_of, survivors
from maskwright.base.errors import ConfigError
from maskwright.text.curate.step import CurationBatch, Step
from maskwright.text.curate.steps import balance, limit, sample

TEXTS = [f"text number {n} " + "word " * (n % 13) for n in range(3000)]
SIZES = {"big": 2400, "middle": 500, "small": 100}
DOMAINS = [name for name, size in SIZES.items() for _ in range(size)]
NAMES = [f"d{n}" for n in range(len(TEXTS))]
BATCH = CurationBatch(np.arange(len(TEXTS)), NAMES, TEXTS, {"source": DOMAINS})
BATCHES = [BATCH.take(np.arange(len(TEXTS)) // 1000 == n) for n in range(3)]


def left_of(step: Step) -> set[str]:
    return set(survivors(step, BATCHES))


def test_a_share_is_that_share_and_nested() -> None:
    third, tenth = (left_of(sample.Settings(share=share)) for share in (1 / 3, 0.1))
    assert abs(len(third) - 1000) < 4 * np.sqrt(3000 * 2 / 9)
    assert tenth < third != left_of(sample.Settings(share=1 / 3, seed=1))
    assert len(left_of(sample.Settings())) == len(TEXTS)


def test_limits_are_reached_and_not_passed() -> None:
    assert len(left_of(limit.Settings(documents=700))) == 700
    words = sum(len(TEXTS[int(name[1:])].split()) for name in left_of(limit.Settings(words=9000)))
    assert 9000 - 15 <= words <= 9000
    assert len(left_of(limit.Settings(documents=9999))) == len(TEXTS)


def test_a_limit_holds_for_equal_texts() -> None:
    batch, step = batch_of(["the same"] * 50), limit.Settings(documents=7)
    left = survivors(step, [batch])
    assert len(left) == 7
    assert set(left) == set(survivors(step, [replace(batch, ids=batch.ids[::-1])]))


def test_steps_do_not_draw_alike() -> None:
    drawn = left_of(sample.Settings(share=0.5)) & left_of(limit.Settings(documents=1500))
    assert 600 < len(drawn) < 900  # independent: 750; alike: 1,500


# ------------------------------------------------------------------------------ balance
def left_by_domain(**settings: Any) -> Counter[str]:
    step, counts = balance.Settings(**settings), Counter[str]()
    for name in left_of(step):
        number = int(name[1:])
        counts[DOMAINS[number]] += len(TEXTS[number].split()) if step.unit == "words" else 1
    return counts


@pytest.mark.parametrize("unit", ["words", "documents"])
def test_weights_are_the_shares_of_what_is_left(unit: str) -> None:
    left = left_by_domain(unit=unit, weights={"big": 2, "middle": 1, "small": 1})
    assert left["big"] / left.total() == pytest.approx(0.5, abs=0.02)
    assert left["middle"] / left.total() == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("settings", "left"),
    [
        ({"temperature": 1}, SIZES),
        ({"temperature": 0.5}, {"big": 490, "middle": 224, "small": 100}),  # 100 √24 and √5
        ({"temperature": 0}, dict.fromkeys(SIZES, 100)),
        ({"temperature": 0, "keep": 0.5}, {"big": 900, "middle": 500, "small": 100}),
        ({"weights": {"big": 1, "middle": 0, "small": 1}, "keep": 1}, {"big": 2400, "small": 100}),
        ({"cap": 300, "caps": {"small": 20, "middle": 0}}, {"big": 300, "small": 20}),
    ],
)
def test_documents_of_domains(settings: dict[str, Any], left: dict[str, int]) -> None:
    """Temperature flattens, `keep` fills up the domains that have more, caps cut."""
    counts = left_by_domain(unit="documents", **settings)
    assert counts == pytest.approx(left, abs=2 if settings == {"temperature": 0.5} else 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": {"big": 1, "midle": 1, "small": 1}}, r"weights\.midle"),
        ({"caps": {"smal": 1}}, r"caps\.smal"),
        ({"weights": {"big": 1}}, "middle, small"),
        ({"column": "sauce", "cap": 1}, "column(?s:.*)source"),
    ],
)
def test_an_absent_domain_or_column_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        balance.Settings(**settings).gather(InProcess(BATCHES), None)


def test_documents_without_the_column_are_a_domain() -> None:
    batch = batch_of(TEXTS[:4], source=["x", None, "x", None])
    step = balance.Settings(unit="documents", caps={"(none)": 1})
    assert len(survivors(step, [batch])) == 3


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "settings", [{"temperature": 0.0}, {"temperature": 0.5, "keep": 0.7}, {"weights": {"a": 1.0}}]
)
def test_domains_without_a_word_can_be_balanced(settings: dict[str, Any]) -> None:
    step = balance.Settings(**settings)
    assert step.targets(["a"], np.zeros(1)).tolist() == [0.0]
    assert step.targets(["a"], np.array([5.0])).tolist()[0] > 0, "the control has words"
