"""Whole small runs of objectives with more to keep than a product, and their exact resumption."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from maskwright.base.budget import Budget
from maskwright.base.errors import IncompatibleError
from maskwright.learn.pretrain import build, checkpoints
from maskwright.learn.pretrain.prepare import prepare
from maskwright.learn.recipes.base.recipe import FamilyModel, Folder, ObjectiveChoice, Point, Recipe
from maskwright.model.checkpoint import files, pretrained
from maskwright.model.nn.config import Head
from maskwright.model.objectives.modules.replaced_token import ReplacedToken
from maskwright.model.opening import folders
from tinyrun import essence, recipe, resume_quietly, train_quietly
from toys import bert

OBJECTIVE = checkpoints.OBJECTIVE


def discriminator() -> Point:
    base = bert(dropout=0.1).config
    return Point(
        config=replace(
            base,
            tokens=replace(base.tokens, vocabulary=120),
            vocabulary_head=None,
            heads=(Head(name="discriminator", kind="token", labels=1),),
        )
    )


def chosen(text: Path, name: str, **options: Any) -> Recipe:
    base = recipe(text, steps=8)
    assert isinstance(base.model, FamilyModel)
    model = {
        "replaced-token": discriminator(),
        "sentence-order": replace(base.model, architecture="BertForPreTraining"),
        **dict.fromkeys(TABLES, STATIC),
        "bidirectional-lm": CELLS,
    }.get(name, base.model)
    return replace(base, model=model, objective=ObjectiveChoice(name=name, options=options))


CASES: dict[str, dict[str, Any]] = {
    "replaced-token": {},
    "span-boundary": {},
    "masked-pieces": {"piece": 8},
    "sentence-order": {},
    "hybrid": {"causal_share": 0.3, "masking": {"rate": 0.3, "final_rate": 0.15}},
    "distillation": {},
    "word2vec": {"kind": "cbow", "sample": 0.1},
    "glove": {},
    "bidirectional-lm": {},
}
TABLES = ("word2vec", "glove", "bidirectional-lm")
STATIC = FamilyModel(
    family="static-vectors", architecture="StaticVectors", settings={"hidden_size": 12}
)

CELLS = FamilyModel(
    family="elmo",
    architecture="Elmo",
    settings={"projection_size": 6, "cell_size": 8, "filter_widths": 1, "filters": [5]},
)


@pytest.fixture(scope="module")
def teacher(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "run"
    train_quietly(recipe(text, steps=2), out)
    return out


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_is_the_run(name: str, text: Path, teacher: Path, tmp_path: Path) -> None:
    options = CASES[name] | ({"teacher": str(teacher)} if name == "distillation" else {})
    settings, out = chosen(text, name, **options), tmp_path / "run"
    last = train_quietly(settings, out)
    whole, others = essence(out), digest(last / OBJECTIVE)
    has_others = name in ("replaced-token", "span-boundary", "masked-pieces", *TABLES)
    assert (others is not None) is has_others
    records = [r for r in checkpoints.read_journal(out) if r["kind"] == "train"]
    assert len(records) == 8 and len(records[0]["parts"]) > (name not in TABLES)
    shutil.rmtree(last)  # as if it had been stopped after step 4
    assert folders.newest(out).name == "step-00000004"
    assert digest(folders.newest(out) / OBJECTIVE) != others or others is None
    resume_quietly(out)
    assert essence(out) == whole and digest(last / OBJECTIVE) == others
    if has_others:  # the control: without them a checkpoint does not fit
        (last / OBJECTIVE).unlink()
        assert folders.newest(out).name == "step-00000004"


def digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None


def test_the_generator_is_a_model_of_its_own(text: Path, tmp_path: Path) -> None:
    """Not a tensor of it among the product's; saved by itself it says what it said before."""
    settings, out = chosen(text, "replaced-token"), tmp_path / "run"
    last = train_quietly(settings, out)
    stored = files.open_file(last / OBJECTIVE).entries
    assert stored and all(n.startswith("generator.") for n in stored)
    assert not any("tokens.weight" in n or "embeddings.position" in n for n in stored)
    loaded = pretrained.load(last)
    assert loaded.model.vocabulary_head is None and "discriminator" in loaded.model.heads
    prepared = prepare(settings, out, lambda text: None)
    made = build.objective(settings, loaded.model, prepared.tokenizer)
    assert isinstance(made, ReplacedToken)
    pretrained.save(made.generator, prepared.tokenizer, tmp_path / "generator")
    again = pretrained.load(tmp_path / "generator").model
    tokens = torch.arange(5, 15)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            again.logits(again.encode(tokens)),
            made.generator.eval().logits(made.generator.encode(tokens)),
        )


def test_a_generator_goes_on_with_its_discriminator(text: Path, tmp_path: Path) -> None:
    """Not beside another objective, and not where it has another size."""
    settings, out = chosen(text, "replaced-token"), tmp_path / "run"
    last = train_quietly(settings, out)
    training = replace(settings.training, budget=Budget(steps=0), seed=7)
    begun = replace(settings, model=Folder(path=str(out)), training=training)
    again = train_quietly(begun, tmp_path / "again")
    assert digest(again / OBJECTIVE) == digest(last / OBJECTIVE)
    smaller = ObjectiveChoice(name="replaced-token", options={"generator_layers": 0.5})
    other = train_quietly(replace(begun, objective=smaller), tmp_path / "other")
    assert digest(other / OBJECTIVE) != digest(last / OBJECTIVE)


def test_own_weights_are_a_function_of_the_seed(text: Path, tmp_path: Path) -> None:
    settings = chosen(text, "span-boundary")
    prepared = prepare(settings, tmp_path, lambda text: None)
    point = build.transformer_config(settings, prepared.tokenizer)
    made = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(made))  # whatever was drawn before
        training = replace(settings.training, seed=seed)
        settings = replace(settings, training=training)
        network = build.model(settings, point)
        made.append(build.objective(settings, network, prepared.tokenizer).boundary.first.weight)
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])


def test_a_mask_rate_moves_over_the_run(text: Path, tmp_path: Path) -> None:
    """0.5 to 0.1 of 14 maskable positions in eight steps; a constant rate does not move."""
    moving, constant = tmp_path / "moving", tmp_path / "constant"
    train_quietly(chosen(text, "masked", rate=0.5, final_rate=0.1), moving)
    train_quietly(chosen(text, "masked", rate=0.5), constant)

    def targets(out: Path) -> list[int]:
        return [r["targets"] for r in checkpoints.read_journal(out) if r["kind"] == "train"]

    ours, theirs = targets(moving), targets(constant)
    assert ours[0] == theirs[0]
    wanted = [1 - 0.8 * step / 8 for step in range(8)]  # of the constant rate's
    for mine, same, share in zip(ours, theirs, wanted, strict=True):
        assert mine / same == pytest.approx(share, abs=0.12)


def test_a_teacher_of_another_tokenizer_is_refused(
    text: Path, teacher: Path, tmp_path: Path
) -> None:
    settings = chosen(text, "distillation", teacher=str(teacher))
    settings = replace(settings, tokenizer=replace(settings.tokenizer, lowercase=False))
    with pytest.raises(IncompatibleError, match="tokenizer"):
        train_quietly(settings, tmp_path / "run")
