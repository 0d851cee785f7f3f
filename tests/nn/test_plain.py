"""Under `kernels.plain()` a network in evaluation mode has only operations of PyTorch, results stay
what they were, and it can be exported."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from maskwright.model.nn import kernels
from maskwright.model.nn.config import Norm, Rotary
from maskwright.model.nn.kernels.linear import linear, spare_rows
from maskwright.model.nn.layers import NormModule, rotary_table, rotate
from maskwright.model.nn.mask import real
from maskwright.model.nn.transformer import Transformer
from nn.points import model_of
from toys import gpt2


def rms(x: Tensor, weight: Tensor) -> Tensor:
    norm = NormModule(Norm(kind="rms", eps=1e-6), x.shape[-1])
    return torch.func.functional_call(norm, {"weight": weight}, (x,))


def turned(x: Tensor) -> Tensor:
    return rotate(x, rotary_table(Rotary(theta=100.0), torch.arange(3)[None], x.shape[-1]))


# What is computed, the shapes of what goes in, and its type.
Case = tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...], torch.dtype]
KERNELS: dict[str, Case] = {
    "norm": (rms, ((3, 8), (8,)), torch.float32),
    "rotation": (turned, ((2, 2, 3, 8),), torch.float32),
    "linear": (linear, ((6, 10), (4, 10), (4,)), torch.bfloat16),
}


def own_functions(out: Tensor) -> Iterator[str]:
    """Names of the operations behind `out` whose gradient is not PyTorch's."""
    todo, seen = [out.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            yield node.name()
        todo += [before for before, _ in node.next_functions]


@pytest.mark.parametrize("name", KERNELS)
def test_the_plain_path_has_the_same_results(name: str) -> None:
    function, shapes, dtype = KERNELS[name]
    draw, tolerance = torch.Generator().manual_seed(0), 2e-2 if name == "linear" else 1e-5
    inputs = [torch.randn(shape, generator=draw).to(dtype).requires_grad_() for shape in shapes]
    fast = function(*inputs)
    with kernels.plain():
        plain = function(*inputs)
        assert spare_rows(inputs[0].bfloat16()) == 0
    torch.testing.assert_close(plain, fast, rtol=tolerance, atol=tolerance)
    assert not list(own_functions(plain))
    assert name == "linear" or list(own_functions(fast)), "the control: otherwise it is ours"
    assert spare_rows(inputs[0].bfloat16()) > 0


def test_the_switch_goes_back_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), kernels.plain():
        with kernels.plain():
            pass
        assert kernels.is_plain()
        _ = 1 / 0
    assert not kernels.is_plain()


class Scores(nn.Module):
    """(B, T) ids, and which of them are no padding -> scores over the vocabulary."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.network = network.eval()

    def forward(self, ids: Tensor, keep: Tensor) -> Tensor:
        run = self.network.decode if self.network.encoder is None else self.network.encode
        return self.network.logits(run(ids, visible=real(keep)))


IDS = torch.tensor([[5, 6, 7, 8, 9], [9, 8, 7, 6, 5]])
KEEP = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()


@pytest.mark.parametrize(
    "make", [gpt2, partial(model_of, "rotary alternating encoder")], ids=["gpt2", "rotary"]
)
def test_a_network_can_be_exported(make: Callable[[], Transformer]) -> None:
    scores = Scores(make())
    with kernels.plain(), torch.no_grad():
        program = torch.export.export(scores, (IDS, KEEP))
    calls = {node.target for node in program.graph.nodes if node.op == "call_function"}
    namespaces = {call.namespace for call in calls - {operator.getitem}}
    assert namespaces == {"aten"}
    other = (IDS.flip(1) + 1, KEEP.flip(0))  # not as traced
    with torch.no_grad():
        wanted = scores(*other)
        torch.testing.assert_close(program.module()(*other), wanted)
        assert not torch.allclose(scores(IDS, KEEP), wanted, atol=1e-3), "the control"
