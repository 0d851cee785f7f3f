"""TokenizerChoice: the settings of the training of a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from maskwright.base.errors import ConfigError, near
from maskwright.text.tokenizer.file.check import MOST_TOKENS
from maskwright.text.tokenizer.file.kinds import TokenizerKind
from maskwright.text.tokenizer.file.roles import (
    STYLE_ENDS,
    WELL_KNOWN,
    Style,
    roles_by_table,
    style_tokens,
)
from maskwright.text.tokenizer.training.wordpiece import LEAST

# The library counts pairs in 32 bits; text below this size cannot make them overflow.
MOST_BYTES = 1 << 32
MOST_SEED = 1 << 53


@dataclass(frozen=True, kw_only=True)
class TokenizerChoice:
    """Settings of the training of a tokenizer."""

    kind: TokenizerKind
    vocabulary: int = 8192
    """Number of ids, special tokens included; fewer are learned where the text gives no more."""
    lowercase: bool = False
    single_digits: bool = False
    """Every digit is a word of its own, so that numbers are spelled."""
    min_frequency: int | None = None
    """Pairs met less often are not merged. None: 2, and for WordPiece a floor that falls to 2,
    which is not the published training: that is 2 from the start."""
    budget_bytes: int = 1 << 30
    """Bytes of text to learn from; more text is sampled down to this, by hash."""
    style: Style = "bert"
    """Special tokens and the frame around texts: [PAD] [UNK] [CLS] [SEP] [MASK], or <|endoftext|>
    (and <unk> where needed) without a frame, or <s> <pad> </s> <unk> <mask>, or <pad> </s> <unk>
    and a hundred sentinels, with an end after each text."""
    specials: tuple[str, ...] | None = None
    """Other special tokens instead of the style's, in the order of their ids."""
    seed: int = 0
    """Chooses the sample where the text exceeds the budget."""

    def __post_init__(self) -> None:
        for name, choices in (("kind", get_args(TokenizerKind)), ("style", get_args(Style))):
            if getattr(self, name) not in choices:
                choice = getattr(self, name)
                raise ConfigError(
                    "not one of the choices",
                    where=name,
                    found=repr(choice),
                    wanted=near(choice, choices),
                )
        _at_least("min_frequency", self.floor, 1)
        for name, value, most in (
            ("vocabulary", self.vocabulary, MOST_TOKENS),
            ("min_frequency", self.floor, MOST_BYTES),
            ("seed", abs(self.seed), MOST_SEED),
        ):
            if value > most:
                raise ConfigError(
                    "too large a number", where=name, found=value, wanted=f"at most {most}"
                )
        _at_least("budget_bytes", self.budget_bytes, 1024)
        if self.budget_bytes > MOST_BYTES:
            raise ConfigError(
                "too large a budget: counts could overflow",
                where="budget_bytes",
                found=self.budget_bytes,
                wanted=f"at most {MOST_BYTES}",
            )
        self._check_specials()
        least = self.vocabulary - self.room + (256 if self.kind == "byte-bpe" else 8)
        _at_least("vocabulary", self.vocabulary, least)

    def _check_specials(self) -> None:
        tokens = self.special_tokens
        for token in tokens:
            edged = len(token) > 2 and not token[0].isalnum() and not token[-1].isalnum()
            if not edged or any(c.isspace() for c in token) or tokens.count(token) > 1:
                raise ConfigError(
                    "not a fitting special token",
                    where="specials",
                    found=repr(token),
                    wanted="each once, without spaces, between marks such as [ ] or < >",
                )
        if "</w>" in tokens and self.kind == "bpe":
            raise ConfigError("`</w>` marks the end of words here", where="specials")
        if self.unknown is None and self.kind in ("wordpiece", "unigram"):
            raise ConfigError(
                f"{self.kind} needs a token for what it does not know",
                where="specials",
                found=tokens,
                wanted=" or ".join(t for t, r in WELL_KNOWN.items() if "unknown" in r),
            )

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens in the order of their ids."""
        return style_tokens(self.style, self.kind) if self.specials is None else self.specials

    @property
    def last_tokens(self) -> tuple[str, ...]:
        """Special tokens with the last ids."""
        return STYLE_ENDS.get(self.style, ()) if self.specials is None else ()

    @property
    def unknown(self) -> str | None:
        """The unknown token."""
        return roles_by_table(self.special_tokens).get("unknown")

    @property
    def floor(self) -> int:
        """The final minimum frequency of pairs and characters."""
        return LEAST if self.min_frequency is None else self.min_frequency

    @property
    def training(self) -> str:
        """The training method of a WordPiece vocabulary in words; empty for other kinds."""
        if self.kind != "wordpiece":
            return ""
        if self.min_frequency is None:
            return "merged by likelihood, frequent pairs first (a floor that falls to 2)"
        return f"merged by likelihood as published, of pairs met {self.min_frequency} times or more"

    @property
    def room(self) -> int:
        """The number of ids for pieces."""
        return self.vocabulary - len(self.special_tokens) - len(self.last_tokens)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ConfigError("too small a number", where=name, found=value, wanted=f"{least} or more")
