"""The recipe's text, read once and divided: the training part and the held-out part.

A document is held out by a hash of its text, not at random: adding documents moves no other
document, and identical documents are in the same part. In a small corpus the documents with the
smallest hashes are held out until they reach the share; of a single text, the end is held out.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from maskwright.base.errors import ConfigError, DataError, Finding, near
from maskwright.base.terminal import counted
from maskwright.learn.recipes.base.recipe import MOST_VALUES, OTHERS, Corpus
from maskwright.text.corpus import embedded, saved
from maskwright.text.corpus.files import find, size_of
from maskwright.text.corpus.read import Reader, Spool
from maskwright.text.corpus.reading import Counts, Document, ReadingOptions, with_notes
from maskwright.text.images.processor import PixelEncoder
from maskwright.text.tables.files import load
from maskwright.text.tables.labelled_images import IMAGE, IMAGES
from maskwright.text.tables.rows import TEST, VALIDATION

SMALL_CORPUS = 256  # up to so many documents, the share is measured in bytes of text
LISTED = 20  # values in a message
WITH_OTHERS = f"--set 'corpus.weights={{…, \"{OTHERS}\" = 1}}'"
PAIR_CORPUS = 10  # from so many texts on, at least two are held out: sentence pairs need them


def texts_of(corpus: Corpus, folder: Path, pixels: PixelEncoder | None = None) -> list[CorpusText]:
    """Return one text for each weighted file; a single one for a corpus that is not mixed, or mixed
    by a column. `folder` is the run's; with `pixels` the files hold images.

    Raises:
        ConfigError: the embedded corpus cannot be mixed by a column.
    """
    if corpus.mix_by is not None and not corpus.text:
        raise ConfigError(
            "the embedded corpus has no columns",
            where="corpus.mix_by",
            found=corpus.mix_by,
            wanted="files with columns",
            do="name them: --text FILES",
        )
    if corpus.mix_by is not None or not corpus.mixed:
        return [CorpusText(corpus, folder, pixels=pixels)]
    unmixed = replace(corpus, weights=(), weights_end=(), temperature=None)
    return [
        CorpusText(replace(unmixed, text=(path,)), folder, f"{number}-", pixels)
        for number, path in enumerate(corpus.text)
    ]


class CorpusText:
    """A corpus, divided into training and held-out part. Its files are read once: documents that
    are held out, or needed again, are kept in spools for the lifetime of this object.

    Args:
        folder: for the lists of skipped rows, in files whose names begin with `prefix`; the spools
            are on its disk.
        pixels: makes documents of images, if the files hold such.
    """

    def __init__(
        self, corpus: Corpus, folder: Path, prefix: str = "", pixels: PixelEncoder | None = None
    ) -> None:
        self.corpus, self._pixels = corpus, pixels
        self.paths = [resolve(t) for t in corpus.text]
        self.held_out_paths = [resolve(t) for t in corpus.held_out_text]
        self.where = ", ".join(str(p) for p in self.paths) or "the embedded corpus"
        self._folder, self._prefix = folder, prefix
        self._embedded: list[Document] | None = None
        self._reader: Reader | ImageReader | None = None  # the last one
        self._own: Reader | ImageReader | None = None  # of the files in `paths`
        self._division = ""
        self._kept: dict[bool, Spool | ByValue] = {}  # key: whether held out

    def for_tokenizer(self, *, keep: int | None = None) -> Iterator[Document]:
        """Yield the training text of the tokenizer: everything that is not held out.

        Args:
            keep: maximum number of bytes that are kept for a second reading; None: no limit.
        """
        if ranges := self.corpus.characters:
            return self._characters(ranges.tokenizer)
        is_mixed = self.corpus.mix_by is not None
        spool = ByValue(self.corpus, self._folder) if is_mixed else Spool(self._folder, keep)
        return self._part(held_out=False, keep=spool)

    def training(self) -> Iterator[Document]:
        """Yield the training part, from its spool if `for_tokenizer` kept it."""
        if ranges := self.corpus.characters:
            return self._characters(ranges.train)
        return self._part(held_out=False)

    def by_value(self) -> ByValue:
        """Return the training part by the values of the mixed column; the files are read unless
        `for_tokenizer` kept them.

        Raises:
            DataError: values without weights, weights without values, too many values.
        """
        if not isinstance(by_value := self._kept.get(False), ByValue):
            by_value = ByValue(self.corpus, self._folder)
            for _ in self._part(held_out=False, keep=by_value):
                pass
        return by_value

    def held_out(self) -> Iterator[Document]:
        if ranges := self.corpus.characters:
            return self._characters(ranges.held_out)
        if self.held_out_paths:
            return self._documents(self.held_out_paths, "held-out-")
        return self._part(held_out=True)

    def provenance(self) -> dict[str, Any]:
        """Return the source of the text as JSON values, for the report."""
        if not self.paths:
            return embedded.provenance(limit_bytes=self.corpus.limit_bytes)
        paths = [*self.paths, *self.held_out_paths]
        summaries = [saved.curation_summary(path) for path in paths if saved.is_curated(path)]
        corpora = {"curated": summaries} if summaries else {}
        return {"source": "files", "files": [str(p) for p in paths], **corpora}

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of each file of the training text that has been read, by name."""
        return {} if self._own is None else self._own.counts.hashes

    @property
    def counts(self) -> Counts | None:
        """The counts of the last reading; None if no files have been read."""
        return None if self._reader is None else self._reader.counts

    def report_lines(self, *, held_out: bool = False) -> Iterator[str]:
        """Yield lines for the user on the last reading; none twice for two parts of one text."""
        if self._reader is None or (held_out and not self.held_out_paths):
            return
        yield f"read: {self._reader.counts.summary()}"
        yield from (finding.line() for finding in self._reader.counts.findings)
        if self._reader.cut:
            limit = f"stopped at corpus.limit_bytes={self.corpus.limit_bytes}"
            yield Finding("text-limited", limit, "the files contain more text").line()
        if self._division:
            yield Finding("few-texts", self._division).line()

    def _documents(self, paths: list[Path], prefix: str = "") -> Iterator[Document]:
        limit = self.corpus.limit_bytes
        if not paths:
            if self._embedded is None:
                self._embedded = list(embedded.documents(limit_bytes=limit))
            return iter(self._embedded)
        rejects = self._folder / f"{self._prefix}{prefix}rejects.jsonl"
        reading: ReadingOptions = self.corpus
        if paths is self.paths and self.corpus.mix_by is not None:
            reading = with_notes(reading, (self.corpus.mix_by,))
        if self._pixels is None:
            if paths is not self.paths:  # what a document is does not depend on the part
                reading = replace(reading, form=Reader(self.paths, reading).reading.form)
            self._reader = Reader(paths, reading, rejects=rejects, limit_bytes=limit)
        else:
            self._reader = ImageReader(paths, self._pixels)
        if paths is self.paths:
            self._own = self._reader
        return iter(self._reader)

    def _part(self, *, held_out: bool, keep: Spool | ByValue | None = None) -> Iterator[Document]:
        """Yield one part of the documents: from its spool, or else by reading the files. That adds
        the part to `keep`, and held-out documents to a new spool."""
        if (kept_spool := self._kept.get(held_out)) is not None:
            yield from kept_spool
            return
        spools: dict[bool, Spool | ByValue] = {}
        if keep is not None and self.paths:
            spools[held_out] = keep
        if not held_out and self.paths and not self.held_out_paths:
            spools[True] = Spool(self._folder)
        for document, out in self._labelled_documents():
            if out in spools:
                spools[out].add(document)
            if out is held_out:
                yield document
        if isinstance(keep, ByValue):
            keep.require_shares()
        self._kept |= {
            is_held_out: spool for is_held_out, spool in spools.items() if spool.complete
        }

    def _labelled_documents(self) -> Iterator[tuple[Document, bool]]:
        """Read the files and yield (document, whether it is held out)."""
        documents, share = self._documents(self.paths), self.corpus.held_out
        if self.held_out_paths:
            yield from ((document, False) for document in documents)
            return
        first_documents = Spool(self._folder)
        held_out = self._chosen(documents, first_documents)
        for document in itertools.chain(first_documents, documents):
            hashed = _hash(document.text)
            if held_out is None:
                yield document, hashed < share
            elif held_out:
                yield document, hashed in held_out
            elif self._pixels is not None:
                expected = "two different images, of which one is held out"
                raise DataError("too few images", where=self.where, found=1, wanted=expected)
            else:
                training_part, held_out_part = _split_document(document, share)
                yield training_part, False
                yield held_out_part, True

    def _chosen(self, documents: Iterator[Document], spool: Spool) -> set[float] | None:
        """Return the hashes of the held-out documents of a small corpus, or of one whose share
        would hold out none or all; empty for a single text, whose end is held out. None: a
        document is held out if its hash is below the share. The documents that decide it are added
        to `spool`."""
        sizes: dict[float, int] = {}  # bytes of each text with all its copies
        count, outcomes = 0, set()
        for count, document in enumerate(documents, start=1):
            spool.add(document)
            document_hash = _hash(document.text)
            sizes[document_hash] = sizes.get(document_hash, 0) + len(document.text.encode())
            outcomes.add(document_hash < self.corpus.held_out)
            if count > SMALL_CORPUS and len(outcomes) == 2:
                return None
        if not sizes:
            return None
        chosen = _smallest_hashes(sizes, self.corpus.held_out) if len(sizes) > 1 else set()
        name = "image" if self._pixels else "text" if count > len(sizes) else "document"
        total = counted(len(sizes), name)
        self._division = f"held out of {total}: {len(chosen) or 'the end'}"
        return chosen

    @cached_property
    def _whole_text(self) -> str:
        """The whole text, from which recipes with character ranges take their parts."""
        return "\n".join(d.text for d in self._documents(self.paths))

    def _characters(self, limits: tuple[int, int]) -> Iterator[Document]:
        text = self._whole_text
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


class ImageReader:
    """Iterable over the images of files as documents, as `Reader` is over texts. Images in parts
    for validation or test are left out, which the counts note."""

    cut = False

    def __init__(self, paths: Sequence[Path], pixels: PixelEncoder) -> None:
        self.paths, self.pixels, self.counts = paths, pixels, Counts(kind="image")

    def __iter__(self) -> Iterator[Document]:
        """Yield the images.

        Raises:
            DataError, UsageError: as `load` and `ImageProcessor.read`; a table without images.
        """
        counts = self.counts = Counts(kind="image")
        for path in self.paths:
            table = load(path)
            if IMAGE not in table.columns:
                columns = ", ".join(table.columns)[:200]
                expected = f"a folder of images, or a table with the column {IMAGE!r}"
                raise DataError("no images", where=path, found=columns, wanted=expected)
            for part, rows in table.parts.items():
                counts.files += table.counts[part].files
                counts.hashes |= table.counts[part].hashes
                counts.ignored.add(table.counts[part].ignored)
                if part in (VALIDATION, TEST):
                    message = f"{path}: {counted(len(rows), 'image')} for {part} left out"
                    remedy = "name that folder itself to learn from it"
                    counts.notes.append(Finding("part-left-out", message, remedy=remedy))
                    continue
                for row in rows:
                    counts.rows += 1
                    (image,) = IMAGES.inputs(row, {IMAGE: (IMAGE,)})
                    counts.documents += 1
                    yield Document(self.pixels.text(image, row.where), row.file, image)


class ByValue:
    """The training documents, with one spool for each value of the column `corpus.mix_by`.

    Args:
        folder: the spools are on the disk of this folder.
    """

    complete = True

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self._corpus, self._folder = corpus, folder
        self._column = str(corpus.mix_by)
        self._weights = corpus.weights if isinstance(corpus.weights, dict) else {}
        self._spools: dict[str, Spool] = {}
        self._values_of_others: set[str] = set()  # that `*` stands for, for messages
        self._unweighted: dict[str, int] = {}  # value without a weight -> number of documents
        self._first_without_value = ""  # id of a document
        self._num_without_value = 0

    def add(self, document: Document) -> None:
        """Add a document to the spool of its value; one without a value or weight is only counted.

        Raises:
            DataError: the column has too many values.
            StoppedError, StorageError: the disk is full, or fails.
        """
        column_value, value = document.notes.get(self._column), value_of(self._corpus, document)
        if value is None:
            if column_value is None:
                self._first_without_value = self._first_without_value or document.id
                self._num_without_value += 1
            elif column_value in self._unweighted or len(self._unweighted) < MOST_VALUES:
                self._unweighted[column_value] = self._unweighted.get(column_value, 0) + 1
            return
        has_room = len(self._values_of_others) < MOST_VALUES**2
        if value == OTHERS and column_value is not None and has_room:
            self._values_of_others.add(column_value)
        if value not in self._spools:
            if len(self._spools) == MOST_VALUES:
                problem = f"more than {MOST_VALUES} values, such as {', '.join(self.values[:5])}"
                raise self._error(problem, f"at most {MOST_VALUES}")
            self._spools[value] = Spool(self._folder)
        self._spools[value].add(document)

    def __iter__(self) -> Iterator[Document]:
        """Yield all documents, ordered by value."""
        for value in self.values:
            yield from self._spools[value]

    @property
    def values(self) -> list[str]:
        """The values in the order of the stores."""
        return sorted(self._spools)

    def of(self, value: str) -> Spool:
        """Return the documents with this value; `*` stands for all values without a weight."""
        return self._spools[value]

    def require_shares(self) -> None:
        """Raise a DataError if a document has no weight, or a weight no document."""
        if self._num_without_value:
            problem = f"{self._num_without_value:,} documents without a value"
            raise self._error(problem, "a value for each", where=self._first_without_value)
        if counts := self._unweighted:
            most = sorted(counts, key=lambda value: (-counts[value], value))
            listed = ", ".join(f"{value} ({counts[value]:,})" for value in most[:LISTED])
            hint = near(most[0], self._weights)
            raise self._error(
                f"values without a weight: {listed}" + ", …" * (len(most) > LISTED),
                f"a weight for each value in corpus.weights; {hint}",
            )
        if unused_weights := sorted({*self._weights} - {*self._spools}):
            listed = ", ".join(unused_weights[:LISTED])
            hint = near(unused_weights[0], {*self._spools, *self._values_of_others} - {OTHERS})
            raise self._error(f"weights of values that no training document has: {listed}", hint)

    def _error(self, problem: str, expected: str, where: str | None = None) -> DataError:
        return DataError(
            "the text cannot be mixed by this column",
            where=where or f"{', '.join(self._corpus.text)}, column {self._column!r}",
            found=problem,
            wanted=expected,
            do=f"correct the values; or give all others one weight together: {WITH_OTHERS}",
        )


def value_of(corpus: Corpus, document: Document) -> str | None:
    """Return the value that a document is mixed by, or `*` for all others; None: no weight."""
    value = document.notes.get(str(corpus.mix_by))
    weights = corpus.weights
    if not isinstance(weights, dict) or value in weights:
        return value
    return OTHERS if OTHERS in weights else None


def _hash(text: str) -> float:
    """Return a hash of the text as a number in [0, 1)."""
    digest = hashlib.blake2b(text.encode(), digest_size=8, key=b"held out").digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


def _smallest_hashes(sizes: dict[float, int], share: float) -> set[float]:
    """Return the smallest hashes whose texts make up a `share` of all bytes, but not all hashes; a
    text of more than half of the bytes comes last. `sizes`: bytes by hash."""
    chosen: set[float] = set()
    total, bytes_taken, min_count = sum(sizes.values()), 0, 2 if len(sizes) >= PAIR_CORPUS else 1
    for number in sorted(sizes, key=lambda n: (2 * sizes[n] > total, n))[:-1]:
        if len(chosen) >= min_count and bytes_taken >= share * total:
            break
        chosen.add(number)
        bytes_taken += sizes[number]
    return chosen


def _split_document(document: Document, share: float) -> tuple[Document, Document]:
    """Split a document at whitespace; the second part is about a `share` of it."""
    text = document.text
    target = min(len(text) - 1, int(len(text) * (1 - share)))
    blank = next((n for n in range(target, 0, -1) if text[n].isspace()), target)
    first_text, second_text = text[:blank].strip(), text[blank:].strip()
    second_part = replace(document, text=second_text, id=f"{document.id}:{blank}")
    return replace(document, text=first_text), second_part


def text_bytes(corpus: Corpus) -> int:
    """Return the number of bytes of the user's files, at most the recipe's limit."""
    total = size_of([resolve(name) for name in corpus.text]) if corpus.text else 0
    return total if corpus.limit_bytes is None else min(total, corpus.limit_bytes)


def require_distinct_files(corpus: Corpus) -> None:
    """Check that no file is named twice, or as both training and held-out text, also by links.

    Raises:
        ConfigError: with both names of the file.
        UsageError: a path does not exist.
    """
    shown_by_identity: dict[tuple[int, int], str] = {}
    for name in (*corpus.text, *corpus.held_out_text):
        for source in find([resolve(name)])[0]:
            status = source.path.stat()
            identity = (status.st_dev, status.st_ino)
            if identity in shown_by_identity:
                raise ConfigError(
                    "a file is named twice, or as both training and held-out text",
                    where=source.shown,
                    found=f"the same as {shown_by_identity[identity]}",
                    wanted="files and folders that have no file in common",
                    do="name each file once",
                )
            shown_by_identity[identity] = source.shown


def resolve(text: str) -> Path:
    """Return the path of `text`, in which `$NAME` stands for an environment variable.

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
        return Path(text)  # its name may contain "$"
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
