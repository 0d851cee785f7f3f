"""Writes docs/parity.md: every family beside transformers, measured anew.

    make parity        or: PYTHONPATH=tests python -m parity.table

The tests of tests/conformance and tests/parity are the measures; each cell says in how many cases
one passed, or the largest relative difference it found. The column for the older generation is what
tests/interop/run.py (`make interop`) left in its results.json.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers

from conformance import test_families as conformance
from parity import test_transformers as parity

ROOT = Path(__file__).parents[2]
OLDER = ROOT / "tests" / "interop" / "results.json"
MEASURES = ("hidden states", "scores", "gradients")
HEAD = ["family", "classes", "config both ways", "every tensor once", "sizes, counts exact"]
HEAD += [*MEASURES, "there and back, same bits"]


@dataclass
class Row:
    """A family: its cells, and whether each is as it should be."""

    cells: list[str] = field(default_factory=list)
    good: bool = True

    def passed(self, test: Callable[..., None], cases: Iterable[tuple[Any, ...]]) -> None:
        """How many cases a test passes."""
        total = passed = 0
        for case in cases:
            total += 1
            try:
                test(*case)
                passed += 1
            except AssertionError as failure:
                print(f"{test.__name__}{case}: {failure}", file=sys.stderr)
        self.cells.append(f"{passed} of {total}")
        self.good &= passed == total > 0

    def apart(self, differences: Iterable[float]) -> None:
        """The largest difference."""
        worst = max(differences, default=float("nan"))
        within = worst < parity.TOLERANCE
        self.cells.append(f"{worst:.1e}" if within else f"**{worst:.1e}**")
        self.good &= within


def row(name: str, older: dict[str, dict[str, Any]], scratch: Path) -> Row:
    """All measures of one family."""
    member, made = conformance.FAMILIES[name], Row([f"`{name}`"])
    kinds = [case for case in conformance.KINDS if case[0] == name]
    made.cells.append(str(len(kinds)))
    sizes = [case for case in conformance.SIZES if case[0] == name]
    made.passed(conformance.test_published_config_comes_back, sizes)
    made.passed(conformance.test_every_tensor_is_named_once, kinds)
    counts = [case for case in conformance.PUBLISHED if case[0] == name]
    made.passed(conformance.test_published_parameter_counts, counts)
    found = [
        direction(name, kind, scratch / f"{direction.__name__}-{kind}")
        for direction in (parity.we_load_theirs, parity.they_load_ours)
        for _, kind in kinds
    ]
    for measure in MEASURES:
        made.apart(each[measure] for each in found)
    bits = [(name, kind, scratch / f"bits-{kind}") for _, kind in kinds]
    for _, _, folder in bits:
        folder.mkdir()
    made.passed(parity.test_there_and_back_is_the_same_bit_for_bit, bits)
    if older:
        of_family = [m for n, m in older.items() if n.split("-")[0] in member.architectures]
        made.apart(max(m["we load theirs"], m["they load ours"]) for m in of_family)
    return made


def page(rows: list[Row], older: dict[str, Any]) -> str:
    """docs/parity.md."""
    against = older.get("against", {}).get("transformers")
    head = [*HEAD, *([f"scores and states with {against}"] if against else [])]
    lines = [" | ".join(cells) for cells in (head, ["---"] * len(head), *(r.cells for r in rows))]
    table = "\n".join(f"| {line} |" for line in lines)
    verdict = "all good" if all(r.good for r in rows) else "**not all good**"
    return f"""# Parity with transformers

Written by `make parity` (`PYTHONPATH=tests python -m parity.table`), which runs the tests of
tests/conformance and tests/parity; do not edit. transformers {transformers.__version__}, torch
{torch.__version__}, float32, CPU: {verdict}.

Differences are the largest over all classes of the family, in both directions (each side loads what
the other saved), relative to the largest value of each tensor; the bound is
{parity.TOLERANCE:g}. Gradients are those of all parameters except the biases of keys, which do not
affect the softmax. Classes are `ARCHITECTURES` in the family's file, sizes are its `SIZES`; the
config of each size is read back in every class.
The last column is from `make interop`, which creates an environment of its own.

{table}
"""


def main() -> int:
    transformers.utils.logging.disable_progress_bar()
    older = json.loads(OLDER.read_text(encoding="utf-8")) if OLDER.is_file() else {}
    with tempfile.TemporaryDirectory() as scratch:
        rows = []
        for name in parity.THEIRS:
            folder = Path(scratch) / name
            folder.mkdir()
            rows.append(row(name, older.get("models", {}), folder))
            print(*rows[-1].cells, sep="  ", flush=True)
    (ROOT / "docs" / "parity.md").write_text(page(rows, older), encoding="utf-8")
    return 0 if all(r.good for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
