"""The options of a user: the recipe, how files are read, and the tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.base.errors import ConfigError, near
from maskwright.base.findings import Note, ignore
from maskwright.text.corpus.files import Paths, find
from maskwright.text.corpus.read import with_form
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate import recipe as recipes
from maskwright.text.curate.curation import Options, curate
from maskwright.text.curate.engine.daft_engine import DaftEngine, Runner
from maskwright.text.curate.recipe import CurationRecipe
from maskwright.text.tables.reading_options import TableReadingOptions, how_read

# The default recipe. Its order: repairs first, so that rules see the final text and personal
# details are masked before anything is recorded; then rules about single documents; then steps that
# need the whole corpus. Perplexity follows the removal of duplicates, which its model would learn
# as usual text. Settings differ from the published rules where these are for web pages only:
# shorter documents are kept (a dialogue, a news item), one stop word suffices, teasers that end in
# "..." are kept, and length is judged in any language.
DEFAULT_STEPS: dict[str, dict[str, object]] = {
    "html": {},
    "normalise": {},
    "personal": {},
    "boilerplate": {},
    "language": {"most_other": 0.25},
    "gibberish": {},
    "gopher-repetition": {},
    "gopher-quality": {
        "min_doc_words": 15,
        "min_stop_words": 1,
        "min_avg_word_length": 2.5,
        "max_ellipsis_lines_ratio": 1.0,
        "languages": [],
    },
    "exact-duplicates": {},
    "near-duplicates": {},
    "perplexity": {"spread": 3.0},
}


def read_as(settings: Sequence[str]) -> ReadingOptions:
    """Return the options for reading files; all columns are read unless the user names some.

    Raises:
        UsageError, ConfigError: an unknown option, or one of labelled files.
    """
    options = how_read(settings, TableReadingOptions(Options().reading))
    options.require_only("reading")
    return options.reading


def document_form(paths: Paths, reading: ReadingOptions, note: Note) -> ReadingOptions:
    """Return `reading` with the form of plain text files; a finding reports an inferred form.

    Raises:
        UsageError: a path that cannot be read.
    """
    settled, finding = with_form(find(paths, pages=True, broken=[])[0], reading)
    if finding is not None:
        note(finding)
    return settled


def choose(
    recipe: Path | None,
    steps: Sequence[str] | None,
    without: Sequence[str],
    settings: Sequence[str],
) -> CurationRecipe:
    """Return the recipe of a file, of a list of steps, or the default one, without the steps
    `without`, and with `settings` of the form `STEP.SETTING=VALUE`.

    Raises:
        ConfigError: unknown steps or settings, or no step remains.
    """
    if recipe is not None and steps is not None:
        raise ConfigError(
            "a recipe and a list of steps", where="--steps", do="give one of --recipe and --steps"
        )
    tables: dict[str, Any] = {}
    if recipe is not None:
        names, tables = recipes.read_plain(recipe)
    elif steps is not None:
        names = list(steps)
    else:
        names, tables = list(DEFAULT_STEPS), dict(DEFAULT_STEPS)
    for name in without:
        if name not in names:
            raise ConfigError(
                "the recipe has no such step",
                where="--without",
                found=repr(name),
                wanted=near(name, names),
            )
    names = [name for name in names if name not in without]
    if not names:
        where = "--without" if without else "--steps"
        raise ConfigError("the recipe has no steps", where=where, wanted="at least one step")
    tables = {name: table for name, table in tables.items() if name not in without}
    try:
        return recipes.make(names, recipes.with_settings(names, tables, settings))
    except ConfigError as error:
        raise (error if recipe is None else error.under(f"{recipe}, ")) from None


def tokenizer_folder(path: Path) -> Path:
    """Return the folder of a tokenizer: `path/tokenizer` if it holds one, or else `path`."""
    for folder in (path / "tokenizer", path):
        if (folder / "tokenizer.json").is_file() or (folder / "tokenizer_config.json").is_file():
            return folder
    return path


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
    reading = document_form(texts, read_as(read), note)
    options = Options(
        engine=DaftEngine(engine, address, workers),
        reading=replace(reading, on_bad="skip") if skip_unreadable else reading,
        tokenizer="" if tokenizer is None else str(tokenizer_folder(Path(tokenizer))),
        update=update,
        skip_unreadable=skip_unreadable,
        note=note,
    )
    return curate(texts, out, chosen, options)
