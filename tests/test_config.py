"""Frozen dataclasses to plain values and back, and the errors on the way."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from maskwright.base import config
from maskwright.base.budget import Budget
from maskwright.base.config import to_toml
from maskwright.base.errors import ConfigError, MaskwrightError
from maskwright.learn.recipes.base.find import find, override
from maskwright.learn.recipes.base.recipe import (
    CharacterRanges,
    FamilyModel,
    ObjectiveChoice,
    Recipe,
    TokenizerFolder,
)
from maskwright.learn.train.settings import Lamb
from maskwright.model.nn.config import Learned, Sinusoidal


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    positions: Learned | Sinusoidal | None = None
    size: int = 3


@dataclass(frozen=True, kw_only=True)
class TaskType:
    """Knows its own fields, and not where it stands."""

    rate: float = 0.5
    unit: str = "token"
    inner: Inner = Inner(rate=1.0)

    def __post_init__(self) -> None:
        config.require("rate", self.rate, 0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Choice:
    masking: TaskType = field(
        default_factory=lambda: TaskType(unit="span", inner=Inner(rate=2.0, names=("a",)))
    )
    positions: Learned | Sinusoidal | None = field(
        default_factory=lambda: Learned(length=4, offset=2)
    )
    options: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize("positions", [Learned(length=4, offset=2), Sinusoidal(length=9), None])
def test_plain_and_back_is_the_identity(positions: Learned | Sinusoidal | None) -> None:
    value = Outer(inner=Inner(rate=0.5, names=("a", "b")), positions=positions)
    assert config.from_plain(Outer, config.to_plain(value)) == value
    assert config.from_plain(Outer, tomllib.loads(to_toml(value))) == value


def test_odd_names_and_signs_survive() -> None:
    odd = {"größe": "a\x7fb", "a b": "\x01\u2028", "x.y": "\"'\\"}
    assert tomllib.loads(to_toml(odd)) == odd


NEGATIVE = {"type": "Learned", "length": -3}


@pytest.mark.parametrize(
    ("plain", "where", "says"),
    [
        ({"inner": {"rate": 1, "raet": 2}}, "inner.raet", "did you mean 'rate'"),
        ({"inner": {}}, "inner.rate", "missing"),
        ({"inner": {"rate": "x"}}, "inner.rate", "a number"),
        ({"inner": {"rate": 1.0}, "size": 2.5}, "size", "a whole number"),
        ({"inner": {"rate": 1.0}, "size": True}, "size", "a whole number"),
        ({"inner": {"rate": 1.0, "names": [1]}}, "inner.names.0", "a text"),
        ({"inner": {"rate": float("nan")}}, "inner.rate", "finite"),
        ({"inner": {"rate": 1.0}, "positions": {"length": 3}}, "positions.type", "Learned"),
        ({"inner": {"rate": 1.0}, "positions": NEGATIVE}, "positions", "range"),
        ({"inner": 3}, "inner", "not a table"),
    ],
)
def test_a_wrong_field_is_named(plain: dict[str, object], where: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.from_plain(Outer, plain)
    assert where in str(caught.value.where) and says in str(caught.value)


def test_a_partial_table_changes_the_default_and_does_not_replace_it() -> None:
    own = Choice()
    made = config.from_plain(Choice, {"masking": {"rate": 0.3}})
    assert made == replace(own, masking=replace(own.masking, rate=0.3))
    made = config.from_plain(Choice, {"masking": {"inner": {"rate": 3.0}}})
    assert made.masking == replace(own.masking, inner=Inner(rate=3.0, names=("a",)))
    # Of a union the default's config is meant where none is named, and another begins anew.
    for same in ({"length": 9}, {"type": "Learned", "length": 9}):
        assert config.from_plain(Choice, {"positions": same}).positions == Learned(
            length=9, offset=2
        )
    other = {"positions": {"type": "Sinusoidal", "length": 9}}
    assert config.from_plain(Choice, other).positions == Sinusoidal(length=9)
    assert config.from_plain(Choice, {"positions": None}).positions is None
    # What is required stays so where the default says nothing.
    with pytest.raises(ConfigError, match=r"inner\.rate"):
        config.from_plain(Outer, {"inner": {"names": ["a"]}})


def test_a_config_that_names_its_own_field_is_told_where_it_stands() -> None:
    with pytest.raises(ConfigError) as caught:
        config.from_plain(Choice, {"masking": {"rate": 3}}, "objective.options")
    assert caught.value.where == "objective.options.masking.rate"
    assert "where:  objective.options.masking.rate" in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        config.from_plain(TaskType, {"rate": 3})
    assert caught.value.where == "rate"


def test_free_tables_grow_by_dotted_paths() -> None:
    base = Choice(options={"rate": 0.1})
    values = {"options.masking.rate": 0.3, "options.masking.inner.rate": 2, "options.rate": 0.2}
    made = config.replace_at(base, values)
    assert made.options == {"rate": 0.2, "masking": {"rate": 0.3, "inner": {"rate": 2}}}
    assert base.options == {"rate": 0.1}
    for wrong in ("options.rate.x", "masking.x.rate", "masking.raet"):  # a number, no free tables
        with pytest.raises(ConfigError):
            config.replace_at(base, {wrong: 1})


def test_overrides_reach_any_depth_and_name_near_fields() -> None:
    changes = ["training.batch=16", "training.optimizer.learning_rate=1e-3"]
    changes += ["training.budget.minutes=2", "model.settings.hidden_size=32"]
    recipe = override(find("tiny"), changes)
    assert recipe.training.batch == 16
    assert recipe.training.optimizer.learning_rate == 1e-3
    assert recipe.training.budget.minutes == 2.0 and recipe.training.budget.steps is None
    with pytest.raises(ConfigError, match="exactly one"):
        override(recipe, ["training.budget.steps=5", "training.budget.minutes=1"])
    adafactor = ["training.optimizer.kind=adafactor", "training.optimizer.beta1=0.5"]
    for wrong, told in (
        (["training.batsh=3"], r"training\.batsh(.|\n)*batch"),
        (["training.optimizer.kind=mion"], r"training\.optimizer\.kind(.|\n)*'muon'"),
        (adafactor, r"training\.optimizer\.beta1"),
    ):
        with pytest.raises(ConfigError, match=told):
            override(recipe, wrong)
    for short in ("hidden_size", "training.hidden_size", "hidden.hidden_size"):
        with pytest.raises(ConfigError, match=r"mean 'model\.settings\.hidden_size'"):
            override(recipe, [f"{short}=32"])


def test_settings_that_only_fit_together_can_be_changed_together() -> None:
    settings = ["training.batch=6", "training.microbatches=3", "objective.options.rate=0.4"]
    recipe = override(find("tiny"), settings)
    assert (recipe.training.batch, recipe.training.microbatches) == (6, 3)
    assert recipe.objective.options == {"rate": 0.4}
    with pytest.raises(ConfigError, match=r"training\.microbatches"):
        override(find("tiny"), ["training.microbatches=3"])


@pytest.mark.parametrize("kind", ["lamb", "adafactor", "muon"])
def test_another_optimizer_brings_its_own_settings(kind: str) -> None:
    base = find("tiny")
    other = override(base, ["training.optimizer.decay=0.5", f"training.optimizer.kind={kind}"])
    chosen = other.training.optimizer
    assert (chosen.kind, chosen.decay) == (kind, 0.5)
    assert chosen.learning_rate == base.training.optimizer.learning_rate
    assert config.from_plain(Recipe, tomllib.loads(to_toml(other))) == other
    assert other.fingerprint != base.fingerprint
    # The same kind changes nothing else.
    same = ["training.optimizer.kind=adamw", "training.optimizer.learning_rate=0.002"]
    assert override(base, same) == base


def test_a_recipe_from_before_there_were_kinds_is_read() -> None:
    plain = config.to_plain(find("tiny"))
    del plain["training"]["optimizer"]["kind"]
    assert config.from_plain(Recipe, plain) == find("tiny")


def test_the_settings_of_a_table_tell_which_one_is_meant() -> None:
    """As written by hand: without `type`, and without tables in which nothing is set."""
    plain = config.to_plain(find("tiny"))
    plain["objective"] = {"name": "masked"}
    plain["model"] = {"family": "bert", "architecture": "BertForMaskedLM", "size": "base"}
    del plain["tokenizer"]["type"]
    read = config.from_plain(Recipe, plain)
    assert read.tokenizer == find("tiny").tokenizer and read.objective == find("tiny").objective
    assert isinstance(read.model, FamilyModel) and read.model.settings == {}
    plain["tokenizer"] = {"path": "somewhere"}
    assert isinstance(config.from_plain(Recipe, plain).tokenizer, TokenizerFolder)
    for odd in ({}, {"path": "somewhere", "kind": "bpe"}):  # the controls
        plain["tokenizer"] = odd
        with pytest.raises(ConfigError, match=r"tokenizer\.type"):
            config.from_plain(Recipe, plain)


def test_a_recipe_that_extends_another_changes_some_of_its_settings(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    mine, theirs = tmp_path / "mine.toml", tmp_path / "runs" / "theirs.toml"
    changes = """
        name = "mine"
        model.settings.hidden_size = 32
        objective.options.rate = 0.3
        training = { budget.minutes = 2, optimizer = { kind = "lamb", learning_rate = 1e-3 } }
    """
    mine.write_text(f'extends = "tiny"\n{changes}')
    base, recipe = find("tiny"), find(str(mine))
    assert isinstance(base.model, FamilyModel) and isinstance(recipe.model, FamilyModel)
    assert recipe.model.settings == {**base.model.settings, "hidden_size": 32}
    assert recipe.training.budget == Budget(minutes=2.0)
    assert recipe.training.optimizer == Lamb(learning_rate=1e-3)
    changed = {"name", "model", "objective", "training"}
    assert {path.split(".")[0] for path, *_ in config.differences(base, recipe)} == changed
    # A file's path is relative to the file; another objective has none of the options.
    theirs.write_text('extends = "../mine.toml"\nobjective.name = "causal"')
    assert find(str(theirs)) == replace(recipe, objective=ObjectiveChoice(name="causal"))
    for odd, where in (("runs/theirs.toml", theirs), ("mine.toml", mine), ("mime.toml", None)):
        mine.write_text(f'extends = "{odd}"')
        with pytest.raises(MaskwrightError) as caught:
            find(str(mine))
        assert caught.value.where == (f"{where}, extends" if where else str(tmp_path / odd))


def test_entries_of_lists_have_numbers() -> None:
    path = "model.config.decoder.embeddings.dropout"
    recipe = override(find("shakespeare-gpt"), [f"{path}=0.2", "rows.length=24"])
    assert config.to_plain(recipe)["model"]["config"]["decoder"]["embeddings"]["dropout"] == 0.2
    with pytest.raises(ConfigError, match="0 to 1"):
        override(recipe, ["model.config.decoder.blocks.7.dropout=0"])


def test_free_settings_do_not_change_the_identity_and_others_do() -> None:
    recipe = find("tiny")
    quiet = replace(recipe, training=replace(recipe.training, log_seconds=1.0, threads=2))
    assert quiet.fingerprint == recipe.fingerprint
    other = replace(recipe, training=replace(recipe.training, seed=1))
    assert other.fingerprint != recipe.fingerprint


def test_values_as_a_file_of_toml_writes_them() -> None:
    digits = "7" * 5000
    assert config.parse_value(digits) == digits, "no number of a machine"
    wanted = [{"until": 0.5, "length": 16}]
    assert config.parse_value("[{until = 0.5, length = 16}]") == wanted
    assert config.parse_value('[{"until": 0.5, "length": 16}]') == wanted
    assert config.parse_value("{rate = 0.3, kind = 'span'}") == {"rate": 0.3, "kind": "span"}
    # What only begins like one is a text, and a line break begins no second setting.
    for text in ("[CLS]", "{", "[1]\nother = 2", "until = 0.5"):
        assert config.parse_value(text) == text


@pytest.mark.parametrize("train", [(0, 3000), (-5, 10), (30, 10)])
def test_ranges_of_characters_are_apart_and_in_order(train: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match="train"):
        CharacterRanges(train=train, held_out=(1000, 2500), tokenizer=(0, 3000))
    CharacterRanges(train=(0, 1000), held_out=(1000, 2500), tokenizer=(0, 3000))
