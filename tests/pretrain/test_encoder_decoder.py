"""Whole runs of the objectives that read and write: trained, killed, resumed, evaluated, shown."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskwright import api
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.errors import IncompatibleError
from maskwright.learn.pretrain import build, checkpoints
from maskwright.learn.pretrain.prepare import PreparedCorpus, prepare
from maskwright.learn.pretrain.rows import training_rows
from maskwright.learn.recipes.base.recipe import (
    Evaluation,
    ObjectiveChoice,
    Point,
    Recipe,
    RowChoice,
)
from maskwright.model.inference.generation import generate
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.nn.config import Learned, Tokens, TransformerConfig
from maskwright.model.opening import folders, special_tokens
from maskwright.model.opening.open import open_model
from maskwright.text.store.store import TokenStore
from nn.points import POINTS
from tinyrun import recipe, text_file, train_quietly

SENTINELS = tuple(f"<extra_id_{n}>" for n in reversed(range(20)))
SPECIALS = ("<pad>", "</s>", "<unk>", "<s>", "<mask>", *SENTINELS)
RELATIVE, LEARNED = "relative encoder-decoder", "post-norm encoder-decoder"
CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "span-corruption": (RELATIVE, {}),
    "denoising": (LEARNED, {"mean_span": 3.5, "random": 0.1, "deletion": 0.1, "rotation": 0.2}),
    "prefix-lm": ("pre-norm decoder", {}),
}


def point(name: str) -> TransformerConfig:
    """A point with room for the tokenizer and for rows of 32."""
    config = replace(POINTS[name], tokens=Tokens(vocabulary=160, width=16))
    for side, stack in config.stacks.items():
        positions = stack.embeddings.positions
        if isinstance(positions, Learned):
            longer = replace(stack.embeddings, positions=replace(positions, length=40))
            config = replace(config, **{side: replace(stack, embeddings=longer)})
    return config


def chosen(name: str, text: Path, steps: int = 12) -> Recipe:
    base = recipe(text, steps=steps)
    where, options = CHOICES[name]
    return replace(
        base,
        tokenizer=replace(base.tokenizer, vocabulary=150, specials=SPECIALS),
        model=Point(config=point(where)),
        objective=ObjectiveChoice(name=name, options=options),
        rows=RowChoice(length=32),
        evaluation=Evaluation(every=6, rows=16, batch=16),
    )


@pytest.mark.parametrize("name", CHOICES)
def test_a_run_from_text_to_figures(name: str, tmp_path: Path) -> None:
    made, out = chosen(name, text_file(tmp_path), steps=18), tmp_path / "run"
    train_quietly(made, out)
    lines = checkpoints.read_journal(out)
    losses = [r["loss"] for r in lines if r["kind"] == "train"]
    assert len(losses) == 18 and losses[-1] < losses[0]
    assert next(r["parts"].keys() for r in lines if r["kind"] == "train") == {name}
    evaluations = [r for r in lines if r["kind"] == "evaluation"]
    assert [r["step"] for r in evaluations] == [6, 12, 18]
    assert evaluations[-1]["loss"] < evaluations[0]["loss"]
    samples = [r for r in lines if r["kind"] == "sample"]
    assert len(samples) == 3 and len({r["prompt"] for r in samples}) == 1
    sign = {"span-corruption": "<extra_id_0>", "denoising": "<mask>", "prefix-lm": ""}[name]
    assert sign in samples[0]["prompt"]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert ("ForConditionalGeneration.from_pretrained" in page) is (name != "prefix-lm")
    # The samples of a model that denoises have special tokens, so the page has another prompt.
    assert bool(re.search("maskwright fill-mask .*&lt;mask&gt;", page)) is (name == "denoising")
    assert ("fill-mask" in page) is (name != "prefix-lm")
    assert "uniform" in evaluate_text(out, []).render()
    if name != "prefix-lm":
        text, alone = [str(tmp_path / "text.txt")], tmp_path / "alone"
        shutil.copytree(folders.newest(out), alone)
        assert evaluate_text(alone, text).figures == evaluate_text(out, text).figures
        said = json.loads((alone / "config.json").read_text())
        del said["maskwright"]
        (alone / "config.json").write_text(json.dumps(said))
        (alone / "MANIFEST.json").unlink()
        with pytest.raises(IncompatibleError):
            evaluate_text(alone, text)
        return
    loaded = open_model(out)
    tokenizer = loaded.tokenizer
    start = tokenizer.encode("The big dog saw")
    closed = tuple(i for i in tokenizer.special_ids if i != tokenizer.end)
    settings = GenerationSettings(tokens=8, temperature=0.0)
    closing = {"forbidden": closed, "bidirectional_prefix": True, "end": tokenizer.end}
    (whole,) = generate(loaded.network, [start], settings, **closing)
    told = api.generate_text(out, "The big dog saw", tokens=8, temperature=0.0)
    assert told == tokenizer.decode(start + whole)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, PreparedCorpus]:
    folder = tmp_path_factory.mktemp("prepared")
    made = chosen("span-corruption", text_file(folder))
    return made, prepare(made, folder, lambda text: None)


def test_rows_length_is_what_the_encoder_reads(prepared: tuple[Recipe, PreparedCorpus]) -> None:
    made, data = prepared
    for length in (16, 32, 33, 100):
        wanted = replace(made, rows=RowChoice(length=length))
        rows = training_rows(wanted, data.train)
        network = build.model(wanted, build.transformer_config(wanted, data.tokenizer))
        objective = build.objective(wanted, network, data.tokenizer)
        batch = objective.corrupt(rows.rows(range(4), 0), rows.rows(range(4), 0).ids * 0, 0)
        assert batch.tokens.shape == (4, length) and batch.documents is None
    assert len(rows) * rows.length >= data.train[0].num_tokens > (len(rows) - 1) * rows.length


def test_sentinels_are_known_in_their_order(prepared: tuple[Recipe, PreparedCorpus]) -> None:
    tokenizer = prepared[1].tokenizer
    assert tokenizer.tokens(tokenizer.sentinels) == list(reversed(SENTINELS))
    assert tokenizer.sentinels[0] == max(tokenizer.sentinels)  # <extra_id_0> is the highest
    assert special_tokens.vocabulary(tokenizer).sentinels == tokenizer.sentinels
    assert tokenizer.encode("<extra_id_0>") != [tokenizer.sentinels[0]]  # in text it is text


def test_a_tokenizer_without_sentinels_is_refused_before_training(tmp_path: Path) -> None:
    made = chosen("span-corruption", text_file(tmp_path))
    made = replace(made, tokenizer=replace(made.tokenizer, specials=SPECIALS[:5]))
    with pytest.raises(IncompatibleError, match="sentinel"):
        train_quietly(made, tmp_path / "run")


def test_only_denoising_asks_for_sentences(prepared: tuple[Recipe, PreparedCorpus]) -> None:
    made, data = prepared
    assert isinstance(data.train[0], TokenStore) and not len(data.train[0].sentences)
    denoised = replace(made, objective=ObjectiveChoice(name="denoising", options={}))
    assert denoised.needs_sentences and not made.needs_sentences
