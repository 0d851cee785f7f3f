"""The recipe's text, readable as often as needed: the training part and the held-out part.

A document is held out by a hash of its text, not by chance: adding documents moves no other
document, and copies of one are on the same side. Of few texts, those with the smallest hashes are
held out until they reach the share; of a single text, its end.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from maskwright.corpus import embedded
from maskwright.corpus.document import Document
from maskwright.corpus.files import find, size_of
from maskwright.corpus.ledger import Counts
from maskwright.corpus.read import Reader
from maskwright.errors import ConfigError, DataError
from maskwright.findings import Finding
from maskwright.pretrain.as_read import Passes
from maskwright.recipes.parts.corpus import Corpus

SMALL_CORPUS = 256  # documents, of which the share is counted in text and not left to the hashes
PAIR_CORPUS = 10  # texts, of which at least two are held out: pairs of sentences need them


def texts_of(corpus: Corpus, folder: Path) -> list[Text]:
    """One text for each weight, or the whole corpus as one text if there are none; `folder` is the
    run's."""
    if not corpus.weights:
        return [Text(corpus, folder)]
    return [
        Text(replace(corpus, text=(path,), weights=()), folder, f"{number}-")
        for number, path in enumerate(corpus.text)
    ]


class Text:
    """A corpus, readable as often as needed, in parts.

    Args:
        folder: where skipped rows are listed, in files whose names begin with `prefix`.
    """

    def __init__(self, corpus: Corpus, folder: Path, prefix: str = "") -> None:
        self.corpus = corpus
        self.paths = [resolve(t) for t in corpus.text]
        self.held_out_paths = [resolve(t) for t in corpus.held_out_text]
        self.where = ", ".join(str(p) for p in self.paths) or "the embedded corpus"
        self._folder, self._prefix = folder, prefix
        self._embedded: list[Document] | None = None
        self._reader: Reader | None = None
        self._divided = ""
        self._passes: dict[str, Passes] = {}

    def for_tokenizer(self) -> Iterator[Document]:
        """The tokenizer's training text: everything that is not held out."""
        ranges = self.corpus.characters
        return self._characters(ranges.tokenizer) if ranges else self.training()

    def training(self) -> Iterator[Document]:
        if self.corpus.characters:
            return self._characters(self.corpus.characters.train)
        if self.held_out_paths:
            return self._documents(self.paths)
        return self._share(held_out=False)

    def held_out(self) -> Iterator[Document]:
        if self.corpus.characters:
            return self._characters(self.corpus.characters.held_out)
        if self.held_out_paths:
            return self._documents(self.held_out_paths, "held-out-")
        return self._share(held_out=True)

    def provenance(self) -> dict[str, Any]:
        """Where the text came from, for the report."""
        if not self.paths:
            return embedded.provenance(limit_bytes=self.corpus.limit_bytes)
        return {"source": "files", "files": [str(p) for p in [*self.paths, *self.held_out_paths]]}

    def hashes(self) -> dict[str, str]:
        """The SHA-256 of each file of the training text, even if the last pass used only some of
        them; with a limit, of the files that were read to the end.

        Raises:
            IncompatibleError: a file has changed since it was met.
        """
        passes = self._passes.get("")
        if passes is None:
            return {}
        return passes.hashes if self.corpus.limit_bytes is not None else passes.complete()

    @property
    def counts(self) -> Counts | None:
        """The counts of the last reading of files."""
        return None if self._reader is None else self._reader.counts

    def report_lines(self, *, held_out: bool = False) -> Iterator[str]:
        """Lines for the user on the last reading; both parts of one text are read alike."""
        if self._reader is None or (held_out and not self.held_out_paths):
            return
        yield f"read: {self._reader.counts.summary()}"
        yield from (found.line() for found in self._reader.counts.findings)
        if self._reader.cut:
            limit = f"stopped at corpus.limit_bytes={self.corpus.limit_bytes}"
            yield Finding("text-limited", limit, "the files contain more text").line()
        if self._divided:
            yield Finding("few-texts", self._divided).line()

    def _documents(self, paths: list[Path], prefix: str = "") -> Iterator[Document]:
        limit = self.corpus.limit_bytes
        if not paths:
            if self._embedded is None:
                self._embedded = list(embedded.documents(limit_bytes=limit))
            return iter(self._embedded)
        rejects = self._folder / f"{self._prefix}{prefix}rejects.jsonl"
        self._reader = Reader(paths, self.corpus, rejects=rejects, limit_bytes=limit)
        return self._noted(self._reader, self._passes.setdefault(prefix, Passes()))

    @staticmethod
    def _noted(reader: Reader, passes: Passes) -> Iterator[Document]:
        passes.begin(reader.sources)
        yield from reader
        passes.end(reader.counts.hashes)

    def _share(self, *, held_out: bool) -> Iterator[Document]:
        chosen, share = self._chosen, self.corpus.held_out
        for document in self._documents(self.paths):
            if chosen is not None and not chosen:
                yield _halves(document, share)[held_out]
                continue
            number = _hash(document.text)
            if (number < share if chosen is None else number in chosen) is held_out:
                yield document

    @cached_property
    def _chosen(self) -> set[float] | None:
        """The hashes of the held-out documents of a small corpus, or of one whose share would hold
        out none or all; empty for a single text. None where the share alone decides."""
        sizes: dict[float, int] = {}  # bytes of each text with all its copies
        count, sides = 0, set()
        for count, document in enumerate(self._documents(self.paths), start=1):
            number = _hash(document.text)
            sizes[number] = sizes.get(number, 0) + len(document.text.encode())
            sides.add(number < self.corpus.held_out)
            if count > SMALL_CORPUS and len(sides) == 2:
                return None
        if not sizes:
            return None
        chosen = _least(sizes, self.corpus.held_out) if len(sizes) > 1 else set()
        part = f"{len(chosen):,} {'is' if len(chosen) == 1 else 'are'}" if chosen else "its end is"
        of = f"{len(sizes):,} {'text' if count > len(sizes) else 'document'}"
        self._divided = f"of {of}{'s' * (len(sizes) > 1)} {part} held out"
        return chosen

    def _characters(self, limits: tuple[int, int]) -> Iterator[Document]:
        text = "\n".join(d.text for d in self._documents(self.paths))
        if len(text) < limits[1]:
            raise DataError(
                "the text is shorter than the recipe's character ranges",
                where=self.where,
                found=f"{len(text)} characters",
                wanted=f"at least {limits[1]}",
                do="name the text the recipe is for",
            )
        yield Document(
            text=text[slice(*limits)], source=self.where, id=f"{self.where}:{limits[0]}-{limits[1]}"
        )


def _hash(text: str) -> float:
    """A number in [0, 1) that depends on the text alone."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=b"held out").digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _least(sizes: dict[float, int], share: float) -> set[float]:
    """The smallest hashes that together make up a `share` of the text; never all of them, and none
    that is most of the text unless it is alone."""
    out: set[float] = set()
    total, taken, least = sum(sizes.values()), 0, 2 if len(sizes) >= PAIR_CORPUS else 1
    for number in sorted(sizes, key=lambda n: (2 * sizes[n] > total, n))[:-1]:
        if len(out) >= least and taken >= share * total:
            break
        out.add(number)
        taken += sizes[number]
    return out


def _halves(document: Document, share: float) -> tuple[Document, Document]:
    """A document cut in two at a blank, the second part about a `share` of it."""
    text = document.text
    place = min(len(text) - 1, int(len(text) * (1 - share)))
    blank = next((n for n in range(place, 0, -1) if text[n].isspace()), place)
    first, second = text[:blank].strip(), text[blank:].strip()
    end = replace(document, text=second, id=f"{document.id}:{blank}")
    return replace(document, text=first), end


def text_bytes(corpus: Corpus) -> int:
    """The size of the user's files in bytes, as far as they are read."""
    total = size_of([resolve(name) for name in corpus.text]) if corpus.text else 0
    return total if corpus.limit_bytes is None else min(total, corpus.limit_bytes)


def require_other_files(corpus: Corpus) -> None:
    """Refuse a file that is named twice, or as both training and held-out text, by whatever names.

    Raises:
        ConfigError: naming the file both times.
        UsageError: a path that is not there.
    """
    known: dict[tuple[int, int], str] = {}
    for name in (*corpus.text, *corpus.held_out_text):
        for source in find([resolve(name)])[0]:
            status = source.path.stat()
            identity = (status.st_dev, status.st_ino)
            if identity in known:
                raise ConfigError(
                    "a file is named twice, or as both training and held-out text",
                    where=source.shown,
                    found=f"the same as {known[identity]}",
                    wanted="files and folders that have no file in common",
                    do="name each file once",
                )
            known[identity] = source.shown


def resolve(text: str) -> Path:
    """A path in which `$NAME` stands for an environment variable.

    Raises:
        ConfigError: the variable is not set.
    """
    if not text:
        raise ConfigError(
            "an empty path",
            where="corpus.text",
            wanted="a file or a folder",
            do="name one, or leave the empty entry out",
        )
    if Path(text).exists():
        return Path(text)  # whatever signs are in its name
    path = os.path.expanduser(os.path.expandvars(text))
    if "$" in path:
        name = path.split("$", 1)[1].split("/", 1)[0]
        raise ConfigError(
            "the path of the text names an environment variable that is not set",
            where="corpus.text",
            found=text,
            wanted=f"${name} in the environment",
            do="set it, or name the file with --text",
        )
    return Path(path)
