"""Texts that are written beside each other, each of which begins and ends when it likes.

    writing = Generation(network)
    row = writing.add(Prompt(ids, 100, decode=tokenizer.decode))     joins at the next step
    for piece in writing.step(): …                                   a token more in each row

What a row gets depends on its prompt, its seed and its settings alone, not on who writes beside it:
it is what `stream` of this prompt by itself gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from maskwright import randomness
from maskwright.errors import UsageError
from maskwright.inference import decode as decoding
from maskwright.inference.decode import GREEDY, Sampling
from maskwright.inference.incremental import Reader, trained_length
from maskwright.inference.prepared import Prepared
from maskwright.inference.stream import Decode, GrowingText, Piece, Reason, require_stop


def _no_byte(token: int) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What one row is to be written from, and how.

    Attributes:
        ids: what the network goes on from, one at least.
        count: how many tokens are written at most, 1 or more.
        decode: the text of ids.
        sampling: how a token is chosen, with its seed.
        source: what the encoder of a model of two stacks reads.
        given: the ids in front of the new ones when they are decoded.
        stop: strings that end the row.
        end: the id that ends it.
        is_byte: whether an id stands for a byte alone.
        copy: a number that tells this row from others with the same prompt and seed.
        logprobs: whether pieces have the log-probability of their token.
        top_logprobs: of how many of the likeliest tokens, too.
        network: the network of an adapter, prepared `like` the one of all; None: that one.
    """

    ids: Sequence[int]
    count: int
    decode: Decode
    sampling: Sampling = GREEDY
    source: Sequence[int] | None = None
    given: Sequence[int] = ()
    stop: Sequence[str] = ()
    end: int | None = None
    is_byte: Callable[[int], bool] = _no_byte
    copy: int = 0
    logprobs: bool = False
    top_logprobs: int = 0
    network: Prepared | None = None


class _Row:
    """A row that is written."""

    def __init__(self, number: int, prompt: Prompt) -> None:
        self.number, self.prompt = number, prompt
        self.ids = list(prompt.ids)
        self.written = 0
        self.text = GrowingText(prompt.decode, prompt.given, prompt.stop, prompt.is_byte)
        self.name = decoding.name_of(prompt.ids, prompt.source)
        self.reader: Reader | None = None


class Generation:
    """What one network is writing.

    Args:
        network: prepared.
        context: how many tokens are read at most; None: as many as the model was trained on.
        whole: the tokens of a prompt see each other (`prefix-lm`).
        one_way: an encoder was also taught to read to the left only (`hybrid`).
    """

    def __init__(
        self,
        network: Prepared,
        *,
        context: int | None = None,
        whole: bool = False,
        one_way: bool = False,
    ) -> None:
        decoding.require_writer(network.config, one_way=one_way)
        self.network, self.whole, self.one_way = network, whole, one_way
        self.context = context
        self._rows: dict[int, _Row] = {}
        self._next = 0

    @property
    def rows(self) -> int:
        """How many are being written, those that join at the next step included."""
        return len(self._rows)

    @property
    def tokens(self) -> int:
        """Positions that are held for them."""
        return sum(len(row.ids) for row in self._rows.values())

    def add(self, prompt: Prompt) -> int:
        """A further row, which joins at the next step.

        Returns:
            Its number, as in the pieces; no number is given twice.

        Raises:
            As `decode.steps`; UsageError: a count below 1, an empty string in `stop`, a negative
            number of `top_logprobs`.
        """
        network = prompt.network or self.network
        sources = None if prompt.source is None else [prompt.source]
        decoding.check(
            network.config,
            [prompt.ids],
            [prompt.count],
            sources,
            self.context,
            one_way=self.one_way,
        )
        decoding.check_forbidden(prompt.sampling.forbidden, network.config.tokens.vocabulary)
        require_stop(prompt.stop)
        for name, value, least in (
            ("count", prompt.count, 1),
            ("top_logprobs", prompt.top_logprobs, 0),
        ):
            if value < least:
                raise UsageError(
                    "a number is out of range", where=name, found=value, wanted=f"{least} or more"
                )
        row = _Row(self._next, prompt)
        row.reader = Reader(network, self.context or trained_length(network.config), cached=True)
        if self.whole:
            row.reader.seen = [len(prompt.ids)]
        row.reader.encode(sources)
        self._rows[row.number] = row
        self._next += 1
        return row.number

    def cancel(self, row: int) -> None:
        """Write no more of this row; nothing where it has ended."""
        self._rows.pop(row, None)

    @torch.inference_mode()
    def step(self) -> list[Piece]:
        """One token more in each row, in the order in which they were added."""
        return [self._advanced(row) for row in list(self._rows.values())]

    def _advanced(self, row: _Row) -> Piece:
        prompt, text = row.prompt, row.text
        assert row.reader is not None
        scores = row.reader.next_scores([row.ids], prompt.count - row.written)
        name, sampling = np.asarray([row.name]), prompt.sampling
        copy = np.asarray([prompt.copy], np.uint64)
        keys = randomness.key("sample", sampling.seed, name, copy, row.written)
        token = decoding.chosen(scores, sampling, keys)[0]
        logprob: float | None = None
        top: tuple[tuple[int, float], ...] = ()
        if prompt.logprobs or prompt.top_logprobs:
            logs = scores[0].double().log_softmax(-1)
            logprob = float(logs[token])
            best = logs.topk(min(prompt.top_logprobs, len(logs)))
            top = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        row.ids.append(token)
        row.written += 1
        ended = token == prompt.end
        new = "" if ended else text.add(token)
        finished: Reason | None = "end" if ended else None
        if not ended and (text.stopped or row.written == prompt.count):
            finished = "stop" if text.stopped else "length"
        if finished in ("end", "length"):
            new += text.end()
            finished = "stop" if text.stopped else finished
        if finished is not None:
            del self._rows[row.number]
        return Piece(row.number, None if ended else token, new, finished, logprob, top)
