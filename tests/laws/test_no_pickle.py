"""No call that runs code from data: no pickle, no torch.load, no eval, no yaml.load.

Checkpoints, token stores and settings come from strangers. They are read as safetensors, flat
arrays, JSON and TOML, which can be wrong but can not act.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

import pytest

from laws.source import Found, nodes

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


def dangers(tree: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """(line, what) of each import, call or argument that lets data act."""
    for node in tree:
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


def broken(place: str, tree: Sequence[ast.AST]) -> Found:
    """The law of test_source."""
    return list(dangers(tree))


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
    assert broken("model/opening/open.py", nodes(line))


@pytest.mark.parametrize("line", ["model.eval()", "json.load(file)", "numpy.load(path)"])
def test_harmless_calls_pass(line: str) -> None:
    assert not broken("model/opening/open.py", nodes(line))
