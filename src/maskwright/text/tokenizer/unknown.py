"""Counts of unknown characters in texts with their causes, and of special tokens in texts.

Counts of tokens would mislead: WordPiece reads a word of more than 100 characters as a single
unknown token, so one unknown token of a hundred can be a fifth of a text.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from maskwright.base.errors import Finding

MUCH = 0.01  # share of unknown characters from which there is a finding
NAMED = 8  # unknown characters in a finding
EXACTLY = 4_000_000  # characters of texts with unknown tokens that are counted exactly
ONE_OF = 16  # of later texts, one in so many is counted

# Remedies: before a tokenizer is trained, and for a model with a tokenizer.
REMEDY = "byte-bpe knows every text, and unigram takes long words apart"
OTHER_MODEL = "a model with a byte-level BPE, or one that learned Unigram or BPE from such texts"

Spans = Sequence[tuple[int, int]]


@dataclass
class UnknownText:
    """Thread-safe counts over texts.

    Attributes:
        limit: length from which a word is unknown as a whole; None without such a limit.
        normalise: the normalisation of the tokenizer, after which words are measured.
        letters: characters that are not white space.
        unknown: the number of these that are unknown.
        in_long_words: the number of unknown characters in words that are too long.
        vocabulary: characters that are tokens.
        special: a pattern of the special tokens; None if there are none.
        acting: whether special tokens in a text are recognised.
        characters: counts of the unknown characters in other words.
        spelled: special tokens, with the number of texts that contain each.
    """

    limit: int | None = None
    normalise: Callable[[str], str] = str
    vocabulary: frozenset[str] = frozenset()
    special: re.Pattern[str] | None = None
    acting: bool = False
    letters: int = 0
    unknown: int = 0
    in_long_words: int = 0
    characters: Counter[str] = field(default_factory=Counter)
    spelled: Counter[str] = field(default_factory=Counter)
    _looked: int = 0
    _skipped: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def wants(self, text: str) -> bool:
        """Return whether a text with unknown tokens is counted: all at first, then one in ONE_OF,
        with that weight."""
        with self._lock:
            if self._looked < EXACTLY:
                return True
            self._skipped += 1
            return self._skipped % ONE_OF == 0

    def add_special(self, texts: Sequence[str]) -> None:
        """Count the special tokens in texts."""
        find = () if self.special is None else map(self.special.findall, texts)
        spelled = Counter(token for tokens in find for token in set(tokens))
        with self._lock:
            self.spelled.update(spelled)

    def add_known(self, texts: Sequence[str]) -> None:
        """Count texts without unknown tokens."""
        letters = sum(map(_letters, texts))
        with self._lock:
            self.letters += letters

    def add(self, text: str, spans: Spans) -> None:
        """Count a text, given where the characters of its unknown tokens begin and end."""
        letters, unknown, long, missing = _letters(text), 0, 0, Counter[str]()
        for start, stop in spans:
            fragment = text[start:stop]
            size, read = _letters(fragment), self.normalise(fragment)
            unknown += size
            if self.limit is not None and len(read) > self.limit:
                long += size
            else:
                missing.update(c for c in read if not (c.isspace() or c in self.vocabulary))
        with self._lock:
            weight = 1 if self._looked < EXACTLY else ONE_OF
            self._looked += len(text)
            self.letters += weight * letters
            self.unknown += weight * unknown
            self.in_long_words += weight * long
            for character, count in missing.items():
                self.characters[character] += weight * count

    @classmethod
    def of_all(cls, unknown_texts: Iterable[UnknownText]) -> UnknownText:
        """Return the sum of counts."""
        total = cls()
        for counts in unknown_texts:
            total.limit = counts.limit
            total.letters += counts.letters
            total.unknown += counts.unknown
            total.in_long_words += counts.in_long_words
            total.characters.update(counts.characters)
        return total

    @property
    def share(self) -> float:
        """The share of unknown characters; 0 without characters."""
        return self.unknown / self.letters if self.letters else 0.0

    def causes(self) -> list[str]:
        """Return the causes, the most frequent first."""
        in_other_words, causes = self.unknown - self.in_long_words, list[tuple[int, str]]()
        if self.in_long_words:
            share = self.in_long_words / self.letters
            cause = (
                f"{share:.1%} stand in words of more than {self.limit} characters, which WordPiece "
                "reads as one unknown token (text without blanks between its words, long links, "
                "hashes, DNA)"
            )
            causes.append((self.in_long_words, cause))
        if in_other_words > 0:
            # In WordPiece one unknown character makes its whole word unknown.
            noun = "characters" if self.limit is None else "words with characters"
            shown = " ".join(c for c, _ in self.characters.most_common(NAMED))
            cause = (
                f"{in_other_words / self.letters:.1%} are {noun} that its vocabulary does not have"
            )
            causes.append((in_other_words, f"{cause} ({shown})" if shown else cause))
        return [text for _, text in sorted(causes, reverse=True)]

    def findings(self, remedy: str = "") -> list[Finding]:
        """Return the findings about unknown characters and special tokens."""
        return [
            finding for finding in (self.finding(remedy), _spelled(self)) if finding is not None
        ]

    def finding(self, remedy: str = "") -> Finding | None:
        """Return the finding about unknown characters; None if there are few."""
        if self.share < MUCH:
            return None
        return Finding(
            "unknown-characters",
            f"{self.share:.1%} of {self.letters:,} characters are unknown to the tokenizer, so a "
            "model cannot tell them apart",
            "; ".join(self.causes()),
            f"remedy: {remedy}" if remedy else "",
        )


def _spelled(counts: UnknownText) -> Finding | None:
    """Return the finding about special tokens in texts; None without any."""
    if not counts.spelled:
        return None
    listed = [f"{token} in {count:,}" for token, count in counts.spelled.most_common(NAMED)]
    more = ", …" if len(counts.spelled) > NAMED else ""
    message = f"special tokens stand in texts ({', '.join(listed)}{more})"
    if not counts.acting:
        return Finding("special-tokens-as-text", f"{message} and are read as ordinary text there")
    return Finding(
        "special-tokens-act",
        f"{message} and act as such, as in the library that made the model",
        remedy='to have them read as text, write "split_special_tokens": true into its '
        "tokenizer_config.json",
    )


def _letters(text: str) -> int:
    return len(text) - sum(map(str.isspace, text))
