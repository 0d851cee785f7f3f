"""Runs and results below a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from maskwright.base.terminal import harmless_lines
from maskwright.cli.options import print_columns

SUMMARY = "list runs and results with their verdicts, metrics, dates and sizes"
GROUP, ORDER = "models", 5
EXAMPLES = ("FOLDER",)
USES = ("", "experiments/")
LIGHT = True


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path("runs"),
        exists="folder",
        help="(default: runs)",
    )


def do(a: argparse.Namespace) -> None:
    from maskwright.base.report.records import records_below

    records = list(records_below(a.folder))
    rows = [(str(r.folder), r.day, f"{r.size / 1e6:,.1f} MB", r.about) for r in records]
    for row, record in zip(rows, records, strict=True):
        metrics = ", ".join(f"{name} {value}" for name, value in record.metrics.items())
        print_columns([row], widths_of=rows)
        print(harmless_lines(f"  {record.verdict or 'no verdict'}\n  {metrics or 'no metrics'}"))
    if not records:
        print(f"no runs or results in {a.folder}")
