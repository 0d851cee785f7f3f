"""From raw text to a curated corpus."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal

from maskwright.base.errors import UsageError
from maskwright.cli.options import add_read, add_settings, note, resumable

SUMMARY = "clean, filter and deduplicate raw text to a corpus for pretraining"
GROUP, ORDER = "text", 2
EXAMPLES = ("FILE --out FOLDER",)
USES = ("my-documents/ --out clean/", "my-documents/ --look")
OPTION_GROUP = "curation"
READING_OPTION = "--read "


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text",
        nargs="*",
        metavar="TEXT",
        exists="text",
        help="files or folders: txt, md, html, jsonl, csv, tsv (also .gz and .zst), parquet",
    )
    parser.add_argument(
        "--out", type=Path, default=None, metavar="DIR", help="the folder to make, as clean/"
    )
    parser.add_argument(
        "--recipe", type=Path, default=None, metavar="FILE", help="a curation recipe (TOML)"
    )
    parser.add_argument(
        "--steps",
        also=(),  # no number of steps of a training
        metavar="A,B",
        help="these steps in this order in place of a recipe, as normalise,exact-duplicates",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="STEP",
        help="leave a step of the recipe out; may be repeated",
    )
    add_settings(
        parser, "change a setting of a step, as near-duplicates.threshold=0.8; may be repeated"
    )
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="where the work is done: on this machine, or on a Ray cluster (default: local)",
    )
    parser.add_argument(
        "--address", default=None, help="of the Ray cluster (default: one on this machine)"
    )
    parser.add_argument(
        "--workers", type=int, default=None, metavar="N", help="processes (default: one per core)"
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FOLDER",
        help="count the tokens of this tokenizer, model or run for the card",
    )
    parser.add_argument(
        "--look",
        action="store_true",
        help="only a first look: what is in the files, and what each step would remove",
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="only the plan: time, disk and memory, from a measured sample",
    )
    parser.add_argument(
        "--write-recipe",
        type=Path,
        metavar="FILE",
        help="write the recipe, all settings included, to a new file",
    )
    parser.add_argument(
        "--prove",
        action="store_true",
        help="then train a small model on the text before and one after, and compare their loss "
        "on held-out text; with a result that is there, only this",
    )
    parser.add_argument(
        "--budget", default=None, help="of each run of --prove (default: tokens=2e6)"
    )
    parser.add_argument(
        "--seeds", type=int, default=None, help="runs of --prove on each text (default: 3)"
    )
    parser.add_argument(
        "--held-out",
        action="extend",
        nargs="+",
        default=[],
        metavar="PATH",
        help="text that judges the models of --prove (default: documents of the text before)",
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="take new files or other settings into the result that is there",
    )
    parser.add_argument(
        "--why",
        metavar="ID",
        help="what became of this document of the corpus --out: its id, file, or file:line",
    )
    parser.add_argument(
        "--why-text",
        metavar="WORDS",
        help="what became of documents with this piece of text",
    )
    parser.add_argument(
        "--skip-unreadable",
        action="store_true",
        help="leave out rows that cannot be read, and files from a fault on, and list them",
    )
    add_read(parser)


def do(a: argparse.Namespace) -> None:
    if a.why is not None or a.why_text is not None:
        _why(a)
        return
    if not a.text and not (a.prove and a.out):
        raise UsageError("no text", where="TEXT", wanted="files or folders", do=a.command)
    only: Literal["look", "plan"] | None = "plan" if a.plan else "look" if a.look else None
    if a.out is None and only is None:
        raise UsageError("no folder for the result", where="--out", do=a.command)
    unused = [n for n in ("budget", "seeds", "held_out") if getattr(a, n) and not a.prove]
    if unused:
        raise UsageError(
            "an option of --prove without it",
            where=f"--{unused[0].replace('_', '-')}",
            do="add --prove, or leave it out",
        )
    from maskwright.text.corpus.saved import is_curated
    from maskwright.text.curate import curation
    from maskwright.text.curate.engine.daft_engine import DaftEngine
    from maskwright.text.curate.recipe import choose

    if a.prove and not a.update and (not a.text or is_curated(a.out or Path("clean"))):
        _prove(a)
        return

    curation.curate_command(
        a.text,
        a.out or Path("clean"),
        choose(a.recipe, a.steps and a.steps.split(","), a.without, a.settings),
        curation.Options(
            engine=DaftEngine(a.engine, a.address, a.workers),
            reading=curation.reading_options(a.text, a.read, a.skip_unreadable, note),
            tokenizer=curation.tokenizer_folder(a.tokenizer),
            update=a.update,
            skip_unreadable=a.skip_unreadable,
            note=note,
        ),
        propose=a.recipe is None and a.steps is None,
        fixed={setting.partition(".")[0] for setting in a.settings},
        only=only,
        write_recipe=a.write_recipe,
    )
    if a.prove and only is None:
        _prove(a)


def _prove(a: argparse.Namespace) -> None:
    from maskwright.ask.evaluate.prove_curation import prove_command

    with resumable("the same command"):
        prove_command(a.out, a.budget, a.seeds, a.held_out)


def _why(a: argparse.Namespace) -> None:
    if a.out is None:
        raise UsageError("no corpus", where="--out", wanted="the folder of a curated corpus")
    if a.text or (a.why is None) == (a.why_text is None):
        raise UsageError(
            "texts beside --why" if a.text else "--why and --why-text",
            where="curate",
            wanted="one of --why ID and --why-text WORDS, and --out alone",
        )
    from maskwright.base.terminal import harmless_lines
    from maskwright.text.curate.why import why

    for line in why(a.out, a.why or "", a.why_text or "").lines():
        print(harmless_lines(line))
