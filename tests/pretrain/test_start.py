"""Training that goes on from a folder: what is taken, what is drawn and said, what is refused."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from maskwright.base.budget import Budget
from maskwright.base.errors import ConfigError, IncompatibleError, MaskwrightError, UsageError
from maskwright.learn.pretrain import build, run
from maskwright.learn.recipes.base.find import override, read
from maskwright.learn.recipes.base.recipe import (
    FamilyModel,
    Folder,
    ObjectiveChoice,
    Recipe,
    TokenizerFolder,
)
from maskwright.model.checkpoint import files, pretrained
from maskwright.model.opening import folders
from maskwright.text.tokenizer.tokenizer import Tokenizer
from tinyrun import essence, recipe, resume_quietly, train_quietly

TEXT = "The big cat sat under a tall old tree, and then [MASK] ran."


@pytest.fixture(scope="module")
def source(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four steps."""
    out = tmp_path_factory.mktemp("source") / "run"
    train_quietly(recipe(text, steps=4), out)
    return out


def further(base: Recipe, folder: Path, steps: int = 0, *settings: str) -> Recipe:
    training = replace(base.training, budget=Budget(steps=steps))
    return override(replace(base, training=training), [f"model.folder={folder}", *settings])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    stored = files.open_folder(folder)
    return {name: stored.read(name) for name in stored.entries}


def test_a_run_goes_on_from_the_weights_and_the_tokenizer_of_another(
    text: Path, source: Path, tmp_path: Path
) -> None:
    said = io.StringIO()
    last = run.pretrain(further(recipe(text), source), tmp_path / "run", stream=said)
    before = folders.newest(source)
    assert last.name == "step-00000000"
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json"):
        assert (last / name).read_bytes() == (before / name).read_bytes(), name
    assert f"from {before}: loaded 100.0%, new: nothing, left: nothing" in said.getvalue()
    written = read(tmp_path / "run" / "recipe.toml")
    assert written.model == Folder(
        path=str(before), architecture="BertForMaskedLM", sha256=folders.fingerprint(before)
    )
    fingerprint = Tokenizer.load(before).fingerprint
    assert written.tokenizer == TokenizerFolder(path=str(before), fingerprint=fingerprint)


@pytest.mark.parametrize("decay", [1.0, 0.2])
def test_it_resumes_exactly_and_without_the_folder(
    decay: float, text: Path, source: Path, tmp_path: Path
) -> None:
    kept, out = tmp_path / "source", tmp_path / "run"
    shutil.copytree(source, kept)
    last = train_quietly(further(recipe(text), kept, 8, f"model.layer_decay={decay}"), out)
    whole, folder = essence(out), folders.newest(kept)
    moved = [
        (weights(last)[name] - weights(folder)[name]).norm()
        for name in (
            f"bert.encoder.layer.{layer}.attention.self.query.weight" for layer in range(2)
        )
    ]
    assert moved[0] > 0 and bool(moved[0] < moved[1] / 3) is (decay < 1)
    shutil.rmtree(last)
    shutil.rmtree(kept)
    run.resume(out, stream=(said := io.StringIO()))
    assert essence(out) == whole
    assert "step 4" in said.getvalue() and "loaded" not in said.getvalue()


def written_by_transformers(folder: Path, source: Path, kind: str, **keys: Any) -> Path:
    """A random model of transformers, with the tokenizer of `source`, as it saves them."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders.newest(source))
    torch.manual_seed(3)
    shape = {"vocab_size": len(tokenizer), "hidden_size": 16, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 20}
    model_class = getattr(transformers, kind)
    model_class(model_class.config_class(**shape, **keys)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_folder_of_the_reference_library_gets_the_head_it_lacks(
    text: Path, source: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    folder = written_by_transformers(tmp_path / "hf", source, "BertModel")
    said = io.StringIO()
    last = run.pretrain(further(recipe(text), folder), tmp_path / "run", stream=said)
    line = next(line for line in said.getvalue().splitlines() if line.startswith("model: from"))
    assert "new: vocabulary_head" in line and line.endswith("left: pooler")
    theirs, ours = weights(folder), weights(last)
    body = {n.removeprefix("bert."): t for n, t in ours.items() if n.startswith("bert.")}
    assert body and all(torch.equal(t, theirs[n]) for n, t in body.items())
    loaded = transformers.AutoModelForMaskedLM.from_pretrained(last)
    assert loaded.config.max_position_embeddings == 20
    before, after = (transformers.AutoTokenizer.from_pretrained(f) for f in (folder, last))
    assert before(TEXT)["input_ids"] == after(TEXT)["input_ids"]
    assert Tokenizer.load(folder).fingerprint == Tokenizer.load(last).fingerprint
    trained = run.pretrain(further(recipe(text), folder, 3), tmp_path / "on", stream=said)
    assert not torch.equal(
        weights(trained)["bert.embeddings.word_embeddings.weight"],
        theirs["embeddings.word_embeddings.weight"],
    )
    assert json.loads((trained / "config.json").read_text())["model_type"] == "bert"


def test_drawn_heads_are_a_function_of_the_seed(text: Path, source: Path, tmp_path: Path) -> None:
    folder = written_by_transformers(tmp_path / "hf", source, "BertModel")
    made = []
    for seed in (0, 0, 1):
        chosen = build.pinned(further(recipe(text), folder, 0, f"training.seed={seed}"))
        tokenizer = Tokenizer.load(folder)
        network = build.model(chosen, build.transformer_config(chosen, tokenizer))
        assert network.vocabulary_head is not None
        made.append(network.vocabulary_head.transform.weight)
    assert torch.equal(made[0], made[1]) and not torch.equal(made[0], made[2])


def test_a_folder_that_does_not_fit_is_refused_before_any_work(
    text: Path, source: Path, tmp_path: Path
) -> None:
    base, folder = recipe(text), folders.newest(source)
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("tokenizer*", "special*", "MANI*"))
    distilled = replace(base, objective=ObjectiveChoice(name="distillation", options={}))
    other_tokenizer = TokenizerFolder(path=str(folder), fingerprint="abc")
    missing = tmp_path / "none"
    cases: list[tuple[Recipe, type[MaskwrightError], object]] = [
        (further(base, missing), UsageError, missing),
        (further(base, folder, 0, "model.architecture=Roberta"), IncompatibleError, folder),
        (further(base, folder, 0, "model.sha256=abc"), IncompatibleError, folder),
        (further(base, bare), MaskwrightError, bare),
        (replace(base, tokenizer=other_tokenizer), IncompatibleError, folder),
        (distilled, ConfigError, "objective.options.teacher"),
    ]
    for chosen, kind, where in cases:
        with pytest.raises(kind) as error:
            train_quietly(chosen, tmp_path / "run")
        assert str(where) in f"{error.value.where} {error.value}", where
        assert not (tmp_path / "run").exists()


def test_what_the_objective_lacks_can_be_drawn(text: Path, source: Path, tmp_path: Path) -> None:
    """Without an architecture the folder's own is trained, and that may not do."""
    folder = written_by_transformers(tmp_path / "hf", source, "BertModel")
    chosen = further(recipe(text), folder, 0, "model.architecture=none")
    with pytest.raises(IncompatibleError, match="vocabulary") as caught:
        train_quietly(chosen, tmp_path / "run")
    assert "--set model.architecture=" in str(caught.value.do)
    assert "BertForMaskedLM" in str(caught.value.do)


def test_a_model_of_no_family_goes_on_as_it_is(text: Path, source: Path, tmp_path: Path) -> None:
    loaded = pretrained.load(folders.newest(source))
    assert loaded.config.encoder is not None
    other = replace(loaded.config, encoder=replace(loaded.config.encoder, final_norm=True))
    from maskwright.model.nn.initialise import build as fresh

    pretrained.save(fresh(other), loaded.tokenizer, tmp_path / "ours")
    base = recipe(text)
    chosen = further(base, tmp_path / "ours", 0, "model.architecture=none")
    last = train_quietly(chosen, tmp_path / "run")
    assert (last / "model.safetensors").read_bytes() == (
        tmp_path / "ours" / "model.safetensors"
    ).read_bytes()
    with pytest.raises(IncompatibleError):
        train_quietly(further(base, tmp_path / "ours"), tmp_path / "not")


def test_another_tokenizer_than_the_models_is_refused(
    text: Path, source: Path, tmp_path: Path
) -> None:
    base = recipe(text, steps=0)
    other = replace(base, tokenizer=replace(base.tokenizer, lowercase=False))  # type: ignore[type-var]
    train_quietly(other, tmp_path / "other")
    mixed = further(base, source, 0, f"tokenizer.folder={tmp_path / 'other'}")
    with pytest.raises(IncompatibleError, match="tokenizer"):
        train_quietly(mixed, tmp_path / "run")


def test_a_student_takes_the_tokenizer_of_a_teacher_from_elsewhere(
    text: Path, source: Path, tmp_path: Path
) -> None:
    teacher = written_by_transformers(tmp_path / "hf", source, "BertForMaskedLM")
    base = recipe(text, steps=2)
    assert isinstance(base.model, FamilyModel)
    options = {"teacher": str(teacher), "alpha_cos": 0.0, "initialise": False}
    chosen = replace(base, objective=ObjectiveChoice(name="distillation", options=options))
    chosen = override(chosen, [f"tokenizer.folder={teacher}"])
    last = train_quietly(chosen, tmp_path / "run")
    assert Tokenizer.load(last).fingerprint == Tokenizer.load(teacher).fingerprint
    resume_quietly(tmp_path / "run")
    with (teacher / "config.json").open("a") as file:
        file.write(" ")
    with pytest.raises(IncompatibleError) as error:
        resume_quietly(tmp_path / "run")
    assert error.value.where == str(teacher)
