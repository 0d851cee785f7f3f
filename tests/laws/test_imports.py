"""The import law: the contracts in pyproject.toml, and what is loaded when a package is imported.

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
TORCHLESS = ("base", "text", "model/families")


def lint_imports(config: Path, *, folder: Path) -> subprocess.CompletedProcess[str]:
    code = "from importlinter.cli import lint_imports_command as c; c()"
    command = [sys.executable, "-c", code, "--no-cache", "--config", str(config)]
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


# What one fresh Python does in turn, and which of LOOKED_FOR it must not have loaded by then; a
# control must have loaded them.
LIGHT = ("torch", "numpy", "tokenizers", "rich", "sklearn", "pyarrow", "maskwright.model.nn")
TEXT_ONLY = ("torch", "transformers")
NO_COMPILER = ("torch._dynamo", "sympy")  # they take seconds to load, and every command builds
NO_FIGURES = ("sklearn", "scipy.stats", "pandas", "transformers", "jinja2")
LOOKED_FOR = sorted({*LIGHT, *TEXT_ONLY, *NO_COMPILER, *NO_FIGURES, "maskwright.api"})
IN_TURN: dict[str, tuple[str, tuple[str, ...]]] = {
    "the command line": ("import maskwright, maskwright.cli.main", LIGHT),
    "help": (
        """
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    maskwright.cli.main.main(["--help"])
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    maskwright.cli.main.main(["pretrain", "--help"])
""",
        LIGHT[:-1],
    ),
    "names of the package": (
        """
from maskwright.errors import DataError
assert maskwright.errors.DataError is DataError and "finetune" in dir(maskwright)
""",
        TEXT_ONLY,
    ),
    "what a member's settings import": (
        """
from maskwright.plugins import AdapterSettings, CurationBatch, Fields, Shape, Spec
import maskwright.plugins as p; assert p.AdapterSettings is AdapterSettings
""",
        TEXT_ONLY,
    ),
    "the control of numbers": ("import maskwright.base.randomness", ("numpy",)),
    "shapes of tasks": ("from maskwright.text.tables.shapes import shapes; shapes()", TEXT_ONLY),
    # So that a command line checks the options of any objective before it loads torch.
    "options of objectives": (
        """
from maskwright.base import catalogue
for name in catalogue.names("objectives"): catalogue.load("objectives", name).Options
""",
        TEXT_ONLY,
    ),
    "the text packages": ("", TEXT_ONLY),
    "the control of objectives": ("import maskwright.model.objectives.modules.masked", ("torch",)),
    "a model is built": (
        """
import torch
from maskwright.model.families.base.family import family
from maskwright.model.nn.initialise import build
build(family("bert").config({"architectures": ["BertForMaskedLM"], "vocab_size": 50,
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "max_position_embeddings": 16}))
""",
        NO_COMPILER,
    ),
    "predictions are written": ("import maskwright.ask.predict.file", NO_FIGURES),
    # What PyTorch's own modules do.
    "the control of the compiler": (
        "with torch.device('meta'): torch.nn.Embedding(4, 4)",
        ("torch._dynamo",),
    ),
    # What asks for a figure, and what writes a page.
    "the control of figures": (
        """
import maskwright.base.metrics.metrics as m, numpy as n; m.accuracy(n.ones(2), n.ones(2))
from maskwright.base.report import document; document.render('model.html', rows=[])
""",
        ("sklearn", "jinja2"),
    ),
    # A verb that is called.
    "the control of verbs": (
        """
assert "maskwright.api" not in sys.modules
try: maskwright.pretrain("tniy", "out")
except maskwright.errors.UsageError as error: assert "'tiny'" in error.wanted
""",
        ("torch", "maskwright.api"),
    ),
}


def torchless_modules() -> list[str]:
    names = []
    for package in TORCHLESS:
        for file in sorted((SOURCE / package).rglob("*.py")):
            parts = file.relative_to(SOURCE).with_suffix("").parts
            names.append(".".join(("maskwright", *parts)).removesuffix(".__init__"))
    return names


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """Which of LOOKED_FOR one fresh Python has loaded after each of IN_TURN."""
    torchless = torchless_modules()
    assert len(torchless) > 20
    codes = {name: code for name, (code, _) in IN_TURN.items()}
    codes["the text packages"] = "\n".join(f"import {module}" for module in torchless)
    shown = f"\nimport sys; print(*[n for n in {LOOKED_FOR!r} if n in sys.modules], flush=True)\n"
    code = shown.join([*codes.values(), ""])
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    lines = [set(line.split()) for line in result.stdout.splitlines()]
    return dict(zip(codes, lines, strict=True))


@pytest.mark.parametrize("name", IN_TURN)
def test_nothing_is_loaded_that_is_not_needed(name: str, loaded: dict[str, set[str]]) -> None:
    _, heavy = IN_TURN[name]
    assert loaded[name] & set(heavy) == (set(heavy) if "control" in name else set())


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


@pytest.mark.parametrize(
    "file", sorted((SOURCE / "model" / "nn").glob("*.py")), ids=lambda file: file.stem
)
def test_the_stack_opens_no_file_and_knows_no_rank(file: Path) -> None:
    names = attributes_and_names(file.read_text(encoding="utf-8"))
    assert not [n for n in names if n.startswith(tuple(f"{f}." for f in FILES_AND_RANKS))]
    assert not names.intersection(FILES_AND_RANKS)


def test_opening_a_file_is_noticed() -> None:
    names = attributes_and_names("from torch import distributed\nopen('x')\n")
    assert {"torch.distributed", "open"} <= names
