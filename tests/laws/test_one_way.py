"""There is one way to open a model and one place that decides what is asked together (the law of
docs/architecture.md), and a command opens and hashes a folder once."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from finetune.test_command import table
from laws.source import codes
from maskwright.base.storage import manifest
from maskwright.cli.main import main
from maskwright.model.checkpoint import pretrained
from maskwright.model.opening import folders

# Who may read the weights of a model folder: the room of models. The functions of `api` hand the
# reading and writing of plain folders to programs.
OPENERS = ("model/opening/", "model/checkpoint/", "api.py")


def opens(code: str) -> bool:
    """Whether Python code calls or takes `pretrained.load`."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Attribute(value=ast.Name(id="pretrained"), attr="load"):
                return True
            case ast.ImportFrom(module="maskwright.model.checkpoint.pretrained", names=names):
                if any(name.name == "load" for name in names):
                    return True
    return False


def test_models_are_opened_in_one_room() -> None:
    found = {path for path, code in codes().items() if "pretrained" in code and opens(code)}
    others = {name for name in found if not name.startswith(OPENERS)}
    assert not others and "model/opening/open.py" in found


@pytest.mark.parametrize(
    "code",
    [
        "from maskwright.model.checkpoint import pretrained\npretrained.load('a')",
        "from maskwright.model.checkpoint.pretrained import load",
    ],
)
def test_another_opener_would_be_noticed(code: str) -> None:
    assert opens(code)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a model was loaded, and how often each file of weights was hashed."""
    found: Counter[str] = Counter()
    load, hash_file = pretrained.load, manifest.hash_file

    def loaded(*arguments: Any, **options: Any) -> Any:
        found["loaded"] += 1
        return load(*arguments, **options)

    def hashed(path: Path) -> str:
        if path.suffix == ".safetensors":
            found[f"hashed {path.resolve()}"] += 1
        return hash_file(path)

    monkeypatch.setattr(pretrained, "load", loaded)
    for module in (manifest, *USERS):
        monkeypatch.setattr(module, "hash_file", hashed)
    return found


USERS = [
    importlib.import_module(f"maskwright.{path.removesuffix('.py').replace('/', '.')}")
    for path, code in codes().items()
    if "import hash_file" in code
]


def once(counts: Counter[str]) -> None:
    assert counts["loaded"] == 1, counts
    assert {name: n for name, n in counts.items() if n > 1} == {}


def test_a_command_opens_and_hashes_once(
    model: Path, small_task: Callable[..., Path], counts: Counter[str], tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat.\n\nthe dog ran.\n" * 40)
    (pairs := tmp_path / "pairs").mkdir()
    pair = '{"sentence_good": "the cat sat", "sentence_bad": "cat the sat"}\n'
    (pairs / "first.jsonl").write_text(pair * 3)
    result = str(small_task("classification"))
    data = str(table(tmp_path / "data.csv", "classification", 60))
    training = ["--data", data, "--seeds", "1", "--folds", "0", "--epochs", "1"]
    commands: list[list[str]] = [
        ["fill-mask", str(model), "the [MASK] sat"],
        ["evaluate", str(model), "--text", str(text)],
        ["evaluate", str(folders.newest(model)), "--text", str(text)],
        ["evaluate", str(model), "--data", str(pairs), "--out", str(tmp_path / "pairs-out")],
        ["evaluate", result, "--data", data, "--part", "all"],
        ["predict", result, data, "--out", str(tmp_path / "answers.csv")],
        ["attention", str(model), "--text", str(text), "--out", str(tmp_path / "heads")],
        ["finetune", str(model), *training, "--out", str(tmp_path / "tuned")],
    ]
    for command in commands:
        counts.clear()
        assert main(command) == 0, command
        once(counts)


def test_a_second_opening_would_be_noticed(model: Path, counts: Counter[str]) -> None:
    for _ in range(2):
        assert main(["fill-mask", str(model), "the [MASK] sat"]) == 0
    with pytest.raises(AssertionError):
        once(counts)
