"""Curate: the command as a function, from files to the folder of the result."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from maskwright.base.errors import OutputError
from maskwright.base.findings import Note, ignore
from maskwright.base.storage.commit import Staging, commit, require_new, writing
from maskwright.base.storage.manifest import MANIFEST, read_manifest
from maskwright.text.corpus.curated import MADE, WORK
from maskwright.text.corpus.files import Paths, listed
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate.card import card_of, reading_findings
from maskwright.text.curate.data_card import data_card
from maskwright.text.curate.engine.corpus import Progress
from maskwright.text.curate.engine.daft_engine import DaftEngine
from maskwright.text.curate.engine.pack import PACKED
from maskwright.text.curate.engine.run import Pieces, prune, read_files, require_files, run
from maskwright.text.curate.engine.segment import CHANGED, REMOVED, records
from maskwright.text.curate.engine.shards import REJECTED
from maskwright.text.curate.engine.tables import compressed
from maskwright.text.curate.page import page
from maskwright.text.curate.recipe import Recipe

UNREADABLE = "unreadable.jsonl.gz"


def _silent(name: str, total: int, done: int) -> None:
    """A `Progress` that shows nothing."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a curation runs, besides its recipe; none of it changes a byte of the result but the
    tokenizer's counts.

    Attributes:
        engine: where the work is done.
        reading: how the files are read.
        tokenizer: a folder; the card counts its tokens.
        update: take in new files, or other settings, where the result is there already.
        skip_unreadable: leave out files that cannot be read, from the fault on, and list them.
        note, progress: told what is found, and how far the work is.
    """

    engine: DaftEngine = field(default_factory=DaftEngine)
    reading: ReadingOptions = field(default_factory=lambda: ReadingOptions(notes=("*",)))
    tokenizer: str = ""
    update: bool = False
    skip_unreadable: bool = False
    note: Note = ignore
    progress: Progress = _silent


def work_folder(out: Path) -> Path:
    """Where the pieces of the result `out` lie: `clean.work` for `clean`."""
    out = Path(os.path.abspath(out))
    return out.with_name(out.name + WORK)


def curate(
    paths: Paths, out: Path | str, recipe: Recipe, options: Options | None = None
) -> dict[str, Any]:
    """Make the curated corpus `out` of the documents of `paths`; its card.

    Raises:
        OutputError: `out` is there already and is not to be updated, or cannot be written, or it
            lies in a folder that is read.
        TokenizerError: the tokenizer's folder holds none.
        DataError, UsageError, ConfigError, ResourceError, StoppedError, StorageError: as their
            parts say; the same command goes on where it stopped.
    """
    options = options or Options()
    out = Path(out)
    require_place(out, update=options.update)
    require_apart(paths, out)
    require_tokenizer(options.tokenizer)
    require_files(recipe)
    for found in recipe.findings:
        options.note(found)
    options.engine.start()
    work = work_folder(out)
    with writing(out):
        read = read_files(
            paths,
            options.reading,
            work,
            options.engine,
            options.progress,
            skip=options.skip_unreadable,
        )
        for found in reading_findings(read.facts):
            options.note(found)
        pieces = run(
            read,
            recipe,
            work,
            options.engine,
            tokenizer=options.tokenizer,
            note=options.note,
            progress=options.progress,
        )
        card = card_of(pieces, recipe, options.tokenizer, paths=paths, reading=options.reading)
        commit(
            out,
            lambda stage: _write(stage, pieces, recipe, card),
            about={"made": MADE, "format": card["format"]},
            replace=options.update,
        )
    prune(work, pieces)
    return card


def require_place(out: Path, *, update: bool) -> None:
    """Refuse a result that is there, unless it is one of ours to be updated.

    Raises:
        OutputError: saying which.
    """
    what, do = "something else than a curated corpus", "choose another --out"
    if is_curated(out):
        if update:
            return
        what, do = "a curated corpus", f"{do}, or take new files in with --update"
    require_new(out, what=f"the path already exists: {what}", do=do)


def require_apart(paths: Paths, out: Path) -> None:
    """Refuse a result inside a folder that is read, or around what is read: it would be read, too,
    or replace it.

    Raises:
        OutputError: saying which.
    """
    places = [Path(os.path.realpath(place)) for place in (out, work_folder(out))]
    for path in listed(paths):
        read = Path(os.path.realpath(path))
        for place in places:
            if place.is_relative_to(read) or read.is_relative_to(place):
                raise OutputError(
                    "the result and what is read lie in each other",
                    where=out,
                    found=f"{place} and {read}",
                    wanted="a result outside of the folders that are read",
                    do="choose another --out",
                )


def require_tokenizer(folder: str) -> None:
    """Refuse a folder that holds no tokenizer, before the work that its counts come after.

    Raises:
        TokenizerError: saying what is missing.
    """
    if folder:
        from maskwright.text.tokenizer.tokenizer import Tokenizer

        Tokenizer.load(Path(folder))


def is_curated(folder: Path) -> bool:
    """Whether the folder is the result of a curation."""
    if not (folder / MANIFEST).is_file():
        return False
    with contextlib.suppress(Exception):
        return read_manifest(folder).about.get("made") == MADE
    return False


# ------------------------------------------------------------------------------ the result
def _write(stage: Staging, pieces: Pieces, recipe: Recipe, card: Mapping[str, Any]) -> None:
    for number, folder in enumerate(pieces.packed):
        stage.write_bytes(f"text/{number:05}.jsonl.gz", _pieces_of(folder / PACKED))
    for names, folders in pieces.segments:
        for room, step in itertools.product((REMOVED, CHANGED), names):
            files = [path for folder in folders if (path := records(folder, room, step)).is_file()]
            if files:  # members of gzip behind each other are one file
                whole = itertools.chain.from_iterable(map(_pieces_of, files))
                stage.write_bytes(f"{room}/{step}.jsonl.gz", whole)
    _write_unreadable(stage, pieces)
    stage.write_bytes("recipe.toml", recipe.to_toml().encode())
    stage.write_json("card.json", card)
    stage.write_bytes("card.md", data_card(card).encode("utf-8", "replace"))
    stage.write_bytes("page.html", page(card).encode("utf-8", "replace"))


def _pieces_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            yield data


def _write_unreadable(stage: Staging, pieces: Pieces) -> None:
    """`unreadable.jsonl.gz`: the rows that could not be read, if there are any."""
    files = [path for folder in pieces.read if (path := folder / REJECTED).is_file()]
    broken = [entry for facts in pieces.reading for entry in facts.get("broken", ())]
    if files or broken:
        rows = (piece for path in files for piece in _pieces_of(path))
        lines = (f"{json.dumps(entry)}\n".encode() for entry in broken)
        stage.write_bytes(UNREADABLE, compressed(itertools.chain(rows, lines)))
