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
    return build.resolved(recipe).objective.checked


@pytest.mark.parametrize("name", MASKING)
@pytest.mark.parametrize("setting", ['masking={"rate": 0.3}', "masking.rate=0.3"])
def test_a_mask_rate_leaves_the_rest_of_the_masking_alone(name: str, setting: str) -> None:
    base = find(name)
    own = catalogue.load("objectives", base.objective.name).Options()
    found = options(override(base, [f"objective.options.{setting}"]))
    assert found == replace(own, masking=replace(own.masking, rate=0.3))
    assert {n: getattr(found.masking, n) for n in MASKING[name]} == MASKING[name]


BERT = ["rate=2", "final_rate=2", "mask_rate=0.95", "span_stop=2", "ngram_longest=0"]
BART = ["rotation=2", "mean_span=0"]
OUT_OF_RANGE = {
    "bert-mini": ["independent=true with_replacement=true", *BERT],
    "spanbert-mini": [
        *("masking.independent=true", "masking.rate=2", "masking.with_replacement=true"),
        *("masking.raet=0.3", "maksing=0.3", "maksing.rate=0.3"),
        *("boundary_weight=-1", "position_width=0", "max_pair_targets=0"),
    ],
    "electra-mini": ["discriminator_weight=-1", "generator_size=2"],
    "bert-nsp-mini": ["masking.rate=2"],
    "albert-mini": ["masking.rate=2"],
    "bart-mini": ["infilling=0.6 masking=0.5", "deletion=1.0 infilling=0", *BART],
    "t5-mini": ["rate=1", "mean_span=0"],
    "prefix-lm-mini": ["shortest=0.6 longest=0.4"],
    "hybrid-mini": ["causal_share=1", "z_loss=-1"],
    "distilbert-mini": ['alpha_cos=-1 teacher="x"', 'temperature=0 teacher="x"'],
}


@pytest.mark.parametrize(
    ("name", "setting"), [(name, each) for name, all_of in OUT_OF_RANGE.items() for each in all_of]
)
def test_a_value_out_of_range_is_named_by_the_path_it_was_set_at(name: str, setting: str) -> None:
    paths = [f"objective.options.{part}" for part in setting.split()]
    with pytest.raises(ConfigError) as caught:
        options(override(find(name), paths))
    assert caught.value.where == paths[0].split("=")[0].replace("maksing.rate", "maksing")


@pytest.mark.parametrize("name", ["sentence-pair", "sentence-order"])
def test_pairs_are_not_learned_from_rows_that_are_none(name: str) -> None:
    member = member_of(name)
    made = member.build(bert("BertForPreTraining"), member.options(), VOCABULARY)
    rows = FixedRows(4).all
    with pytest.raises(IncompatibleError) as caught:
        made.corrupt(rows, np.zeros(4, dtype=np.int64), 0)
    assert caught.value.where == "rows.kind"
