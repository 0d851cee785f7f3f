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


# What is computed, and the shapes of what goes in.
Case = tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]
KERNELS: dict[str, Case] = {
    "norm": (rms, ((3, 8), (8,))),
    "rotation": (turned, ((2, 2, 3, 8),)),
}


def drawn(shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    made = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return [x.requires_grad_() for x in made]


def with_gradients(
    function: Callable[..., Tensor], inputs: list[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    out = function(*inputs)
    weights = torch.linspace(-1.0, 1.0, out.numel(), dtype=out.dtype).view(out.shape)
    weights = weights if out.ndim else weights.new_ones(())
    return out, [*torch.autograd.grad((out * weights).sum(), inputs, retain_graph=True)]


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


def same(found: list[Tensor], wanted: list[Tensor], tolerance: float = 1e-5) -> bool:
    pairs = zip(found, wanted, strict=True)
    return all(torch.allclose(a, b, rtol=tolerance, atol=tolerance) for a, b in pairs)


@pytest.mark.parametrize("name", KERNELS)
def test_the_plain_path_has_the_same_results(name: str) -> None:
    function, shapes = KERNELS[name]
    inputs = drawn(shapes)
    fast, fast_gradients = with_gradients(function, inputs)
    with kernels.plain():
        plain, plain_gradients = with_gradients(function, inputs)
    assert same([plain, *plain_gradients], [fast, *fast_gradients])
    assert not list(own_functions(plain))
    assert list(own_functions(fast)), "the control: without the switch it is ours"
    assert not same(plain_gradients, [1.01 * x + 1e-3 for x in fast_gradients])


def test_linear_in_bfloat16() -> None:
    inputs = drawn(((6, 10), (4, 10), (4,)), torch.bfloat16)
    fast, fast_gradients = with_gradients(linear, inputs)
    with kernels.plain():
        plain, plain_gradients = with_gradients(linear, inputs)
        assert spare_rows(inputs[0]) == 0
    assert same([plain, *plain_gradients], [fast, *fast_gradients], 2e-2)
    assert not list(own_functions(plain))
    assert spare_rows(inputs[0]) > 0


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
