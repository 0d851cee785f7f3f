"""Writes `src/maskwright/__init__.pyi`: the signatures of the package's functions with all their
keywords and aliases, for type checkers and completion in editors.

    python tests/laws/stub.py

Functions take many keywords from recipes at run time, which a type checker cannot see. The stub
comes from `inspect.signature`, so it has no list of its own; `test_verbs.py` compares both.
"""

from __future__ import annotations

import builtins
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import maskwright
from maskwright.base.calls import ALIASES, OPTIONS

STUB = Path(maskwright.__file__).with_name("__init__.pyi")
HEAD = '"""Written by tests/laws/stub.py."""\n\n'
MODULES = ("api", "errors", "plugins")


def stub() -> str:
    names: set[str] = set()
    functions = [_definition(verb, getattr(maskwright, verb), names) for verb in maskwright.VERBS]
    imports = [
        *sorted(filter(None, map(_imported, names))),
        *(f"from maskwright import {name} as {name}" for name in MODULES),
        "from maskwright.ask.estimator import TextClassifier as TextClassifier",
    ]
    return f"{HEAD}{chr(10).join(imports)}\n\n__version__: str\n\n{chr(10).join(functions)}"


def _definition(verb: str, function: Any, names: set[str]) -> str:
    signature = inspect.signature(function)
    keywords, listed = list(signature.parameters.values()), []
    for parameter in keywords:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in listed:
            listed.append("*")
        listed.append(_shown(parameter.name, parameter, names))
    for name, others in {**ALIASES, **OPTIONS}.items():
        for other in others if name in signature.parameters else ():
            if other not in signature.parameters and not _is_required(signature.parameters[name]):
                listed += [] if "*" in listed else ["*"]
                listed.append(_shown(other, signature.parameters[name], names))
    result = _text(signature.return_annotation, names)
    summary = (inspect.getdoc(function) or "").split("\n\n")[0]
    summary = textwrap.fill(" ".join(summary.split()), 84, subsequent_indent="    ")
    return f'def {verb}({", ".join(listed)}) -> {result}:\n    """{summary}"""\n'


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty


def _shown(name: str, parameter: inspect.Parameter, names: set[str]) -> str:
    default = "" if _is_required(parameter) else " = ..."
    return f"{name}: {_text(parameter.annotation, names)}{default}"


def _text(annotation: Any, names: set[str]) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    words = re.findall(r"(?<!\.)\b[A-Za-z_]\w*", re.sub(r"'[^']*'|\"[^\"]*\"", "", text))
    names |= {word for word in words if not hasattr(builtins, word)}
    return text


def _imported(name: str) -> str | None:
    """The import of the module that defines a name of an annotation."""
    if name in sys.modules:
        return f"import {name}"
    for module_name in ("collections.abc", "typing", "pathlib", "os"):
        if hasattr(sys.modules[module_name], name):
            return f"from {module_name} import {name}"
    if inspect.isclass(value := getattr(maskwright.api, name, None)):
        return f"from {value.__module__} import {value.__name__} as {name}"
    for path in sorted(STUB.parent.rglob("*.py")):
        if re.search(rf"^(class {name}\b|{name}\b.* = )", path.read_text(), re.MULTILINE):
            module = ".".join(path.relative_to(STUB.parents[1]).with_suffix("").parts)
            return f"from {module} import {name}"
    raise LookupError(f"no module defines {name}")


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "--fix", "--silent", str(STUB)], check=False)
    subprocess.run([*ruff, "format", "--quiet", str(STUB)], check=True)
