"""Where the text of a run comes from: files or the embedded corpus, and what of it is held out."""

from __future__ import annotations

from dataclasses import dataclass

from maskwright import config
from maskwright.corpus.reading import Reading
from maskwright.errors import ConfigError
from maskwright.recipes.parts import mixing
from maskwright.recipes.parts.mixing import Weights


@dataclass(frozen=True, kw_only=True)
class CharacterRanges:
    """Parts of one text by character, [start, stop), as some small studies define them."""

    train: tuple[int, int]
    held_out: tuple[int, int]
    tokenizer: tuple[int, int]

    def __post_init__(self) -> None:
        for name in ("train", "held_out", "tokenizer"):
            start, stop = getattr(self, name)
            if not 0 <= start < stop:
                raise ConfigError(
                    "not a range of characters",
                    where=name,
                    found=[start, stop],
                    wanted="0 <= start < stop",
                    do="give the first and the last position, such as [0, 1000]",
                )
        start, stop = self.held_out
        if self.train[0] < stop and start < self.train[1]:
            raise ConfigError(
                "the held-out range overlaps the training range",
                where="train",
                found=list(self.train),
                wanted=f"nothing of {[start, stop]}",
                do="choose ranges apart",
            )


@dataclass(frozen=True, kw_only=True)
class Corpus(Reading):
    """Where the text comes from, and how files are read. No `text` means the embedded corpus;
    `$NAME` stands for an environment variable. `held_out` is the share of documents (of a few
    documents: of their text) that only evaluation sees, unless `held_out_text` names files for it.
    Of the text no more is taken than the documents that begin within `limit_bytes`.

    `weights`, one for each file or folder of `text`, say which share of the rows comes from each;
    without them every text is read equally often. With `mix_by`, a column of the files, they are a
    table with one for each value of it, where `*` stands for all other documents together. In
    their place `temperature` makes every share as large as its natural share to this power, made
    to sum to one. With `weights_end` the shares change evenly over the run, to these."""

    text: tuple[str, ...] = ()
    weights: Weights = ()
    weights_end: Weights = ()
    mix_by: str | None = None
    temperature: float | None = None
    held_out: float = 0.02
    held_out_text: tuple[str, ...] = ()
    characters: CharacterRanges | None = None
    limit_bytes: int | None = None

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except ConfigError as error:
            raise error.under("corpus.") from None
        if self.notes:
            raise ConfigError(
                "a model learns from texts alone, so notes have no effect",
                where="corpus.notes",
                found=", ".join(self.notes),
                wanted="no notes",
                do="leave corpus.notes out, or mix by a column: corpus.mix_by",
            )
        if self.limit_bytes is not None:
            config.require("corpus.limit_bytes", self.limit_bytes, 1)
        mixing.check(self)
        if twice := set(self.text) & set(self.held_out_text):
            raise ConfigError(
                "a file is both training and held-out text",
                where="corpus.held_out_text",
                found=", ".join(sorted(twice)),
                wanted="other files than corpus.text",
                do="take it out of one of the two settings",
            )
        if not 0.0 < self.held_out < 1.0:
            raise ConfigError(
                "a share is out of range",
                where="corpus.held_out",
                found=self.held_out,
                wanted="0 < held_out < 1",
            )

    @property
    def mixed(self) -> bool:
        """Whether the rows come from several stores in shares of their own."""
        return bool(self.weights) or self.temperature is not None
