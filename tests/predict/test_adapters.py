"""Adapters and heads that are loaded beside each other answer as from their own folders, on one
copy of what they have in common, and each text is read once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maskwright
from finetune.test_command import table
from maskwright.ask.predict import predictor
from maskwright.ask.predict.language_model import LanguageModel
from maskwright.ask.predict.shared_encoder import load_shared
from maskwright.base.errors import CheckpointError, IncompatibleError, UsageError
from maskwright.model.inference.shared_layers import SharedLayers
from small_tasks import finetuned

TEXTS = ["the cat sat on the mat", "a dog", "one big red dog ran and saw a hat", "the dog"]
MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "sounds": ("classification", {"method": "lora"}),
    "moods": ("classification", {"method": "ia3"}),
    "topics": ("classification", {"method": "probe"}),
    "lengths": ("regression", {"method": "probe"}),
    "front": ("classification", {"method": "prefix"}),
    "moved": ("classification", {"method": "full"}),
    # Of which `peft` has no form.
    "beside": ("classification", {"method": "bottleneck"}),
    "pooled": ("classification", {"method": "lora", "pooling": "mean"}),
    "labels": ("multi-label", {"method": "probe"}),
    "short": ("classification", {"method": "probe", "length": 9}),
}


def load(folder: Path, **options: Any) -> LanguageModel:
    return maskwright.load(folder, precision="float32", **options)


def near(found: list[Any], wanted: list[Any]) -> bool:
    """The same labels, with scores that are equal up to rounding."""
    return all(
        a.get("label") == b.get("label") and a["score"] == pytest.approx(b["score"], abs=1e-6)
        for a, b in zip(found, wanted, strict=True)
    )


@pytest.fixture(scope="module")
def results(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    for name, (task, chosen) in MADE.items():
        data = table(folder / f"{name}.csv", task, 60)
        options: dict[str, Any] = {**chosen, "rate": 0.02, "least_steps": 0}
        finetuned(model, data, folder / name, epochs=1, batch=16, **options)
    return {name: folder / name for name in MADE}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens were read at each reading for several."""
    sizes, ragged = list[int](), SharedLayers.ragged

    def reading(self: SharedLayers, *given: Any) -> Any:
        sizes.append(len(given[0]))
        return ragged(self, *given)

    monkeypatch.setattr(SharedLayers, "ragged", reading)
    return sizes


def test_each_answers_as_from_its_own_folder(model: Path, results: dict[str, Path]) -> None:
    opened = load(model)
    before = opened.embed(TEXTS)
    names = ("sounds", "moods", "topics", "lengths", "front")
    wanted = {name: load(results[name]).predict(TEXTS) for name in names}
    assert [opened.load_adapter(results[name]) for name in names] == list(names)
    assert opened.adapters == names and opened.active_adapter is None
    for name in (*names, *names[::-1]):
        opened.set_adapter(name)
        assert "predict" in opened.abilities and near(opened.predict(TEXTS), wanted[name])
    # Several at once; the control: they say different things.
    together = opened.predict(TEXTS, adapters=["lengths", "sounds", "topics"])
    for name in ("lengths", "sounds", "topics"):
        assert near([row[name] for row in together], wanted[name])
    assert not near(wanted["sounds"], wanted["moods"])
    opened.set_adapter(None)
    assert np.array_equal(opened.embed(TEXTS), before)
    assert "predict" not in opened.abilities


@pytest.mark.parametrize("name", sorted(MADE.keys() - {"moved", "labels", "short"}))
def test_the_folder_of_an_adapter_is_opened_by_its_own_path(
    name: str, results: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every method; the control: without the result around it, what is missing is named."""
    adapter, wanted = results[name] / "adapter", load(results[name]).predict(TEXTS)
    assert near(load(adapter).predict(TEXTS), wanted)
    monkeypatch.chdir(adapter)
    assert near(load(Path()).predict(TEXTS), wanted)
    if name == "front":
        shutil.copytree(results[name] / "model", tmp_path / "body")
        with pytest.raises(CheckpointError, match="adapter"):
            load(tmp_path / "body")
    if (adapter / "adapter.json").is_file() and (results[name] / "model").is_dir():
        shutil.copytree(adapter, tmp_path / "alone")
        with pytest.raises(IncompatibleError, match=r"adapter\.json") as caught:
            load(tmp_path / "alone")
        assert str(caught.value.where).endswith("adapter.json")


def test_what_they_have_in_common_is_held_once(
    model: Path, results: dict[str, Path], reads: list[int]
) -> None:
    opened = load(model)
    opened.embed(TEXTS)
    for name in ("sounds", "topics", "lengths"):
        opened.load_adapter(results[name])
    base, topics, sounds = (opened._models[n] for n in (None, "topics", "sounds"))
    body, head, lora = (each.network() for each in (base, topics, sounds))
    assert body.products is head.products is lora.products

    def second(network: Any) -> Any:
        return network.encoder.layers[0].feed_forward.up

    assert second(body) is second(head) is second(lora)
    assert lora.network.tokens.weight is body.network.tokens.weight
    # The control: another model with as many numbers shares nothing.
    other = load(model)._now.network()
    assert second(other) is not second(body)
    opened.predict(TEXTS, adapters=["topics", "lengths", "sounds"])
    assert len(reads) == 1, "two heads and an adapter, one reading"
    # LoRA acts beside the weights of the base, which are laid out once.
    (ours, theirs) = (_attention(each) for each in (body, lora))
    assert theirs.acts and not ours.acts and theirs.key == ours.key
    assert theirs.packed.weight is ours.packed.weight


def _attention(network: Any) -> Any:
    return network.encoder.layers[0].attention.all


def test_an_adapter_folder_is_swapped_for_others(results: dict[str, Path], model: Path) -> None:
    """A folder of `peft` opens on its base, active as "default"."""
    folder = results["sounds"] / "adapter"
    alone = results["sounds"].parent / "alone"
    if not alone.exists():
        shutil.copytree(folder, alone)
    opened = load(alone, base=results["sounds"] / "model")
    assert opened.active_adapter == "default" and opened.adapters == ("default",)
    first = opened.predict(TEXTS)
    opened.load_adapter(results["moods"], "moods")
    opened.set_adapter("moods")
    assert near(opened.predict(TEXTS), load(results["moods"]).predict(TEXTS))
    opened.set_adapter("default")
    assert opened.predict(TEXTS) == first


def test_refusals(model: Path, results: dict[str, Path], models: dict[str, Path]) -> None:
    opened = load(model)
    with pytest.raises(UsageError, match="adapter"):
        opened.set_adapter("sounds")
    with pytest.raises(IncompatibleError) as plain:
        opened.predict(TEXTS)
    assert "set_adapter" not in str(plain.value), "the control: there is none to set"
    opened.load_adapter(results["topics"], "a")
    with pytest.raises(IncompatibleError):
        opened.predict(TEXTS)
    with pytest.raises(UsageError, match="loaded already"):
        opened.load_adapter(results["topics"], "a")
    with pytest.raises(UsageError, match="adapter"):
        opened.predict(TEXTS, adapters=["a", "b"])
    for folder in (results["moved"], models["gpt2"]):
        with pytest.raises(IncompatibleError):
            opened.load_adapter(folder)
    assert opened.adapters == ("a",)


def test_weights_are_held_once_until_the_network_is_asked_for(model: Path) -> None:
    opened = load(model)
    first = opened.embed(TEXTS)
    network = opened._now.model.network
    assert network.encoder is not None
    up = network.encoder.blocks["0"].feed_forward.up  # type: ignore[union-attr]
    assert up.weight.numel() == 0
    whole = opened.model.network
    other = load(model).model.network
    for name, weight in whole.named_parameters():
        assert np.array_equal(weight.detach(), other.get_parameter(name).detach()), name
    assert np.array_equal(opened.embed(TEXTS), first)
    assert up.weight.numel() > 0
    # A second precision needs the weights, too; the control is what bfloat16 gives.
    written = load(model)
    exact = written.embed(TEXTS)
    written._now.network("bfloat16").encode(whole.tokens.weight.new_ones(1, 3).long())
    assert np.array_equal(written.embed(TEXTS), exact)


# ------------------------------------------------------------------------------ heads above a body
HEADS = ("topics", "lengths", "labels")


def test_heads_together_say_what_each_says(results: dict[str, Path], reads: list[int]) -> None:
    texts = TEXTS * 5
    alone = [predictor.load(results[name]).predict(texts) for name in HEADS]
    several = load_shared([results[name] for name in HEADS])
    together = several.predict(texts)
    assert len(reads) == 1, "one batch, read once for three heads"
    assert together == [dict(zip(HEADS, row, strict=True)) for row in zip(*alone, strict=True)]
    assert together[0]["topics"] != together[0]["lengths"]
    assert len({id(member.model.encoder) for member in several.members.values()}) == 1


def test_heads_that_do_not_go_together_are_refused(results: dict[str, Path]) -> None:
    for other, kind, word in (
        ("moved", IncompatibleError, "--method probe"),
        ("short", IncompatibleError, "length 9"),
        ("topics", UsageError, "topics"),
    ):
        with pytest.raises(kind) as refused:
            load_shared([results["topics"], results[other]])
        assert word in str(refused.value) and other in str(refused.value)
