"""The notebooks of `examples/`, run cell by cell in an empty folder, and what is saved in them."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
LARGEST = 400_000  # bytes of a notebook


def run(cells: list[dict[str, Any]]) -> list[Any]:
    """Run the code of cells in one namespace; returns what each shows: the value of its last line,
    as HTML where it can be."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in cells:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, cell["id"], "exec"), namespace)
            value = None
            if last is not None:
                value = eval(compile(ast.Expression(last.value), cell["id"], "eval"), namespace)
            shown.append(getattr(value, "_repr_html_", lambda value=value: value)())
    return shown


# A subprocess serves the model of the second notebook.
@pytest.mark.loopback
def test_the_notebooks_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(EXAMPLES) == 3
    shown = [run(json.loads(path.read_text())["cells"]) for path in EXAMPLES]
    assert "runs/first" in shown[0][1] and "runs/tickets" in shown[1][2]
    assert [answer["label"] for answer in shown[1][-1]] == ["billing", "account"]
    assert "<iframe" in shown[2][-1]
    with pytest.raises(NameError):
        run([{"cell_type": "code", "id": "0", "source": ["unknown"]}])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_what_is_saved_is_small_and_no_error(path: Path) -> None:
    cells = json.loads(path.read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    assert outputs and {output["output_type"] for output in outputs}.isdisjoint({"error"})
    assert path.stat().st_size < LARGEST and str(Path.home()) not in path.read_text()
