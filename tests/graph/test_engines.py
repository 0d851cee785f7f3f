"""Other engines: they answer as ours does, one that does not is refused, and one is taken in place
of ours only where it is measured to be faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.ask.predict import engine_network
from maskwright.ask.predict.engine_network import EngineNetwork, with_engine
from maskwright.ask.predict.language_model import load
from maskwright.base import catalogue
from maskwright.base.errors import Finding, IncompatibleError, UsageError
from maskwright.model.device import choices
from maskwright.model.graph.engines.base import engine
from maskwright.model.inference.batches import WASTE, RowGroup, rectangles
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.inference.shared_layers import can_share, layers_of
from maskwright.model.nn.initialise import build
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening.open import open_merged
from nn.points import POINTS
from toys import VOCABULARY, encoder_decoder, gpt2

EXACT = ("onnxruntime", "openvino")
CASES = [("encoder", name) for name in catalogue.names(choices.ENGINES)]
# Weights as small as those of this decoder are nothing in 8 bits.
CASES += [("decoder", name) for name in EXACT]
TEXTS = ["the cat sat on the mat.", "the dog", "a big dog saw the old cat.", "the cat"]
GROUPS = [RowGroup(1, 21), RowGroup(2, 20), RowGroup(1, 9), RowGroup(3, 2), RowGroup(1, 1)]


@pytest.fixture(scope="module")
def written() -> dict[str, Path]:
    return {}


@pytest.fixture
def graphs(
    written: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The graph of a network is written once."""
    write = engine_network._graph

    def once(ready: Prepared, folder: Path) -> Path:
        side = "decoder" if ready.config.encoder is None else "encoder"
        if side not in written:
            written[side] = write(ready, tmp_path_factory.mktemp(side))
        return written[side]

    monkeypatch.setattr(engine_network, "_graph", once)


def rotary_decoder() -> Transformer:
    """A layer that sees all and two with windows, of other rotations and with shared keys."""
    config = POINTS["rotary decoder"]
    assert config.decoder is not None
    return build(replace(config, decoder=replace(config.decoder, final_norm=True)))


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(("side", "name"), CASES)
def test_states_are_those_of_our_own_engine(side: str, name: str, model: Path) -> None:
    """Of all places, of the first and of the last, with segments where the model has them."""
    if choices.missing_packages(name):
        pytest.skip(f"{name} is not installed")
    network = open_merged(model).network if side == "encoder" else rotary_decoder()
    ready = prepare(network, precision="float32")
    computed, (said,) = with_engine(ready, name)
    assert isinstance(computed, EngineNetwork) and computed.engine.name == name
    assert name in said.what and "cosine" in said.evidence
    count = sum(group.count * group.length for group in GROUPS)
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(5, network.config.tokens.vocabulary, (count,), generator=generator)
    segments = torch.arange(count) % 2 if network.config.has_segments else None
    for place in (None, "first", "last"):
        ours = ready.ragged(tokens, GROUPS, segments, place)  # type: ignore[arg-type]
        found = computed.ragged(tokens, GROUPS, segments, place)  # type: ignore[arg-type]
        assert found.dtype == torch.float32 and found.shape == ours.shape
        assert torch.allclose(found, ours, atol=1e-5 if name in EXACT else 0.3), place
        wrong = computed.ragged(tokens.flip(0), GROUPS, segments, place)  # type: ignore[arg-type]
        assert not torch.allclose(wrong, ours, atol=0.3), "the control"


@pytest.mark.usefixtures("graphs")
def test_a_model_answers_alike_by_every_exact_engine(model: Path) -> None:
    known = [name for name in EXACT if not choices.missing_packages(name)]
    if not known:
        pytest.skip("no other engine is installed")
    ours = load(model, precision="float32")
    other = load(model, precision="float32", engine=known[0])
    assert (ours.engine, other.engine) == ("torch", known[0])
    assert any(found.name == "engine-compared" for found in other.findings)
    assert np.allclose(ours.embed(TEXTS), other.embed(TEXTS), atol=1e-5)
    masked = [f"{text} [MASK]" for text in TEXTS]
    for a, b in zip(ours.fill_mask(masked), other.fill_mask(masked), strict=True):
        assert [c.id for c in a[0].candidates] == [c.id for c in b[0].candidates]
    assert np.allclose(ours.log_likelihood(TEXTS), other.log_likelihood(TEXTS), atol=1e-3)


class Scripted:
    """An engine that gives our own states, and adds something to them."""

    precision, bytes = "float32", 1000

    def __init__(self, name: str, network: Transformer, error: float) -> None:
        self.name, self._network, self._error = name, network, error

    def run(self, ids: Any, mask: Any, segments: Any = None) -> Any:
        from maskwright.model.graph.graphs import states_graph

        graph = states_graph(self._network)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        tensors = {name: torch.from_numpy(array) for name, array in given.items()}
        return graph.run(tensors)[graph.outputs[0].name].numpy() + self._error


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Any]:
    """An engine that is there, and gives states that are off by so much."""

    def made(error: float) -> Any:
        network = gpt2()

        def load(name: str, file: Path, **_: Any) -> Scripted:
            return Scripted(name, network, error)

        monkeypatch.setattr(engine_network, "_graph", lambda ready, place: place)
        monkeypatch.setattr(engine, "load", load)
        monkeypatch.setattr(choices, "require_engine", lambda name: None)
        return prepare(network, precision="float32")

    return made


def test_several_askers_are_read_by_one_engine_once() -> None:
    network = gpt2()
    ready, reads = prepare(network, precision="float32"), Scripted("other", network, 0.0)
    both = [EngineNetwork(ready, reads), EngineNetwork(ready, reads)]
    assert can_share(*both)
    assert not can_share(both[0], ready)
    assert not can_share(both[0], EngineNetwork(ready, Scripted("other", network, 0.0)))
    lengths = np.repeat([g.length for g in GROUPS], [g.count for g in GROUPS])
    wanted = np.array([np.arange(len(lengths)) % 2 == 0, np.arange(len(lengths)) > 2])
    tokens = torch.randint(5, VOCABULARY.size, (int(lengths.sum()),))
    layers = layers_of(both)
    assert layers.readings(wanted).tolist() == [1] * len(lengths)
    for place in (None, "last"):
        found = layers.ragged(tokens, lengths, wanted, None, place)  # type: ignore[arg-type]
        ours = ready.ragged(tokens, GROUPS, None, place)  # type: ignore[arg-type]
        for states, mine in zip(found, wanted, strict=True):
            rows = np.repeat(mine, lengths) if place is None else mine
            assert torch.allclose(states, ours[torch.from_numpy(rows)], atol=1e-5)


def test_the_engine_that_is_asked_for_answers_in_the_server(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And in `predict`, and in what stands on the same weights."""
    pytest.importorskip("fastapi")
    from maskwright.ship.serve.served_model import open_all

    chosen: list[str] = []

    def choice(ready: Prepared, name: str) -> tuple[Prepared, tuple[Finding, ...]]:
        chosen.append(name)
        reads = EngineNetwork(ready, Scripted(name, ready.network, 0.0))
        return reads, (Finding("engine", f"{name} answers"),)

    monkeypatch.setattr(engine_network, "with_engine", choice)
    monkeypatch.setattr(choices, "missing_packages", lambda name: [])
    noted: list[Finding] = []
    found = open_all({"one": model, "two": model}, {}, "float32", noted.append, "openvino")
    one, two = (found[name].engine().network() for name in ("one", "two"))
    assert one.engine is two.engine and one.engine.name == "openvino"
    assert "openvino answers" in [each.what for each in noted] and chosen == ["openvino"]
    assert np.allclose(
        found["one"].engine().embedder(None).vectors(TEXTS),
        load(model, precision="float32").embed(TEXTS),
        atol=1e-5,
    )


def test_an_engine_with_other_states_is_refused(scripted: Callable[[float], Any]) -> None:
    with_engine(scripted(0.0), "other")  # the control
    with pytest.raises(IncompatibleError):
        with_engine(scripted(0.05), "other")


def test_rectangles_keep_all_rows_in_order_and_waste_little() -> None:
    generator = np.random.default_rng(0)
    lengths = np.sort(generator.integers(1, 200, 300))[::-1]
    groups = [RowGroup(int((lengths == n).sum()), int(n)) for n in dict.fromkeys(lengths.tolist())]
    parts = list(rectangles(groups))
    assert [group for part in parts for group in part] == groups and 1 < len(parts) < len(groups)
    for part in parts:
        rows, ids = sum(g.count for g in part), sum(g.count * g.length for g in part)
        assert len(part) == 1 or ids >= rows * part[0].length * (1 - WASTE)


def test_what_is_missing_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError) as unknown:
        load("nowhere", engine="openvin")  # before the folder is opened
    assert "'openvino'" in str(unknown.value.wanted)
    monkeypatch.setattr(choices.module_of_engine("openvino"), "NEEDS", ("no_such_package",))
    with pytest.raises(UsageError, match="no-such-package"):
        load(model, engine="openvino")
    with pytest.raises(IncompatibleError):
        engine_network._graph(prepare(encoder_decoder(), precision="float32"), Path())
