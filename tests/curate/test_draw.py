"""sample, limit and balance: shares and limits hold, and neither order nor cuts matter."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.curate.in_process import InProcess, batch_of, survivors

from maskwright.base.errors import ConfigError
from maskwright.text.curate.step import CurationBatch
from maskwright.text.curate.steps import balance, limit, sample

TEXTS = [f"text number {n} " + "word " * (n % 13) for n in range(3000)]
DOMAINS = ["big"] * 2400 + ["middle"] * 500 + ["small"] * 100


def batches(order: np.ndarray, cuts: int) -> list[CurationBatch]:
    """The documents in this order, in so many shards."""
    return [
        CurationBatch(
            np.arange(len(part)),
            [f"d{n}" for n in part],
            [TEXTS[n] for n in part],
            {"source": [DOMAINS[n] for n in part]},
        )
        for part in np.array_split(order, cuts)
    ]


PLAIN = np.arange(len(TEXTS))


def test_a_share_is_that_share_and_nested() -> None:
    third = set(survivors(sample.Settings(share=1 / 3), batches(PLAIN, 3)))
    tenth = set(survivors(sample.Settings(share=0.1), batches(PLAIN, 3)))
    assert abs(len(third) - 1000) < 4 * np.sqrt(3000 * 2 / 9)
    assert tenth < third
    assert third != set(survivors(sample.Settings(share=1 / 3, seed=1), batches(PLAIN, 3)))
    assert len(survivors(sample.Settings(), batches(PLAIN, 1))) == len(TEXTS)


def test_limits_are_reached_and_not_passed() -> None:
    assert len(survivors(limit.Settings(documents=700), batches(PLAIN, 3))) == 700
    left = survivors(limit.Settings(words=9000), batches(PLAIN, 3))
    words = sum(len(TEXTS[int(name[1:])].split()) for name in left)
    assert 9000 - 15 <= words <= 9000
    assert len(survivors(limit.Settings(documents=9999), batches(PLAIN, 3))) == len(TEXTS)


def test_a_limit_holds_for_equal_texts() -> None:
    batch = batch_of(["the same"] * 50)
    backwards = replace(batch, ids=batch.ids[::-1])
    left = survivors(limit.Settings(documents=7), [batch])
    assert len(left) == 7
    assert set(left) == set(survivors(limit.Settings(documents=7), [backwards]))


def test_steps_do_not_draw_alike() -> None:
    sampled = set(survivors(sample.Settings(share=0.5), batches(PLAIN, 1)))
    limited = set(survivors(limit.Settings(documents=1500), batches(PLAIN, 1)))
    assert 600 < len(sampled & limited) < 900  # independent: 750; alike: 1,500


def left_by_domain(step: balance.Settings) -> Counter[str]:
    names = survivors(step, batches(PLAIN, 4))
    counts: Counter[str] = Counter()
    for name in names:
        number = int(name[1:])
        size = len(TEXTS[number].split()) if step.unit == "words" else 1
        counts[DOMAINS[number]] += size
    return counts


@pytest.mark.parametrize("unit", ["words", "documents"])
def test_weights_are_the_shares_of_what_is_left(unit: str) -> None:
    left = left_by_domain(
        balance.Settings(unit=unit, weights={"big": 2, "middle": 1, "small": 1})  # type: ignore[arg-type]
    )
    total = sum(left.values())
    assert left["big"] / total == pytest.approx(0.5, abs=0.02)
    assert left["middle"] / total == pytest.approx(0.25, abs=0.02)


def test_a_temperature_flattens_shares() -> None:
    left = left_by_domain(balance.Settings(unit="documents", temperature=0.5))
    assert left["small"] == 100
    assert left["big"] == pytest.approx(100 * np.sqrt(24), abs=2)
    assert left_by_domain(balance.Settings(unit="documents", temperature=0)) == dict.fromkeys(
        ("big", "middle", "small"), 100
    )
    unchanged = left_by_domain(balance.Settings(unit="documents", temperature=1))
    assert sum(unchanged.values()) == len(TEXTS)  # the control


def test_keep_fills_up_the_domains_that_have_more() -> None:
    step = balance.Settings(unit="documents", temperature=0, keep=0.5)
    assert left_by_domain(step) == {"big": 900, "middle": 500, "small": 100}
    step = balance.Settings(unit="documents", weights={"big": 1, "middle": 0, "small": 1}, keep=1)
    assert left_by_domain(step) == {"big": 2400, "small": 100}


def test_caps() -> None:
    step = balance.Settings(unit="documents", cap=300, caps={"small": 20, "middle": 0})
    assert left_by_domain(step) == {"big": 300, "small": 20}


def test_what_is_left_is_reported() -> None:
    step = balance.Settings(unit="documents", temperature=0)
    corpus = InProcess(batches(PLAIN, 2))
    step.gather(corpus, None)
    (found,) = corpus.findings
    assert found.severity == "warning" and "300 of 3,000 documents" in found.what
    assert "pretraining" in found.remedy


def test_a_domain_that_is_not_there_is_refused() -> None:
    for step, where in (
        (balance.Settings(weights={"big": 1, "midle": 1, "small": 1}), "weights.midle"),
        (balance.Settings(caps={"smal": 1}), "caps.smal"),
    ):
        with pytest.raises(ConfigError) as refusal:
            step.gather(InProcess(batches(PLAIN, 2)), None)
        assert str(refusal.value.where).endswith(where)
    with pytest.raises(ConfigError, match="middle, small"):
        balance.Settings(weights={"big": 1}).gather(InProcess(batches(PLAIN, 1)), None)


def test_documents_without_the_column_are_a_domain() -> None:
    batch = batch_of(TEXTS[:4], source=["x", None, "x", None])
    with pytest.raises(ConfigError, match="column") as refusal:
        balance.Settings(column="sauce", cap=1).gather(InProcess(batches(PLAIN, 2)), None)
    assert "source" in str(refusal.value.do)
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


def test_many_domains_are_kept_as_one_by_one() -> None:
    """Beside the sum over each scale and domain, of which there are as many as pairs."""
    draw = np.random.default_rng(3)
    totals = draw.integers(0, 500, 300).astype(float)
    domains = [f"site{n}" for n in range(300)]
    shares = np.where(totals > 0, totals, 0.0) ** 0.3 * (totals > 0)
    per_share = totals[shares > 0] / shares[shares > 0]
    for keep in (0.1, 0.6, 1.0):
        step = balance.Settings(temperature=0.3, keep=keep)
        corners = np.unique(per_share)
        sums = np.minimum(totals, corners[:, None] * shares).sum(axis=1)
        goal = min(keep * totals.sum(), sums[-1])
        scale = max(corners[0], float(np.interp(goal, [0, *sums], [0, *corners])))
        wanted = np.minimum(totals, scale * shares)
        assert np.allclose(step.targets(domains, totals), wanted, rtol=1e-9, atol=1e-4)
        assert not np.allclose(wanted, totals) or keep == 1.0
