"""Every recipe keeps the room's contract: one body of tests, run over the catalogue."""

from __future__ import annotations

import io
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.ask.analysis.neighbours import neighbours
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base import catalogue, config
from maskwright.base.budget import Budget
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.learn.pretrain import build, checkpoints, run
from maskwright.learn.pretrain.rows import check_length, untrained_positions
from maskwright.learn.recipes.base.find import BUILT_IN, find
from maskwright.learn.recipes.base.recipe import (
    Checkpoints,
    Corpus,
    Evaluation,
    FamilyModel,
    ObjectiveChoice,
    Recipe,
    RowChoice,
)
from maskwright.model.checkpoint import pretrained
from maskwright.model.families.base.family import family
from maskwright.model.nn.config import Learned
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening.open import open_model
from maskwright.ship.explore.bundle import bundle_files
from maskwright.ship.export.run import export_model
from maskwright.text.images.processor import ImageProcessor
from maskwright.text.tokenizer.file.roles import roles_by_table
from maskwright.text.tokenizer.training.train import TokenizerChoice
from tinyrun import text_file

NAMES = catalogue.names("recipes")
MINIS = [name for name in NAMES if name.endswith("-mini")]

# As published; what is saved, with the heads it was pretrained with.
PUBLISHED = {
    "albert-base": 11_813_810,
    "bart-base": 139_420_416,
    "bert-base": 110_106_428,
    "distilbert": 66_985_530,
    "electra-base": 109_483_009,
    "electra-small": 13_549_057,
    "gpt": 116_534_784,
    "gpt2-small": 124_439_808,
    "longformer-base": 148_711_257,
    "modernbert-base": 149_655_232,
    "roberta-base": 124_697_433,
    "spanbert-base": 108_340_804,
    "t5-base": 222_903_552,
    "t5-small": 60_506_624,
    "t5-v1-1-base": 247_577_856,
    "t5-v1-1-small": 76_961_152,
    "tinyllama": 1_100_048_384,
}


def learned(choice: Any) -> Any:
    """What a model is built for: a tokenizer of the chosen size with its special tokens; None for
    images."""
    if isinstance(choice, ImageProcessor):
        return None
    assert isinstance(choice, TokenizerChoice)
    named = roles_by_table(choice.special_tokens)
    ids = {role: choice.special_tokens.index(token) for role, token in named.items()}
    known = {role: ids.get(role) for role in ("pad", "begin", "end", "separator")}
    return SimpleNamespace(vocabulary_size=choice.vocabulary, **known)


def short(recipe: Recipe) -> Recipe:
    """With rows of 32 tokens; where rows are read in pieces, of four pieces."""
    objective = recipe.objective
    if objective.spec.piece_length is not None:
        objective = objective.with_options({**objective.options, "piece": 8})
    return replace(recipe, rows=RowChoice(length=32), objective=objective)


def shrunk(recipe: Recipe, text: Path) -> Recipe:
    """Two steps on a toy text; the model is narrow in nothing but its vocabulary, and reads no
    more than a piece where rows are read in pieces."""
    recipe = short(recipe)
    if (piece := recipe.objective.options.get("piece")) is not None:
        assert isinstance(recipe.model, FamilyModel)
        settings = {**recipe.model.settings, "max_position_embeddings": piece}
        recipe = replace(recipe, model=replace(recipe.model, settings=settings))
    return replace(
        recipe,
        corpus=Corpus(text=(str(text),), held_out=0.1),
        tokenizer=replace(recipe.tokenizer, vocabulary=400),
        training=replace(
            recipe.training,
            budget=Budget(steps=2),
            batch=4,
            device="cpu",
            precision="float32",
            threads=1,
        ),
        evaluation=Evaluation(every=2, rows=4, batch=4),
        checkpoints=Checkpoints(every=0),
    )


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text_file(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def teacher(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "run"
    run.pretrain(shrunk(find("bert-mini"), text), out, stream=io.StringIO())
    return out


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_its_registration(name: str) -> None:
    first_line, *_ = (BUILT_IN / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    assert find(name).name == name and find(name).note
    assert first_line.startswith("# ") and len(first_line) > 20


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_survives_its_toml_file(name: str) -> None:
    recipe = find(name)
    again = config.from_plain(Recipe, tomllib.loads(config.to_toml(recipe)))
    assert again == recipe and again.fingerprint == recipe.fingerprint


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_builds(name: str) -> None:
    """Its point exists, has positions for its rows, and its objective takes its options."""
    recipe = find(name)
    point = build.transformer_config(recipe, learned(recipe.tokenizer))
    check_length(recipe, point)
    member = catalogue.load("objectives", recipe.objective.name)
    missing = {other: "somewhere" for other in member.SPEC.networks}
    options = {**missing, **recipe.objective.options}
    config.from_plain(member.Options, options, "objective.options")
    if isinstance(recipe.model, FamilyModel):
        assert family(recipe.model.family).architecture(point) == recipe.model.architecture
    tokens = recipe.rows.length * recipe.training.batch // recipe.training.microbatches
    assert tokens <= 16_384, "a microbatch is what runs fast"


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_recipe_has_the_published_number_of_parameters(name: str) -> None:
    recipe = find(name)
    assert isinstance(recipe.tokenizer, TokenizerChoice)
    with torch.device("meta"):
        model = Transformer(build.transformer_config(recipe, learned(recipe.tokenizer)))
    assert model.num_parameters() == PUBLISHED[name]


def test_every_family_and_every_pretraining_objective_has_a_mini() -> None:
    recipes = [
        find(name) for name in (*MINIS, "word2vec", "fasttext", "glove", "vit-tiny")
    ]  # which are small
    families = {r.model.family for r in recipes if isinstance(r.model, FamilyModel)}
    assert families == set(catalogue.names("families"))
    objectives = {recipe.objective.name for recipe in recipes}
    fine_tuning = {"supervised", "sequence-to-sequence"}
    assert objectives == set(catalogue.names("objectives")) - fine_tuning


@pytest.mark.parametrize("name", [*MINIS, "bert-base", "quickstart", "tiny"])
def test_no_position_stays_untrained(name: str) -> None:
    recipe = find(name)
    point = build.transformer_config(recipe, learned(recipe.tokenizer))
    assert untrained_positions(recipe, point) is None
    # The control, where there is a table at all.
    control = replace(short(recipe), training=replace(recipe.training, phases=()))
    tables = [stack.embeddings.positions for stack in point.stacks.values()]
    assert bool(untrained_positions(control, point)) is any(
        isinstance(table, Learned) for table in tables
    )


@pytest.mark.parametrize("name", MINIS)
def test_minis_share_their_budget(name: str) -> None:
    """What is compared is a family or an objective, not how long or how much was trained."""
    recipe = find(name)
    assert isinstance(recipe.tokenizer, TokenizerChoice) and isinstance(recipe.model, FamilyModel)
    assert recipe.tokenizer.vocabulary == 8_192
    assert recipe.training.budget == Budget(steps=1_500)
    assert recipe.rows.length * recipe.training.batch == 8_192
    assert recipe.corpus == Corpus()
    point = build.transformer_config(recipe, learned(recipe.tokenizer))
    assert point.width == 256
    for stack in point.stacks.values():
        if not stack.attention_blocks:
            continue
        assert len(stack.blocks) == (2 if recipe.objective.name == "distillation" else 4)
        assert all(b.dropout == b.attention.dropout == 0 for b in stack.blocks)
        assert all(b.attention.heads == 4 for b in stack.blocks)


@pytest.mark.parametrize("name", [*MINIS, "fasttext"])
def test_a_mini_trains_and_is_saved_as_its_family(
    name: str, text: Path, teacher: Path, tmp_path: Path
) -> None:
    recipe = shrunk(find(name), text)
    if recipe.objective.name == "distillation":
        recipe = replace(
            recipe,
            objective=ObjectiveChoice(name="distillation", options={"teacher": str(teacher)}),
        )
    last = run.pretrain(recipe, tmp_path / "run", stream=io.StringIO())
    assert isinstance(recipe.model, FamilyModel)
    loaded = pretrained.load(last)
    assert loaded.model_type == recipe.model.family and loaded.tokenizer is not None
    assert family(loaded.model_type).architecture(loaded.config) == recipe.model.architecture
    lines = checkpoints.read_journal(tmp_path / "run")
    assert [r["step"] for r in lines if r["kind"] == "train"] == [1, 2]
    assert [r["step"] for r in lines if r["kind"] == "evaluation"] == [2]
    # The softmax of these belongs to the objective: the models fill and write nothing.
    assert any(r["kind"] == "sample" for r in lines) is (name not in ("elmo-mini", "fasttext"))
    assert (tmp_path / "run" / "report.html").is_file()
    # What a user asks of such a run.
    assert np.isfinite(evaluate_text(tmp_path / "run").figures.loss)
    word = [w for w in loaded.tokenizer.vocabulary if w.isalpha() and len(w) > 2][-1]
    ((nearest, cosine),) = neighbours(last, [word], top=1)
    numbers = [[loaded.tokenizer.vocabulary.index(w)] for w in (word, nearest)]
    with torch.no_grad():
        vectors = loaded.model.tokens(torch.tensor(numbers))[:, 0]
    assert nearest != word
    assert cosine == pytest.approx(float(torch.cosine_similarity(*vectors, dim=0)), abs=1e-4)
    unknown = word + word  # only what reads characters has a vector for it
    if recipe.tokenizer.spelled:
        assert neighbours(last, [unknown], top=1)
        with pytest.raises(IncompatibleError):
            export_model(last, tmp_path / "onnx", to="onnx")
        with pytest.raises(IncompatibleError) as no_page:
            bundle_files(open_model(last))
        assert no_page.value.where == str(last)
    else:
        with pytest.raises(UsageError):
            neighbours(last, [unknown], top=1)
