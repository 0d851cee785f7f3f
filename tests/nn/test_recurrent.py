"""Recurrent layers against the equations of their cells and PyTorch's own layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from maskwright.model.nn.characters import BEGIN, END, CharacterVectors
from maskwright.model.nn.config import CharacterTokens, Recurrent
from maskwright.model.nn.initialise import build
from maskwright.model.nn.mask import AttentionMask, real, same_document
from maskwright.model.nn.recurrent import LSTMCells, RecurrentModule, Steps
from toys import VOCABULARY, elmo

INPUTS = 6
# Two texts in a row, padding at either end, and a position in the middle that is not read.
DOCUMENTS = torch.tensor([[1, 1, 1, 2, 2, 2, 2, 0], [0, 0, 1, 1, 1, 1, 2, 2]], dtype=torch.int32)
READ = torch.ones(2, 8, dtype=torch.bool)
READ[0, 5] = READ[1, 4] = False
MASK = same_document(DOCUMENTS) & real(READ)


def layer(width: int, directions: int) -> RecurrentModule:
    torch.manual_seed(0)
    return RecurrentModule(
        Recurrent(cells=8, width=width, directions=directions), INPUTS * directions
    ).double()


def states(module: RecurrentModule, x: Tensor, mask: AttentionMask) -> Tensor:
    shape = (x.shape[0], x.shape[1])
    return module(x, [Steps.of(mask, shape, backward, x) for backward in (False, True)])


def by_equations(cells: LSTMCells, x: Tensor) -> Tensor:
    """One step after the other (Hochreiter & Schmidhuber 1997; Sak et al. 2014)."""
    state, cell, found = x.new_zeros(cells.config.width), x.new_zeros(cells.config.cells), []
    for vector in x:
        gates = cells.input @ vector + cells.state @ state + cells.bias
        enter, forget, candidate, leave = gates.chunk(4)
        cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
        state = leave.sigmoid() * cell.tanh()
        state = state if cells.project is None else cells.project @ state
        found.append(state)
    return torch.stack(found)


def by_torch(cells: LSTMCells, x: Tensor) -> Tensor:
    width = cells.config.width
    theirs = torch.nn.LSTM(INPUTS, 8, proj_size=0 if width == 8 else width).double()
    values = {"weight_ih_l0": cells.input, "weight_hh_l0": cells.state, "bias_ih_l0": cells.bias}
    values |= {"bias_hh_l0": torch.zeros_like(cells.bias)}
    values |= {} if cells.project is None else {"weight_hr_l0": cells.project}
    return torch.func.functional_call(theirs, values, (x,))[0]


@pytest.mark.parametrize("reference", [by_equations, by_torch])
@pytest.mark.parametrize(("width", "directions"), [(8, 1), (8, 2), (4, 2)])
def test_states_are_those_of_each_text_by_itself(
    width: int, directions: int, reference: object
) -> None:
    module = layer(width, directions)
    x = torch.randn(2, 8, INPUTS * directions, dtype=torch.float64, requires_grad=True)
    found, wanted = states(module, x, MASK), torch.zeros(2, 8, width * directions).double()
    for row in range(2):
        for document in (1, 2):
            at = ((DOCUMENTS[row] == document) & READ[row]).nonzero()[:, 0]
            for number, cells in enumerate(module.directions):
                order = at.flip(0) if number else at
                half = x[row, order].chunk(directions, -1)[number]
                columns = slice(number * width, (number + 1) * width)
                wanted[row, order, columns] = reference(cells, half)  # type: ignore[operator]
    wanted[0, 5], wanted[1, 4] = wanted[0, 4], wanted[1, 3]  # as the last one that was read
    assert torch.allclose(found, wanted, atol=1e-12)
    ours, theirs = (torch.autograd.grad(y.square().sum(), x)[0] for y in (found, wanted))
    assert torch.allclose(ours, theirs, atol=1e-12)
    # The control: texts that are read as one.
    assert not torch.allclose(states(module, x, real(READ)), wanted, atol=1e-3)


def test_new_weights_keep_the_characters() -> None:
    trained = elmo()
    trained.tokens.spell(["ab"] * VOCABULARY.size, [False] * VOCABULARY.size)
    again, other = (build(trained.config, like=like) for like in (trained, None))
    assert torch.equal(again.tokens.spelling, trained.tokens.spelling)
    assert not torch.equal(other.tokens.spelling, trained.tokens.spelling)  # the control
    assert not torch.equal(again.tokens.weight, trained.tokens.weight)


def test_each_half_sees_its_side() -> None:
    module, x = layer(4, 2), torch.randn(1, 5, 2 * INPUTS, dtype=torch.float64)
    changed = x.clone()
    changed[0, 2] += 1
    whole = real(torch.ones(1, 5, dtype=torch.bool))
    moved = (states(module, changed, whole) - states(module, x, whole)).abs()[0] > 1e-9
    assert moved[:, :4].any(1).tolist() == [False, False, True, True, True]
    assert moved[:, 4:].any(1).tolist() == [True, True, True, False, False]


def characters() -> CharacterVectors:
    torch.manual_seed(0)
    config = CharacterTokens(
        vocabulary=6, width=4, longest=5, character_width=3, filters=(2, 3), highways=1
    )
    module = CharacterVectors(config).double()
    module.spell(["[PAD]", "cat", "ca", "t", "s", "ö"], [False, False, False, True, True, False])
    return module


@torch.no_grad()
def test_a_word_is_its_characters_whatever_its_tokens() -> None:
    """`cat` as a token, and as `ca ##t`; in a batch with longer words and alone; and a word against
    filters, highway and projection written down (Kim et al. 2016, equations 5 to 8)."""
    module = characters()
    whole, spelled = module(torch.tensor([[1, 5, 0]])), module(torch.tensor([[2, 3, 5]]))
    assert torch.allclose(whole[0, 0], spelled[0, 0], atol=1e-14)
    assert torch.equal(spelled[0, 0], spelled[0, 1])
    assert torch.allclose(whole[0, 0], module(torch.tensor([[1]]))[0, 0], atol=1e-14)
    assert not torch.allclose(module(torch.tensor([[2, 4]]))[0, 0], whole[0, 0])  # cas, not cat
    assert module.begins(torch.tensor([[3, 1, 4]])).tolist() == [[True, True, False]]
    symbols = torch.tensor([BEGIN, *(byte + 1 for byte in b"cat"), END])
    vectors = torch.cat([module.characters(symbols), torch.zeros(4, 3).double()])
    x = torch.cat(
        [
            torch.stack(
                [convolution(vectors[n : n + width].flatten()) for n in range(9 - width)]
            ).amax(0)
            for width, convolution in enumerate(module.filters, 1)
        ]
    ).relu()
    carry, change = module.highways[0](x).chunk(2)
    x = carry.sigmoid() * x + (1 - carry.sigmoid()) * change.relu()
    assert torch.allclose(whole[0, 0], x @ module.weight.T + module.bias, atol=1e-12)
