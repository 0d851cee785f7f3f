"""Generation with a decoder: greedy, or sampled with temperature, top-k and top-p.

    generate(model, prompts, 20)                                  lists of new ids
    generate(model, [[start]], 20, sources=[ids])                 of a model of two stacks
    for step in steps(model, prompts, 20, Sampling(top_p=0.9)):   one token per row, with scores
    generate(prepare(model), prompts, 20)                    prepared once for several calls

The random number for a token is a function of the seed, the prompt (with its source) and the step,
so a prompt gets the same continuation at any index of a batch; equal prompts are distinguished by
their order. For the context of a long text see `growing_rows.context_start`.

Letters: B rows, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from maskwright.base import randomness
from maskwright.base.errors import ConfigError, IncompatibleError, UsageError
from maskwright.model.inference.batches import growing
from maskwright.model.inference.growing_rows import ContextReader, trained_length
from maskwright.model.inference.prepared import Prepared, answering
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer

# Top-p first sorts only this many of the most likely ids, which is faster than sorting all.
NUCLEUS = 256


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How the next token is chosen from its scores; the filters apply in this order."""

    temperature: float = 1.0
    """Scores are divided by it; 0 takes the likeliest token."""
    top_k: int | None = None
    """Only so many of the likeliest tokens."""
    top_p: float | None = None
    """Only the likeliest tokens that together reach this probability (arXiv:1904.09751)."""
    seed: int = 0
    forbidden: tuple[int, ...] = ()
    """Ids that are never chosen."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise _out_of_range("temperature", self.temperature, "0 or more")
        if self.top_k is not None and self.top_k < 1:
            raise _out_of_range("top_k", self.top_k, "1 or more, or none for all of them")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise _out_of_range("top_p", self.top_p, "more than 0, at most 1")

    @cached_property
    def forbidden_ids(self) -> Int[Tensor, " F"]:
        """`forbidden` as a tensor."""
        return torch.tensor(self.forbidden, dtype=torch.int64)


GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class DecodingStep:
    """One decoding step of all unfinished rows.

    Attributes:
        rows: index of the prompt of each row, in any order.
        tokens: the id chosen for each row.
        scores: the model's scores before temperature and filters.
        sampling: the settings by which `tokens` were chosen.
    """

    rows: list[int]
    tokens: list[int]
    scores: Float[Tensor, "B V"]
    sampling: Sampling

    @property
    def probabilities(self) -> Float[Tensor, "B V"]:
        """The distributions that `tokens` were chosen from, after temperature and filters."""
        return distribution(self.scores, self.sampling)


def generate(
    model: Transformer | Prepared,
    prompts: Sequence[Sequence[int]],
    count: int | Sequence[int],
    sampling: Sampling = GREEDY,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    end: int | None = None,
    context: int | None = None,
    bidirectional_prefix: bool = False,
    one_way: bool = False,
    cached: bool = True,
) -> list[list[int]]:
    """Return at most `count` new ids for each prompt, without the end token; see `steps`."""
    new_ids: list[list[int]] = [[] for _ in prompts]
    for step in steps(
        model,
        prompts,
        count,
        sampling,
        sources=sources,
        end=end,
        context=context,
        bidirectional_prefix=bidirectional_prefix,
        one_way=one_way,
        cached=cached,
    ):
        for row, token in zip(step.rows, step.tokens, strict=True):
            if token != end:
                new_ids[row].append(token)
    return new_ids


def steps(
    model: Transformer | Prepared,
    prompts: Sequence[Sequence[int]],
    count: int | Sequence[int],
    sampling: Sampling = GREEDY,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    end: int | None = None,
    context: int | None = None,
    bidirectional_prefix: bool = False,
    one_way: bool = False,
    cached: bool = True,
    stopped: Collection[int] = (),
) -> Generator[DecodingStep, None, None]:
    """Generate tokens step by step.

    Args:
        model: a network, prepared or not.
        prompts: token ids of each prompt, at least one; lengths may differ.
        count: maximum number of new tokens, for all rows or for each.
        sources: encoder inputs of an encoder-decoder model, one for each prompt; the prompt is then
            the beginning of the decoder input.
        end: the id that ends a row; None for no such id.
        context: maximum number of tokens of context; None for the length of training.
        bidirectional_prefix: attention within a prompt is bidirectional, as trained by `prefix-lm`.
        one_way: allow an encoder that was also trained with causal attention to predict the next
            token, as by `hybrid`.
        cached: keep keys and values between steps; does not change the tokens.
        stopped: rows to end; the caller may add some between steps.

    Raises:
        IncompatibleError: the model is not a decoder with a vocabulary head.
        UsageError: an empty prompt or source, sources for a model without an encoder or none for
            one with an encoder, a count below 0, or a context longer than the model supports.
        ConfigError: a forbidden id outside the vocabulary, or all ids forbidden.
        DataError: a source longer than the encoder supports.
    """
    counts = [count] * len(prompts) if isinstance(count, int) else list(count)
    check(model.config, prompts, counts, sources, context, one_way=one_way)
    check_forbidden(sampling.forbidden, model.config.tokens.vocabulary)
    texts = [list(prompt) for prompt in prompts]
    names = _names(prompts, sources)
    with answering(model, live=not cached) as network:
        limit = context or trained_length(model.config)
        for batch in growing(prompts, counts):
            rows = [row for row in range(batch.start, batch.stop) if counts[row]]
            if not rows:
                continue
            reader = ContextReader(network, limit, cached)
            if bidirectional_prefix:
                reader.prefix_lengths = [len(prompts[row]) for row in rows]
            reader.encode([sources[row] for row in rows] if sources else None)
            yield from _steps(reader, rows, texts, counts, sampling, names, end, stopped)


def _steps(
    reader: ContextReader,
    rows: list[int],
    texts: list[list[int]],
    counts: Sequence[int],
    sampling: Sampling,
    names: tuple[np.ndarray, np.ndarray],
    end: int | None,
    stopped: Collection[int],
) -> Generator[DecodingStep, None, None]:
    """Generate for `rows` of `texts`; new ids are appended to `texts` in place."""
    for number in range(max(counts[row] for row in rows)):
        tokens_left = max(counts[row] for row in rows) - number
        scores = reader.next_scores([texts[row] for row in rows], tokens_left)
        keys = randomness.key("sample", sampling.seed, names[0][rows], names[1][rows], number)
        tokens = chosen(scores, sampling, keys)
        yield DecodingStep(rows, tokens, scores, sampling)
        for row, token in zip(rows, tokens, strict=True):
            texts[row].append(token)
        remaining_indices = [
            index
            for index, (row, token) in enumerate(zip(rows, tokens, strict=True))
            if token != end and number + 1 < counts[row] and row not in stopped
        ]
        if not remaining_indices:
            return
        if len(remaining_indices) < len(rows):
            remaining_indices = closed_up(remaining_indices)
            rows = [rows[index] for index in remaining_indices]
            reader.keep(remaining_indices)


def closed_up(going: list[int]) -> list[int]:
    """Reorder the increasing indices `going` so that every index below `len(going)` is at its own
    position: rows that stay there need not be copied."""
    fixed_indices = {index for index in going if index < len(going)}
    indices_beyond = iter(index for index in going if index >= len(going))
    return [i if i in fixed_indices else next(indices_beyond) for i in range(len(going))]


def chosen(scores: Float[Tensor, "B V"], sampling: Sampling, keys: randomness.Keys) -> list[int]:
    """Choose the next id of each row; `keys` seed the random number of each."""
    if sampling.temperature == 0:
        return _allowed(scores, sampling).argmax(-1).tolist()
    numbers = randomness.uniforms(keys, 1)[:, 0]
    return choose(distribution(scores, sampling), numbers)


def _allowed(scores: Float[Tensor, "B V"], sampling: Sampling) -> Float[Tensor, "B V"]:
    if not sampling.forbidden:
        return scores
    return scores.index_fill(-1, sampling.forbidden_ids, float("-inf"))


def distribution(scores: Float[Tensor, "B V"], sampling: Sampling) -> Float[Tensor, "B V"]:
    """Return the float64 probabilities from which the next token is chosen."""
    scores = _allowed(scores.double(), sampling)
    best = scores.argmax(-1, keepdim=True)
    if sampling.temperature == 0:
        return torch.zeros_like(scores).scatter_(-1, best, 1.0)
    probabilities = ((scores - scores.gather(-1, best)) / sampling.temperature).softmax(-1)
    top_p = sampling.top_p or 1.0
    if sampling.top_k is None and top_p == 1:
        return probabilities
    size = probabilities.shape[1]
    if sampling.top_k is not None:
        ordered, token_ids = _largest(probabilities, min(sampling.top_k, size))
        ordered = _normalised(ordered, size)
    else:
        ordered, token_ids = _largest(probabilities, min(NUCLEUS, size))
        if bool((ordered[:, :-1].sum(-1) < top_p + 1e-9).any()):
            ordered, token_ids = _largest(probabilities, size)
    if top_p < 1:
        preceding = ordered.cumsum(-1) - ordered
        ordered = _normalised(ordered.masked_fill(preceding >= top_p, 0.0), size)
    return torch.zeros_like(probabilities).scatter_(-1, token_ids, ordered)


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


def _names(
    prompts: Sequence[Sequence[int]], sources: Sequence[Sequence[int]] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the hash of each prompt (P,), and how many equal prompts precede it (P,)."""
    counts: Counter[np.uint64] = Counter()
    contents, copies = [], []
    for prompt, source in zip(prompts, sources or [()] * len(prompts), strict=True):
        content = name_of(prompt, source)
        contents.append(content)
        copies.append(counts[content])
        counts[content] += 1
    return np.asarray(contents, dtype=np.uint64), np.asarray(copies, dtype=np.uint64)


def require_writer(config: TransformerConfig, *, one_way: bool = False) -> None:
    """Check that a model can generate; an encoder can if it was trained `one_way`.

    Raises:
        IncompatibleError: the model is not a decoder with a vocabulary head.
    """
    if (config.decoder is None and not one_way) or config.vocabulary_head is None:
        raise IncompatibleError(
            "only a decoder with a vocabulary head writes on",
            found="an encoder" if config.decoder is None else "no vocabulary head",
            do="use fill-mask for a masked model",
        )


def check(
    config: TransformerConfig,
    prompts: Sequence[Sequence[int]],
    counts: Sequence[int],
    sources: Sequence[Sequence[int]] | None,
    context: int | None,
    *,
    one_way: bool = False,
) -> None:
    """Validate the arguments of `steps`; raises the same errors."""
    require_writer(config, one_way=one_way)
    empty_prompt = next((i for i, prompt in enumerate(prompts) if len(prompt) == 0), None)
    if empty_prompt is not None:
        raise UsageError(
            "a prompt without a token",
            where=f"prompt {empty_prompt}",
            do="begin with a word, or with the tokenizer's begin token",
        )
    if (min_count := min(counts, default=0)) < 0:
        raise UsageError("no number of tokens", where="count", found=min_count, wanted="0 or more")
    if len(counts) != len(prompts):
        raise UsageError(
            "as many numbers of tokens as prompts are wanted",
            where="count",
            found=len(counts),
            wanted=f"{len(prompts)}, or one for all",
        )
    num_sources = len(prompts) if len(config.stacks) == 2 else 0
    if len(sources or ()) != num_sources or (sources is not None and not all(map(len, sources))):
        raise UsageError(
            "an encoder reads one source, of at least one token, for each prompt",
            where="sources",
            found="none" if sources is None else f"{len(sources)}, of {[*map(len, sources)][:5]}",
            wanted=num_sources or "none, the model has no encoder that reads one",
        )
    longest = trained_length(config)
    if context is not None and not 1 <= context <= (longest or context):
        raise UsageError(
            "a context the model does not have",
            where="context",
            found=context,
            wanted=f"1 to {longest or 'any length'}",
        )


def check_forbidden(ids: Sequence[int], vocabulary: int) -> None:
    outside = [i for i in ids if not 0 <= i < vocabulary]
    if outside:
        raise ConfigError(
            "a forbidden id lies outside the vocabulary",
            where="forbidden",
            found=outside[0],
            wanted=f"0 to {vocabulary - 1}",
        )
    if len(set(ids)) == vocabulary:
        raise ConfigError(
            "no id is left to choose",
            where="forbidden",
            found=f"all {vocabulary}",
            wanted=f"{vocabulary - 1} at most",
        )


def _out_of_range(name: str, value: object, valid_range: str) -> ConfigError:
    return ConfigError("a setting is out of range", where=name, found=value, wanted=valid_range)
