"""Curation by the options of a user: as a function, and as the command `maskwright curate` with a
first look, progress and output."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TextIO

from maskwright.base.errors import UsageError
from maskwright.base.findings import Finding, Note, ignore
from maskwright.base.report import document
from maskwright.base.report.wording import duration, size
from maskwright.base.storage.commit import writing
from maskwright.base.storage.files import write_file
from maskwright.base.terminal import harmless_lines, shell_word
from maskwright.text.corpus.files import Paths, find
from maskwright.text.corpus.read import with_form
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate.card_report import terminal_lines
from maskwright.text.curate.curation import (
    Options,
    curate,
    curate_prepared,
    prepare,
    work_folder,
)
from maskwright.text.curate.engine.daft_engine import DaftEngine, Runner
from maskwright.text.curate.look import look, look_lines, plan, plan_lines, require
from maskwright.text.curate.recipe import choose
from maskwright.text.tables.reading_options import TableReadingOptions, how_read


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
        As `curation.curate`.
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


def curate_command(
    paths: Sequence[str],
    out: Path,
    *,
    recipe: Path | None = None,
    steps: str | None = None,
    without: Sequence[str] = (),
    settings: Sequence[str] = (),
    runner: Runner = "local",
    address: str | None = None,
    workers: int | None = None,
    tokenizer: Path | None = None,
    update: bool = False,
    skip_unreadable: bool = False,
    read: Sequence[str] = (),
    only: Literal["look", "plan"] | None = None,
    write_recipe: Path | None = None,
    note: Note,
) -> None:
    """Curate as the command line says, with progress on standard error.

    Without a recipe the first look proposes one, which is shown before it runs.

    Args:
        only: stop after the first look, or after the plan.
        write_recipe: a new file for the recipe.

    Raises:
        As `curation.curate`.
    """
    note = _once(note)
    names = None if steps is None else [n.strip() for n in steps.split(",") if n.strip()]
    chosen = choose(recipe, names, without, settings)
    engine = DaftEngine(runner, address, workers)
    options = Options(
        engine=engine,
        reading=reading_options(paths, read, skip_unreadable, note),
        tokenizer=tokenizer_folder(tokenizer),
        update=update,
        skip_unreadable=skip_unreadable,
        note=note,
        progress=ProgressLine(),
    )
    if write_recipe is not None:
        _require_new(write_recipe)
    prepare(paths, None if only else out, chosen, options)
    with contextlib.nullcontext() if only else writing(out):
        is_default = recipe is None and steps is None
        if is_default or only or write_recipe:
            first_look, chosen = look(
                paths,
                chosen,
                options.reading,
                engine=engine,
                propose=is_default,
                fixed={text.partition(".")[0] for text in settings},
                work=None if only else work_folder(out),
                skip_unreadable=skip_unreadable,
                tell=only is not None,
            )
            _print(*look_lines(first_look))
            for finding in first_look.findings:
                note(finding)
            planned = plan(first_look, chosen, engine)
            if only == "plan" or (only is None and first_look.part < 1):
                _print(*plan_lines(planned))
            if write_recipe is not None:
                write_file(write_recipe, chosen.to_toml().encode())
                _print(f"recipe: {write_recipe}")
            if only:
                return
            require(planned, out, engine)
        print(f"steps: {', '.join(chosen.steps)}")
        work = work_folder(out)
        beside = out.parent / work.name  # as the user wrote it
        try:
            card = curate_prepared(paths, out, chosen, options)
        except KeyboardInterrupt:
            _print(f"stopped; the same command goes on with {beside}", file=sys.stderr)
            raise
        disk = size(sum(p.stat().st_size for p in work.rglob("*") if p.is_file()))
        _print(
            *terminal_lines(card),
            f"corpus: {out}",
            f"pieces for the next run with --update: {beside} ({disk})",
            f"next: maskwright pretrain bert-mini --text {shell_word(out)}",
        )


def reading_options(
    paths: Paths, settings: Sequence[str], skip_unreadable: bool, note: Note
) -> ReadingOptions:
    """Return how the files are read, with the form of plain text files; a finding reports an
    inferred form. All columns are read unless the user names some.

    Raises:
        UsageError, ConfigError: an unknown option, or one of labelled files; or a path that cannot
            be read.
    """
    options = how_read(settings, TableReadingOptions(Options().reading))
    options.require_only("reading")
    sources, _ = find(paths, pages=True, broken=[])
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


def _print(*lines: str, file: TextIO | None = None) -> None:
    print(harmless_lines("\n".join(lines)), file=file)


def _once(note: Note) -> Note:
    """Wrap a `Note` to drop repeated findings, as of the first look and the curation."""
    sentences: set[str] = set()

    def new(finding: Finding) -> None:
        if str(finding) not in sentences:
            sentences.add(str(finding))
            note(finding)

    return new


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
        line = f"{name}: {done} of {total} shards{time_left}"
        if self.live:
            end = "\n" if done == total else ""
            print(f"\r\033[K{harmless_lines(line)}", end=end, file=sys.stderr, flush=True)
        elif done == total and not self.shown:
            self.shown = True
            print(harmless_lines(f"{name}: {total} shards, {duration(elapsed)}"), file=sys.stderr)
