"""The last layer at some positions: the states and gradients that it would have at all of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from laws.test_mask_law import LENGTH, ONE_STACK, ROWS, WORLDS, force
from maskwright.model.nn import stack
from maskwright.model.nn.stack import Selection, Trace
from maskwright.model.nn.transformer import Transformer
from nn.points import PAIRS, model_of, tokens

# Of row 0 one position, of row 1 several; out of order, one of them twice.
SOME = torch.tensor([LENGTH + 7, 3, LENGTH + 1, LENGTH + 7, LENGTH + 11])


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if choosing were worth it for these few positions, too."""
    monkeypatch.setattr(stack, "WORTH", 1.0)
    monkeypatch.setattr(stack, "STEP", 1)


def states(model: Transformer, world: str) -> tuple[Tensor, Tensor]:
    """(at `SOME` alone, of all positions and then at `SOME`)."""
    run = model.encode if model.encoder is not None else model.decode
    ids, visible = tokens(ROWS, LENGTH), WORLDS[world]
    return run(ids, visible=visible, at=SOME), run(ids, visible=visible).flatten(0, 1)[SOME]


@pytest.mark.parametrize(
    ("world", "kernel"),
    [*((world, "explicit") for world in WORLDS), ("plain", "sdpa"), ("packed", "sdpa")],
)
@pytest.mark.parametrize("name", ONE_STACK)
def test_same_states(monkeypatch: pytest.MonkeyPatch, name: str, world: str, kernel: str) -> None:
    force(monkeypatch, kernel)
    some, among_all = states(model_of(name, deviation=0.5).double(), world)
    torch.testing.assert_close(some, among_all, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("world", ["plain", "packed", "hybrid"])
@pytest.mark.parametrize("name", ONE_STACK)
def test_the_same_gradients(name: str, world: str) -> None:
    model = model_of(name, deviation=0.5).double()
    weights = torch.randn(len(SOME), model.config.width, dtype=torch.float64)
    found = []
    for each in states(model, world):
        model.zero_grad()
        (each * weights).sum().backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    for parameter, gradient in ours.items():  # rotary positions are turned in float32
        apart, size = gradient - theirs[parameter], theirs[parameter].abs().max()
        assert float(apart.abs().max()) <= 1e-5 * (1 + float(size)), parameter


@pytest.mark.parametrize("name", PAIRS)
def test_a_decoder_with_a_memory(name: str) -> None:
    model = model_of(name, deviation=0.5).double()
    memory, written = model.encode(tokens(ROWS, 9)), tokens(ROWS, LENGTH, seed=1)
    some = model.decode(written, memory=memory, at=SOME)
    whole = model.decode(written, memory=memory).flatten(0, 1)[SOME]
    torch.testing.assert_close(some, whole, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ONE_STACK)
def test_it_sees_another_place(name: str) -> None:
    some, among_all = states(model_of(name, deviation=0.5).double(), "plain")
    assert not torch.allclose(some.roll(1, 0), among_all, atol=1e-3)


def test_by_hand() -> None:
    found = Selection.of(torch.tensor([0, 3, 6, 8, 9]), 2, 5)
    assert found.positions.tolist() == [[0, 3, 0], [1, 3, 4]]
    assert found.back.tolist() == [0, 1, 3, 4, 5]
    x = torch.arange(10.0).view(2, 5, 1)
    assert found.pick(found.take(x))[:, 0].tolist() == [0, 3, 6, 8, 9]


def test_no_position_at_all() -> None:
    model = model_of(ONE_STACK[0])
    out = model.encode(tokens(ROWS, LENGTH), at=SOME[:0])
    assert out.shape == (0, model.config.width)
    out.sum().backward()


def test_most_positions_are_not_chosen_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert Selection.of(torch.arange(0, 240), 2, 128) is None, "nearly all"
    assert Selection.of(torch.arange(0, 120), 2, 128) is None, "nearly all of one row"
    widths = {Selection.of(torch.arange(n), 2, 128).positions.shape[1] for n in range(1, 89)}
    assert widths == set(range(8, 96, 8)), "of few widths"


def test_what_is_traced_is_whole() -> None:
    model, trace = model_of(ONE_STACK[0]), Trace()
    some = model.encode(tokens(ROWS, LENGTH), at=SOME, trace=trace)
    assert trace.hidden[-1].shape[:2] == (ROWS, LENGTH)
    torch.testing.assert_close(some, trace.hidden[-1].flatten(0, 1)[SOME])
