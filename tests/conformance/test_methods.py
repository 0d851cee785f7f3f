"""Every method of fine-tuning on every family, through the loop that users run: it learns, and it
moves what it said it would and nothing else."""

from __future__ import annotations

import re
import statistics
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from checkpoint.small import model_of, small
from conformance import method_table
from conformance.test_adapters import BARE as WITHOUT
from conformance.test_adapters import FAMILIES
from maskwright.base.errors import ConfigError, IncompatibleError
from maskwright.learn.finetune.learner import attach, learning_rate_factors, reinitialised
from maskwright.learn.finetune.method import Method, names
from maskwright.learn.finetune.tune import Settings, tune
from maskwright.learn.train.settings import AdamW
from maskwright.model.checkpoint.matching import load_matching
from maskwright.model.device.machine import Machine
from maskwright.model.families.base.family import family
from maskwright.model.inference.encoded import Collation, EncodedExamples, ImageRows, framed
from maskwright.model.nn.config import Head, Learned, Patches, Tokens, TransformerConfig
from maskwright.model.nn.initialise import build
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Vocabulary
from maskwright.model.objectives.modules.supervised import Supervised
from maskwright.model.objectives.supervised import Options
from maskwright.text.images.processor import ImageProcessor

METHODS = [name for name in names() if Method(name).fitted is None]
# Layers that have weights in common cannot begin anew, nor can layers that are not there.
SHARING = [("reinit-1", "albert"), ("reinit-1", "static-vectors")]
BARE = [*WITHOUT, ("last-1", "static-vectors")]
CASES = [(m, name) for m in METHODS for name in FAMILIES if (m, name) not in (*BARE, *SHARING)]
# One of each sort learns in the everyday suite: of the others it is seen what moves. `make proof`
# and `make methods` teach them all.
EVERYDAY = ("albert", "bart", "bert", "gpt2")
LEARNING = [c if c[1] in EVERYDAY else pytest.param(*c, marks=pytest.mark.proof) for c in CASES]
PLAIN = Machine(torch.device("cpu"), torch.float32, "a test")
WORDS = Vocabulary(size=61, mask=1, special=(0, 1))


def roomy(config: TransformerConfig) -> TransformerConfig:
    """With positions enough for a prompt of the usual length."""
    stacks = {}
    for where, stack in config.stacks.items():
        table = stack.embeddings.positions
        if isinstance(table, Learned) and isinstance(config.tokens, Tokens):
            embeddings = replace(stack.embeddings, positions=replace(table, length=64))
            stacks[where] = replace(stack, embeddings=embeddings)
    return replace(config, **stacks)


def classifier(name: str, way: Method | None = None) -> Transformer:
    """With the head that the method trains."""
    member = family(name)
    kind = next((k for k in member.architectures if "SequenceClassification" in k), None)
    config = roomy(small(member, kind))
    head: Head = next(iter(config.heads), Head(name="classifier", kind="sequence", labels=2))
    config = replace(config, heads=(replace(head, labels=2),))
    return model_of(config if way is None else way.with_heads(config))


def task(network: Transformer, count: int = 48) -> EncodedExamples:
    """Which of two tokens a text consists of; how bright an image is."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, count)
    if isinstance(patches := network.config.tokens, Patches):
        noise = draw.integers(0, 128, (count, patches.image_size, patches.image_size, 2))
        pixels = (noise + 127 * labels[:, None, None, None]).astype(np.uint8)
        processor = ImageProcessor(mean=None, deviation=None)
        return EncodedExamples.of_images(ImageRows(pixels, processor, patches.patch_size), labels)
    texts = [[2, *[5 + int(label)] * int(draw.integers(2, 5)), 3] for label in labels]
    return EncodedExamples(framed(texts), labels)


def learned(
    method: str, name: str, count: int = 48, epochs: int | None = None
) -> tuple[list[float], set[str], set[str], set[str]]:
    """Losses, and names: what was declared, what moved, what there is."""
    way = Method(method)
    network = classifier(name, way)
    attach(way, network, torch.Generator().manual_seed(0))
    config = network.config
    start = 0 if len(config.stacks) == 2 else None
    collation = Collation(0, config.decoder is not None, start, alone=way.positions > 0)
    before = {n: p.detach().clone() for n, p in network.named_parameters()}
    declared = {n for n, p in network.named_parameters() if p.requires_grad}
    # These two begin from drawn vectors.
    epochs = epochs or (12 if method in ("prefix", "prompt") else 4)
    settings = Settings(epochs=epochs, batch=16, optimizer=AdamW(learning_rate=1e-2, decay=0.0))
    tuned = tune(
        Supervised(network, Options(), WORDS),
        task(network, count),
        collation,
        settings,
        rate_factors=partial(learning_rate_factors, way),
        machine=PLAIN,
    )
    after = dict(tuned.model.named_parameters())
    assert after.keys() == before.keys()
    moved = {n for n, value in before.items() if not torch.equal(after[n], value)}
    return tuned.losses, declared, moved, set(before)


@pytest.mark.parametrize(("method", "name"), LEARNING)
def test_it_learns_and_moves_what_it_declared(method: str, name: str) -> None:
    losses, declared, moved, there = learned(method, name)
    # A head that learns ten times as fast may leap once it is almost right: the middle tells.
    assert statistics.median(losses[len(losses) // 2 :]) < losses[0]
    only_what_was_declared(method, declared, moved, there)


@pytest.mark.parametrize(("method", "name"), [c for c in CASES if c[1] not in EVERYDAY])
def test_it_moves_what_it_declared(method: str, name: str) -> None:
    only_what_was_declared(method, *learned(method, name, 16, 2)[1:])


def only_what_was_declared(
    method: str, declared: set[str], moved: set[str], there: set[str]
) -> None:
    assert moved <= declared and {n for n in there if n.startswith("heads.")} <= moved
    # The control: but for these two, something has to stand still.
    assert (declared < there) is (method not in ("full", "reinit-1", "gradual"))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_probe_is_a_linear_head_and_nothing_else(name: str) -> None:
    """Whatever the family has below its scores; the control: its own head has that, too."""
    names, config = {}, classifier(name).config
    for method in ("probe", "head"):
        way = Method(method)
        network = classifier(name, way)
        _, share = attach(way, network, torch.Generator())
        names[method] = {n for n, p in network.named_parameters() if p.requires_grad}
        if method == "probe":
            count = 2 * config.width + 2
            assert share.startswith(f"{count:,} of ") and network.pooler is None
    assert names["probe"] == {"heads.classifier.weight", "heads.classifier.bias"}
    below = config.pooler or config.heads[0].transform is not None
    assert (len(names["head"]) > 2) is below
    assert not any(n.startswith(("encoder.", "decoder.", "tokens.")) for n in names["head"])


def begun(name: str) -> tuple[set[str], set[str], Transformer]:
    """What `reinit-1` declares, what is not as it was pretrained, and the model."""
    source = classifier(name)
    drawn = build(source.config, torch.Generator().manual_seed(1))
    declared = set(reinitialised(Method("reinit-1"), drawn))
    before = {n: p.detach().clone() for n, p in drawn.named_parameters()}
    made = load_matching(source, drawn, fresh=declared)
    assert set(made.new) == declared and not made.unused
    pretrained = dict(source.named_parameters())
    changed = {n for n, p in drawn.named_parameters() if not torch.equal(p, pretrained[n])}
    assert all(torch.equal(p, before[n]) for n, p in drawn.named_parameters() if n in declared)
    return declared, changed, drawn


@pytest.mark.parametrize("name", [n for n in FAMILIES if ("reinit-1", n) not in SHARING])
def test_the_last_layer_begins_anew_and_nothing_else(name: str) -> None:
    declared, changed, model = begun(name)
    assert changed == declared
    where, stack = list(model.config.stacks.items())[-1]
    last = f"{where}.blocks.{len(stack.blocks) - 1}."
    assert {n for n in declared if not n.startswith("pooler.")} == {
        n for n, _ in model.named_parameters() if n.startswith(last)
    }


@pytest.mark.parametrize(("method", "name"), SHARING)
def test_layers_that_share_weights_do_not_begin_anew(method: str, name: str) -> None:
    with pytest.raises((ConfigError, IncompatibleError)):
        reinitialised(Method(method), classifier(name))


def test_more_layers_than_there_are_do_not_begin_anew() -> None:
    model = classifier("bert")
    layers = len(model.config.stacks["encoder"].blocks)
    everything = reinitialised(Method(f"reinit-{layers}"), model)
    assert {n.split(".")[2] for n in everything if ".blocks." in n} == set(map(str, range(layers)))
    with pytest.raises(ConfigError):
        reinitialised(Method(f"reinit-{layers + 1}"), model)


@pytest.mark.parametrize(("method", "name"), BARE)
def test_what_a_family_has_not_is_refused(method: str, name: str) -> None:
    with pytest.raises((ConfigError, IncompatibleError)):
        learned(method, name)


def test_the_page_has_every_family_and_method() -> None:
    page = (method_table.ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert "CPU:\nall good." in page
    for name in FAMILIES:
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert line.count("|") == len(METHODS) + 2 and "**" not in line


def test_what_fails_is_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(method: str, name: str) -> None:
        raise AssertionError("it moved")

    monkeypatch.setattr(method_table.methods, "test_it_learns_and_moves_what_it_declared", broken)
    text, good = method_table.cell("probe", "bert")
    assert not good and re.fullmatch(r"\*\*(\d+) of (?!\1)\d+\*\*", text)
    assert "it moved" in capsys.readouterr().err
    assert "CPU:\n**" in method_table.page([("bert", [("**0 of 1**", False)])])
