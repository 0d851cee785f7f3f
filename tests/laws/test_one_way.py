"""There is one way to open a model and one place that decides what is asked together (the law of
docs/architecture.md), and a command opens and hashes a folder once."""

from __future__ import annotations

import ast
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import maskwright
from finetune.test_command import table
from maskwright.base.storage import manifest
from maskwright.cli.main import main
from maskwright.learn.finetune.command import finetune_file
from maskwright.model.checkpoint import pretrained
from maskwright.model.opening import folders

SOURCE = Path(maskwright.__file__).parent
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
    found = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if opens(file.read_text(encoding="utf-8"))
    }
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


@pytest.fixture(scope="module")
def classifier(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    data = table(folder / "data.csv", "classification")
    finetune_file(model, data, folder / "out", seeds=1, epochs=1, batch=16, stream=io.StringIO())
    return folder


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


def _users() -> list[Any]:
    import importlib
    import pkgutil

    users = []
    for module in pkgutil.walk_packages([str(SOURCE)], "maskwright."):
        text = Path(module.module_finder.path, *module.name.split(".")[-1:]).with_suffix(".py")  # type: ignore[union-attr]
        if text.is_file() and "import hash_file" in text.read_text(encoding="utf-8"):
            users.append(importlib.import_module(module.name))
    return users


USERS = _users()


def once(counts: Counter[str]) -> None:
    assert counts["loaded"] == 1, counts
    assert {name: n for name, n in counts.items() if n > 1} == {}


def test_a_command_opens_and_hashes_once(
    model: Path, classifier: Path, counts: Counter[str], tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat.\n\nthe dog ran.\n" * 40)
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    (pairs / "first.jsonl").write_text(
        '{"sentence_good": "the cat sat", "sentence_bad": "cat the sat"}\n' * 3
    )
    result, data = str(classifier / "out"), str(classifier / "data.csv")
    commands: list[list[str]] = [
        ["fill-mask", str(model), "the [MASK] sat"],
        ["evaluate", str(model), "--text", str(text)],
        ["evaluate", str(folders.newest(model)), "--text", str(text)],
        ["evaluate", str(model), "--data", str(pairs), "--out", str(tmp_path / "pairs-out")],
        ["evaluate", result, "--data", data, "--part", "all"],
        ["predict", result, data, "--out", str(tmp_path / "answers.csv")],
        ["attention", str(model), "--text", str(text), "--out", str(tmp_path / "heads")],
        [
            "finetune",
            str(model),
            "--data",
            data,
            "--seeds",
            "1",
            "--epochs",
            "1",
            "--out",
            str(tmp_path / "tuned"),
        ],
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
