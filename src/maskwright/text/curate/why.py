"""Look up what happened to a document of a curated corpus, using only the folder of the result.

    changed/STEP.jsonl.gz     the changes of its text
    removed/STEP.jsonl.gz     why it was removed; for a copy, the document that was kept instead
    text/NNNNN.jsonl.gz       its final text
    unreadable.jsonl.gz       rows that never became a document

All files are read line by line; only lines that contain the name are parsed.
"""

from __future__ import annotations

import difflib
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError, UsageError, near, shorten
from maskwright.base.storage.strict_json import parse_object
from maskwright.text.corpus.saved import is_curated
from maskwright.text.curate.card import read_card, value_text
from maskwright.text.curate.curation import UNREADABLE
from maskwright.text.curate.engine.segment import PLACE, location_of
from maskwright.text.curate.engine.shards import READ_AT, UNREAD

FOUND = 10  # most matching documents that are shown
EXCERPT = 200
LARGEST = 1 << 30


@dataclass
class Fate:
    """What happened to a document.

    Attributes:
        place: the location where it was read: `file:line` or `file#row`.
        id: its own id, or else its location.
        changes: the records of its changes, in the order of the steps.
        removed: the record of its removal, or None.
        kept: (file of the result, line), or None.
        text: its text when it was removed, or in the result.
        survivor: the fate of the document that was kept in place of a copy, or None.
    """

    place: str
    id: str
    changes: list[dict[str, Any]] = field(default_factory=list)
    removed: dict[str, Any] | None = None
    kept: tuple[str, int] | None = None
    text: str = ""
    survivor: Fate | None = None

    def lines(self) -> Iterator[str]:
        """Describe the fate of the document, a line for each event."""
        yield self.place if self.id == self.place else f"{self.id} ({self.place})"
        for change in self.changes:
            yield f"  changed by {_cause(change)}"
            if "before" in change:
                yield f"    it was: {shorten(change['before'], EXCERPT)}"
        if self.removed is not None:
            limit = self.removed.get("wanted")
            allowed = f"; allowed: {limit}" if limit else ""
            yield f"  removed by {_cause(self.removed)}{allowed}"
            if self.survivor is not None:
                end = "is kept" if self.survivor.kept else "was itself removed"
                yield f"  copy of {self.survivor.place}, which {end}:"
        elif self.kept is not None:
            yield f"  kept: {self.kept[0]}, line {self.kept[1]}"
        if self.text:
            yield f"  text: {shorten(self.text, EXCERPT)}"


def _cause(record: dict[str, Any]) -> str:
    """Return the step, rule, value and place of a record."""
    where = f", {record['where']}" if record.get("where") else ""
    shown_value = shorten(value_text(record["value"]), EXCERPT)
    return f"{record['step']}, rule {record['rule']}: {shown_value}{where}"


@dataclass(frozen=True)
class DocumentFates:
    """The fates of the documents that match, including those of the documents kept for copies.

    Attributes:
        more: whether further documents match.
    """

    fates: Sequence[Fate]
    more: bool = False

    def lines(self) -> Iterator[str]:
        for first_fate in self.fates:
            fate: Fate | None = first_fate
            while fate is not None:
                yield from fate.lines()
                fate = fate.survivor
        if self.more:
            yield f"only the first {FOUND} are shown"


def why(folder: Path | str, document: str = "", text: str = "") -> DocumentFates:
    """Look up what happened to a document that was read for the curated corpus `folder`.

    Args:
        document: the id, the location (`file:line` or `file#row`), or a file, for all documents.
        text: alternatively a part of the text, regardless of case and white space: of the final
            text, of that before the removal, or before a change of words.

    Raises:
        UsageError: nothing is sought; or `folder` is no curated corpus, or has no such document.
        DataError: a file is damaged.
    """
    folder = Path(folder)
    if not (document.strip() or text.strip()):
        raise UsageError("nothing to look for", where="--why", wanted="an id, or file:line")
    if not is_curated(folder):
        raise UsageError(
            "not a curated corpus",
            where=folder,
            wanted="a folder that maskwright curate made",
            do="name it with --out",
        )
    steps = [step["step"] for step in read_card(folder)["steps"]]
    lookup = _Lookup(folder, steps)
    pattern = _by_text(text) if text else _by_name(document)
    fates = lookup.find(pattern)
    if text:  # a document that matches by its text before a change has further records
        fates = [
            fate if fate.removed or fate.kept else lookup.find(_by_name(fate.place, exact=True))[0]
            for fate in fates
        ]
    if not fates:
        raise _missing_error(lookup, document, text)
    for fate in fates[:FOUND]:
        lookup.follow(fate)
    return DocumentFates(fates[:FOUND], len(fates) > FOUND)


@dataclass(frozen=True)
class _DocumentPattern:
    """A fast check of lines, by alternative sets of byte strings, and an exact test of records."""

    pieces: tuple[tuple[bytes, ...], ...]
    fits: Callable[[dict[str, Any], str], bool]

    def may_be_in(self, line: bytes) -> bool:
        return any(all(piece in line for piece in pieces) for pieces in self.pieces)


def _by_name(name: str, *, exact: bool = False) -> _DocumentPattern:
    """Match an id or location; unless `exact`, also a file with all its documents, or `./FILE`."""
    names = {name} if exact else {name, os.path.normpath(name)}
    pieces: list[tuple[bytes, ...]] = []
    for candidate in names:
        match = PLACE.fullmatch(candidate)
        pieces.append((_as_json(match[1]), match[3].encode()) if match else (_as_json(candidate),))

    def fits(record: dict[str, Any], location: str) -> bool:
        match = None if exact else PLACE.fullmatch(location)
        return not names.isdisjoint((str(record["id"]), location, match[1] if match else location))

    return _DocumentPattern(tuple(pieces), fits)


def _by_text(text: str) -> _DocumentPattern:
    folded = _fold(text)

    def fits(record: dict[str, Any], location: str) -> bool:
        return any(folded in _fold(str(record.get(name, ""))) for name in ("text", "before"))

    return _DocumentPattern(((),), fits)


def _as_json(text: str) -> bytes:
    """Encode a text as in a line of JSON, without quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")


def _fold(text: str) -> str:
    return " ".join(text.split()).casefold()


def _place(record: dict[str, Any], kind: str) -> str:
    """Return the location of the document of a record in the folder `kind`."""
    if kind == "text":
        return str(record.get(READ_AT, record["id"]))
    return location_of(record)


@dataclass(frozen=True)
class _Lookup:
    """The records of a curated folder.

    Attributes:
        steps: the names of the steps, in order.
    """

    folder: Path
    steps: Sequence[str]

    def find(self, name: _DocumentPattern) -> list[Fate]:
        """Return the fates of matching documents: removed ones by step, then those that are kept,
        then those of which only changes match; at most one more than `FOUND`."""
        fates: dict[str, Fate] = {}
        for kind in ("removed", "text", "changed"):
            for path, number, record in self.records(kind, name):
                location = _place(record, kind)
                # The changes of a document that already matched need not match themselves.
                is_wanted = len(fates) <= FOUND and name.fits(record, location)
                if location not in fates and not is_wanted:
                    continue
                fate = fates.setdefault(location, Fate(location, str(record["id"])))
                if kind == "changed":
                    fate.changes.append(record)
                    continue
                fate.text = record.get("text", "")
                if kind == "removed":
                    fate.removed = record
                else:
                    fate.kept = (path.relative_to(self.folder).as_posix(), number)
        return list(fates.values())

    def records(
        self, kind: str, name: _DocumentPattern | None = None
    ) -> Iterator[tuple[Path, int, Any]]:
        """Yield (file, line number, record) of the records of the folder `kind` that may match;
        raise a DataError if a file is damaged."""
        paths = (self.folder / kind).glob("*.jsonl.gz")
        order = {f"{step}.jsonl.gz": rank for rank, step in enumerate(self.steps)}
        for path in sorted(paths, key=lambda p: (order.get(p.name, -1), p.name)):
            for number, record in _records(path, name):
                yield path, number, record

    def follow(self, fate: Fate) -> None:
        """Set `survivor` for a copy, and repeatedly if the survivor was later removed as a copy."""
        visited = {fate.place}
        while fate.removed is not None and "survivor" in fate.removed:
            fates = self.find(_by_name(fate.removed["survivor"], exact=True))
            if not fates or fates[0].place in visited:
                return
            fate.survivor = fate = fates[0]
            visited.add(fate.place)

    def names(self) -> Iterator[tuple[str, str]]:
        """Yield (id, location) of every document."""
        for kind in ("removed", "text"):
            for _, _, record in self.records(kind):
                yield str(record["id"]), _place(record, kind)


def _records(path: Path, pattern: _DocumentPattern | None = None) -> Iterator[tuple[int, Any]]:
    """Yield (line number, record) of the lines of a file that may match."""
    try:
        with gzip.open(path) as file:
            for number, line in enumerate(file, 1):
                if pattern is None or pattern.may_be_in(line):
                    where = f"{path}:{number}"
                    yield number, parse_object(line, where, error=DataError, largest=LARGEST)
    except (OSError, EOFError) as error:
        raise DataError("a file of the corpus is damaged", where=path, found=error) from error


def _missing_error(lookup: _Lookup, document: str, text: str) -> UsageError:
    """Return the error for a document without a record, with the likeliest reason."""
    card = read_card(lookup.folder)
    if text:
        return UsageError(
            "no document on record has this text",
            where=lookup.folder,
            found=repr(shorten(text, EXCERPT)),
            wanted="a piece of a text that is kept or was removed, or as it was before a change",
            do="give a shorter piece, or the document's file and line with --why",
        )
    match = PLACE.fullmatch(document)
    unreadable = lookup.folder / UNREADABLE
    for _, entry in _records(unreadable) if unreadable.is_file() else ():
        if _is_about(entry, document, match):
            is_row = "line" in entry
            return UsageError(
                "the row could not be read, so it never was a document"
                if is_row
                else "the file could not be read"
                + ("" if entry["extent"] == UNREAD else f" to its end: {entry['extent']}"),
                where=f"{entry['file']}:{entry['line']}" if is_row else entry["where"],
                found=f"{entry['reason']}: {entry['found']}",
                wanted=entry.get("wanted"),
                do="correct it and curate with --update",
            )
    read = card["read"]
    lost_rows = [f"{read[n]:,} {w}" for n, w in (("blank", "blank"), ("rejected", "unreadable"))]
    return UsageError(
        "no such document is on record",
        where=lookup.folder,
        found=f"{document!r} among {read['documents']:,} documents; {' and '.join(lost_rows)} rows "
        "never became one",
        wanted=_nearest(lookup, document, match, [file["file"] for file in read["files"]]),
        do="give its id, or its file and line as card.json has them, or --why-text",
    )


def _is_about(entry: dict[str, Any], document: str, match: re.Match[str] | None) -> bool:
    """Whether the record of an unreadable row or file contains the document (`match`: parsed)."""
    if "line" not in entry:
        return entry["file"] in (document, match and match[1])
    if match is None or entry["file"] != match[1]:
        return False
    return bool(entry["line"] <= int(match[3]) <= entry.get("last_line", entry["line"]))


def _nearest(
    lookup: _Lookup, document: str, match: re.Match[str] | None, files: Sequence[str]
) -> str:
    """Suggest names similar to an unknown one, or the line where the document begins."""
    if match and match[1] in files:
        matches = (PLACE.fullmatch(name) for _, name in lookup.names())
        lines = [int(m[3]) for m in matches if m and m[1] == match[1] and int(m[3]) < int(match[3])]
        if lines:
            before = f"{match[1]}{match[2]}{max(lines)}"
            return f"a line where a document begins; the one before it is {before}"
    names = {name for pair in lookup.names() for name in pair}
    if difflib.get_close_matches(document, names, 1, 0.5):
        return near(document, names)
    return "a name as " + " or ".join(dict.fromkeys(next(lookup.names(), ("file:1",))))
