"""Learning rates by hand, against torch's own schedules, and their edges."""

from __future__ import annotations

import math

import pytest
import torch

from maskwright.base.errors import ConfigError
from maskwright.learn.train.schedule import Schedule


def test_linear_by_hand() -> None:
    schedule = Schedule(kind="linear", warmup=0.1)
    factors = [schedule.factor(s, 100) for s in (0, 5, 10, 55, 100)]
    assert factors == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0])


def test_cosine_equals_torch() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
    schedule = Schedule(kind="cosine")
    for step in range(50):
        assert schedule.factor(step, 50) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-6)
        optimizer.step()
        reference.step()


def test_inverse_square_root_and_stable_decay_by_hand() -> None:
    inverse = Schedule(kind="inverse-sqrt", warmup=0.04)
    assert inverse.factor(4, 100) == pytest.approx(1.0)
    assert inverse.factor(16, 100) == pytest.approx(0.5)
    stable = Schedule(kind="stable-decay", warmup=0.1, decay=0.2)
    assert [stable.factor(s, 100) for s in (10, 50, 80)] == pytest.approx([1.0, 1.0, 1.0])
    assert stable.factor(85, 100) == pytest.approx(1 - math.sqrt(0.25))
    assert stable.factor(100, 100) == 0.0


def test_T5s_rate_is_a_held_inverse_square_root() -> None:
    total, held = 2**19, 10_000
    schedule = Schedule(kind="held-inverse-sqrt", warmup=held / total)
    for step in (0, 1, 9_999, 10_000, 10_001, 250_000, total):
        assert 0.01 * schedule.factor(step, total) == pytest.approx(max(step, held) ** -0.5)
    # The control: one that warms up is another one before it is warm.
    assert Schedule(kind="inverse-sqrt", warmup=held / total).factor(1, total) < 0.01


def test_a_cosine_that_cools_down_by_hand() -> None:
    """GPT-BERT's: warm-up 1.6 %, cosine to a tenth, the last 1.6 % straight to 0."""
    schedule = Schedule(kind="cosine", warmup=0.016, floor=0.1, cooldown=0.016)
    factors = [schedule.factor(s, 1000) for s in (0, 8, 16, 500, 984, 992, 1000)]
    assert factors == pytest.approx([0.0, 0.5, 1.0, 0.55, 0.1, 0.05, 0.0])
    plain = Schedule(kind="cosine", warmup=0.016, floor=0.1)
    assert plain.factor(1000, 1000) == pytest.approx(0.1)


def test_every_kind_cools_down_from_where_it_stands() -> None:
    trapezoid = Schedule(kind="constant", warmup=0.1, cooldown=0.2)
    assert [trapezoid.factor(s, 100) for s in (5, 10, 80, 90)] == pytest.approx([0.5, 1, 1, 0.5])
    stable = Schedule(kind="stable-decay", decay=0.2, floor=0.5, cooldown=0.1)
    factors = [stable.factor(s, 100) for s in (70, 75, 90, 95)]
    assert factors == pytest.approx([1.0, 0.5 + 0.5 * (1 - math.sqrt(0.25)), 0.5, 0.25])
    with pytest.raises(ConfigError, match="cooldown"):
        Schedule(warmup=0.6, cooldown=0.5)
    with pytest.raises(ConfigError, match="come to 0 before"):
        Schedule(kind="linear", cooldown=0.1)
    with pytest.raises(ConfigError, match="decay are longer"):
        Schedule(kind="stable-decay", warmup=0.3, decay=0.9)


KINDS = ["constant", "linear", "cosine", "inverse-sqrt", "held-inverse-sqrt", "stable-decay"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("warmup", "cooldown"), [(0.0, 0.0), (0.1, 0.2), (1.0, 0.0)])
def test_factors_stay_between_zero_and_one(kind: str, warmup: float, cooldown: float) -> None:
    if kind.endswith("inverse-sqrt") and warmup == 0.0:
        with pytest.raises(ConfigError):
            Schedule(kind=kind, warmup=0.0)  # type: ignore[arg-type]
        return
    falls = kind in ("linear", "cosine", "stable-decay")
    floor, decay = 0.1 if cooldown and falls else 0.0, min(0.1, 1.0 - warmup)
    if not falls:
        with pytest.raises(ConfigError, match="does not fall to a floor"):
            Schedule(kind=kind, warmup=warmup, floor=0.1)  # type: ignore[arg-type]
    schedule = Schedule(
        kind=kind,
        warmup=warmup,
        floor=floor,
        decay=decay,
        cooldown=cooldown,  # type: ignore[arg-type]
    )
    for total in (1, 2, 7, 100):
        assert all(0.0 <= schedule.factor(s, total) <= 1.0 for s in range(total + 1))
