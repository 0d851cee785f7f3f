"""Resuming a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.cli.options import MICROBATCHES, add_settings, print_model

SUMMARY = "continue a run from its last checkpoint"
GROUP, ORDER = "pretraining", 3
EXAMPLES = ("RUN",)
USES = ("runs/mine", "runs/mine --set evaluation.every=100")
RECORDS_THREADS = True
LESS_MEMORY = MICROBATCHES


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, exists="run", help="the folder of the run")
    add_settings(
        parser,
        "change a setting that does not change what is computed, as evaluation.every=100 or "
        "training.threads=1; may be repeated",
    )


def do(a: argparse.Namespace) -> None:
    from maskwright.learn.recipes.base.find import override, read
    from maskwright.text.corpus.saved import RECIPE, is_run

    if a.settings and is_run(a.run):
        override(read(a.run / RECIPE), a.settings)  # refused before torch is imported
    from maskwright.api import resume

    print_model(resume(a.run, settings=a.settings).path, a.run)
