"""Statistics of a tokenizer on a text, by source.

    fertility         tokens per word (separated by white space), at least 1
    unknown rate      share of characters, without white space, that are unknown (not of tokens:
                      WordPiece reads a long word as a single unknown token)
    bytes per token   bytes of UTF-8 text per token; more means shorter sequences

Values of several tokenizers are only comparable on the same documents.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import islice

from maskwright.base.errors import Finding
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.training.sample import HasText, amount, text_of
from maskwright.text.tokenizer.unknown import UnknownText

SIGNS = {
    "line breaks": re.compile(r"[\n\r\u0085\u2028\u2029]"),
    "tabs": re.compile(r"\t"),
    "several blanks in a row": re.compile(r"[ \u00a0]{2,}"),
}
CAPITALS = "capitals"
REMEDY = (
    "a model with a byte-level BPE keeps them (GPT-2, BART); or put signs in their place that the "
    "tokenizer knows, in the data and in the answers"
)


def lost_signs(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, int]:
    """Count the texts with signs that are lost when they are encoded and decoded, by type of sign.

    Signs at the edges of a text do not count. Only texts with such signs are encoded.
    """
    text_counts: dict[str, int] = {}
    for text in (text.strip() for text in texts):
        has = {name: len(sign.findall(text)) for name, sign in SIGNS.items() if sign.search(text)}
        capital = any(c.isupper() for c in text)
        folded = capital and not any(c.isupper() for c in tokenizer.normalise(text))
        # Unknown tokens are kept: without them, the spaces on both sides would be one run.
        back = tokenizer.decode(tokenizer.encode(text), skip_special=False) if has else ""
        lost = [name for name, count in has.items() if len(SIGNS[name].findall(back)) < count]
        for name in (*lost, *([CAPITALS] if folded else [])):
            text_counts[name] = text_counts.get(name, 0) + 1
    return text_counts


def lost_finding(tokenizer: Tokenizer, texts: Sequence[str]) -> Finding | None:
    """Return a finding if a model could not write the signs of some `texts`."""
    text_counts = lost_signs(tokenizer, texts)
    if not text_counts:
        return None
    lost = ", ".join(
        f"{name} in {count:,} of {len(texts):,}" for name, count in text_counts.items()
    )
    return Finding(
        "signs-not-kept",
        f"texts written: the tokenizer does not keep {lost}, so no answer has them",
        remedy=REMEDY,
    )


CONVENTIONS = {"BERT": 30_522, "GPT-2": 50_257, "T5": 32_000}
MOST_ROWS = 20
DOCUMENTS_AT_ONCE = 512


@dataclass(frozen=True)
class TokenCounts:
    """Counts and statistics of one source."""

    documents: int
    bytes: int
    words: int
    tokens: int
    letters: int
    unknown: int

    def __add__(self, other: TokenCounts) -> TokenCounts:
        return TokenCounts(*map(operator.add, astuple(self), astuple(other)))

    @property
    def fertility(self) -> float:
        """Tokens per word; NaN without words."""
        return _ratio(self.tokens, self.words)

    @property
    def unknown_rate(self) -> float:
        """Share of unknown characters; NaN without characters."""
        return _ratio(self.unknown, self.letters)

    @property
    def bytes_per_token(self) -> float:
        """Bytes of text per token; NaN without tokens."""
        return _ratio(self.bytes, self.tokens)

    def columns(self) -> str:
        """Return the three statistics as columns of a table."""
        fertility, unknown = _figure(self.fertility, ".3f"), _figure(self.unknown_rate, ".3%")
        return f"{fertility:>9} {unknown:>8} {_figure(self.bytes_per_token, '.2f'):>11}"


NOTHING = TokenCounts(0, 0, 0, 0, 0, 0)


def _ratio(numerator: int, denominator: int) -> float:
    return numerator / denominator if denominator else float("nan")


def _figure(value: float, form: str) -> str:
    """Format a value; a dash for NaN."""
    return "–" if math.isnan(value) else format(value, form)


@dataclass(frozen=True)
class TokenizerReport:
    """Statistics over all documents and by source; a `finding` if much is unknown."""

    kind: str
    vocabulary_size: int
    used_ids: int
    total: TokenCounts
    sources: dict[str, TokenCounts]
    finding: Finding | None = None

    def render(self) -> str:
        """Return a table for the terminal, the largest sources first."""
        known_sizes = ", ".join(f"{name} {size:,}" for name, size in CONVENTIONS.items())
        used = self.used_ids / self.vocabulary_size
        lines = [
            f"{self.kind}, {self.vocabulary_size:,} tokens ({known_sizes}), "
            f"{used:.0%} of them used here",
            f"{'source':<32} {'text':>10} {'fertility':>9} {'unknown':>8} {'bytes/token':>11}",
        ]
        rows = sorted(self.sources.items(), key=lambda row: (-row[1].bytes, row[0]))
        for name, figures in [*rows[:MOST_ROWS], ("all", self.total)]:
            name = name if len(name) <= 32 else f"…{name[-31:]}"
            lines.append(f"{name:<32} {amount(figures.bytes):>10} {figures.columns()}")
        if len(rows) > MOST_ROWS:
            lines.insert(-1, f"… and {len(rows) - MOST_ROWS:,} more sources")
        if self.finding is not None:
            lines.append(self.finding.line())
        return "\n".join(lines)


def beside(reports: Mapping[str, TokenizerReport]) -> str:
    """Return a table of several tokenizers on the same documents, and their findings."""
    width = max(32, *(len(name) for name in reports))
    lines = [
        f"{'':<{width}} {'kind':>9} {'tokens':>8} {'used':>5} {'fertility':>9} {'unknown':>8}"
        f" {'bytes/token':>11}"
    ]
    for name, summary in reports.items():
        used = summary.used_ids / summary.vocabulary_size
        lines.append(
            f"{name:<{width}} {summary.kind:>9} {summary.vocabulary_size:>8,} {used:>5.0%}"
            f" {summary.total.columns()}"
        )
    lines += [
        summary.finding.of(name).line() for name, summary in reports.items() if summary.finding
    ]
    return "\n".join(lines)


def report(
    tokenizer: Tokenizer, documents: Iterable[HasText | str], remedy: str = ""
) -> TokenizerReport:
    """Tokenize `documents` and count, in total and by `source`.

    Args:
        remedy: for the finding that much is unknown.
    """
    sources: dict[str, TokenCounts] = {}
    counting: dict[str, tuple[Tokenizer, UnknownText]] = {}
    used: set[int] = set()
    for batch in _batches(iter(documents)):
        texts_of: dict[str, list[str]] = {}
        for document in batch:
            source = str(getattr(document, "source", "text"))
            texts_of.setdefault(source, []).append(text_of(document))
        for source, texts in texts_of.items():
            if source not in counting:
                counting[source] = tokenizer.counting()
            encoded = counting[source][0].encode_batch(texts)
            figures = TokenCounts(
                len(texts),
                sum(len(text.encode()) for text in texts),
                sum(len(text.split()) for text in texts),
                sum(map(len, encoded)),
                0,
                0,
            )
            sources[source] = sources.get(source, NOTHING) + figures
            for ids in encoded:
                used.update(ids.tolist())
    counts = {source: counted for source, (_, counted) in counting.items()}
    for source, unknown_text in counts.items():
        sources[source] = replace(
            sources[source], letters=unknown_text.letters, unknown=unknown_text.unknown
        )
    return TokenizerReport(
        tokenizer.kind,
        tokenizer.vocabulary_size,
        len(used),
        sum(sources.values(), NOTHING),
        sources,
        UnknownText.of_all(counts.values()).finding(remedy),
    )


def _batches(documents: Iterator[HasText | str]) -> Iterator[list[HasText | str]]:
    while batch := list(islice(documents, DOCUMENTS_AT_ONCE)):
        yield batch
