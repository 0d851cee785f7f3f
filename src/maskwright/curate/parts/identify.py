"""The language of passages, many at once.

py3langid is naive Bayes over byte n-grams that a finite automaton finds, one byte after the other
(Lui and Baldwin 2012, `langid.py`). Its automaton remembers no more than its longest n-gram, so a
text may be entered anywhere so many bytes early: here thousands of places are walked abreast, with
one array operation a byte. The answers are those of the library, at ten times its speed.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from maskwright.errors import ConfigError, DataError, UsageError
from maskwright.packages import install, require
from maskwright.storage.files import refusal

LANES = 8192
RESET = 0xFF  # a byte that UTF-8 never has; it leads every state to the first one
LEAST = -30.0  # the logarithm of a probability that fastText does not give


class Identifier(Protocol):
    """A model that knows languages.

    Attributes:
        languages: (L,) their codes.
    """

    languages: Sequence[str]

    def scores(self, passages: Sequence[bytes]) -> NDArray[np.float32]:
        """(P, L) how well each language explains each passage: log-likelihoods without priors,
        comparable within a passage; those of the passages of a text may be added."""
        ...


@dataclass(frozen=True)
class NaiveBayes:
    """The tables of py3langid.

    Attributes:
        rows: (R * 256,) int32, by row and byte where the row of the next state is.
        features: (R * 256,) int32, by row and byte the n-gram that the next state completes, or -1.
        depth: the length of the longest n-gram.
        weights: (F, L) log-probabilities of the n-grams; priors: (L,) of the languages.
    """

    languages: Sequence[str]
    rows: NDArray[np.int32]
    features: NDArray[np.int32]
    depth: int
    weights: NDArray[np.float32]
    priors: NDArray[np.float32]

    def scores(self, passages: Sequence[bytes]) -> NDArray[np.float32]:
        import scipy.sparse

        data = np.frombuffer(b"\xff".join(passages) + b"\xff", np.uint8)
        lengths = np.fromiter(map(len, passages), np.int64, len(passages)) + 1
        found = self._walk(data)
        there = np.flatnonzero(found >= 0)
        held = np.diff(np.searchsorted(there, np.concatenate([[0], np.cumsum(lengths)])))
        owners = np.repeat(np.arange(len(passages)), held)
        # By n-gram, so that the large table of weights is read once, in order.
        bits = len(passages).bit_length()
        pairs = _by_gram(found[there], owners, bits)
        first = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]])[: len(pairs)])
        often = np.diff(np.append(first, len(pairs))).astype(np.float32)
        pairs = pairs[first]
        grams, rows = pairs >> bits, (pairs & ((1 << bits) - 1)).astype(np.int32)
        begins = np.zeros(len(self.weights) + 1, np.int32)
        np.cumsum(np.bincount(grams, minlength=len(self.weights)), out=begins[1:])
        counts = scipy.sparse.csc_matrix(
            (np.log1p(often), rows, begins), (len(passages), len(self.weights))
        )
        return np.asarray(counts @ self.weights, np.float32)

    def _walk(self, data: NDArray[np.uint8]) -> NDArray[np.int32]:
        """(N,) the n-gram that ends at each byte, or -1."""
        lanes = min(LANES, max(1, len(data) // 64))
        length = -(-len(data) // lanes)
        padded = np.full(lanes * length + self.depth, RESET, np.uint8)
        padded[self.depth : self.depth + len(data)] = data
        stretches = np.lib.stride_tricks.sliding_window_view(padded, length + self.depth)[::length]
        columns = np.ascontiguousarray(stretches.T)  # (length + depth, lanes)
        found = np.empty((length, lanes), np.int32)
        rows, moves = np.zeros(lanes, np.int32), np.empty(lanes, np.int64)
        for place, column in enumerate(columns):
            np.add(rows, column, out=moves)
            if place >= self.depth:
                np.take(self.features, moves, out=found[place - self.depth], mode="clip")
            np.take(self.rows, moves, out=rows, mode="clip")
        return found.T.ravel()[: len(data)]


def _by_gram(
    grams: NDArray[np.int32], owners: NDArray[np.int64], bits: int
) -> NDArray[np.unsignedinteger[Any]]:
    """Numbers `gram << bits | owner`, ascending.

    Args:
        owners: ascending, below 2**bits.
    """
    most = int(grams.max(initial=0))
    if most << bits >= 1 << 32:
        return np.sort(grams.astype(np.uint64) << np.uint64(bits) | owners.astype(np.uint64))
    pairs = grams.astype(np.uint32) << np.uint32(bits) | owners.astype(np.uint32)
    # 16 bits sort by counting, and keep the order of the owners; what is above them is small.
    pairs = pairs[np.argsort((grams & 0xFFFF).astype(np.uint16), kind="stable")]
    if most <= 0xFFFF:
        return pairs
    high = pairs >> np.uint32(bits + 16)
    return np.concatenate([pairs[high == part] for part in range((most >> 16) + 1)])


@functools.cache
def open_py3langid() -> NaiveBayes:
    """The model inside the package py3langid, once per process.

    Raises:
        UsageError: it is not installed.
        DataError: the package is of another form than is known.
    """
    langid = require(
        "identifying languages",
        "py3langid.langid",
        where="language.model",
        otherwise="; or --set language.model=fasttext:PATH",
    )
    try:
        model = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
        moves = np.asarray(model.tk_nextmove)
        features = np.asarray(model.tk_output, np.int32)
        rows = np.asarray(model.tk_row, np.int32) << 8
        weights, priors = model.nb_ptc.astype(np.float32), model.nb_pc.astype(np.float32)
        names = list(model.nb_classes)
        if moves.reshape(-1, 256)[:, RESET].any():
            raise ValueError("the byte 0xff does not lead to the first state")
    except OSError as error:  # it is unpacked into a temporary file
        raise refusal(error, Path(tempfile.gettempdir())) from error
    except (AttributeError, ValueError, TypeError) as error:
        raise DataError(
            "this release of py3langid keeps its model in a form that is not known",
            where="language.model",
            found=error,
            wanted="py3langid 0.4",
            do=install("py3langid==0.4.0"),
        ) from error
    # One look-up of a state's row and one of its n-gram for each byte.
    after, completed = rows[moves], features[moves]
    return NaiveBayes(names, after, completed, _depth(moves, rows), weights, priors)


def _depth(moves: NDArray[np.uint32], rows: NDArray[np.int32]) -> int:
    """After how many bytes at most a state forgets: its distance from the first one."""
    table = moves.reshape(-1, 256)
    seen = np.zeros(len(rows), np.bool_)
    seen[0], front, depth = True, np.zeros(1, np.int64), 0
    while front.size:
        after = np.zeros(len(rows), np.bool_)
        after[table[np.unique(rows[front] >> 8)].ravel()] = True
        front = np.flatnonzero(after & ~seen)
        seen[front] = True
        depth += bool(front.size)
    return depth


@dataclass(frozen=True)
class FastText:
    """A model of fastText that predicts languages as `__label__en`."""

    languages: Sequence[str]
    model: Any
    priors: NDArray[np.float32]

    def scores(self, passages: Sequence[bytes]) -> NDArray[np.float32]:
        texts = [" ".join(p.decode("utf-8", "replace").split()) for p in passages]
        labels, numbers = self.model.predict(texts, k=8)
        places = {name: place for place, name in enumerate(self.languages)}
        found = np.full((len(texts), len(places)), LEAST, np.float32)
        for n, (names, values) in enumerate(zip(labels, numbers, strict=True)):
            for name, value in zip(names, values, strict=True):
                found[n, places[_code(name)]] = np.log(max(float(value), 1e-12))
        # A probability says no more of a long passage: as many units as naive Bayes has.
        return found * np.sqrt([[max(1, len(p))] for p in passages]).astype(np.float32)


def open_fasttext(path: Path) -> FastText:
    """The model in a file.

    Raises:
        UsageError: fastText is not installed, or there is no such file.
        DataError: no model that predicts languages.
    """
    if not path.is_file():
        raise UsageError(
            "no such model",
            where="language.model",
            found=str(path),
            wanted="a file of fastText, such as lid.176.ftz",
            do="correct the path behind fasttext:",
        )
    fasttext = require(
        "a model of fastText",
        "fasttext",
        where="language.model",
        otherwise="; or leave `model` out, as py3langid comes with its model",
    )
    try:
        model = fasttext.load_model(str(path))
        languages = sorted({_code(name) for name in model.get_labels()})
    except (ValueError, RuntimeError) as error:
        raise DataError(
            "not a model of fastText", where=path, found=error, do="give the .bin or .ftz file"
        ) from error
    return FastText(languages, model, np.zeros(len(languages), np.float32))


def _code(label: str) -> str:
    """`en` of `__label__en`, and of `__label__eng_Latn` the first part."""
    return label.removeprefix("__label__").partition("_")[0]


def require_model(model: str) -> None:
    """Raises ConfigError unless it is `py3langid` or `fasttext:PATH`."""
    if model != "py3langid" and not model.removeprefix("fasttext:").strip() == model[9:] != "":
        raise ConfigError(
            "an unknown model of languages",
            where="model",
            found=repr(model),
            wanted='"py3langid" or "fasttext:PATH"',
            do="leave it out for py3langid",
        )
