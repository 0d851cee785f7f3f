"""Learning rates by hand, against torch's own schedules, and their edges; phases and ramps."""

from __future__ import annotations

import math
import tomllib
from typing import Any

import pytest
import torch

from maskwright.base import config
from maskwright.base.errors import ConfigError
from maskwright.learn.recipes.base.find import find, override
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.train.settings import Phase, Ramp, Schedule

HALF = math.sqrt(0.25)
COSINE = {"kind": "cosine", "warmup": 0.016, "floor": 0.1}  # GPT-BERT's
STABLE = {"kind": "stable-decay", "decay": 0.2}
CONSTANT = {"kind": "constant", "warmup": 0.1, "cooldown": 0.2}
SLANTED = {"kind": "slanted", "warmup": 0.1, "floor": 1 / 32}


@pytest.mark.parametrize(
    ("settings", "factors"),
    [
        ({"kind": "linear", "warmup": 0.1}, {0: 0, 50: 0.5, 100: 1, 550: 0.5, 1000: 0}),
        ({"kind": "inverse-sqrt", "warmup": 0.04}, {40: 1, 160: 0.5}),
        (SLANTED, {0: 1 / 32, 50: 33 / 64, 100: 1, 550: 33 / 64, 1000: 1 / 32}),
        (STABLE | {"warmup": 0.1}, {100: 1, 500: 1, 800: 1, 850: 1 - HALF, 1000: 0}),
        (COSINE, {1000: 0.1}),
        (
            COSINE | {"cooldown": 0.016},
            {0: 0, 8: 0.5, 16: 1, 500: 0.55, 984: 0.1, 992: 0.05, 1000: 0},
        ),
        (CONSTANT, {50: 0.5, 100: 1, 800: 1, 900: 0.5}),
        (
            STABLE | {"floor": 0.5, "cooldown": 0.1},
            {700: 1, 750: 0.5 + 0.5 * (1 - HALF), 900: 0.5, 950: 0.25},
        ),
    ],
)
def test_factors_by_hand(settings: Any, factors: dict[int, float]) -> None:
    schedule = Schedule(**settings)
    assert [schedule.factor(step, 1000) for step in factors] == pytest.approx([*factors.values()])


def test_cosine_equals_torch() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
    schedule = Schedule(kind="cosine")
    for step in range(50):
        assert schedule.factor(step, 50) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-6)
        optimizer.step()
        reference.step()


def test_T5s_rate_is_a_held_inverse_square_root() -> None:
    total, held = 2**19, 10_000
    schedule = Schedule(kind="held-inverse-sqrt", warmup=held / total)
    for step in (0, 1, 9_999, 10_000, 10_001, 250_000, total):
        assert 0.01 * schedule.factor(step, total) == pytest.approx(max(step, held) ** -0.5)
    # The control: one that warms up is another one before it is warm.
    assert Schedule(kind="inverse-sqrt", warmup=held / total).factor(1, total) < 0.01


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("cooldown", {"warmup": 0.6, "cooldown": 0.5}),
        ("cooldown", {"kind": "linear", "cooldown": 0.1}),  # it has come to 0 before
        ("decay", {"kind": "stable-decay", "warmup": 0.3, "decay": 0.9}),
        ("floor", {"kind": "constant", "floor": 0.1}),
        ("warmup", {"kind": "inverse-sqrt"}),
        ("warmup", {"kind": "held-inverse-sqrt"}),
        ("warmup", {"warmup": 1.5}),
    ],
)
def test_schedules_that_contradict_themselves(setting: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        Schedule(**wrong)
    assert error.value.where == f"training.schedule.{setting}"


KINDS = [
    "constant",
    "linear",
    "slanted",
    "cosine",
    "inverse-sqrt",
    "held-inverse-sqrt",
    "stable-decay",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("warmup", "cooldown"), [(0.0, 0.0), (0.1, 0.2), (1.0, 0.0)])
def test_factors_stay_between_zero_and_one(kind: Any, warmup: float, cooldown: float) -> None:
    if kind.endswith("inverse-sqrt") and warmup == 0.0:
        return
    falls = kind in ("linear", "slanted", "cosine", "stable-decay")
    floor, decay = 0.1 if cooldown and falls else 0.0, min(0.1, 1.0 - warmup)
    schedule = Schedule(kind=kind, warmup=warmup, floor=floor, decay=decay, cooldown=cooldown)
    for total in (1, 2, 7, 100):
        assert all(0.0 <= schedule.factor(s, total) <= 1.0 for s in range(total + 1))


TWO = '[{"until": 0.5, "length": 16, "batch": 64}, {"until": 0.75, "length": 32, "batch": 32}]'


def test_a_ramp_by_hand() -> None:
    ramp = Ramp(start=0.25, until=0.6)
    assert [ramp.rows(64, p) for p in (0.0, 0.3, 0.6, 1.0)] == [16, 40, 64, 64]
    assert [Ramp(start=0.01).rows(8, p) for p in (0.0, 0.5, 1.0)] == [1, 4, 8]
    assert all(Ramp().rows(n, p) == n for n in (1, 7, 32768) for p in (0.0, 0.3, 1.0))


def test_a_recipe_keeps_its_phases() -> None:
    recipe = override(find("tiny"), [f"training.phases={TWO}", "training.ramp.start=0.25"])
    assert recipe.phases == (
        Phase(until=0.5, length=16, batch=64),
        Phase(until=0.75, length=32, batch=32),
        Phase(until=1.0, length=64, batch=32),
    )
    assert config.from_plain(Recipe, tomllib.loads(config.to_toml(recipe))) == recipe
    assert recipe.fingerprint != find("tiny").fingerprint
    later = override(recipe, ["training.phases.0.until=0.6"])
    assert later.phases[0].until == 0.6


@pytest.mark.parametrize(
    ("setting", "where"),
    [
        ('phases=[{"until": 0.5, "length": 16, "batch": 9}]', "microbatches"),
        ('phases=[{"until": 1.0, "length": 16, "batch": 8}]', "phases"),
        (f"phases={TWO.replace('0.75', '0.5')}", "phases"),
        ('phases=[{"until": 0.5, "length": 2, "batch": 8}]', "phases, length"),
        ('phases=[{"until": 0.5, "length": 16}]', "phases.0.batch"),
        ('phases=[{"until": 0.5, "lenght": 16, "batch": 8}]', "phases.0.lenght"),
        ("ramp.start=0", "ramp.start"),
        ("ema=1.0", "ema"),
    ],
)
def test_what_does_not_fit_is_named(setting: str, where: str) -> None:
    with pytest.raises(ConfigError) as error:
        override(find("tiny"), ["training.microbatches=2", f"training.{setting}"])
    assert error.value.where == f"training.{where}"
