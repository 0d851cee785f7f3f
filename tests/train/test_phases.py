"""Phases and ramps by hand, and what of them is refused."""

from __future__ import annotations

import tomllib

import pytest

from maskwright.base import config
from maskwright.base.errors import ConfigError
from maskwright.base.toml import to_toml
from maskwright.learn.recipes.base.find import find, override
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.train.schedule import Phase, Ramp

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
    assert config.from_plain(Recipe, tomllib.loads(to_toml(recipe))) == recipe
    assert recipe.fingerprint != find("tiny").fingerprint
    later = override(recipe, ["training.phases.0.until=0.6"])
    assert later.phases[0].until == 0.6


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ('training.phases=[{"until": 0.5, "length": 16, "batch": 9}]', "32"),
        ('training.phases=[{"until": 1.0, "length": 16, "batch": 8}]', "rising order"),
        ('training.phases=[{"until": 0.5, "length": 2, "batch": 8}]', "length"),
        ('training.phases=[{"until": 0.5, "length": 16}]', r"training\.phases\.0\.batch"),
        ('training.phases=[{"until": 0.5, "lenght": 16, "batch": 8}]', "'length'"),
        ("training.ramp.start=0", r"training\.ramp\.start"),
        ("training.ema=1.0", r"training\.ema"),
    ],
)
def test_what_does_not_fit_is_named(setting: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        override(find("tiny"), ["training.microbatches=2", setting])
    twice = f"training.phases={TWO.replace('0.75', '0.5')}"
    with pytest.raises(ConfigError, match="rising order"):
        override(find("tiny"), [twice])
