"""A curation as a function: from files to the folder of the result."""

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
from maskwright.text.curate.card_report import render_data_card, render_page
from maskwright.text.curate.engine.daft_engine import DaftEngine, Progress
from maskwright.text.curate.engine.run import Pieces, prune, read_files, require_files, run
from maskwright.text.curate.engine.segment import CHANGED, REMOVED, records
from maskwright.text.curate.engine.shards import PACKED, REJECTED
from maskwright.text.curate.engine.tables import compressed
from maskwright.text.curate.recipe import CurationRecipe

UNREADABLE = "unreadable.jsonl.gz"


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a curation runs, besides its recipe. Only `reading`, `tokenizer` and `skip_unreadable`
    change the result.

    Attributes:
        engine: where the work is done.
        reading: how the files are read.
        tokenizer: a folder; the card counts its tokens.
        update: update an existing result with new files or other settings.
        skip_unreadable: skip files that cannot be read, from the fault on, and list them.
        note, progress: called with findings, and with the progress of the work.
    """

    engine: DaftEngine = field(default_factory=DaftEngine)
    reading: ReadingOptions = field(default_factory=lambda: ReadingOptions(notes=("*",)))
    tokenizer: str = ""
    update: bool = False
    skip_unreadable: bool = False
    note: Note = ignore
    progress: Progress = lambda *_: None


def work_folder(out: Path) -> Path:
    """Return the work folder of the result `out`: `clean.work` for `clean`."""
    out = Path(os.path.abspath(out))
    return out.with_name(out.name + WORK)


def curate(
    paths: Paths, out: Path | str, recipe: CurationRecipe, options: Options | None = None
) -> dict[str, Any]:
    """Curate the documents of `paths` into the folder `out`. Return the card.

    Raises:
        OutputError: `out` exists and is not to be updated, cannot be written, or is in a folder
            that is read.
        TokenizerError: the folder of the tokenizer contains none.
        DataError, UsageError, ConfigError, ResourceError, StoppedError, StorageError: from reading
            and from the steps; the same call resumes where it stopped.
    """
    options, out = options or Options(), Path(out)
    prepare(paths, out, recipe, options)
    return curate_prepared(paths, out, recipe, options)


def prepare(paths: Paths, out: Path | None, recipe: CurationRecipe, options: Options) -> None:
    """Check what can be checked before any work, and start the engine; `out` None: no result.

    Raises:
        As `curate`.
    """
    if out is not None:
        _require_place(out, update=options.update)
        _require_apart(paths, out)
    if options.tokenizer:
        from maskwright.text.tokenizer.tokenizer import Tokenizer

        Tokenizer.load(Path(options.tokenizer))
    require_files(recipe)
    for finding in recipe.findings:
        options.note(finding)
    options.engine.start()


def curate_prepared(
    paths: Paths, out: Path, recipe: CurationRecipe, options: Options
) -> dict[str, Any]:
    """`curate` after `prepare`."""
    work, engine, progress = work_folder(out), options.engine, options.progress
    with writing(out):
        read = read_files(
            paths, options.reading, work, engine, progress, skip=options.skip_unreadable
        )
        for finding in reading_findings(read.facts):
            options.note(finding)
        pieces = run(
            read,
            recipe,
            work,
            engine,
            tokenizer=options.tokenizer,
            note=options.note,
            progress=progress,
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


def _require_place(out: Path, *, update: bool) -> None:
    """Refuse an existing path, unless it is a curated corpus and `update` is set.

    Raises:
        OutputError: the path exists.
    """
    obstacle, do = "something else than a curated corpus", "choose another --out"
    if is_curated(out):
        if update:
            return
        obstacle, do = "a curated corpus", f"{do}, or take new files in with --update"
    require_new(out, message=f"the path already exists: {obstacle}", do=do)


def _require_apart(paths: Paths, out: Path) -> None:
    """Refuse a result that is inside a path that is read, or contains one.

    Raises:
        OutputError: naming both.
    """
    result_folders = [Path(os.path.realpath(folder)) for folder in (out, work_folder(out))]
    for path in listed(paths):
        read = Path(os.path.realpath(path))
        for result_folder in result_folders:
            if result_folder.is_relative_to(read) or read.is_relative_to(result_folder):
                raise OutputError(
                    "the result and what is read lie in each other",
                    where=out,
                    found=f"{result_folder} and {read}",
                    wanted="a result outside of the folders that are read",
                    do="choose another --out",
                )


def is_curated(folder: Path) -> bool:
    """Whether the folder is the result of a curation."""
    if not (folder / MANIFEST).is_file():
        return False
    with contextlib.suppress(Exception):
        return read_manifest(folder).about.get("made") == MADE
    return False


def _write(stage: Staging, pieces: Pieces, recipe: CurationRecipe, card: Mapping[str, Any]) -> None:
    """Write the files of the result."""
    for number, folder in enumerate(pieces.packed):
        stage.write_bytes(f"text/{number:05}.jsonl.gz", _pieces_of(folder / PACKED))
    for names, folders in pieces.segments:
        for room, step in itertools.product((REMOVED, CHANGED), names):
            files = [path for folder in folders if (path := records(folder, room, step)).is_file()]
            if files:  # concatenated gzip members are one valid file
                content = itertools.chain.from_iterable(map(_pieces_of, files))
                stage.write_bytes(f"{room}/{step}.jsonl.gz", content)
    rejected = [path for folder in pieces.read.folders if (path := folder / REJECTED).is_file()]
    broken = [entry for facts in pieces.read.facts for entry in facts.get("broken", ())]
    if rejected or broken:
        rows = itertools.chain.from_iterable(map(_pieces_of, rejected))
        lines = (f"{json.dumps(entry)}\n".encode() for entry in broken)
        stage.write_bytes(UNREADABLE, compressed(itertools.chain(rows, lines)))
    stage.write_bytes("recipe.toml", recipe.to_toml().encode())
    stage.write_json("card.json", card)
    stage.write_bytes("card.md", render_data_card(card).encode("utf-8", "replace"))
    stage.write_bytes("page.html", render_page(card).encode("utf-8", "replace"))


def _pieces_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            yield data
