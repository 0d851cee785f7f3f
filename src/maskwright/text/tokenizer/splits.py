"""Subword regularisation: random splits of words (Kudo 2018; Provilkov et al. 2020).

A Unigram vocabulary gives every split of a word a probability. Instead of the best split, one is
sampled exactly, by forward filtering and backward sampling. BPE dropout leaves out each merge with
some probability, step by step. Both are functions of keys. `SampledTokenizer` gives the training
text of a recipe such splits.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base import config
from maskwright.base.errors import ConfigError, UsageError
from maskwright.base.randomness import key, uniforms
from maskwright.text.tokenizer.file.pipeline import marks_of
from maskwright.text.tokenizer.file.roles import ROLES
from maskwright.text.tokenizer.tokenizer import BYTES_BY_NAME, Tokenizer

MOST_WORDS = 1 << 18  # words whose splits are kept ready
BELOW_ALL = 10.0  # by which an unknown character scores below the rarest piece, as in the library


def encode_sampled(
    tokenizer: Tokenizer, text: str, *, alpha: float, seed: int, counter: int
) -> list[int]:
    """Encode ordinary text with random splits.

    Args:
        tokenizer: of kind unigram.
        alpha: exponent of the probabilities: 0 makes all splits equally likely, large values
            approach `tokenizer.encode`.
        counter: identifies text and epoch.
    Raises:
        UsageError: another kind, or a negative `alpha`.
    """
    scores, limits = tokenizer.scores, tokenizer.score_limits
    if scores is None or limits is None or alpha < 0:
        raise UsageError(
            "splits are drawn from a unigram vocabulary, with alpha from 0 on",
            found=f"{tokenizer.kind}, alpha {alpha}",
        )
    unknown, longest, ids = limits[0] - BELOW_ALL, limits[1], list[int]()
    for number, word in enumerate(tokenizer.words(text)):
        draws = uniforms(key("sample", seed, counter, number), len(word))
        before = True
        for piece in sampled_split(word, scores, alpha, draws.tolist(), unknown, longest):
            is_piece = piece in scores
            token_id = tokenizer.id(piece) if is_piece else tokenizer.unknown
            if token_id is not None and (is_piece or before):  # one for unknown characters in a row
                ids.append(token_id)
            before = is_piece
    return ids


def sampled_split(
    word: str,
    scores: Mapping[str, float],
    alpha: float,
    draws: Sequence[float],
    unknown: float,
    longest: int,
) -> list[str]:
    """Sample a split of `word` with a probability proportional to its own to the power of `alpha`.

    Args:
        word: not empty.
        scores: piece -> log-probability.
        alpha: see `encode_sampled`.
        draws: as many numbers in [0, 1) as the word has characters.
        unknown: log-probability of a character that is no piece.
        longest: characters of the longest piece.
    """
    return draw_split(word, lattice(word, scores, alpha, unknown, longest), iter(draws).__next__)


Lattice = list[tuple[list[int], list[float]]]


def lattice(
    word: str, scores: Mapping[str, float], alpha: float, unknown: float, longest: int
) -> Lattice:
    """For each end of a prefix of `word`, where its last piece may begin, and cumulative
    probabilities of these beginnings; arguments as of `sampled_split`."""
    forward, ends = [0.0], Lattice([([], [])])
    for end in range(1, len(word) + 1):
        starts, values = list[int](), list[float]()
        for start in range(max(0, end - longest), end):
            score = scores.get(word[start:end], unknown if start == end - 1 else None)
            if score is not None:
                starts.append(start)
                values.append(forward[start] + alpha * score)
        forward.append(float(np.logaddexp.reduce(values)))
        ends.append((starts, np.cumsum(np.exp(np.array(values) - forward[end])).tolist()))
    return ends


def draw_split(word: str, ends: Lattice, draw: Callable[[], float]) -> list[str]:
    """Sample a split of `word` by numbers in [0, 1) from `draw`, one for each piece."""
    pieces, end = list[str](), len(word)
    while end:
        starts, shares = ends[end]
        start = starts[min(bisect.bisect_right(shares, draw()), len(starts) - 1)]
        pieces.append(word[start:end])
        end = start
    return pieces[::-1]


# ------------------------------------------------------------------------------ training text
@dataclass(frozen=True, kw_only=True)
class SubwordSampling:
    """Random splits of the words of training text; held-out text keeps the usual ones.
    `bpe_dropout` is the rate at which merges of a BPE vocabulary are left out (0.1 in the paper),
    `unigram_alpha` the exponent of the probabilities of a Unigram vocabulary (0.1 to 0.5; large
    values approach the best split). Each occurrence of a word is split anew, once for a run."""

    bpe_dropout: float = 0.0
    unigram_alpha: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        config.require("subwords.bpe_dropout", self.bpe_dropout, 0.0, 1.0)
        if self.unigram_alpha is not None:
            config.require("subwords.unigram_alpha", self.unigram_alpha, 1e-3, 1e3)
        config.require("subwords.seed", self.seed, 0)

    def __bool__(self) -> bool:
        """Whether anything is sampled."""
        return self.bpe_dropout > 0 or self.unigram_alpha is not None

    def require_kind(self, kind: str) -> None:
        """Check that a vocabulary of this `kind` can be sampled so.

        Raises:
            ConfigError: it cannot.
        """
        settings = {"bpe_dropout": self.bpe_dropout > 0, "unigram_alpha": self.unigram_alpha}
        kinds = {"bpe_dropout": ("bpe", "byte-bpe"), "unigram_alpha": ("unigram",)}
        for name, valid in kinds.items():
            if settings[name] not in (False, None) and kind not in valid:
                raise ConfigError(
                    "this kind of vocabulary has no such splits",
                    where=f"subwords.{name}",
                    found=kind,
                    wanted=f"tokenizer.kind {' or '.join(valid)}",
                    do=f"leave subwords.{name} out, or choose another tokenizer",
                )


class SampledTokenizer:
    """The encoder of a token store whose words are split at random, as a function of the seed and
    of the text. The tokens of a word spell what its usual tokens do, white space included; a word
    with an unknown character, or with a mark inside, keeps its usual split.

    Raises:
        ConfigError: the vocabulary is of another kind than `sampling` says.
    """

    def __init__(self, tokenizer: Tokenizer, sampling: SubwordSampling) -> None:
        sampling.require_kind(tokenizer.kind)
        self._tokenizer, self._sampling = tokenizer, sampling
        self.vocabulary_size = tokenizer.vocabulary_size
        self.starts_word, self.ends_word = tokenizer.starts_word, tokenizer.ends_word
        for role in ROLES:
            setattr(self, role, getattr(tokenizer, role))
        self.fingerprint = config.fingerprint(
            [tokenizer.fingerprint, "subwords", 1, config.to_plain(sampling)]
        )
        self._numbers = {token: number for number, token in enumerate(tokenizer.vocabulary)}
        unspelled = {self._numbers[token] for token in BYTES_BY_NAME & self._numbers.keys()}
        self._fixed = {*tokenizer.special_ids, *unspelled, tokenizer.emitted}
        model = tokenizer.plain["model"]
        self._prefix = model.get("continuing_subword_prefix") or ""
        self._suffix = model.get("end_of_word_suffix") or ""
        # The mark of our own BPE is part of the word: it is one symbol, which no merge makes.
        marks = marks_of(tokenizer.plain, tokenizer.kind)
        self._last = "" if self._suffix else marks.suffix
        self._ranks: dict[tuple[str, str], int] = {}
        for rank, merge in enumerate(model.get("merges") or ()):
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            if self._numbers.get(self._merged(left, right)) not in self._fixed:
                self._ranks[left, right] = rank
        self._prepared: dict[tuple[int, ...], Any] = {}

    def encode_batch(self, texts: Sequence[str]) -> list[NDArray[np.integer]]:
        """Return the ids of many texts."""
        return [ids for ids, _ in self.encode_marked(texts, [()] * len(texts))]

    def encode_marked(
        self, texts: Sequence[str], marks: Sequence[Sequence[int]]
    ) -> list[tuple[NDArray[np.integer], NDArray[np.integer]]]:
        """Return ids, and where marked characters are; as `Tokenizer.encode_marked`."""
        encoded = self._tokenizer.encode_words(texts, marks)
        return [self._resplit(text, *usual) for text, usual in zip(texts, encoded, strict=True)]

    def _resplit(
        self,
        text: str,
        ids: NDArray[np.integer],
        indices: NDArray[np.integer],
        words: list[int | None],
    ) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        draw = self._draws(text).__next__
        marked, moved = set(indices.tolist()), dict[int, int]()
        usual, sampled, begin = ids.tolist(), list[int](), 0
        for _, tokens in itertools.groupby(words):
            end = begin + sum(1 for _ in tokens)
            inside = marked and any(index in marked for index in range(begin + 1, end))
            for offset in range(end - begin if inside else 1):
                moved[begin + offset] = len(sampled) + offset
            word = tuple(usual[begin:end])
            sampled += word if inside else self._split(word, draw)
            begin = end
        moved[len(usual)] = len(sampled)
        positions = [moved[index] for index in indices.tolist()]
        return np.array(sampled, ids.dtype), np.array(positions, indices.dtype)

    def _draws(self, text: str) -> Iterator[float]:
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        of_text = int.from_bytes(digest, "little")
        for block in itertools.count():
            keys = key("subwords", self._sampling.seed, of_text, block)
            yield from uniforms(keys, 1024).tolist()

    def _split(self, word: tuple[int, ...], draw: Callable[[], float]) -> Sequence[int]:
        if word not in self._prepared:
            if len(self._prepared) == MOST_WORDS:
                self._prepared.clear()
            self._prepared[word] = self._prepare(word)
        prepared = self._prepared[word]
        if prepared is None:
            return word
        if self._sampling.unigram_alpha is None:
            pieces = self._merge(prepared, draw)
        else:
            text, ends = prepared
            pieces = draw_split(text, ends, draw)
        return [self._numbers[piece] for piece in pieces]

    def _prepare(self, word: tuple[int, ...]) -> Any:
        """What splits of a word are drawn from; None if it keeps its own."""
        tokenizer = self._tokenizer
        if not self._fixed.isdisjoint(word):
            return None
        start, *pieces = (tokenizer.vocabulary[number] for number in word)
        text = start + "".join(piece.removeprefix(self._prefix) for piece in pieces)
        if self._sampling.unigram_alpha is not None:
            scores, limits = tokenizer.scores, tokenizer.score_limits
            assert scores is not None and limits is not None
            ends = lattice(text, scores, self._sampling.unigram_alpha, -math.inf, limits[1])
            return None if len(text) == 1 else (text, ends)
        bare = text.removesuffix(self._suffix or self._last)
        symbols = [self._prefix * (index > 0) + sign for index, sign in enumerate(bare)]
        if self._last and len(bare) < len(text):
            symbols.append(self._last)
        elif symbols:
            symbols[-1] += self._suffix
        can_merge = all(symbol in self._numbers for symbol in symbols)
        return symbols if can_merge and len(symbols) > 1 else None

    def _merge(self, symbols: list[str], draw: Callable[[], float]) -> list[str]:
        """Merge by rank; before each step every possible merge is left out at the rate."""
        pieces, rate, ranks = list(symbols), self._sampling.bpe_dropout, self._ranks
        while len(pieces) > 1:
            best, at = math.inf, -1
            for index, pair in enumerate(itertools.pairwise(pieces)):
                rank = ranks.get(pair, math.inf)
                if rank < best and draw() >= rate:
                    best, at = rank, index
            if at < 0:
                break
            pieces[at : at + 2] = [self._merged(*pieces[at : at + 2])]
        return pieces

    def _merged(self, left: str, right: str) -> str:
        return left + right.removeprefix(self._prefix)
