"""Curation as users call it: a function of files and a recipe, a function of plain options, and the
command `maskwright curate` with a first look, progress and output."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from maskwright.base.errors import Finding, Note, OutputError, UsageError, ignore
from maskwright.base.report import document
from maskwright.base.report.document import duration, size
from maskwright.base.storage.commit import Staging, commit, require_new, writing
from maskwright.base.storage.files import write_file
from maskwright.base.terminal import counted, harmless_lines, shell_word
from maskwright.text.corpus.files import Paths, find, listed
from maskwright.text.corpus.read import with_form
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.corpus.saved import MADE, WORK_SUFFIX, is_curated
from maskwright.text.curate.card import (
    card_of,
    reading_findings,
    render_data_card,
    render_page,
    terminal_lines,
)
from maskwright.text.curate.engine.daft_engine import DaftEngine, Progress, Runner
from maskwright.text.curate.engine.run import Pieces, prune, read_files, require_files, run
from maskwright.text.curate.engine.segment import CHANGED, REMOVED, records
from maskwright.text.curate.engine.shards import PACKED, REJECTED, compressed
from maskwright.text.curate.look import look, look_lines, plan, plan_lines, require
from maskwright.text.curate.recipe import CurationRecipe, choose
from maskwright.text.store.tokenize import file_pieces
from maskwright.text.tables.reading_options import TableReadingOptions, how_read

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
    return out.with_name(out.name + WORK_SUFFIX)


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
    check(paths, out, recipe, options)
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


def check(paths: Paths, out: Path | None, recipe: CurationRecipe, options: Options) -> None:
    """Check what can be checked before any work, and start the engine; `out` None: no result.
    Errors as in `curate`."""
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


def _require_place(out: Path, *, update: bool) -> None:
    """Refuse an existing path, unless it is a curated corpus and `update` is set."""
    obstacle, do = "something else than a curated corpus", "choose another --out"
    if is_curated(out):
        if update:
            return
        obstacle, do = "a curated corpus", f"{do}, or take new files in with --update"
    require_new(out, message=f"the path already exists: {obstacle}", do=do)


def _require_apart(paths: Paths, out: Path) -> None:
    """Refuse a result that is inside a path that is read, or contains one."""
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


def _write(stage: Staging, pieces: Pieces, recipe: CurationRecipe, card: Mapping[str, Any]) -> None:
    """Write the files of the result."""
    for number, folder in enumerate(pieces.packed):
        stage.write_bytes(f"text/{number:05}.jsonl.gz", file_pieces(folder / PACKED))
    for names, folders in pieces.segments:
        for kind, step in itertools.product((REMOVED, CHANGED), names):
            files = [path for folder in folders if (path := records(folder, kind, step)).is_file()]
            if files:  # concatenated gzip members are one valid file
                content = itertools.chain.from_iterable(map(file_pieces, files))
                stage.write_bytes(f"{kind}/{step}.jsonl.gz", content)
    rejected = [path for folder in pieces.read.folders if (path := folder / REJECTED).is_file()]
    broken = [entry for facts in pieces.read.facts for entry in facts.get("broken", ())]
    if rejected or broken:
        rows = itertools.chain.from_iterable(map(file_pieces, rejected))
        lines = (f"{json.dumps(entry)}\n".encode() for entry in broken)
        stage.write_bytes(UNREADABLE, compressed(itertools.chain(rows, lines)))
    stage.write_bytes("recipe.toml", recipe.to_toml().encode())
    stage.write_json("card.json", card)
    stage.write_bytes("card.md", render_data_card(card).encode("utf-8", "replace"))
    stage.write_bytes("page.html", render_page(card).encode("utf-8", "replace"))


# ------------------------------------------------------------------------------ options of a user
def curate_files(
    texts: Paths,
    out: Path | str,
    *,
    recipe: Path | str | None = None,
    steps: Sequence[str] | None = None,
    without: Sequence[str] = (),
    settings: Sequence[str] = (),
    engine: Runner = "local",
    address: str | None = None,
    workers: int | None = None,
    tokenizer: Path | str | None = None,
    update: bool = False,
    skip_unreadable: bool = False,
    read: Sequence[str] = (),
    note: Note = ignore,
) -> dict[str, Any]:
    """Make a curated corpus of files of raw text, as `maskwright curate` does, but without a first
    look: documents of all languages are kept unless `language.keep` is set.

    Args:
        texts: files or folders.
        out: the folder to make.
        recipe: a TOML file; or `steps`, their names in order; without both, the usual steps.
        without: steps to leave out.
        settings: of steps, as `near-duplicates.threshold=0.8`.
        engine, address, workers: processes of this machine, or of a Ray cluster.
        tokenizer: a folder; the card counts its tokens.
        update: update an existing result with new files or other settings.
        skip_unreadable: skip rows that cannot be read, and files from a fault on, and list them.
        read: how files are read, as `on_bad=skip`.
        note: called with findings.

    Returns:
        The card, as `card.json` has it.

    Raises:
        As `curate`.
    """
    chosen = choose(None if recipe is None else Path(recipe), steps, without, settings)
    options = Options(
        engine=DaftEngine(engine, address, workers),
        reading=reading_options(texts, read, skip_unreadable, note),
        tokenizer=tokenizer_folder(tokenizer),
        update=update,
        skip_unreadable=skip_unreadable,
        note=note,
    )
    return curate(texts, out, chosen, options)


def reading_options(
    paths: Paths, settings: Sequence[str], skip_unreadable: bool, note: Note
) -> ReadingOptions:
    """Return the options `settings` (NAME=VALUE) of reading `paths`. Whether a plain text file is
    one document is inferred and noted. All columns are read unless the user names some.

    Raises:
        UsageError, ConfigError: an unknown option, or one of labelled files; or a path that cannot
            be read.
    """
    options = how_read(settings, TableReadingOptions(Options().reading))
    options.require_only("reading")
    sources, _ = find(paths, pages=True, broken=[])  # entries that cannot be read are left out
    reading, finding = with_form(sources, options.reading)
    if finding is not None:
        note(finding)
    return replace(reading, on_bad="skip") if skip_unreadable else reading


def tokenizer_folder(path: Path | str | None) -> str:
    """Return the folder of a tokenizer: `path/tokenizer` if it holds one, or else `path`; "" for
    None."""
    if path is None:
        return ""
    for folder in (Path(path, "tokenizer"), Path(path)):
        if (folder / "tokenizer.json").is_file() or (folder / "tokenizer_config.json").is_file():
            return str(folder)
    return str(path)


# ------------------------------------------------------------------------------ the command
def curate_command(
    paths: Sequence[str],
    out: Path,
    recipe: CurationRecipe,
    options: Options,
    *,
    propose: bool = False,
    fixed: Collection[str] = (),
    only: Literal["look", "plan"] | None = None,
    write_recipe: Path | None = None,
) -> None:
    """Curate with progress on standard error.

    Args:
        propose: change the recipe as the first look proposes, but for the steps in `fixed`.
        only: stop after the first look, or after the plan.
        write_recipe: a new file for the recipe.

    Raises:
        As `curate`.
    """
    shown = set[Finding]()  # the look and the curation have findings in common

    def note(finding: Finding) -> None:
        if finding not in shown:
            shown.add(finding)
            options.note(finding)

    chosen = replace(options, note=note, progress=ProgressLine())
    if write_recipe is not None:
        _require_new(write_recipe)
    check(paths, None if only else out, recipe, chosen)
    work = work_folder(out)
    with contextlib.nullcontext() if only else writing(out):
        if propose or only or write_recipe:
            first_look, recipe = look(
                paths,
                recipe,
                options.reading,
                engine=options.engine,
                propose=propose,
                fixed=fixed,
                work=None if only else work,
                skip_unreadable=options.skip_unreadable,
            )
            _print(*look_lines(first_look))
            for finding in first_look.findings:
                note(finding)
            planned = plan(first_look, recipe, options.engine)
            if only == "plan" or (only is None and first_look.part < 1):
                _print(*plan_lines(planned))
            if write_recipe is not None:
                write_file(write_recipe, recipe.to_toml().encode())
                _print(f"recipe: {write_recipe}")
            if only:
                return
            require(planned, out, options.engine)
        print(f"steps: {', '.join(recipe.steps)}")
        beside = out.parent / work.name  # as the user wrote it
        try:
            card = curate(paths, out, recipe, chosen)
        except KeyboardInterrupt:
            message = f"stopped; the same command goes on with {beside}"
            print(harmless_lines(message), file=sys.stderr)
            raise
        disk = size(sum(p.stat().st_size for p in work.rglob("*") if p.is_file()))
        _print(
            *terminal_lines(card),
            f"corpus: {out}",
            f"pieces for the next run with --update: {beside} ({disk})",
            f"next: maskwright pretrain bert-mini --text {shell_word(out)}",
        )


def _print(*lines: str) -> None:
    print(harmless_lines("\n".join(lines)))


def _require_new(recipe: Path) -> None:
    document.require_new(recipe, do="choose another name")
    if not recipe.parent.is_dir():
        raise UsageError(
            "no such folder",
            where=f"--write-recipe {recipe}",
            found=recipe.parent,
            do="make it, or choose another name",
        )


class ProgressLine:
    """A `Progress` that shows the finished shards and the remaining time on a line that is
    overwritten; if standard error is no terminal, it prints a line for each finished part."""

    def __init__(self) -> None:
        self.name, self.start, self.first, self.shown = "", 0.0, 0, False
        self.live = sys.stderr.isatty()

    def __call__(self, name: str, total: int, done: int) -> None:
        now = time.monotonic()
        if name != self.name:
            self.name, self.start, self.first, self.shown = name, now, done, False
        elapsed, finished = now - self.start, done - self.first
        time_left = ""
        if finished > 0 and done < total:
            time_left = f", {duration(elapsed / finished * (total - done))} left"
        line = f"{name}: {done} of {counted(total, 'shard')}{time_left}"
        if self.live:
            end = "\n" if done == total else ""
            print(f"\r\033[K{harmless_lines(line)}", end=end, file=sys.stderr, flush=True)
        elif done == total and not self.shown:
            self.shown = True
            print(
                harmless_lines(f"{name}: {counted(total, 'shard')}, {duration(elapsed)}"),
                file=sys.stderr,
            )
