"""The import law: the contracts in pyproject.toml, and what is loaded when a room is imported.

import-linter reads the source; the second half starts a Python and looks at what came in, because
a package's `__init__` may load more than any single import line says.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import maskwright

ROOT = Path(__file__).parents[2]
SOURCE = Path(maskwright.__file__).parent
TORCHLESS_ROOMS = (
    "corpus",
    "tokenizer",
    "data",
    "families",
    "labelled",
    "metrics",
    "report",
    "storage",
)
# All but the door to everything.
ROOF = ("api", "closing")  # above all rooms
TORCHLESS_FILES = tuple(f.stem for f in sorted(SOURCE.glob("[a-z]*.py")) if f.stem not in ROOF)


def lint_imports(config: Path, *, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as c; c()",
        "--no-cache",
        "--config",
        str(config),
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_no_contract_is_broken() -> None:
    result = lint_imports(ROOT / "pyproject.toml", folder=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


def test_a_broken_contract_is_noticed(tmp_path: Path) -> None:
    """The control: a package whose ground floor imports its roof."""
    package = tmp_path / "tower"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "roof.py").write_text("")
    (package / "ground.py").write_text("def climb():\n    import tower.roof\n")
    config = tmp_path / "contracts.toml"
    config.write_text(
        '[tool.importlinter]\nroot_package = "tower"\n[[tool.importlinter.contracts]]\n'
        'name = "no import runs upwards"\ntype = "layers"\ncontainers = ["tower"]\n'
        'layers = ["roof", "ground"]\n'
    )
    result = lint_imports(config, folder=tmp_path)
    assert result.returncode == 1
    assert "tower.ground -> tower.roof" in result.stdout


def loaded_by(modules: list[str], heavy: tuple[str, ...]) -> list[str]:
    """Which of `heavy` are loaded in a fresh Python after importing `modules`."""
    return loaded_after("\n".join(f"import {module}" for module in modules), heavy)


def loaded_after(code: str, heavy: tuple[str, ...]) -> list[str]:
    """Which of `heavy` are loaded in a fresh Python that ran `code`."""
    return loaded_in_turn([code], heavy)[0]


def loaded_in_turn(codes: list[str], heavy: tuple[str, ...]) -> list[list[str]]:
    """Which of `heavy` are loaded after each of `codes`, which one fresh Python runs in turn."""
    shown = f"\nimport sys; print(*[name for name in {heavy!r} if name in sys.modules])\n"
    code = shown.join([*codes, ""])
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()]


def torchless_modules() -> list[str]:
    names = [f"maskwright.{name}" for name in TORCHLESS_FILES]
    for room in TORCHLESS_ROOMS:
        for file in sorted((SOURCE / room).rglob("*.py")):
            parts = file.relative_to(SOURCE).with_suffix("").parts
            if parts not in (("data", "batch"),):
                names.append(".".join(("maskwright", *parts)).removesuffix(".__init__"))
    return names


def test_the_text_wing_loads_no_torch() -> None:
    names = torchless_modules()
    assert len(names) > 20
    assert loaded_by(names, ("torch", "transformers")) == []


def test_the_command_line_loads_nothing_heavy() -> None:
    heavy = ("torch", "numpy", "tokenizers", "rich", "sklearn", "pyarrow", "maskwright.nn")
    assert loaded_by(["maskwright", "maskwright.cli.main"], heavy) == []


BUILT = """
import torch
from maskwright.families.parts.family import family
from maskwright.nn.initialise import build
build(family("bert").config({"architectures": ["BertForMaskedLM"], "vocab_size": 50,
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "max_position_embeddings": 16}))
"""


def test_a_model_is_built_without_compiler_and_algebra() -> None:
    """They take seconds to load, and every command builds a model."""
    heavy = ("torch._dynamo", "sympy")
    # The control: what PyTorch's own modules do.
    meta = "with torch.device('meta'): torch.nn.Embedding(4, 4)"
    built, control = loaded_in_turn([BUILT, meta], heavy)
    assert built == [] and "torch._dynamo" in control


def test_who_predicts_waits_for_no_statistics_and_no_templates() -> None:
    heavy = ("sklearn", "scipy.stats", "pandas", "transformers", "jinja2")
    predict = "import maskwright.predict.write"
    # The control: what asks for a figure, and what writes a page.
    asked = "import maskwright.metrics.metrics as m, numpy as n; m.accuracy(n.ones(2), n.ones(2))"
    asked += "\nfrom maskwright.report import document; document.render('model.html', rows=[])"
    alone, control = loaded_in_turn([predict, asked], heavy)
    assert alone == [] and {"sklearn", "jinja2"} <= set(control)


def test_a_heavy_import_is_noticed() -> None:
    assert loaded_by(["maskwright.randomness"], ("torch", "numpy")) == ["numpy"]


def attributes_and_names(source: str) -> set[str]:
    """Every name, attribute and dotted import in `source`, e.g. {"open", "torch.distributed"}."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


FILES_AND_RANKS = ("open", "torch.distributed", "pathlib", "os")


@pytest.mark.parametrize("file", sorted((SOURCE / "nn").glob("*.py")), ids=lambda file: file.stem)
def test_the_stack_opens_no_file_and_knows_no_rank(file: Path) -> None:
    names = attributes_and_names(file.read_text(encoding="utf-8"))
    assert not [n for n in names if n.startswith(tuple(f"{f}." for f in FILES_AND_RANKS))]
    assert not names.intersection(FILES_AND_RANKS)


def test_opening_a_file_is_noticed() -> None:
    names = attributes_and_names("from torch import distributed\nopen('x')\n")
    assert {"torch.distributed", "open"} <= names


def test_no_file_is_a_drawer_for_everything() -> None:
    drawers = {"utils", "util", "common", "helpers", "misc"}
    assert not [file for file in SOURCE.rglob("*") if file.stem in drawers]
