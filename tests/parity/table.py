"""Writes docs/parity.md: every family beside transformers, measured anew.

    make parity        or: PYTHONPATH=tests python -m parity.table
    … --figures FILE   writes the largest difference of each family there instead of the page

The tests of tests/conformance and tests/parity are the measures; each cell says in how many cases
one passed, or the largest relative difference. The last column is of an older generation: the file
of figures that tests/interop/run.py (`make interop`) has written with it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
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


def differences_of(name: str, scratch: Path) -> list[dict[str, float]]:
    """Return the differences of all classes of a family, in both directions."""
    return [
        direction(name, kind, scratch / f"{direction.__name__}-{kind}")
        for direction in (parity.we_load_theirs, parity.they_load_ours)
        for family, kind in conformance.KINDS
        if family == name
    ]


def row(name: str, older: Mapping[str, float], scratch: Path) -> Row:
    """All measures of one family."""
    member, made = conformance.FAMILIES[name], Row([f"`{name}`"])
    kinds = [case for case in conformance.KINDS if case[0] == name]
    made.cells.append(str(len(member.architectures)))
    sizes = [case for case in conformance.SIZES if case[0] == name]
    made.passed(conformance.test_published_config_comes_back, sizes)
    made.passed(conformance.test_every_tensor_is_named_once, kinds)
    counts = [case for case in conformance.PUBLISHED if case[0] == name]
    made.passed(conformance.test_published_parameter_counts, counts)
    differences = differences_of(name, scratch)
    for measure in MEASURES:
        made.apart(each[measure] for each in differences)
    bits = [(name, kind, scratch / f"bits-{kind}") for _, kind in kinds]
    for _, _, folder in bits:
        folder.mkdir()
    made.passed(parity.test_there_and_back_is_the_same_bit_for_bit, bits)
    if older:
        made.apart([older[name]])
    return made


def page(rows: list[Row], older: dict[str, Any]) -> str:
    """docs/parity.md."""
    head = [*HEAD, *([f"all three with {older['transformers']}"] if older else [])]
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
The last column is from `make interop`, which installs the older release into a temporary folder.

{table}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--figures", type=Path)
    file = parser.parse_args().figures
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    older = json.loads(OLDER.read_text(encoding="utf-8")) if OLDER.is_file() else {}
    rows, largest = [], dict[str, float]()
    for name in parity.THEIRS:
        with tempfile.TemporaryDirectory() as scratch:
            if file is None:
                rows.append(row(name, older.get("largest differences", {}), Path(scratch)))
            else:
                largest[name] = max(max(d.values()) for d in differences_of(name, Path(scratch)))
                print(f"{name}  {largest[name]:.1e}", flush=True)
    if file is None:
        (ROOT / "docs" / "parity.md").write_text(page(rows, older), encoding="utf-8")
        return 0 if all(r.good for r in rows) else 1
    figures = {"transformers": transformers.__version__, "largest differences": largest}
    file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0 if max(largest.values()) < parity.TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
