"""Generation with a decoder: greedy, or sampled with temperature, top-k and top-p.

    generate(model, prompts, 20)                                  lists of new ids
    generate(model, [[start]], 20, sources=[ids])                 of a model of two stacks
    for step in steps(model, prompts, 20, Sampling(top_p=0.9)):   one token per row, and its chances
    generate(prepare(model), prompts, 20)                    prepared once for several calls

Randomness is a function: the number that decides a token hangs on the seed, the prompt (and its
source) and the step, so a prompt gets the same continuation wherever it stands in a batch (equal
prompts are told apart by their order). What of a long text is read: `reader`.

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

# Of so many of the likeliest ids a nucleus is looked for first; sorting all takes longer.
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
    """One step of all rows that go on.

    Attributes:
        rows: which prompts they belong to, in any order.
        tokens: the id chosen in each.
        scores: what the model gave.
        sampling: how it was chosen.
    """

    rows: list[int]
    tokens: list[int]
    scores: Float[Tensor, "B V"]
    sampling: Sampling

    @property
    def probabilities(self) -> Float[Tensor, "B V"]:
        """What the ids were chosen from, after temperature and filters."""
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
    """At most `count` new ids for each prompt; see `steps`. The end token itself is left out."""
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
    """Generate step by step.

    Args:
        model: a network, or one that was prepared before.
        prompts: at least one id each; they may differ in length.
        count: how many tokens each row gets at most, or how many each of them.
        sources: what the encoder of a model of two stacks reads, one for each prompt; the prompt is
            then what the decoder starts with.
        end: a row that chose this id goes no further.
        context: how many tokens are read at most; None: as many as the model was trained on.
        bidirectional_prefix: the tokens of a prompt see each other, as `prefix-lm` trains it.
        one_way: an encoder was also taught to read to the left only and to predict the next token,
            as by `hybrid`; it then writes, too.
        cached: keep keys and values between steps; the same tokens either way.
        stopped: rows that go no further; whoever takes the steps may add some between two.

    Raises:
        IncompatibleError: the model is no decoder with a vocabulary head.
        UsageError: an empty prompt or source, sources for a model without an encoder or none for
            one with it, a count below 0, or a context that the model does not have.
        ConfigError: a forbidden id that the model does not have, or all of them forbidden.
        DataError: a source that is longer than the encoder's positions.
    """
    counts = [count] * len(prompts) if isinstance(count, int) else list(count)
    check(model.config, prompts, counts, sources, context, one_way=one_way)
    check_forbidden(sampling.forbidden, model.config.tokens.vocabulary)
    texts = [list(prompt) for prompt in prompts]
    names = _names(prompts, sources)
    with answering(model, live=not cached) as ready:
        limit = context or trained_length(model.config)
        for portion in growing(prompts, counts):
            rows = [row for row in range(portion.start, portion.stop) if counts[row]]
            if not rows:
                continue
            reader = ContextReader(ready, limit, cached)
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
    """The steps of some rows of all `texts`, which grow."""
    for number in range(max(counts[row] for row in rows)):
        remaining = max(counts[row] for row in rows) - number
        scores = reader.next_scores([texts[row] for row in rows], remaining)
        keys = randomness.key("sample", sampling.seed, names[0][rows], names[1][rows], number)
        tokens = chosen(scores, sampling, keys)
        yield DecodingStep(rows, tokens, scores, sampling)
        for row, token in zip(rows, tokens, strict=True):
            texts[row].append(token)
        going = [
            index
            for index, (row, token) in enumerate(zip(rows, tokens, strict=True))
            if token != end and number + 1 < counts[row] and row not in stopped
        ]
        if not going:
            return
        if len(going) < len(rows):
            going = closed_up(going)
            rows = [rows[index] for index in going]
            reader.keep(going)


def closed_up(going: list[int]) -> list[int]:
    """The same indices, those beyond the end moved into the gaps, so that the others need not
    move."""
    staying = {index for index in going if index < len(going)}
    moved = iter(index for index in going if index >= len(going))
    return [index if index in staying else next(moved) for index in range(len(going))]


def chosen(scores: Float[Tensor, "B V"], sampling: Sampling, keys: randomness.Keys) -> list[int]:
    """The next id of each row."""
    if sampling.temperature == 0:
        return _allowed(scores, sampling).argmax(-1).tolist()
    numbers = randomness.uniforms(keys, 1)[:, 0]
    return choose(distribution(scores, sampling), numbers)


def _allowed(scores: Float[Tensor, "B V"], sampling: Sampling) -> Float[Tensor, "B V"]:
    if not sampling.forbidden:
        return scores
    return scores.index_fill(-1, sampling.forbidden_ids, float("-inf"))


def distribution(scores: Float[Tensor, "B V"], sampling: Sampling) -> Float[Tensor, "B V"]:
    """The probabilities, in float64, from which the next token is chosen."""
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
        before = ordered.cumsum(-1) - ordered
        ordered = _normalised(ordered.masked_fill(before >= top_p, 0.0), size)
    return torch.zeros_like(probabilities).scatter_(-1, token_ids, ordered)


def _largest(
    probabilities: Float[Tensor, "B V"], count: int
) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """The largest, in order, and their ids; of equal ones the smaller id comes first."""
    if count == probabilities.shape[1]:
        return probabilities.sort(dim=-1, descending=True, stable=True)
    least = probabilities.topk(count).values[:, -1:]
    above = probabilities > least
    level = probabilities == least
    needed = count - above.sum(-1, keepdim=True)
    chosen = above | (level & (level.cumsum(-1) <= needed))
    token_ids = chosen.nonzero()[:, 1].view(-1, count)  # by id
    ordered, order = probabilities.gather(-1, token_ids).sort(dim=-1, descending=True, stable=True)
    return ordered, token_ids.gather(-1, order)


def _normalised(ordered: Float[Tensor, "B K"], size: int) -> Float[Tensor, "B K"]:
    """Divided by their sum, which is taken among as many zeros as there are other ids: the order of
    a sum decides its last bit, and the number of candidates must not."""
    return ordered / F.pad(ordered, (0, size - ordered.shape[1])).sum(-1, keepdim=True)


def choose(probabilities: Float[Tensor, "B V"], numbers: np.ndarray) -> list[int]:
    """The id on which each number in [0, 1) falls when the probabilities are laid end to end."""
    ends = probabilities.cumsum(-1)
    marks = torch.from_numpy(numbers)[:, None] * ends[:, -1:]
    token_ids = torch.searchsorted(ends, marks, right=True)[:, 0]
    if int(token_ids.max()) == probabilities.shape[1]:
        # Rounding may put a mark on the very end: then the last id that is possible is meant.
        ids = torch.arange(probabilities.shape[1])
        last_possible = torch.where(probabilities > 0, ids, 0).amax(-1)
        token_ids = torch.minimum(token_ids, last_possible)
    return token_ids.tolist()


def name_of(prompt: Sequence[int], source: Sequence[int] | None) -> np.uint64:
    """A number for the content of a prompt and its source, on which what is drawn hangs."""
    named = (*source, -1, *prompt) if source else prompt
    data = np.asarray(named, dtype="<i8").tobytes()
    return np.uint64(int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little"))


def _names(
    prompts: Sequence[Sequence[int]], sources: Sequence[Sequence[int]] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Each prompt's name, and how many equal prompts stand before it."""
    counts: Counter[np.uint64] = Counter()
    contents, copies = [], []
    for prompt, source in zip(prompts, sources or [()] * len(prompts), strict=True):
        content = name_of(prompt, source)
        contents.append(content)
        copies.append(counts[content])
        counts[content] += 1
    return np.asarray(contents, dtype=np.uint64), np.asarray(copies, dtype=np.uint64)


def require_writer(config: TransformerConfig, *, one_way: bool = False) -> None:
    """Refuse a model that cannot generate; an encoder can if it was trained `one_way`.

    Raises:
        IncompatibleError: it is no decoder with a vocabulary head.
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
    """Refuse what cannot be generated from; raises as `steps` says."""
    require_writer(config, one_way=one_way)
    empty = next((i for i, prompt in enumerate(prompts) if len(prompt) == 0), None)
    if empty is not None:
        raise UsageError(
            "a prompt without a token",
            where=f"prompt {empty}",
            do="begin with a word, or with the tokenizer's begin token",
        )
    if (low := min(counts, default=0)) < 0:
        raise UsageError("no number of tokens", where="count", found=low, wanted="0 or more")
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
