"""Small trained models that many tests begin with, and leave as they are."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskwright.learn.pretrain import run
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe
from tinyrun import recipe, text_file


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps."""
    folder = tmp_path_factory.mktemp("model")
    run.pretrain(
        recipe(text_file(folder), steps=2, dropout=0.0), folder / "run", stream=io.StringIO()
    )
    return folder / "run"


SMALL: dict[str, tuple[Recipe, dict[str, Any]]] = {
    "t5": (find("t5-mini"), {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1}),
    "bart": (
        find("bart-mini"),
        {
            "d_model": 32,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "max_position_embeddings": 64,
        },
    ),
    "gpt2": (find("gpt2-mini"), {"n_embd": 32, "n_layer": 1, "n_positions": 64}),
}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of two steps of models that write, by family."""
    found = {}
    for name, (base, smaller) in SMALL.items():
        folder = tmp_path_factory.mktemp(name)
        plain = recipe(text_file(folder), steps=2)
        assert isinstance(base.model, FamilyModel)
        made = replace(
            plain,
            name=name,
            tokenizer=replace(base.tokenizer, vocabulary=400),
            model=replace(base.model, settings={**base.model.settings, **smaller}),
            objective=base.objective,
        )
        run.pretrain(made, folder / "run", stream=io.StringIO())
        found[name] = folder / "run"
    return found
