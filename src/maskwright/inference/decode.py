"""Generation with a decoder: greedy, or sampled with temperature, top-k and top-p.

    generate(model, prompts, 20)                                  lists of new ids
    generate(model, [[start]], 20, sources=[ids])                 of a model of two stacks
    for step in steps(model, prompts, 20, Sampling(top_p=0.9)):   one token per row, and its chances

Randomness is a function: the number that decides a token hangs on the seed, the prompt (and its
source) and the step, so a prompt gets the same continuation wherever it stands in a batch (equal
prompts are told apart by their order). What of a long text is read: `reader`.

Letters: B rows, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from maskwright import randomness
from maskwright.errors import ConfigError, IncompatibleError, UsageError
from maskwright.inference.incremental import Reader, trained_length
from maskwright.nn.config import TransformerConfig
from maskwright.nn.transformer import Transformer


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


GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class Step:
    """One step of all rows that go on.

    Attributes:
        rows: which prompts they belong to.
        tokens: the id chosen in each.
        probabilities: what it was chosen from, after temperature and filters.
    """

    rows: list[int]
    tokens: list[int]
    probabilities: Float[Tensor, "B V"]


def generate(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    count: int,
    sampling: Sampling = GREEDY,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    end: int | None = None,
    context: int | None = None,
    whole: bool = False,
    one_way: bool = False,
    cached: bool = True,
) -> list[list[int]]:
    """At most `count` new ids for each prompt; see `steps`. The end token itself is left out."""
    made: list[list[int]] = [[] for _ in prompts]
    for step in steps(
        model,
        prompts,
        count,
        sampling,
        sources=sources,
        end=end,
        context=context,
        whole=whole,
        one_way=one_way,
        cached=cached,
    ):
        for row, token in zip(step.rows, step.tokens, strict=True):
            if token != end:
                made[row].append(token)
    return made


def steps(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    count: int,
    sampling: Sampling = GREEDY,
    *,
    sources: Sequence[Sequence[int]] | None = None,
    end: int | None = None,
    context: int | None = None,
    whole: bool = False,
    one_way: bool = False,
    cached: bool = True,
) -> Iterator[Step]:
    """Generate step by step.

    Args:
        prompts: at least one id each; they may differ in length.
        count: how many tokens each row gets at most.
        sources: what the encoder of a model of two stacks reads, one for each prompt; the prompt is
            then what the decoder starts with.
        end: a row that chose this id goes no further.
        context: how many tokens are read at most; None: as many as the model was trained on.
        whole: the tokens of a prompt see each other, as a model of `prefix-lm` was taught.
        one_way: an encoder was also taught to read to the left only and to predict the next token,
            as by `hybrid`; it then writes, too.
        cached: keep keys and values between steps; the same tokens either way.

    Raises:
        IncompatibleError: the model is no decoder with a vocabulary head.
        UsageError: an empty prompt or source, sources for a model without an encoder or none for
            one with it, a count below 0, or a context that the model does not have.
        ConfigError: a forbidden id that the model does not have, or all of them forbidden.
        DataError: a source that is longer than the encoder's positions.
    """
    check(model, prompts, count, sources, context, one_way=one_way)
    _check_forbidden(sampling.forbidden, model.config.tokens.vocabulary)
    texts = [list(prompt) for prompt in prompts]
    pairs = zip(sources or [()] * len(texts), prompts, strict=True)
    names = _names([(*source, -1, *prompt) if source else prompt for source, prompt in pairs])
    rows = list(range(len(texts)))
    was_training = model.training
    try:
        reader = Reader(model.eval(), context or trained_length(model.config), cached)
        if whole:
            reader.seen = torch.tensor([len(prompt) for prompt in prompts])
        reader.encode(sources if texts else None)
        for number in range(count):
            if not rows:
                return
            scores = reader.next_scores([texts[row] for row in rows], count - number)
            probabilities = distribution(scores, sampling)
            keys = randomness.key("sample", sampling.seed, names[0][rows], names[1][rows], number)
            tokens = choose(probabilities, randomness.uniforms(keys, 1)[:, 0])
            yield Step(rows, tokens, probabilities)
            for row, token in zip(rows, tokens, strict=True):
                texts[row].append(token)
            going = [i for i, token in enumerate(tokens) if token != end]
            if len(going) < len(rows):
                rows = [rows[i] for i in going]
                reader.keep(going)
    finally:
        model.train(was_training)


def distribution(scores: Float[Tensor, "B V"], sampling: Sampling) -> Float[Tensor, "B V"]:
    """The probabilities, in float64, from which the next token is chosen."""
    scores = scores.double()
    if sampling.forbidden:
        scores = scores.index_fill(-1, torch.tensor(sampling.forbidden), float("-inf"))
    if sampling.temperature == 0:
        best = scores.argmax(-1, keepdim=True)
        return torch.zeros_like(scores).scatter_(-1, best, 1.0)
    best = scores.max(-1, keepdim=True).values
    probabilities = ((scores - best) / sampling.temperature).softmax(-1)
    if sampling.top_k is None and sampling.top_p is None:
        return probabilities
    ordered, places = probabilities.sort(dim=-1, descending=True, stable=True)
    if sampling.top_k is not None:
        ordered[:, sampling.top_k :] = 0.0
        ordered = ordered / ordered.sum(-1, keepdim=True)
    if sampling.top_p is not None:
        before = ordered.cumsum(-1) - ordered
        ordered = ordered.masked_fill(before >= sampling.top_p, 0.0)
        ordered = ordered / ordered.sum(-1, keepdim=True)
    return torch.zeros_like(ordered).scatter_(-1, places, ordered)


def choose(probabilities: Float[Tensor, "B V"], numbers: np.ndarray) -> list[int]:
    """The id on which each number in [0, 1) falls when the probabilities are laid end to end."""
    ends = probabilities.cumsum(-1)
    marks = torch.from_numpy(numbers)[:, None] * ends[:, -1:]
    places = torch.searchsorted(ends, marks, right=True)[:, 0]
    # Rounding may put a mark on the very end: then the last id that is possible is meant.
    ids = torch.arange(probabilities.shape[1])
    last = torch.where(probabilities > 0, ids, 0).amax(-1)
    return torch.minimum(places, last).tolist()


def _names(prompts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """A number for each prompt's content, and how many equal prompts stand before it."""
    seen: Counter[int] = Counter()
    contents, copies = [], []
    for prompt in prompts:
        data = np.asarray(prompt, dtype="<i8").tobytes()
        content = int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
        contents.append(content)
        copies.append(seen[content])
        seen[content] += 1
    return np.asarray(contents, dtype=np.uint64), np.asarray(copies, dtype=np.uint64)


def require_writer(config: TransformerConfig, *, one_way: bool = False) -> None:
    """Refuse a model that cannot write, whatever it is given to go on with; an encoder can where it
    was taught to read `one_way`.

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
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    count: int,
    sources: Sequence[Sequence[int]] | None,
    context: int | None,
    *,
    one_way: bool = False,
) -> None:
    """Refuse what cannot be generated from; raises as `steps` says."""
    config = model.config
    require_writer(config, one_way=one_way)
    empty = next((i for i, prompt in enumerate(prompts) if len(prompt) == 0), None)
    if empty is not None:
        raise UsageError(
            "a prompt without a token",
            where=f"prompt {empty}",
            do="begin with a word, or with the tokenizer's begin token",
        )
    if count < 0:
        raise UsageError("no number of tokens", where="count", found=count, wanted="0 or more")
    wanted = len(prompts) if len(config.stacks) == 2 else 0
    if len(sources or ()) != wanted or (sources is not None and not all(map(len, sources))):
        raise UsageError(
            "an encoder reads one source, of at least one token, for each prompt",
            where="sources",
            found="none" if sources is None else f"{len(sources)}, of {[*map(len, sources)][:5]}",
            wanted=wanted or "none, the model has no encoder that reads one",
        )
    longest = trained_length(config)
    if context is not None and not 1 <= context <= (longest or context):
        raise UsageError(
            "a context the model does not have",
            where="context",
            found=context,
            wanted=f"1 to {longest or 'any length'}",
        )


def _check_forbidden(ids: Sequence[int], vocabulary: int) -> None:
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


def _out_of_range(name: str, found: object, wanted: str) -> ConfigError:
    return ConfigError("a setting is out of range", where=name, found=found, wanted=wanted)
