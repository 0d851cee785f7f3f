"""The table in docs/parity.md is whole, and says so when something is not as it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the extra `hf` is not installed")

from checkpoint.small import THEIRS
from conformance.test_families import FAMILIES
from parity import table
from parity.table import Row

pytestmark = pytest.mark.interop


def test_the_page_has_every_family_with_its_classes_and_sizes() -> None:
    page = (table.ROOT / "docs" / "parity.md").read_text(encoding="utf-8")
    for name in THEIRS:
        member = FAMILIES[name]
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        assert len(cells) == len(table.HEAD) + 1 and "**" not in line
        assert cells[1] == str(len(member.architectures))
        assert cells[2] == f"{len(member.sizes)} of {len(member.sizes)}"
    assert ": all good." in page


def test_a_family_is_measured(tmp_path: Path) -> None:
    made = table.row("gpt2", {"gpt2": 2e-7}, tmp_path)
    assert made.good and made.cells[-1] == "2.0e-07" and len(made.cells) == len(table.HEAD) + 1


def test_what_fails_is_seen(capsys: pytest.CaptureFixture[str]) -> None:
    def fails_at_two(case: int) -> None:
        assert case != 2, "two"

    some, far, none = Row(), Row(), Row()
    some.passed(fails_at_two, [(1,), (2,), (3,)])
    far.apart([1e-7, 2e-5])
    none.apart([])
    assert some.cells == ["2 of 3"] and far.cells == ["**2.0e-05**"]
    assert not (some.good or far.good or none.good)
    assert "two" in capsys.readouterr().err
    assert "CPU: **" in table.page([Row(), far], {})
