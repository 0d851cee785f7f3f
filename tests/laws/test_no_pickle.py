"""No call that runs code from data: no pickle, no torch.load, no eval, no yaml.load.

Checkpoints, token stores and settings come from strangers. They are read as safetensors, flat
arrays, JSON and TOML, which can be wrong but can not act.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import maskwright

SOURCE = Path(maskwright.__file__).parent
MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
CALLS = {
    "eval",
    "exec",
    "__import__",
    "torch.load",
    "torch.save",
    "torch.hub.load",
    "yaml.load",
    "yaml.unsafe_load",
    "os.system",
    "numpy.lib.format.read_array",
}
ARGUMENTS = {"allow_pickle": True, "trust_remote_code": True, "weights_only": False, "shell": True}


def dangers(source: str) -> Iterator[tuple[int, str]]:
    """(line, what) of each import, call or argument that lets data act."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call):
            names = [ast.unparse(node.func)]
            for argument in node.keywords:
                value = getattr(argument.value, "value", None)
                if argument.arg in ARGUMENTS and value is ARGUMENTS[argument.arg]:
                    yield node.lineno, f"{argument.arg}={value}"
        else:
            continue
        for name in names:
            if name in CALLS or name.split(".")[0] in MODULES:
                yield node.lineno, name


@pytest.mark.parametrize(
    "file", sorted(SOURCE.rglob("*.py")), ids=lambda file: "/".join(file.parts[-2:])
)
def test_nothing_read_can_act(file: Path) -> None:
    assert list(dangers(file.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "line",
    [
        "import pickle",
        "from pickle import loads",
        "from torch import load",
        "model = torch.load(path)",
        "eval(text)",
        "numpy.load(path, allow_pickle=True)",
        "yaml.load(text)",
        "subprocess.run(text, shell=True)",
        "AutoModel.from_pretrained(path, trust_remote_code=True)",
    ],
)
def test_a_danger_is_noticed(line: str) -> None:
    assert list(dangers(line))


@pytest.mark.parametrize("line", ["model.eval()", "json.load(file)", "numpy.load(path)"])
def test_harmless_calls_pass(line: str) -> None:
    assert not list(dangers(line))
