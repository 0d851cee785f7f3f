"""Attention in blocks is attention over all keys with a mask, to 1e-6, whatever stands beside a
text; what is seen is said here once more, key by key."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from maskwright.model.device.step_cost import cost
from maskwright.model.nn import block_sparse
from maskwright.model.nn.attention import AttentionContext, attend
from maskwright.model.nn.block_sparse import BlockSight
from maskwright.model.nn.config import BlockSparse
from maskwright.model.nn.initialise import build
from maskwright.model.nn.mask import real, same_document
from nn.points import BLOCKED, attention, block, config, stack

HEADS, WIDTH, LONGEST = 2, 4, 48
ROWS = [
    *([1] * 48, [1] * 30 + [0] * 18, [1] * 5 + [0] * 43),
    *([1] * 30 + [2] * 7 + [3] * 11, [0] * 2 + [1] * 31 + [2] * 15),
]
DOCUMENTS = {"a text": [[1] * 41], "padded and packed": ROWS}


def sight(random: str, training: bool, documents: Tensor) -> BlockSight:
    cut = BlockSparse(size=2, num_random=2, random=random, layer=1)
    return BlockSight(cut, documents, HEADS, training, LONGEST)


def expected(blocks: BlockSight, row: list[int]) -> Tensor:
    """How often each head (H, T, T) sees a key of the row, by the paper's words."""
    cut, counts = blocks.config, torch.zeros(HEADS, len(row), len(row))
    for text in set(row) - {0}:
        begin, length = row.index(text), row.count(text)
        last = (length - 1) // cut.size
        seen = torch.zeros(HEADS, last + 1, last + 1)
        for query in range(last + 1):
            for key in range(last + 1):
                near = {query, key} & {0, last} or abs(query - key) < 2
                seen[:, query, key] = bool(last < cut.full_blocks or near)
            if last >= cut.full_blocks and query not in (0, last):
                seen[:, query, 0] += blocks.extra
                for head in range(HEADS if blocks.draws else 0):
                    for key in blocks.drawn(last + 1)[head, query - 1].tolist():
                        seen[head, query, key] += 1
        by_token = seen.repeat_interleave(cut.size, 1).repeat_interleave(cut.size, 2)
        at = slice(begin, begin + length)
        counts[:, at, at] = by_token[:, :length, :length]
    return counts


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("random", ["reference", "fresh", "none"])
@pytest.mark.parametrize("world", DOCUMENTS)
def test_blocks_are_attention_with_a_mask(
    world: str, random: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_sparse, "LARGEST_TILE", 6)
    torch.manual_seed(0)
    documents = torch.tensor(DOCUMENTS[world])
    blocks = sight(random, training, documents)
    qkv = [torch.randn(*documents.shape, HEADS, WIDTH).transpose(1, 2) for _ in range(3)]
    qkv = [x.requires_grad_() for x in qkv]
    sized = (blocks.mask & same_document(documents)).draw(documents.shape[1])
    out = attend(*qkv, AttentionContext(sized, blocks=blocks), scale=0.5)
    counts = torch.stack([expected(blocks, row) for row in DOCUMENTS[world]])
    assert torch.equal(sized.dense, (counts > 0).any(1))
    scores = 0.5 * qkv[0] @ qkv[1].transpose(2, 3) + counts.log()
    wanted = (scores.softmax(-1).nan_to_num() @ qkv[2]).transpose(1, 2)
    dense = attend(*qkv, AttentionContext(sized, blocks.log_counts), scale=0.5)
    mix = torch.randn(out.shape) * (documents != 0)[..., None, None]
    gradients = [torch.autograd.grad((x * mix).sum(), qkv, retain_graph=True) for x in (out, dense)]
    for result, grads in zip((out, dense), gradients, strict=True):
        torch.testing.assert_close(result, wanted, atol=1e-6, rtol=0)
        for ours, theirs in zip(grads, gradients[0], strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    other = sight("fresh" if random != "fresh" else "none", training, documents)
    assert not torch.allclose(
        attend(*qkv, AttentionContext(sized, blocks=other), scale=0.5), wanted
    )


def test_draws_are_keyed() -> None:
    """In training by the generator that is seeded for a microbatch, in evaluation by the layer."""
    documents = torch.ones(1, 40, dtype=torch.long)

    def drawn(training: bool, layer: int = 1) -> Tensor:
        torch.manual_seed(0)
        cut = BlockSparse(size=2, num_random=2, random="fresh", layer=layer)
        first, second = (BlockSight(cut, documents, 2, training, LONGEST) for _ in range(2))
        assert torch.equal(first.drawn(20), second.drawn(20)) != training
        return first.drawn(20)

    assert torch.equal(drawn(True), drawn(True))
    assert not torch.equal(drawn(False), drawn(False, layer=2))
    torch.manual_seed(1)
    assert torch.equal(drawn(False), drawn(False))


def test_batch_mates_have_no_influence() -> None:
    """Each row as it is alone, bit for bit in full rows and to rounding in padded ones."""
    network = build(config(encoder=stack(*BLOCKED)), torch.Generator().manual_seed(0)).eval()
    ids = torch.randint(31, (3, 24), generator=torch.Generator().manual_seed(1))
    lengths = (24, 13, 6)
    keep = torch.arange(24) < torch.tensor(lengths)[:, None]
    with torch.no_grad():
        together = network.encode(ids, visible=real(keep))
        for row, length in enumerate(lengths):
            alone = network.encode(ids[row : row + 1, :length])
            torch.testing.assert_close(together[row : row + 1, :length], alone, atol=1e-6, rtol=0)
    padded = network.encode(ids)  # the control: padding as tokens
    assert not torch.allclose(padded[1, :13], together[1, :13], atol=1e-3)


def test_operations_grow_with_the_length() -> None:
    cut = BlockSparse(size=2, num_random=2)
    mixers = [attention(blocks=cut), attention(), attention(blocks=replace(cut, sparse=False))]
    networks = [build(config(encoder=stack(block(mixer)))) for mixer in mixers]
    sparse, full, whole = (cost(n, 20).attention["encoder"] for n in networks)
    assert full == whole and sparse == 4 * 16 * (2 * 20 + 8 * 7 * 2) / 10
    assert cost(networks[0], 18).attention == cost(networks[1], 18).attention
    packed = cost(networks[0], 20, texts=[8, 12]).attention["encoder"]
    assert packed == 4 * 16 * (8 * 8 + 12 * 12) / 20
    assert math.isclose(cost(networks[0], 2000).attention["encoder"] / sparse, 1.2, rel_tol=0.2)
