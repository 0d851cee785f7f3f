"""Continuous batching: texts generated in one batch, which each can join or leave at any step.

    generation = Generation(network)
    row = generation.add(Prompt(ids, 100, decode=tokenizer.decode))  joins at the next step
    for piece in generation.step(): …                                one more token in each row

The output of a row depends on its prompt, seed and settings only, not on the other rows of the
batch: it equals that of `stream` for this prompt alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from maskwright.base import randomness
from maskwright.base.errors import UsageError
from maskwright.model.inference import decode as decoding
from maskwright.model.inference.batches import growing
from maskwright.model.inference.decode import GREEDY, Sampling
from maskwright.model.inference.growing_rows import (
    ContextReader,
    GrowingRows,
    context_start,
    trained_length,
)
from maskwright.model.inference.prepared import Prepared
from maskwright.model.inference.shared_layers import can_write_together, mixed_layer, spans_of
from maskwright.model.inference.stream import Decode, GrowingText, Piece, require_stop, shown


def _no_byte(token: int) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A request to generate one row.

    Attributes:
        ids: token ids of the prompt, at least one.
        count: maximum number of new tokens, 1 or more.
        decode: maps token ids to text.
        sampling: how tokens are chosen, with the seed.
        source: token ids of the encoder input of an encoder-decoder model.
        prefix: ids put in front of the new ones when they are decoded.
        stop: strings that end the row.
        end: the id that ends the row.
        is_byte: whether an id stands for a single byte.
        copy: a number that distinguishes rows with the same prompt and seed.
        logprobs: whether to return the log-probability of each token.
        top_logprobs: number of most likely tokens whose log-probabilities are returned as well.
        network: the network with an adapter, prepared `like` that of the `Generation`, if any.
    """

    ids: Sequence[int]
    count: int
    decode: Decode
    sampling: Sampling = GREEDY
    source: Sequence[int] | None = None
    prefix: Sequence[int] = ()
    stop: Sequence[str] = ()
    end: int | None = None
    is_byte: Callable[[int], bool] = _no_byte
    copy: int = 0
    logprobs: bool = False
    top_logprobs: int = 0
    network: Prepared | None = None


class Generation:
    """The rows that one network, with or without adapters, is generating.

    Args:
        context: maximum number of tokens of context; None for the length of training.
        bidirectional_prefix: attention within a prompt is bidirectional (`prefix-lm`).
        one_way: allow an encoder, one that was also trained with causal attention (`hybrid`).

    Raises:
        IncompatibleError: the network cannot generate.
    """

    def __init__(
        self,
        network: Prepared,
        *,
        context: int | None = None,
        bidirectional_prefix: bool = False,
        one_way: bool = False,
    ) -> None:
        decoding.require_writer(network.config, one_way=one_way)
        self.network, self.context = network, context
        self.bidirectional_prefix, self.one_way = bidirectional_prefix, one_way
        self._crowds: list[_RowPool] = []
        self._next = 0

    @property
    def rows(self) -> int:
        """Number of active rows, those that join at the next step included."""
        return sum(len(pool.writing) + len(pool.waiting) for pool in self._crowds)

    @property
    def tokens(self) -> int:
        """Number of positions that active and waiting rows occupy in the cache."""
        return sum(pool.tokens for pool in self._crowds)

    def add(self, prompt: Prompt) -> int:
        """Add a row, which joins at the next step, and return its number, `Piece.row`; numbers are
        never reused.

        Raises:
            UsageError: a count below 1, an empty string in `stop`, or negative `top_logprobs`.
            Others: as `decode.steps`.
        """
        network = prompt.network or self.network
        sources = None if prompt.source is None else [prompt.source]
        ids, counts, one_way = [prompt.ids], [prompt.count], self.one_way
        decoding.check(network.config, ids, counts, sources, self.context, one_way=one_way)
        decoding.check_forbidden(prompt.sampling.forbidden, network.config.tokens.vocabulary)
        require_stop(prompt.stop)
        for name, value, minimum in (
            ("count", prompt.count, 1),
            ("top_logprobs", prompt.top_logprobs, 0),
        ):
            if value < minimum:
                raise UsageError(
                    "a number is out of range", where=name, found=value, wanted=f"{minimum} or more"
                )
        row = _Row(self._next, prompt, network)
        self._pool_for(network).waiting.append(row)
        self._next += 1
        return row.number

    def _pool_for(self, network: Prepared) -> _RowPool:
        for crowd in self._crowds:
            if crowd.takes(network):
                return crowd
        limit = self.context or trained_length(network.config)
        self._crowds.append(_RowPool(network, limit, self.bidirectional_prefix))
        return self._crowds[-1]

    @torch.inference_mode()
    def cancel(self, row: int) -> None:
        """Stop generating a row; does nothing if the row has ended."""
        for pool in self._crowds:
            pool.leave({row})

    @torch.inference_mode()
    def step(self) -> list[Piece]:
        """Generate one token in each row; pieces are in the order in which rows were added."""
        pieces: list[Piece] = []
        for pool in self._crowds:
            rows, scores = pool.scored()
            new_pieces = _advanced(rows, scores)
            pool.leave({piece.row for piece in new_pieces if piece.finished is not None})
            pieces += new_pieces
        self._crowds = [pool for pool in self._crowds if pool.writing or pool.waiting]
        return sorted(pieces, key=lambda piece: piece.row)


class _Row:
    """The state of one row: `ids` of prompt and output, of which those from `start` on are the
    context, and the number of tokens `written`."""

    def __init__(self, number: int, prompt: Prompt, network: Prepared) -> None:
        self.number, self.prompt, self.network = number, prompt, network
        self.ids = list(prompt.ids)
        self.written = self.start = 0
        self.text = GrowingText(prompt.decode, prompt.prefix, prompt.stop, prompt.is_byte)
        self.name = decoding.name_of(prompt.ids, prompt.source)
        self.choice = replace(prompt.sampling, seed=0)

    @property
    def left(self) -> int:
        """Maximum number of tokens still to be generated."""
        return self.prompt.count - self.written


class _RowPool:
    """Rows of networks that share weights, with their keys and values in common buffers. Rows of a
    network that cannot be prepared are computed one by one.

    Attributes:
        writing: active rows, in the order of the buffers.
        waiting: rows that join at the next step.
        readers: by row number, the reader of each row that is computed alone.
        runs: (network, consecutive rows in `writing` that use it).
    """

    def __init__(self, network: Prepared, limit: int | None, bidirectional_prefix: bool) -> None:
        self.network, self.limit, self.bidirectional_prefix = network, limit, bidirectional_prefix
        self.writing: list[_Row] = []
        self.waiting: list[_Row] = []
        self.rows: GrowingRows | None = None
        self.readers: dict[int, ContextReader] = {}
        self.runs: list[tuple[Prepared, list[_Row]]] = []

    def takes(self, network: Prepared) -> bool:
        return network is self.network or can_write_together(network, self.network)

    @property
    def tokens(self) -> int:
        count = sum(len(row.ids) - row.start for row in self.waiting)
        if self.rows is None:
            return count + sum(len(row.ids) - row.start for row in self.writing)
        return count + self.rows.cache.rows * (self.rows.length - self.rows.first)

    def leave(self, numbers: Collection[int]) -> None:
        """Remove the rows with these numbers."""
        self.waiting = [row for row in self.waiting if row.number not in numbers]
        remaining = [i for i, row in enumerate(self.writing) if row.number not in numbers]
        if len(remaining) == len(self.writing):
            return
        for row in self.writing:
            if row.number in numbers:
                self.readers.pop(row.number, None)
        self._reorder(decoding.closed_up(remaining))

    def scored(self) -> tuple[list[_Row], Float[Tensor, "B V"]]:
        """Let waiting rows join; return all active rows and the next-token scores of each.

        A row whose context was truncated leaves the buffers and is read again with waiting ones.
        """
        rows_to_reread = []
        for row in self.writing:
            start = context_start(len(row.ids), self.limit)
            if start != row.start and row.number not in self.readers:
                rows_to_reread.append(row)
            row.start = start
        self.leave({row.number for row in rows_to_reread})
        scores: list[Tensor] = []
        rows = list(self.writing)
        if self.rows is not None:
            self.rows.make_room(max(row.left for row in rows))
            hidden = self.rows.step([row.ids[-1] for row in rows])
            scores.append(self._scores(hidden))
        else:
            scores += [self._read_alone(row) for row in rows]
        waiting, self.waiting = [*rows_to_reread, *self.waiting], []
        for row in waiting:
            row.start = context_start(len(row.ids), self.limit)
        for network, group in _by_network(waiting):
            contexts = [row.ids[row.start :] for row in group]
            for portion in growing(contexts, 1):
                scores.append(self._join(network, group[portion]))
                rows += group[portion]
        return rows, torch.cat(scores) if scores else torch.empty(0)

    def _join(self, network: Prepared, rows: list[_Row]) -> Float[Tensor, "B V"]:
        """Append rows of one network to the active rows and return their next-token scores."""
        reader = self._reader(network, rows)
        if reader.writer is None:
            scores = []
            for row in rows:
                self.readers[row.number] = self._reader(network, [row])
                scores.append(self._read_alone(row))
            self.writing += rows
            return torch.cat(scores)
        scores_found = reader.next_scores([row.ids for row in rows], 1)
        assert reader.rows is not None
        if self.rows is None:
            self.rows = reader.rows
        else:
            self.rows.join(reader.rows)
        self.writing += rows
        self._sort()
        return scores_found

    def _reader(self, network: Prepared, rows: list[_Row]) -> ContextReader:
        reader = ContextReader(network, self.limit, cached=True)
        if self.bidirectional_prefix:
            reader.prefix_lengths = [len(row.prompt.ids) for row in rows]
        if reader.writer is not None or len(rows) == 1:
            sources = [row.prompt.source for row in rows if row.prompt.source is not None]
            reader.encode(sources or None)
        return reader

    def _read_alone(self, row: _Row) -> Float[Tensor, "1 V"]:
        return self.readers[row.number].next_scores([row.ids], row.left)

    # ------------------------------------------------------------------------ several networks
    def _sort(self) -> None:
        """Reorder the rows so that those of one network are consecutive, and update the layers."""
        networks = list(dict.fromkeys(row.network for row in self.writing))
        if len(networks) > 1:
            order = sorted(
                range(len(self.writing)), key=lambda i: networks.index(self.writing[i].network)
            )
            self._reorder(order)
        else:
            self._lay()

    def _reorder(self, order: list[int]) -> None:
        self.writing = [self.writing[i] for i in order]
        if self.rows is None:
            return
        if not self.writing:
            self.rows = None
            return
        self.rows.keep(order)
        if self.rows.shared is not None:
            self.rows.shared.keep(order)
        self._lay()

    def _lay(self) -> None:
        """Set the layers so that each run of rows uses the weights of its network."""
        assert self.rows is not None
        runs = _by_network(self.writing)
        self.runs = runs
        stacks = [network.writer for network, _ in runs]
        spans = spans_of([len(rows) for _, rows in runs])
        self.rows.layers = [
            mixed_layer(layers, spans)
            for layers in zip(*(stack.layers for stack in stacks), strict=True)
        ]

    def _scores(self, hidden: Float[Tensor, "B D"]) -> Float[Tensor, "B V"]:
        first_network = self.runs[0][0]
        if all(network.vocabulary_key == first_network.vocabulary_key for network, _ in self.runs):
            return first_network.scores(hidden).cpu()
        hidden_parts = hidden.split([len(rows) for _, rows in self.runs])
        pairs = zip(self.runs, hidden_parts, strict=True)
        return torch.cat([network.scores(states) for (network, _), states in pairs]).cpu()


def _by_network(rows: Sequence[_Row]) -> list[tuple[Prepared, list[_Row]]]:
    """Group rows by network, in order of first appearance."""
    runs: dict[Prepared, list[_Row]] = {}
    for row in rows:
        runs.setdefault(row.network, []).append(row)
    return list(runs.items())


# --------------------------------------------------------------------------------- one token more
def _advanced(rows: Sequence[_Row], scores: Float[Tensor, "B V"]) -> list[Piece]:
    """Choose the next token of each row and return the new piece of text of each."""
    tokens = _chosen(rows, scores)
    logs = _log_probabilities(rows, scores, tokens)
    return [
        _piece(row, token, *logs.get(index, (None, ())))
        for index, (row, token) in enumerate(zip(rows, tokens, strict=True))
    ]


def _chosen(rows: Sequence[_Row], scores: Float[Tensor, "B V"]) -> list[int]:
    """Return the next id of each row; rows with equal sampling settings are sampled together."""
    indices_by_sampling: dict[Sampling, list[int]] = {}
    for index, row in enumerate(rows):
        indices_by_sampling.setdefault(row.choice, []).append(index)
    tokens = [0] * len(rows)
    for sampling, indices in indices_by_sampling.items():
        group = [rows[index] for index in indices]
        keys = randomness.key(
            "sample",
            np.array([row.prompt.sampling.seed for row in group]),
            np.array([row.name for row in group]),
            np.array([row.prompt.copy for row in group]),
            np.array([row.written for row in group]),
        )
        group_scores = scores if len(indices) == len(rows) else scores[indices]
        new_tokens = decoding.chosen(group_scores, sampling, keys)
        for index, token in zip(indices, new_tokens, strict=True):
            tokens[index] = token
    return tokens


def _log_probabilities(
    rows: Sequence[_Row], scores: Float[Tensor, "B V"], tokens: Sequence[int]
) -> dict[int, tuple[float, tuple[tuple[int, float], ...]]]:
    """Return {row index: (log-probability of the chosen token, ((id, log-probability) of the most
    likely tokens))} for the rows that request log-probabilities."""
    indices = [i for i, row in enumerate(rows) if row.prompt.logprobs or row.prompt.top_logprobs]
    if not indices:
        return {}
    logs = scores[indices].double().log_softmax(-1)
    of_tokens = logs.gather(-1, torch.tensor([[tokens[index]] for index in indices]))[:, 0].tolist()
    max_top = max(rows[index].prompt.top_logprobs for index in indices)
    best = logs.topk(min(max_top, logs.shape[-1]), dim=-1)
    log_probabilities = {}
    for number, index in enumerate(indices):
        count = rows[index].prompt.top_logprobs
        ids, values = best.indices[number, :count].tolist(), best.values[number, :count].tolist()
        log_probabilities[index] = of_tokens[number], tuple(zip(ids, values, strict=True))
    return log_probabilities


def _piece(
    row: _Row, token: int, logprob: float | None, top: tuple[tuple[int, float], ...]
) -> Piece:
    """Append `token` to the row and return its new piece of text."""
    row.ids.append(token)
    row.written += 1
    new_text, finished = shown(row.text, None if token == row.prompt.end else token, row.left == 0)
    id_shown = None if token == row.prompt.end else token
    return Piece(row.number, id_shown, new_text, finished, logprob, top)
