"""The same numbers as PyTorch's own layers, post-norm encoder and pre-norm decoder."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from maskwright.model.nn.config import FeedForward, Norm
from maskwright.model.nn.mask import real, same_document
from maskwright.model.nn.stack import BlockModule
from maskwright.model.nn.transformer import Transformer
from nn.points import LENGTH, WIDTH, attention, block, config, model_of, stack, tokens


def copy(ours: BlockModule, theirs: nn.Module) -> None:
    """Our block's weights into a `TransformerEncoderLayer` or `TransformerDecoderLayer`."""

    def attention_into(mixer: nn.Module, other: nn.MultiheadAttention) -> None:
        parts = [mixer.query, mixer.key, mixer.value]
        other.in_proj_weight.copy_(torch.cat([p.weight for p in parts]))
        other.in_proj_bias.copy_(torch.cat([p.bias for p in parts]))
        other.out_proj.load_state_dict(mixer.output.state_dict())

    with torch.no_grad():
        attention_into(ours.attention, theirs.self_attn)
        pairs = [(ours.feed_forward.up, theirs.linear1), (ours.feed_forward.down, theirs.linear2)]
        norms = [ours.attention_norm, ours.feed_forward_norm]
        if isinstance(theirs, nn.TransformerDecoderLayer):
            attention_into(ours.cross_attention, theirs.multihead_attn)
            norms.insert(1, ours.cross_attention_norm)
        pairs += [(norm, getattr(theirs, f"norm{i + 1}")) for i, norm in enumerate(norms)]
        for mine, other in pairs:
            other.load_state_dict(mine.state_dict())


def vectors(model: Transformer, ids: Tensor, side: str) -> Tensor:
    return getattr(model, side).embeddings(model.tokens(ids))


@pytest.mark.parametrize("placement", ["post", "pre"])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_encoder(placement: str, activation: str) -> None:
    one = block(
        attention(),
        placement,
        feed_forward=FeedForward(width=32, activation=activation),  # type: ignore[arg-type]
    )
    model = Transformer(config(encoder=stack(one, one))).eval()
    layer = nn.TransformerEncoderLayer(
        WIDTH, 2, 32, 0.0, activation, batch_first=True, norm_first=placement == "pre"
    )
    theirs = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for index in range(2):
        copy(model.encoder.blocks[str(index)], theirs.layers[index])  # type: ignore[union-attr,arg-type]
    keep = torch.tensor([[True] * 12, [True] * 9 + [False] * 3, [True] * 5 + [False] * 7])
    ours = model.encode(tokens(), visible=real(keep))
    wanted = theirs(vectors(model, tokens(), "encoder"), src_key_padding_mask=~keep)
    torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=1e-5)
    gradients = [torch.autograd.grad(x.square().sum(), model.tokens.weight) for x in (ours, wanted)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("placement", ["post", "pre"])
def test_decoder_with_memory(placement: str) -> None:
    one = block(attention("causal"), placement, norm=Norm(eps=1e-5), cross_attention=attention())
    plain = block(attention(), placement)
    model = Transformer(config(encoder=stack(plain), decoder=stack(one))).eval()
    theirs = nn.TransformerDecoderLayer(
        WIDTH, 2, 32, 0.0, "gelu", batch_first=True, norm_first=placement == "pre"
    )
    copy(model.decoder.blocks["0"], theirs)  # type: ignore[union-attr,arg-type]
    memory = torch.randn(3, 7, WIDTH)
    ours = model.decode(tokens(), memory=memory)
    hidden = torch.ones(12, 12, dtype=torch.bool).triu(1)
    wanted = theirs(vectors(model, tokens(), "decoder"), memory, tgt_mask=hidden)
    torch.testing.assert_close(ours, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("batch", [1, 7, 32])
def test_F80_a_row_is_the_same_in_any_batch(batch: int) -> None:
    """Scores do not depend on the batch's size or on padding, and labels never."""
    model = model_of("post-norm encoder")
    ids = tokens(batch, 10)
    padded = torch.cat([ids, torch.zeros(batch, LENGTH - 10, dtype=torch.long)], 1)
    documents = (torch.arange(LENGTH) < 10).int().expand(batch, -1)
    with torch.no_grad():
        alone = torch.cat([model.logits(model.encode(row)) for row in ids.split(1)])
        together = model.logits(model.encode(padded, visible=same_document(documents)))[:, :10]
    torch.testing.assert_close(together, alone, atol=1e-6 * float(alone.abs().max()) * 5, rtol=0)
    assert torch.equal(together.argmax(-1), alone.argmax(-1))
