"""What the commands say of a run of two stacks, of a model that cannot write, and of a run that has
come to nothing yet."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference.written import WRITERS, generate, untrained
from maskwright import api
from maskwright.ask.evaluate.text import evaluate_text
from maskwright.base.budget import Budget
from maskwright.base.errors import CheckpointError, IncompatibleError
from maskwright.learn.pretrain import checkpoints, run
from maskwright.learn.recipes.base.recipe import (
    Evaluation,
    FamilyModel,
    ObjectiveChoice,
    Recipe,
    RowChoice,
)
from maskwright.learn.train.settings import AdamW
from maskwright.model.inference.fill_mask import TokenCandidate, fill
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.opening import folders
from maskwright.model.opening.open import open_model
from maskwright.model.opening.special_tokens import opening
from maskwright.text.tokenizer.file.roles import Style
from maskwright.text.tokenizer.training.train import TokenizerChoice
from tinyrun import recipe

TEXTS = [
    "the cat sat on the mat and purred .",
    "the dog ran after the ball in the park .",
    "a bird sang in the old tree all day .",
]
SIGNS: dict[Style, str] = {"roberta": "<mask>", "bert": "[MASK]"}
CONFIG = "config.json"
SIDE = {"layers": 1, "attention_heads": 2, "ffn_dim": 96}
BART = {f"{side}_{key}": size for side in ("encoder", "decoder") for key, size in SIDE.items()}
BART |= {"d_model": 48, "max_position_embeddings": 32, "dropout": 0.0, "attention_dropout": 0.0}


def chosen(folder: Path, style: Style, steps: int, objective: str = "denoising") -> Recipe:
    text = folder / "cat.txt"
    text.write_text("\n\n".join(TEXTS * 40) + "\n", encoding="utf-8")
    held_out = folder / "held-out.txt"  # else one of the three would not be learned
    held_out.write_text("\n\n".join(TEXTS), encoding="utf-8")
    base = recipe(text)
    return replace(
        base,
        corpus=replace(base.corpus, held_out_text=(str(held_out),)),
        tokenizer=TokenizerChoice(kind="wordpiece", vocabulary=120, style=style),
        model=FamilyModel(family="bart", architecture=WRITERS["bart"], settings=BART),
        objective=ObjectiveChoice(name=objective, options={}),
        rows=RowChoice(length=24),
        training=replace(
            base.training,
            budget=Budget(steps=steps),
            batch=16,
            microbatches=1,
            optimizer=AdamW(learning_rate=4e-3),
        ),
        evaluation=Evaluation(every=0, rows=16, batch=16),
        checkpoints=replace(base.checkpoints, every=1000),
    )


def written(folder: Path, text: str, **keys: Any) -> str:
    settings = {"tokens": 20, "temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0, **keys}
    return api.generate_text(folder, text, **settings)


def candidates(folder: Path, text: str) -> list[TokenCandidate]:
    (hole,) = api.fill_mask(folder, text)
    return list(hole.candidates)


@pytest.fixture(scope="module", params=["roberta", "bert"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A style of tokens, and a run with it that has learned three sentences."""
    folder = tmp_path_factory.mktemp(request.param)
    run.pretrain(chosen(folder, request.param, 150), folder / "run", stream=io.StringIO())
    return request.param, folder / "run"


@pytest.fixture(scope="module")
def masked_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which two stacks learned by `masked`, which trains the encoder and no decoder."""
    folder = tmp_path_factory.mktemp("masked")
    run.pretrain(chosen(folder, "roberta", 4, "masked"), folder / "run", stream=io.StringIO())
    return folder / "run"


def test_a_hole_is_filled_as_was_learned(made: tuple[Style, Path]) -> None:
    style, out = made
    for text in TEXTS:
        words = text.split()
        hidden = " ".join([*words[:2], SIGNS[style], *words[3:]])
        first, *_ = candidates(out, hidden)
        assert first.token == words[2] and first.probability > 0.6


def test_an_encoder_trained_alone_is_asked_alone(masked_alone: Path) -> None:
    text = "the cat <mask> on the mat ."
    loaded = open_model(masked_alone)
    tokenizer = loaded.tokenizer
    (alone,) = fill(loaded.network, tokenizer, [text])[0]
    (both,) = fill(loaded.network, tokenizer, [text], start=tokenizer.end)[0]
    tokens = [c.token for c in candidates(masked_alone, text)]
    assert tokens == [c.token for c in alone.candidates] != [c.token for c in both.candidates]
    with pytest.raises(IncompatibleError):
        written(masked_alone, "the cat")


def test_a_text_is_written_as_was_learned(made: tuple[Style, Path]) -> None:
    style, out = made
    for text in TEXTS:
        assert written(out, text) == text
        assert written(folders.newest(out), text) == text
    damaged = TEXTS[0].replace("sat on the mat", SIGNS[style])
    for seed in range(5):
        said = written(out, damaged, temperature=1.0, seed=seed)
        assert not set("<>[]") & set(said) and not said.startswith("the the")


def test_a_folder_says_what_its_decoder_was_trained_with(made: tuple[Style, Path]) -> None:
    style, out = made
    folder = folders.newest(out)
    tokenizer = open_model(folder).tokenizer
    first, last = {"roberta": ("<s>", "</s>"), "bert": ("[CLS]", "[SEP]")}[style]
    ends = ("decoder_start_token_id", "eos_token_id", "forced_eos_token_id")
    wanted = {"bos_token_id": first, **dict.fromkeys(ends, last)}
    for name in (CONFIG, "generation_config.json"):
        said = json.loads((folder / name).read_text())
        assert {key: said[key] for key in wanted} == {k: tokenizer.id(t) for k, t in wanted.items()}


def test_an_encoder_says_nothing_new_of_its_frame(tmp_path: Path) -> None:
    """The stand-ins are for what writes: a BERT has no end, and its folder says so."""
    out, choice = tmp_path / "m", {"kind": "wordpiece", "vocabulary": 120, "style": "bert"}
    config = json.loads((untrained(out, "bert", "BertModel", TEXTS, **choice) / CONFIG).read_text())
    assert config["bos_token_id"] is None and config["eos_token_id"] is None


def test_the_start_that_the_recipe_chose(tmp_path: Path) -> None:
    base = chosen(tmp_path, "roberta", 10)
    begins = replace(base, objective=ObjectiveChoice(name="denoising", options={"start": "begin"}))
    run.pretrain(begins, tmp_path / "run", stream=io.StringIO())
    loaded = open_model(tmp_path / "run")
    tokenizer = loaded.tokenizer
    source, end = tokenizer.frame(tokenizer.encode(TEXTS[0]))[0], tokenizer.end
    for name in (CONFIG, "generation_config.json"):
        said = json.loads((folders.newest(tmp_path / "run") / name).read_text())
        assert said["decoder_start_token_id"] == tokenizer.begin
    closed = tuple(i for i in tokenizer.special_ids if i != end)
    how: Any = {"forbidden": closed, "sources": [source], "end": end}
    warm = GenerationSettings(temperature=1.0)
    ((right,), (wrong,)) = (
        generate(loaded.network, [[token, *opening(tokenizer)]], 20, warm, **how)
        for token in (tokenizer.begin, end)
    )
    assert written(tmp_path / "run", TEXTS[0], temperature=1.0) == tokenizer.decode(right)
    assert right != wrong


def test_samples_of_a_run_show_no_frame(made: tuple[Style, Path]) -> None:
    style, out = made
    (sample,) = [r for r in checkpoints.read_journal(out) if r["kind"] == "sample"]
    assert SIGNS[style] in sample["prompt"]
    assert sample["text"].split()[0] in ("the", "a")
    assert not set("<>[]") & set(sample["text"])


@pytest.mark.parametrize("there", [False, True])
def test_a_run_without_a_checkpoint_is_to_be_resumed(
    models: dict[str, Path], there: bool, tmp_path: Path
) -> None:
    out = shutil.copytree(models["bart"], tmp_path / "run")
    shutil.rmtree(out / "checkpoints")
    (out / "metrics.jsonl").unlink()
    if there:
        (out / "checkpoints").mkdir()
    for question in (
        lambda: evaluate_text(out, []),
        lambda: api.fill_mask(out, "the <mask>"),
        lambda: written(out, "the"),
    ):
        with pytest.raises(CheckpointError) as caught:
            question()
        assert f"maskwright resume {out}" in str(caught.value)
    if there:
        run.resume(out, stream=io.StringIO())  # which is no empty promise
        assert folders.newest(out).name == "step-00000002"
