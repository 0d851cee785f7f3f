"""The options of objectives as a user sets them: over their own defaults, at paths that are told
back where a value does not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from maskwright.base import catalogue
from maskwright.base.errors import ConfigError, IncompatibleError
from maskwright.learn.pretrain import build
from maskwright.learn.recipes.base.find import find, override
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.model.objectives.base.spec import member_of
from toys import VOCABULARY, FixedRows, bert

MASKING: dict[str, dict[str, Any]] = {
    "spanbert-mini": {"unit": "span"},
    "electra-mini": {"mask_rate": 0.85, "random_rate": 0.0},
    "albert-mini": {"unit": "ngram"},
    "bert-nsp-mini": {"unit": "token"},
}


def options(recipe: Recipe) -> Any:
    """As they are read when a run begins."""
    return build.resolved(recipe).objective.checked


@pytest.mark.parametrize("name", MASKING)
@pytest.mark.parametrize("setting", ['masking={"rate": 0.3}', "masking.rate=0.3"])
def test_a_mask_rate_leaves_the_rest_of_the_masking_alone(name: str, setting: str) -> None:
    base = find(name)
    own = catalogue.load("objectives", base.objective.name).Options()
    found = options(override(base, [f"objective.options.{setting}"]))
    assert found == replace(own, masking=replace(own.masking, rate=0.3))
    assert {n: getattr(found.masking, n) for n in MASKING[name]} == MASKING[name]


@pytest.mark.parametrize(
    ("name", "setting", "says"),
    [
        ("bert-mini", "rate=2", "0 < rate <= 1"),
        ("bert-mini", "final_rate=2", "0 < rate <= 1"),
        ("bert-mini", "mask_rate=0.95", "together at most 1"),
        ("bert-mini", "span_stop=2", "span_stop < 1"),
        ("bert-mini", "ngram_longest=0", "1 to 1000"),
        ("bert-mini", "independent=true with_replacement=true", "not both"),
        ("spanbert-mini", "masking.independent=true", 'unit = "token"'),
        ("spanbert-mini", "masking.rate=2", "0 < rate <= 1"),
        ("spanbert-mini", "masking.with_replacement=true", 'unit = "token"'),
        ("spanbert-mini", "masking.raet=0.3", "'rate'"),
        ("spanbert-mini", "maksing=0.3", "'masking'"),
        ("spanbert-mini", "maksing.rate=0.3", "'masking'"),
        ("spanbert-mini", "boundary_weight=-1", "0 to"),
        ("spanbert-mini", "position_width=0", "1 to"),
        ("spanbert-mini", "max_pair_targets=0", "1 to"),
        ("electra-mini", "discriminator_weight=-1", "0 to"),
        ("electra-mini", "generator_size=2", "0 < share <= 1"),
        ("bert-nsp-mini", "masking.rate=2", "0 < rate <= 1"),
        ("albert-mini", "masking.rate=2", "0 < rate <= 1"),
        ("bart-mini", "infilling=0.6 masking=0.5", "at most 1"),
        ("bart-mini", "deletion=1.0 infilling=0", "deletion < 1"),
        ("bart-mini", "rotation=2", "0 to 1"),
        ("bart-mini", "mean_span=0", "more than 0"),
        ("t5-mini", "rate=1", "0 < rate < 1"),
        ("t5-mini", "mean_span=0", "1 to 1000"),
        ("prefix-lm-mini", "shortest=0.6 longest=0.4", "shortest <= longest"),
        ("hybrid-mini", "causal_share=1", "causal_share < 1"),
        ("hybrid-mini", "z_loss=-1", "0 to 1"),
        ("distilbert-mini", 'alpha_cos=-1 teacher="x"', "0 to"),
        ("distilbert-mini", 'temperature=0 teacher="x"', "temperature <= 1000"),
    ],
)
def test_a_value_out_of_range_is_named_by_the_path_it_was_set_at(
    name: str, setting: str, says: str
) -> None:
    paths = [f"objective.options.{part}" for part in setting.split()]
    with pytest.raises(ConfigError) as caught:
        options(override(find(name), paths))
    where = paths[0].split("=")[0].replace("maksing.rate", "maksing")
    assert caught.value.where == where and says in str(caught.value.wanted)


@pytest.mark.parametrize("name", ["sentence-pair", "sentence-order"])
def test_pairs_are_not_learned_from_rows_that_are_none(name: str) -> None:
    member = member_of(name)
    made = member.build(bert("BertForPreTraining"), member.options(), VOCABULARY)
    rows = FixedRows(4).all
    with pytest.raises(IncompatibleError) as caught:
        made.corrupt(rows, np.zeros(4, dtype=np.int64), 0)
    assert caught.value.where == "rows.kind"
