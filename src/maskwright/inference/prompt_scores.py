"""How likely each token of a prompt was to a decoder, given those before it.

    prompt_scores(network, [[5, 6, 7]], top=2)  ->  [(-3.1, ((6, -3.1), (9, -3.4))), (-0.2, …)]

The first token has no score: nothing stands before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from maskwright.errors import IncompatibleError
from maskwright.inference.engine import states
from maskwright.inference.prepared import Prepared
from maskwright.nn.config import TransformerConfig

TokenScore = tuple[float, tuple[tuple[int, float], ...]]
# Positions whose scores over the vocabulary are held at once.
AT_ONCE = 256


@torch.inference_mode()
def prompt_scores(
    network: Prepared, rows: Sequence[Sequence[int]], top: int = 0
) -> list[list[TokenScore]]:
    """For each row the log-probability in nats of each token after its first, as the model gave it,
    and of the `top` likeliest tokens at its place, the best first.

    Raises:
        IncompatibleError: the network is no decoder that stands alone.
        DataError: a row without an id.
    """
    require_decoder(network.config)
    found: list[list[TokenScore]] = [[] for _ in rows]
    for part in states(network, rows):
        following = part.tokens.roll(-1)
        made: list[TokenScore] = []
        for begin in range(0, len(following), AT_ONCE):
            here = slice(begin, begin + AT_ONCE)
            logs = network.scores(part.states[here]).double().log_softmax(-1)
            own = logs.gather(-1, following[here, None])[:, 0].tolist()
            best = logs.topk(min(top, logs.shape[-1]), dim=-1)
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            tops = [tuple(zip(ids, values, strict=True)) for ids, values in pairs]
            made += zip(own, tops, strict=True)
        begin = 0
        for number, length in zip(part.numbers, part.lengths, strict=True):
            found[number] = made[begin : begin + length - 1]
            begin += length
    return found


def require_decoder(config: TransformerConfig) -> None:
    """Refuse a model whose tokens do not follow from those before them.

    Raises:
        IncompatibleError: it is no decoder that stands alone.
    """
    if config.encoder is not None or config.vocabulary_head is None:
        raise IncompatibleError(
            "only a decoder that stands alone says how likely a prompt was",
            where="network",
            found="an encoder" if config.encoder is not None else "no vocabulary head",
            do="ask for the log-likelihood of the text",
        )
