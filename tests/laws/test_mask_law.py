"""What a position can feel is what its masks, through the layers, can reach.

Perturb the input at one place; the output at another moves if and only if the masks let it. The two
halves are stated apart. *No leak* is exact: not a single bit moves, in training and inference, with
either kernel, whether a token is replaced or its vector is nudged. *No blindness* needs small
weights, because a saturated softmax can starve a reachable pair below rounding.

A harness that could not see a leak would prove nothing, so masks are also dropped and must be seen.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from maskwright.model.nn import attention
from maskwright.model.nn.attention import KernelCase
from maskwright.model.nn.block_sparse import BlockSight
from maskwright.model.nn.mask import (
    AttentionMask,
    bidirectional,
    causal,
    pattern,
    prefix,
    reach,
    real,
    same_document,
    window,
)
from maskwright.model.nn.transformer import Transformer
from nn.points import DECODERS, ENCODERS, PAIRS, VOCABULARY, model_of, sees_all, tokens

ROWS, LENGTH = 2, 12
DOCUMENTS = torch.tensor([[1] * 5 + [2] * 4 + [3] * 3, [1] * 3 + [2] * 6 + [0] * 3])
PADDED = torch.tensor([[1] * 12, [1] * 7 + [0] * 5])
KEEP = PADDED != 0
WORLDS: dict[str, AttentionMask | None] = {
    "plain": None,
    "packed": same_document(DOCUMENTS),
    "padded": same_document(PADDED),
    "real": real(KEEP),
    "window": window(2, 1),
    "packed window": window(2, 1) & same_document(DOCUMENTS),
    "prefix": prefix(torch.tensor([4, 6])) | causal,
    # One stack, both patterns: the first row reads to the left only, the second both ways.
    "causal": causal,
    "hybrid": (prefix(torch.tensor([0, 12])) | causal) & same_document(DOCUMENTS),
}
ONE_STACK = ENCODERS + DECODERS
Run = Callable[[Tensor], Tensor]


def runner(model: Transformer, visible: AttentionMask | None) -> Run:
    encodes = model.encoder is not None
    return lambda x: (model.encode if encodes else model.decode)(x, visible=visible)


def reachable(model: Transformer, visible: AttentionMask | None) -> Tensor:
    """(rows, output place, input place), by the arithmetic of the masks alone."""
    (stack,) = model.config.stacks.values()
    facts = bidirectional if visible is None else visible
    first = (torch.arange(LENGTH) == 0).expand(ROWS, -1)
    ones = torch.ones(ROWS, LENGTH, dtype=torch.long)
    texts = ones if facts.documents is None else facts.documents
    masks = [
        BlockSight(b.attention.blocks, texts, b.attention.heads, False, 24).mask & facts
        if b.attention.blocks is not None
        else pattern(b.attention.pattern, b.attention.window) & facts
        if b.attention.global_tokens is None
        else (window(*b.attention.window).with_global_keys(first) | sees_all(first)) & facts
        for b in stack.blocks
    ]
    return reach(masks, LENGTH).expand(ROWS, -1, -1)


def with_another_token(ids: Tensor, place: int) -> Tensor:
    changed = ids.clone()
    changed[:, place] = (ids[:, place] + 7) % VOCABULARY
    return changed


def moved(run: Run, x: Tensor, change: Callable[[Tensor, int], Tensor]) -> Tensor:
    """(rows, output place, input place): whether any bit of the output moves. Every other row and
    place of the input is left as it is."""
    with torch.no_grad():
        before = run(x)
        columns = [(run(change(x, place)) != before).any(-1) for place in range(x.shape[1])]
    return torch.stack(columns, -1)


def nudged(vectors: Tensor, place: int) -> Tensor:
    # In one direction of many: a norm would take back a shift of all of them.
    changed = vectors.clone()
    changed[:, place, 0] += 0.37
    return changed


def force(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    if kernel == "blocks":  # of one or two queries, whatever the length
        monkeypatch.setattr(attention, "WORTH_BLOCKS", 0)
        monkeypatch.setattr(attention, "SMALLEST_BLOCK", 1)
        kernel = "explicit"
    cases = [KernelCase(bool(g), bool(d), bool(n)) for g in (0, 1) for d in (0, 1) for n in (0, 1)]
    monkeypatch.setattr(attention, "KERNELS", {("cpu", case): kernel for case in cases})


@pytest.mark.parametrize("kernel", ["explicit", "sdpa", "blocks"])
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ONE_STACK)
def test_no_leak(monkeypatch: pytest.MonkeyPatch, name: str, world: str, kernel: str) -> None:
    """Exact, with large weights: softmax is far from uniform, and outputs are far from small."""
    force(monkeypatch, kernel)
    model, visible = model_of(name, deviation=0.7), WORLDS[world]
    run, allowed = runner(model, visible), reachable(model, visible)
    leaks = moved(run, tokens(ROWS, LENGTH), with_another_token) & ~allowed
    assert not leaks.any(), f"(row, output, input) that leak: {leaks.nonzero()[:5].tolist()}"


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ONE_STACK)
def test_influence_is_reachability(name: str, world: str) -> None:
    """Both halves at once, with small weights and in float64."""
    model, visible = model_of(name, deviation=0.1).double(), WORLDS[world]
    vectors = model.tokens(tokens(ROWS, LENGTH)).detach()
    felt = moved(runner(model, visible), vectors, nudged)
    assert torch.equal(felt, reachable(model, visible))


@pytest.mark.parametrize("name", ONE_STACK)
def test_the_law_sees_a_dropped_mask(name: str) -> None:
    """Negative control: the batch's facts are withheld from the model, and the law notices."""
    model, visible = model_of(name, deviation=0.7), WORLDS["packed"]
    felt = moved(runner(model, None), tokens(ROWS, LENGTH), with_another_token)
    assert (felt & ~reachable(model, visible)).any()


@pytest.mark.parametrize("name", DECODERS)
def test_the_law_sees_a_dropped_pattern(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Negative control: a decoder that forgets to be causal."""
    model = model_of(name, deviation=0.7)
    monkeypatch.setattr(
        "maskwright.model.nn.stack.pattern",
        lambda name, limits=None, marked=None: pattern("bidirectional", limits),
    )
    felt = moved(runner(model, None), tokens(ROWS, LENGTH), with_another_token)
    assert (felt & ~reachable(model, None)).any()


@pytest.mark.parametrize("name", ONE_STACK)
def test_the_law_sees_blindness(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Negative control: a model that sees less than its masks allow."""
    model = model_of(name, deviation=0.1).double()
    vectors = model.tokens(tokens(ROWS, LENGTH)).detach()
    felt = moved(runner(model, window(1, 0)), vectors, nudged)
    assert not torch.equal(felt, reachable(model, None))


@pytest.mark.parametrize("name", ENCODERS)
def test_a_row_of_a_hybrid_batch_reads_as_it_would_alone(name: str) -> None:
    """The first row as in a causal batch, the second as the encoder always does."""
    model, ids, facts = model_of(name), tokens(ROWS, LENGTH), same_document(DOCUMENTS)
    with torch.no_grad():
        both = model.encode(ids, visible=WORLDS["hybrid"])
        left, all_ways = model.encode(ids, visible=causal & facts), model.encode(ids, visible=facts)
    torch.testing.assert_close(both[0], left[0], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(both[1], all_ways[1], atol=2e-5, rtol=1e-4)
    assert not torch.allclose(both[0], all_ways[0], atol=1e-2)  # the control


@pytest.mark.parametrize("name", ONE_STACK)
def test_a_packed_row_is_its_documents(name: str) -> None:
    """Documents in one row, each counted from 0, give what they give alone."""
    model = model_of(name)
    positions = torch.tensor([[*range(5), *range(4), *range(3)]])
    ids = tokens(1, LENGTH)
    run = model.encode if model.encoder is not None else model.decode
    with torch.no_grad():
        packed = run(ids, positions=positions, visible=same_document(DOCUMENTS[:1]))
        alone = torch.cat([run(part) for part in ids.split([5, 4, 3], dim=1)], 1)
    torch.testing.assert_close(packed, alone, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ONE_STACK)
def test_no_gradient_crosses_documents(name: str) -> None:
    model = model_of(name).train()
    vectors = model.tokens(tokens(ROWS, LENGTH)).detach().requires_grad_()
    run = runner(model, WORLDS["packed"])
    (gradient,) = torch.autograd.grad(run(vectors)[0, :5].square().sum(), vectors)
    assert gradient[0, :5].abs().min() > 0
    assert not gradient[0, 5:].any() and not gradient[1].any()


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("kernel", ["explicit", "sdpa"])
def test_two_stacks(monkeypatch: pytest.MonkeyPatch, name: str, kernel: str) -> None:
    """The decoder is causal, and feels of the source what `memory_visible` shows it."""
    force(monkeypatch, kernel)
    model = model_of(name, deviation=0.7)
    source, target = tokens(ROWS, LENGTH), tokens(ROWS, LENGTH, seed=1)
    inside, across = same_document(DOCUMENTS), same_document(DOCUMENTS)

    def of_source(ids: Tensor) -> Tensor:
        memory = model.encode(ids, visible=inside)
        return model.decode(target, visible=inside, memory=memory, memory_visible=across)

    def of_target(ids: Tensor) -> Tensor:
        memory = model.encode(source, visible=inside)
        return model.decode(ids, visible=inside, memory=memory, memory_visible=across)

    same = inside.draw(LENGTH).dense
    through_memory = moved(of_source, source, with_another_token)
    assert not (through_memory & ~same).any()
    assert through_memory[0, :5, :5].any()
    through_target = moved(of_target, target, with_another_token)
    assert not (through_target & ~(same & causal.draw(LENGTH).dense) & ~torch.eye(12).bool()).any()
    dropped = moved(
        lambda ids: model.decode(target, memory=model.encode(ids)), source, with_another_token
    )
    assert (dropped & ~same).any()
