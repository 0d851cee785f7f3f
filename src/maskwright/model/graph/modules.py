"""The modules of exported graphs: the network on its plain paths, with tensors as arguments.

    OneStack           ids, mask, segments -> states -> outputs of a reader
    ImageStack         pixel values -> states -> outputs of a reader
    Decoder            ids, mask, past keys and values -> logits, all keys and values
    MemoryDecoder      ids, memory and its mask, past -> logits, all keys and values
    BothStacks         ids, mask -> the decoder's states of the same text -> outputs of a reader

The past may have length 0, so that the same graph processes a prompt and continues it. Padding is
at the end of a row; a decoder's prompt may be padded on the left, with positions that count from
its first token. Arguments have the names of the graph's inputs; `past_key_values` is the sequence
of the inputs whose names begin so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from maskwright.model.nn import mask as masks
from maskwright.model.nn.attention import Pair
from maskwright.model.nn.config import Patches
from maskwright.model.nn.mask import AttentionMask
from maskwright.model.nn.transformer import Transformer


def seen(mask: Int[Tensor, "B K"]) -> AttentionMask:
    """Return a mask of real keys; padding attends to itself, so that every query has a key."""
    visible = masks.real(mask != 0) | masks.itself
    visible.documents = mask
    return visible


class _Stacks(nn.Module):
    """Stacks of a network, whose states `read` maps to the outputs."""

    def __init__(self, network: Transformer, read: nn.Module) -> None:
        super().__init__()
        self.network, self.read = network, read


class OneStack(_Stacks):
    """The encoder, or a decoder without one, on whole texts."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> object:
        network = self.network
        states_of = network.decode if network.encoder is None else network.encode
        states = states_of(input_ids, segments=token_type_ids, visible=seen(attention_mask))
        return self.read(states, attention_mask)


class ImageStack(_Stacks):
    """The encoder on images, normalised pixels (B, C, H, W)."""

    def forward(self, pixel_values: Tensor) -> object:
        patches = self.network.config.tokens
        assert isinstance(patches, Patches)
        across = patches.image_size // patches.patch_size
        grid = pixel_values.unflatten(3, (across, -1)).unflatten(2, (across, -1))
        rows = grid.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        states = self.network.encode(torch.cat([torch.zeros_like(rows[:, :1]), rows], 1))
        return self.read(states, torch.ones(states.shape[:2], dtype=torch.int64))


class BothStacks(_Stacks):
    """An encoder, and a decoder on the same text shifted by one behind the id `start`."""

    def __init__(self, network: Transformer, read: nn.Module, start: int) -> None:
        super().__init__(network, read)
        self.start = start

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> object:
        visible = seen(attention_mask)
        memory = self.network.encode(input_ids, visible=visible)
        start = torch.full_like(input_ids[:, :1], self.start)
        states = self.network.decode(
            torch.cat((start, input_ids[:, :-1]), 1),
            visible=visible,
            memory=memory,
            memory_visible=masks.real(attention_mask != 0),
        )
        return self.read(states, attention_mask)


class Decoder(_Stacks):
    """A decoder without an encoder, after a past. The mask is for past and new positions;
    `prefix_length` is the number of initial positions of each row with bidirectional attention."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        past_key_values: Sequence[Tensor],
        position_ids: Tensor | None = None,
        prefix_length: Tensor | None = None,
    ) -> object:
        cache = GraphCache(past_key_values, per_layer=2)
        states = self.network.decode(
            input_ids,
            positions=position_ids,
            visible=seen(attention_mask),
            prefix=prefix_length,
            cache=cache,
        )
        return (*self.read(states, attention_mask), *cache.present)


class MemoryDecoder(_Stacks):
    """The decoder of an encoder-decoder, after a past, without padding. The keys and values of the
    first positions of the memory may be in the past: only the rest of the memory is projected,
    which is all of it at the first step and nothing thereafter."""

    def forward(
        self,
        input_ids: Tensor,
        encoder_attention_mask: Tensor,
        encoder_hidden_states: Tensor,
        past_key_values: Sequence[Tensor],
    ) -> object:
        cache = GraphCache(past_key_values, per_layer=4)
        positions = torch.arange(cache.length, cache.length + input_ids.shape[1])[None]
        states = self.network.decode(
            input_ids,
            positions=positions,
            memory=encoder_hidden_states,
            memory_visible=masks.real(encoder_attention_mask != 0),
            cache=cache,
        )
        return (*self.read(states, input_ids), *cache.present)


class GraphCache:
    """Keys and values that are inputs of a graph.

    Attributes:
        present: the tensors of `past` with the new positions, as far as layers have run.
    """

    def __init__(self, past: Sequence[Tensor], per_layer: int) -> None:
        """
        Args:
            past: keys and values of each layer (B, H, S, W), followed by those of the memory
                (B, H, R, W) if there are 4 `per_layer`.
        """
        self.length = past[0].shape[2]
        self._past, self._per_layer = past, per_layer
        self.present: list[Tensor] = []

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Pair:
        return self._append(layer * self._per_layer, keys, values)

    def memory(self, layer: int, states: Tensor, project: Callable[[Tensor], Pair]) -> Pair:
        start = layer * self._per_layer + 2
        num_projected = self._past[start].shape[2]
        rest = states.narrow(1, num_projected, states.shape[1] - num_projected)
        return self._append(start, *project(rest))

    def _append(self, index: int, keys: Tensor, values: Tensor) -> Pair:
        past_keys, past_values = self._past[index : index + 2]
        pair = torch.cat((past_keys, keys), 2), torch.cat((past_values, values), 2)
        self.present += pair
        return pair


# ------------------------------------------------------------------------------ readers
# Each reader maps states (B, T, D) and the mask (B, T) to a tuple of outputs.
class _Reader(nn.Module):
    def __init__(self, network: Transformer) -> None:
        super().__init__()
        self.network = network


class States(_Reader):
    """The states, and the pooler output of models with a pooler."""

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        if self.network.pooler is None:
            return (states,)
        return states, self.network.pool(states[:, 0])


class VocabularyScores(_Reader):
    """Scores over the vocabulary at every position."""

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        return (self.network.logits(states),)


class HeadScores(_Reader):
    """The scores of a head: (B, L) of whole texts, (B, T, L) of tokens or (B, T) with one label,
    twice (B, T) of spans. With `last`, whole texts are represented by their last token, not by
    their first."""

    def __init__(self, network: Transformer, name: str, *, last: bool) -> None:
        super().__init__(network)
        self.name, self.last = name, last
        self.config = next(head for head in network.config.heads if head.name == name)

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        if self.config.pools:
            pooling = "lasttoken" if self.last else "cls"
            pooling = pooling if self.config.pooling == "place" else self.config.pooling
            poolings = ("lasttoken", "max", "mean") if pooling == "concat" else (pooling,)
            vectors = torch.cat([pooled(states, mask, kind) for kind in poolings], -1)
            return (self.network.head(self.name, vectors),)
        scores = self.network.head(self.name, states)
        if self.config.kind == "span":
            return scores[..., 0], scores[..., 1]
        return (scores[..., 0] if self.config.labels == 1 else scores,)


class AllOutputs(nn.Module):
    """The concatenated outputs of several readers."""

    def __init__(self, readers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.readers = nn.ModuleList(readers)

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        return tuple(output for reader in self.readers for output in reader(states, mask))


class ChoiceScores(nn.Module):
    """The scores (B, C) that an encoder gives to the choices of questions, (B, C, T) ids."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> object:
        segments = None if token_type_ids is None else token_type_ids.flatten(0, 1)
        (scores,) = self.encoder(input_ids.flatten(0, 1), attention_mask.flatten(0, 1), segments)
        return (scores.view(input_ids.shape[0], input_ids.shape[1]),)


class SentenceVector(nn.Module):
    """The states, and one vector of each text: `top` of the concatenated `poolings` of the states
    without the first `skip` tokens."""

    def __init__(self, poolings: Sequence[str], skip: int, top: nn.Module) -> None:
        super().__init__()
        self.poolings, self.skip, self.top = tuple(poolings), skip, top

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        pooled_states = [pooled(states, mask, pooling, self.skip) for pooling in self.poolings]
        return states, self.top(torch.cat(pooled_states, 1))


def pooled(
    states: Float[Tensor, "B T D"], mask: Int[Tensor, "B T"], pooling: str, skip: int = 0
) -> Float[Tensor, "B D"]:
    """Pool the states of each text by one of the poolings in
    `model/objectives/modules/supervised.py`, without the first `skip` tokens."""
    if pooling == "cls":
        return states[:, 0]
    if pooling == "lasttoken":
        last_position = (mask != 0).sum(1) - 1
        index = last_position[:, None, None].expand(-1, 1, states.shape[2])
        return states.gather(1, index)[:, 0]
    order = torch.arange(states.shape[1], device=states.device)
    included = ((mask != 0) & (order >= skip))[..., None]  # B, T, 1
    if pooling == "max":
        return states.masked_fill(~included, float("-inf")).amax(1)
    weights = included.to(states.dtype)
    if pooling == "weightedmean":
        weights = weights * (order + 1).to(states.dtype)[:, None]
    count = weights.sum(1).clamp(min=1)
    total = (states * weights).sum(1)
    return total / (count.sqrt() if pooling == "mean_sqrt_len_tokens" else count)
