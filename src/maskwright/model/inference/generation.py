"""The generation loop: rows of one batch, which each can join or leave at any step.

    generation = Generation(network)
    row = generation.add(Prompt(ids, settings, decode=tokenizer.decode))   joins at the next step
    for piece in generation.step(): …                                      one token in each row

    stream(network, prompts)             all prompts to their ends, in pieces
    generate(network, [ids], settings)   their new ids

The server adds and cancels rows between steps; `stream` and `generate` add all of them at once. The
random number for a token is a function of the seed, the prompt (with its source) and the step, so
the output of a row does not depend on the other rows of the batch; equal prompts are distinguished
by their order. For the context of a long text see `growing_rows.context_start`.

Letters: B rows, V vocabulary, K candidates.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from maskwright.base import randomness
from maskwright.base.errors import ConfigError, IncompatibleError, UsageError
from maskwright.model.inference.batches import growing
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.growing_rows import (
    ROOM,
    ContextReader,
    context_start,
    trained_length,
)
from maskwright.model.inference.growing_text import Decode, GrowingText, Piece, require_stop
from maskwright.model.inference.prepared import Prepared, answering
from maskwright.model.inference.shared_layers import can_write_together
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer

# Top-p first sorts only this many of the most likely ids, which is faster than sorting all.
NUCLEUS = 256


# Temperature, top-k, top-p, typical-p and forbidden ids.
Sampling = tuple[float | None, int, float, float, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A request to generate one row.

    Attributes:
        ids: token ids of the prompt, at least one.
        settings: how tokens are chosen; without beams.
        decode: maps token ids to text.
        source: token ids of the encoder input of an encoder-decoder model.
        prefix: ids put in front of the new ones when they are decoded, since a word is decoded
            differently at the beginning of a text.
        end: the id that ends the row.
        forbidden: ids that are never chosen.
        is_byte: whether an id stands for a single byte.
        logprobs: number of most likely tokens whose log-probabilities are returned at each step,
            besides that of the chosen token; None for no log-probabilities.
        network: the network with an adapter, prepared `like` that of the `Generation`, if any.
    """

    ids: Sequence[int]
    settings: GenerationSettings
    decode: Decode = lambda ids: ""
    source: Sequence[int] | None = None
    prefix: Sequence[int] = ()
    end: int | None = None
    forbidden: tuple[int, ...] = ()
    is_byte: Callable[[int], bool] = lambda token: False
    logprobs: int | None = None
    network: Prepared | None = None


class Generation:
    """The rows that one network, with or without adapters, is generating.

    Args:
        bidirectional_prefix: attention within a prompt is bidirectional, as trained by `prefix-lm`.
        one_way: allow an encoder that was also trained with causal attention to predict the next
            token, as by `hybrid`.

    Raises:
        IncompatibleError: the network cannot generate.
    """

    def __init__(
        self, network: Prepared, *, bidirectional_prefix: bool = False, one_way: bool = False
    ) -> None:
        require_writer(network.config, one_way=one_way)
        self.network, self.bidirectional_prefix = network, bidirectional_prefix
        self._pools: list[_RowPool] = []
        self._samplings: dict[Sampling, Sampling] = {}
        self._next = 0

    @property
    def rows(self) -> int:
        """Number of active rows, those that join at the next step included."""
        return sum(len(pool.active) + len(pool.waiting) for pool in self._pools)

    def add(self, prompt: Prompt, copy: int = 0) -> int:
        """Add a row, which joins at the next step, and return its number, `Piece.row`; numbers are
        never reused. A row of 0 tokens has no pieces. `copy` distinguishes rows with the same
        prompt and seed.

        Raises:
            UsageError: an empty prompt or source, a source for a model without an encoder or none
                for one with an encoder, a number of tokens below 0, or an empty string to stop at.
            ConfigError: a forbidden id outside the vocabulary, or all ids forbidden.
        """
        network = prompt.network or self.network
        require_prompt(network.config, prompt, self._next)
        row = _Row(self._next, prompt, copy, network)
        row.sampling = self._samplings.setdefault(row.sampling, row.sampling)
        if row.remaining:
            self._pool_for(network).waiting.append(row)
        self._next += 1
        return row.number

    def _pool_for(self, network: Prepared) -> _RowPool:
        for pool in self._pools:
            if network is pool.network or can_write_together(network, pool.network):
                return pool
        limit = trained_length(network.config)
        self._pools.append(_RowPool(network, limit, self.bidirectional_prefix))
        return self._pools[-1]

    def cancel(self, row: int) -> None:
        """Stop generating a row; does nothing if the row has ended."""
        for pool in self._pools:
            pool.remove({row})

    @torch.inference_mode()
    def step(self) -> list[Piece]:
        """Generate one token in each row; pieces are in the order in which rows were added."""
        self._pools = [pool for pool in self._pools if pool.active or pool.waiting]
        pieces: list[Piece] = []
        for pool in self._pools:
            rows, scores = pool.next_scores()
            new_pieces = _extended(rows, scores)
            pool.remove({piece.row for piece in new_pieces if piece.finished is not None})
            pieces += new_pieces
        return sorted(pieces, key=lambda piece: piece.row)


def stream(
    model: Transformer | Prepared,
    prompts: Sequence[Prompt],
    *,
    bidirectional_prefix: bool = False,
    one_way: bool = False,
) -> Iterator[Piece]:
    """Generate all prompts, in batches of limited size, and yield the pieces of each step;
    `Piece.row` is the index of the prompt. Args and errors as for `Generation`."""
    copies: Counter[np.uint64] = Counter()
    with answering(model) as network:
        generation = Generation(network, bidirectional_prefix=bidirectional_prefix, one_way=one_way)
        lengths = [prompt.settings.tokens for prompt in prompts]
        for batch in growing([prompt.ids for prompt in prompts], lengths):
            for prompt in prompts[batch]:
                name = name_of(prompt.ids, prompt.source)
                generation.add(prompt, copies[name])
                copies[name] += 1
            while generation.rows:
                yield from generation.step()


def generate(
    model: Transformer | Prepared,
    prompts: Sequence[Sequence[int]],
    settings: GenerationSettings,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    end: int | None = None,
    forbidden: tuple[int, ...] = (),
    bidirectional_prefix: bool = False,
    one_way: bool = False,
) -> list[list[int]]:
    """Return the new ids for each prompt, without the end token; see `stream` and `Prompt`."""
    new_ids: list[list[int]] = [[] for _ in prompts]
    rows = [
        Prompt(ids=ids, settings=settings, source=source, end=end, forbidden=forbidden)
        for ids, source in zip(prompts, sources or repeat(None, len(prompts)), strict=True)
    ]
    for piece in stream(model, rows, bidirectional_prefix=bidirectional_prefix, one_way=one_way):
        if piece.id is not None:
            new_ids[piece.row].append(piece.id)
    return new_ids


class _Row:
    """The state of one row: `ids` of prompt and output, of which those from `start` on are the
    context, and the number of tokens `written`."""

    def __init__(self, number: int, prompt: Prompt, copy: int, network: Prepared) -> None:
        self.number, self.prompt, self.copy, self.network = number, prompt, copy, network
        self.ids = list(prompt.ids)
        self.written = self.start = 0
        self.text = GrowingText(prompt.decode, prompt.prefix, prompt.settings.stop, prompt.is_byte)
        self.name = name_of(prompt.ids, prompt.source)
        settings = prompt.settings  # rows with the same object as `sampling` are sampled together
        filters = settings.temperature, settings.top_k, settings.top_p, settings.typical_p
        self.sampling: Sampling = *filters, prompt.forbidden

    @property
    def remaining(self) -> int:
        """Maximum number of tokens still to be generated."""
        return self.prompt.settings.tokens - self.written


class _RowPool:
    """Rows of networks that share weights, with their keys and values in common buffers.

    Attributes:
        active: the rows of `reader`, in its order; rows of a network are consecutive.
        waiting: rows that join at the next step.
    """

    def __init__(self, network: Prepared, limit: int | None, bidirectional_prefix: bool) -> None:
        self.network, self.limit, self.bidirectional_prefix = network, limit, bidirectional_prefix
        self.active: list[_Row] = []
        self.waiting: list[_Row] = []
        self.reader: ContextReader | None = None

    def remove(self, numbers: Collection[int]) -> None:
        """Remove the rows with these numbers."""
        if not numbers:
            return
        self.waiting = [row for row in self.waiting if row.number not in numbers]
        remaining = [i for i, row in enumerate(self.active) if row.number not in numbers]
        if len(remaining) < len(self.active):
            self._reorder(closed_up(remaining))

    def next_scores(self) -> tuple[list[_Row], Float[Tensor, "B V"]]:
        """Let waiting rows join; return all active rows and the next-token scores of each.

        A row whose context was truncated leaves the reader and is read again with waiting ones.
        """
        truncated = []
        for row in self.active:
            start = context_start(len(row.ids), self.limit)
            if start != row.start:
                truncated.append(row)
            row.start = start
        self.remove({row.number for row in truncated})
        rows = list(self.active)
        scores: list[Tensor] = []
        if self.reader is not None:
            remaining = max(row.remaining for row in rows)
            scores.append(self.reader.next_scores([row.ids for row in rows], remaining))
        joining, self.waiting = [*truncated, *self.waiting], []
        for network in dict.fromkeys(row.network for row in joining):
            group = [row for row in joining if row.network is network]
            for row in group:
                row.start = context_start(len(row.ids), self.limit)
            for portion in growing([row.ids[row.start :] for row in group], 1):
                scores.append(self._join(network, group[portion]))
                rows += group[portion]
        return rows, scores[0] if len(scores) == 1 else torch.cat(scores)

    def _join(self, network: Prepared, rows: list[_Row]) -> Float[Tensor, "B V"]:
        """Append rows of one network to the active rows and return their next-token scores."""
        sources = [row.prompt.source for row in rows if row.prompt.source is not None]
        prefix_lengths = (
            [len(row.prompt.ids) for row in rows] if self.bidirectional_prefix else None
        )
        reader = ContextReader(
            network, self.limit, sources=sources or None, prefix_lengths=prefix_lengths
        )
        remaining = min(ROOM, max(row.remaining for row in rows))
        scores = reader.next_scores([row.ids for row in rows], remaining)
        if self.reader is None:
            self.reader = reader
        else:
            self.reader.join(reader)
        self.active += rows
        networks = list(dict.fromkeys(row.network for row in self.active))
        order = range(len(self.active))
        self._reorder(sorted(order, key=lambda i: networks.index(self.active[i].network)))
        return scores

    def _reorder(self, order: list[int]) -> None:
        """Select and reorder the active rows: new row i is the previous row `order[i]`."""
        self.active = [self.active[i] for i in order]
        if not self.active:
            self.reader = None
        elif self.reader is not None:
            self.reader.keep(order)
            self.reader.use([row.network for row in self.active])


def closed_up(remaining: list[int]) -> list[int]:
    """Reorder the increasing indices `remaining` so that every index below their number is at its
    own position: rows that stay there need not be copied."""
    fixed_indices = {index for index in remaining if index < len(remaining)}
    indices_beyond = iter(index for index in remaining if index >= len(remaining))
    return [i if i in fixed_indices else next(indices_beyond) for i in range(len(remaining))]


# --------------------------------------------------------------------------------- one token more
def _extended(rows: Sequence[_Row], scores: Float[Tensor, "B V"]) -> list[Piece]:
    """Choose the next token of each row and return the new piece of text of each. Penalties do not
    change the log-probabilities."""
    tokens = _tokens(rows, _penalised(rows, scores))
    logprobs = _log_probabilities(rows, scores, tokens)
    return [
        _piece(row, token, *logprobs.get(index, (None, ())))
        for index, (row, token) in enumerate(zip(rows, tokens, strict=True))
    ]


def _penalised(rows: Sequence[_Row], scores: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    """Return the scores after the penalties of each row."""
    if not any(row.prompt.settings.penalises for row in rows):
        return scores
    scores = scores.clone()
    for row, row_scores in zip(rows, scores, strict=True):
        settings, new_ids = row.prompt.settings, row.ids[len(row.prompt.ids) :]
        occurring = torch.tensor(sorted({*row.ids}))
        values, penalty = row_scores[occurring], settings.repetition_penalty
        row_scores[occurring] = torch.where(values < 0, values * penalty, values / penalty)
        counts = torch.bincount(torch.tensor(new_ids, dtype=torch.long), minlength=len(row_scores))
        row_scores -= settings.frequency_penalty * counts
        row_scores -= settings.presence_penalty * (counts > 0)
    return scores


def _tokens(rows: Sequence[_Row], scores: Float[Tensor, "B V"]) -> list[int]:
    """Return the next id of each row; rows with equal sampling settings are sampled together."""
    indices_by_sampling: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        indices_by_sampling.setdefault(id(row.sampling), []).append(index)
    tokens = [0] * len(rows)
    for indices in indices_by_sampling.values():
        group = [rows[index] for index in indices]
        keys = randomness.key(
            "sample",
            np.array([row.prompt.settings.seed for row in group]),
            np.array([row.name for row in group]),
            np.array([row.copy for row in group]),
            np.array([row.written for row in group]),
        )
        group_scores = scores if len(indices) == len(rows) else scores[indices]
        prompt = group[0].prompt
        new_tokens = chosen(group_scores, prompt.settings, keys, prompt.forbidden)
        for index, token in zip(indices, new_tokens, strict=True):
            tokens[index] = token
    return tokens


def _log_probabilities(
    rows: Sequence[_Row], scores: Float[Tensor, "B V"], tokens: Sequence[int]
) -> dict[int, tuple[float, tuple[tuple[int, float], ...]]]:
    """Return {row index: (log-probability of the chosen token, ((id, log-probability) of the most
    likely tokens))} for the rows that request log-probabilities."""
    counts = {i: n for i, row in enumerate(rows) if (n := row.prompt.logprobs) is not None}
    if not counts:
        return {}
    indices = list(counts)
    logs = scores[indices].double().log_softmax(-1)
    of_tokens = logs.gather(-1, torch.tensor([[tokens[index]] for index in indices]))[:, 0].tolist()
    best = logs.topk(min(max(counts.values()), logs.shape[-1]), dim=-1)
    log_probabilities = {}
    for number, (index, count) in enumerate(counts.items()):
        ids, values = best.indices[number, :count].tolist(), best.values[number, :count].tolist()
        log_probabilities[index] = of_tokens[number], tuple(zip(ids, values, strict=True))
    return log_probabilities


def _piece(
    row: _Row, token: int, logprob: float | None, top: tuple[tuple[int, float], ...]
) -> Piece:
    """Append `token` to the row and return its new piece of text."""
    row.ids.append(token)
    row.written += 1
    id_shown = None if token == row.prompt.end else token
    new_text, finished = row.text.advance(id_shown, row.remaining == 0)
    return Piece(row.number, id_shown, new_text, finished, logprob, top)


# ------------------------------------------------------------------------------- choice of a token
def chosen(
    scores: Float[Tensor, "B V"],
    settings: GenerationSettings,
    keys: randomness.Keys,
    forbidden: Sequence[int] = (),
) -> list[int]:
    """Choose the next id of each row; `keys` seed the random number of each, and `forbidden` ids
    are never chosen."""
    if settings.temperature == 0:
        return _allowed(scores, forbidden).argmax(-1).tolist()
    numbers = randomness.uniforms(keys, 1)[:, 0]
    return choose(distribution(scores, settings, forbidden), numbers)


def _allowed(scores: Float[Tensor, "B V"], forbidden: Sequence[int]) -> Float[Tensor, "B V"]:
    if not forbidden:
        return scores
    return scores.index_fill(-1, torch.tensor(forbidden), float("-inf"))


def distribution(
    scores: Float[Tensor, "B V"], settings: GenerationSettings, forbidden: Sequence[int] = ()
) -> Float[Tensor, "B V"]:
    """Return the float64 probabilities from which the next token is chosen."""
    scores = _allowed(scores.double(), forbidden)
    best = scores.argmax(-1, keepdim=True)
    temperature = settings.sampling_temperature
    if temperature == 0:
        return torch.zeros_like(scores).scatter_(-1, best, 1.0)
    probabilities = ((scores - scores.gather(-1, best)) / temperature).softmax(-1)
    if settings.top_k or settings.top_p < 1:
        probabilities = _nucleus(probabilities, settings)
    return probabilities if settings.typical_p == 1 else _typical(probabilities, settings.typical_p)


def _nucleus(
    probabilities: Float[Tensor, "B V"], settings: GenerationSettings
) -> Float[Tensor, "B V"]:
    """Keep the most probable ids by top-k, then by top-p, and normalise."""
    size = probabilities.shape[1]
    if settings.top_k:
        ordered, token_ids = _largest(probabilities, min(settings.top_k, size))
        ordered = _normalised(ordered, size)
    else:
        ordered, token_ids = _largest(probabilities, min(NUCLEUS, size))
        if bool((ordered[:, :-1].sum(-1) < settings.top_p + 1e-9).any()):
            ordered, token_ids = _largest(probabilities, size)
    if settings.top_p < 1:
        preceding = ordered.cumsum(-1) - ordered
        ordered = _normalised(ordered.masked_fill(preceding >= settings.top_p, 0.0), size)
    return torch.zeros_like(probabilities).scatter_(-1, token_ids, ordered)


def _typical(probabilities: Float[Tensor, "B V"], share: float) -> Float[Tensor, "B V"]:
    """Keep the ids whose information content is closest to the entropy, with a total probability of
    at least `share`, and normalise."""
    entropy = -torch.xlogy(probabilities, probabilities).sum(-1, keepdim=True)
    deviations = (-probabilities.log() - entropy).abs()
    ordered, order = deviations.sort(dim=-1, stable=True)
    num_below = (probabilities.gather(-1, order).cumsum(-1) < share).sum(-1, keepdim=True)
    bound = ordered.gather(-1, num_below.clamp(max=probabilities.shape[-1] - 1))
    typical = probabilities.masked_fill(deviations > bound, 0.0)
    return typical / typical.sum(-1, keepdim=True)


def _largest(
    probabilities: Float[Tensor, "B V"], count: int
) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """Return the `count` largest probabilities in descending order, and their ids; among equal
    probabilities the smaller id comes first."""
    if count == probabilities.shape[1]:
        return probabilities.sort(dim=-1, descending=True, stable=True)
    smallest = probabilities.topk(count).values[:, -1:]
    is_larger = probabilities > smallest
    is_tied = probabilities == smallest
    num_tied = count - is_larger.sum(-1, keepdim=True)
    is_chosen = is_larger | (is_tied & (is_tied.cumsum(-1) <= num_tied))
    token_ids = is_chosen.nonzero()[:, 1].view(-1, count)  # by id
    ordered, order = probabilities.gather(-1, token_ids).sort(dim=-1, descending=True, stable=True)
    return ordered, token_ids.gather(-1, order)


def _normalised(ordered: Float[Tensor, "B K"], size: int) -> Float[Tensor, "B K"]:
    """Normalise to a sum of 1. The sum is computed with zeros up to `size` terms, so that rounding
    does not depend on the number of candidates."""
    return ordered / F.pad(ordered, (0, size - ordered.shape[1])).sum(-1, keepdim=True)


def choose(probabilities: Float[Tensor, "B V"], numbers: np.ndarray) -> list[int]:
    """Sample one id per row by inverse transform sampling, from `numbers` (B,) in [0, 1)."""
    cumulative = probabilities.cumsum(-1)
    thresholds = torch.from_numpy(numbers)[:, None] * cumulative[:, -1:]
    token_ids = torch.searchsorted(cumulative, thresholds, right=True)[:, 0]
    if int(token_ids.max()) == probabilities.shape[1]:
        # By rounding a number may lie at the very end: take the last id of positive probability.
        ids = torch.arange(probabilities.shape[1])
        last_possible = torch.where(probabilities > 0, ids, 0).amax(-1)
        token_ids = torch.minimum(token_ids, last_possible)
    return token_ids.tolist()


def name_of(prompt: Sequence[int], source: Sequence[int] | None) -> np.uint64:
    """Return a hash of the prompt and its source, which seeds the sampling."""
    ids = (*source, -1, *prompt) if source else prompt
    data = np.asarray(ids, dtype="<i8").tobytes()
    return np.uint64(int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little"))


# ----------------------------------------------------------------------------------------- checks
def require_writer(config: TransformerConfig, *, one_way: bool = False) -> None:
    """Raise an `IncompatibleError` unless a model is a decoder with a vocabulary head, or such an
    encoder that was trained `one_way`, without global tokens and blocks."""
    if (config.decoder is None and not one_way) or config.vocabulary_head is None:
        raise IncompatibleError(
            "only a decoder with a vocabulary head writes on",
            found="an encoder" if config.decoder is None else "no vocabulary head",
            do="use fill-mask for a masked model",
        )
    if config.decoder is None and config.encoder is not None and config.encoder.sees_by_text:
        raise IncompatibleError(
            "an encoder with global tokens or blocks does not write on",
            found="tokens that see what follows them",
            wanted="a decoder, or an encoder without global tokens and blocks",
            do="use fill-mask",
        )


def require_prompt(config: TransformerConfig, prompt: Prompt, number: int) -> None:
    """Check prompt `number` for `Generation.add`; raises the same errors."""
    require_stop(prompt.settings.stop)
    if len(prompt.ids) == 0:
        raise UsageError(
            "a prompt without a token",
            where=f"prompt {number}",
            do="begin with a word, or with the tokenizer's begin token",
        )
    if (tokens := prompt.settings.tokens) < 0:
        raise UsageError("no number of tokens", where="count", found=tokens, wanted="0 or more")
    has_encoder = len(config.stacks) == 2
    if (prompt.source is not None) != has_encoder or (has_encoder and not prompt.source):
        raise UsageError(
            "an encoder reads one source, of at least one token, for each prompt",
            where="sources",
            found="none" if prompt.source is None else f"one of {len(prompt.source)} tokens",
            wanted="a source" if has_encoder else "none, the model has no encoder to read it",
        )
    vocabulary = config.tokens.vocabulary
    outside = [i for i in prompt.forbidden if not 0 <= i < vocabulary]
    if outside or len(set(prompt.forbidden)) == vocabulary:
        raise ConfigError(
            "a forbidden id lies outside the vocabulary" if outside else "no id is left to choose",
            where="forbidden",
            found=outside[0] if outside else f"all {vocabulary}",
            wanted=f"0 to {vocabulary - 1}" if outside else f"{vocabulary - 1} at most",
        )
