"""The structure of the package and its tests stays within the ceilings, which only go down."""

from __future__ import annotations

import json
from pathlib import Path
from types import FunctionType

from laws.structure import CEILINGS, Package, above, loose, measured, ours
from maskwright.learn.tasks.base.task_type import TaskType

MOST_METHODS = 25  # of a task type
LIMITS: dict[str, float] = json.loads(CEILINGS.read_text())

# A package in which each measure has something to count, and the same package in order.
FAULTY = {
    "low/one.py": "from package.low import two\nfound = 1\n",
    "low/two.py": "def run():\n    from package.low import one\n    return one\n",
    "low/parts/small.py": "class Twice: ...\n",
    "low/climbs.py": "import package.high.top\nclass Twice: ...\nraise DataError(1,\n2)\n",
    "high/top.py": "from package.high import only\n",
    "high/only.py": "count = 1\n" * 9,
    "high/page.css": "b { }\n" * 5,
}
ORDERLY = {
    "low/one.py": "count = 1\n",
    "low/two.py": "class Twice: ...\n",
    "high/top.py": "from package.low import one, two\n",
}
WORDING = "def test():\n    assert 'a file is missing' in text\n"
WORDING += "    assert text.startswith('a file is missing')\n"
CLASS_OF_ERROR = "def test():\n    with raises(DataError, match='row 3'):\n        read()\n"
CLASS_OF_ERROR += "    assert words('a file is missing') == 4\n"


def written(folder: Path, files: dict[str, str]) -> Package:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Package(folder, ("low", "high"))


def test_no_measure_exceeds_its_ceiling() -> None:
    measures = ours()
    assert not above(measures, LIMITS), "less code, or a ceiling raised in a commit of its own"
    assert not loose(measures, LIMITS), "python tests/laws/structure.py --lower"


def test_faults_are_measured(tmp_path: Path) -> None:
    tests = written(tmp_path / "tests", {"test_a.py": WORDING})
    faulty = measured(written(tmp_path / "package", FAULTY), tests)
    assert faulty == {
        "assertions on wording": 2,
        "class names used twice": 1,
        "lines": 25,
        "lines of high": 15,
        "lines of low": 10,
        "lines of tests": 3,
        "lines that construct errors, %": 10,
        "modules": 6,
        "modules in catch-all folders": 1,
        "modules in import cycles": 2,
        "small modules with one importer, a sibling": 3,
        "uninformative names of high, %": 0,
        "uninformative names of low, %": 100,
        "upward imports": 1,
    }


def test_a_package_in_order_has_no_faults(tmp_path: Path) -> None:
    """The control."""
    tests = written(tmp_path / "tests", {"test_a.py": CLASS_OF_ERROR})
    orderly = measured(written(tmp_path / "package", ORDERLY), tests)
    size = {"lines", "lines of high", "lines of low", "lines of tests", "modules"}
    assert {name for name, value in orderly.items() if value} == size


def test_ceilings_are_exceeded_by_growth_and_loose_after_a_reduction() -> None:
    limits = {"lines": 1000.0, "modules": 10.0}
    assert not above(limits, limits) and not loose(limits, limits)
    assert above({"lines": 1001.0, "modules": 10.0}, limits) == ["lines"]
    assert above({**limits, "lines of new": 1.0}, limits) == ["lines of new"]
    assert loose({"lines": 980.0, "modules": 10.0}, limits) == ["lines"]
    assert loose({"lines": 1000.0}, limits) == ["modules"]


def num_methods(kind: type) -> int:
    return sum(
        isinstance(value, FunctionType | property) and not name.startswith("__")
        for name, value in vars(kind).items()
    )


def test_the_interface_of_task_types_is_small() -> None:
    assert num_methods(TaskType) <= MOST_METHODS
    names = [f"method_{n}" for n in range(MOST_METHODS)]
    wide = type("Wide", (), {**dict.fromkeys(names, num_methods), "one_more": property(len)})
    assert num_methods(wide) == MOST_METHODS + 1, "the control"
