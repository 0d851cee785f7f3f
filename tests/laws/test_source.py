"""The laws that single files keep. Each is a module here, with what it allows and its controls; a
file is read once for all of them."""

from __future__ import annotations

import pytest

from laws import (
    test_findings,
    test_no_family_names,
    test_no_objective_names,
    test_no_pickle,
    test_no_step_names,
    test_no_task_names,
)
from laws.source import SOURCE, Found, nodes

LAWS = {
    "findings": test_findings.broken,
    "families": test_no_family_names.broken,
    "objectives": test_no_objective_names.broken,
    "pickle": test_no_pickle.broken,
    "steps": test_no_step_names.broken,
    "tasks": test_no_task_names.broken,
}
PACKAGES = sorted({file.parent.relative_to(SOURCE).parts[:2] for file in SOURCE.rglob("*.py")})


def broken(place: str, code: str) -> dict[str, Found]:
    """The laws that the code of a file breaks, and where."""
    tree = nodes(code)
    return {name: found for name, law in LAWS.items() if (found := law(place, tree))}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda parts: "/".join(parts) or "top")
def test_no_file_of_a_package_breaks_a_law(package: tuple[str, ...]) -> None:
    files = sorted(SOURCE.joinpath(*package).glob("**/*.py" if len(package) == 2 else "*.py"))
    found = {}
    for file in files:
        place = file.relative_to(SOURCE).as_posix()
        found[place] = broken(place, file.read_text(encoding="utf-8"))
    assert files and not {place: laws for place, laws in found.items() if laws}


EVERY = """
say("note: cut")
if name in ("bert", "hybrid", "pair-classification", "near-duplicates"):
    import pickle
"""


@pytest.mark.parametrize(
    ("place", "kept"),
    [
        ("model/opening/open.py", {"steps"}),
        ("text/curate/card_report.py", {"families"}),
        ("learn/tasks/pairs.py", {"families", "tasks", "steps"}),
        ("model/objectives/hybrid.py", {"objectives", "tasks", "steps"}),
    ],
)
def test_a_broken_law_is_noticed_where_it_holds(place: str, kept: set[str]) -> None:
    assert LAWS.keys() - broken(place, EVERY).keys() == kept
