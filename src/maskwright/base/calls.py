"""How functions are called from Python: other names of keywords, near names of misspelt ones, and
warnings that point at the line of the caller.

`ALIASES` are the usual other names of settings, and `RECIPE_SETTINGS` are short names for settings
of a recipe. The command line has the same ones.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from maskwright.base.errors import UsageError, near


class Keyword(NamedTuple):
    """A keyword of a function: its type as text, its default and what it means; of settings of a
    recipe also the path there."""

    annotation: str
    default: Any
    description: str
    path: str = ""


ALIASES: Mapping[str, Sequence[str]] = {
    "batch": ("batch_size",),
    "epochs": ("num_epochs",),
    "length": ("max_length",),
    "measure": ("metric",),
    "rate": ("lr", "learning_rate"),
    "steps": ("max_steps",),
    "tokens": ("max_tokens", "max_new_tokens"),
    "top": ("top_k",),
}
# Keywords whose option has another name, which is understood as well.
OPTIONS = {"columns": ("column",), "settings": ("set",), "texts": ("text",)}
RECIPE_SETTINGS: Mapping[str, Keyword] = {
    name: Keyword(f"{kind} | None", None, description, path)
    for name, path, kind, description in (
        ("rate", "training.optimizer.learning_rate", "float", "learning rate at its peak"),
        ("batch", "training.batch", "int", "rows per step"),
        ("length", "rows.length", "int", "tokens per row"),
        ("budget", "training.budget", "str", "how long: 10min, 5e6tokens, 1e15flops or 1000steps"),
        ("steps", "training.budget.steps", "int", "number of steps"),
        ("minutes", "training.budget.minutes", "float", "time in minutes"),
        ("seed", "training.seed", "int", "random seed"),
        (
            *("precision", "training.precision", "str"),
            "float32, bfloat16, float16 (on a GPU) or auto",
        ),
        ("device", "training.device", "str", "cpu, cuda, one of several as cuda:1, or auto"),
    )
}
INDENTED: Any = {"initial_indent": " " * 8, "subsequent_indent": " " * 12}
PLACEHOLDER = "        keywords:"
PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
Function = TypeVar("Function", bound=Callable[..., Any])


def takes(keywords: Mapping[str, Keyword]) -> Callable[[Function], Function]:
    """Decorator for a function whose `**keywords` are these: signature, `help` and completion have
    each of them. In the docstring they replace the line of `keywords` among the arguments, or are
    added at the end."""

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        added = {name: k for name, k in keywords.items() if name not in signature.parameters}
        parameters += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=k.default, annotation=k.annotation
            )
            for name, k in added.items()
        ]
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        lines = "\n".join(
            textwrap.fill(f"{name}: {k.description}", 100, **INDENTED) for name, k in added.items()
        )
        doc = (function.__doc__ or "").splitlines()
        if not any(line.startswith(PLACEHOLDER) for line in doc):
            doc += ["", "    Also:", PLACEHOLDER]
        function.__doc__ = "\n".join(
            lines if line.startswith(PLACEHOLDER) else line for line in doc
        )
        return function

    return decorate


def keywords_of(function: Callable[..., Any]) -> dict[str, Keyword]:
    """Return the keywords of a function, with their lines of its docstring."""
    lines = re.findall(r"^ {12}(\w+): (.*(?:\n {16}.*)*)", function.__doc__ or "", re.MULTILINE)
    described = {name: " ".join(text.split()) for name, text in lines}
    return {
        p.name: Keyword(str(p.annotation), p.default, described.get(p.name, ""))
        for p in inspect.signature(function).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    }


def checked(function: Function) -> Function:
    """Return the function with the aliases of its keywords; an unknown keyword is refused before
    the function runs.

    Raises:
        UsageError: an unknown keyword, with near names, or one value by two names.
    """
    parameters = inspect.signature(function).parameters
    called = f"maskwright.{function.__qualname__.removesuffix('.__init__')}"
    names = {
        alias: name
        for name, aliases in {**ALIASES, **OPTIONS}.items()
        if name in parameters
        for alias in aliases
        if alias not in parameters
    }

    @functools.wraps(function)
    def call(*values: Any, **keywords: Any) -> Any:
        for keyword in keywords.keys() - parameters.keys():
            name = names.get(keyword)
            if name is None or name in keywords:
                raise UsageError(
                    "no such keyword" if name is None else "one setting by two names",
                    where=called,
                    found=keyword if name is None else f"{keyword} and {name}",
                    wanted=near(keyword, [*parameters, *names]) if name is None else "one of them",
                    do=f"help({called}) lists all keywords",
                )
            keywords[name] = keywords.pop(keyword)
        return function(*values, **keywords)

    if names:
        shown = ", ".join(f"`{alias}` for `{name}`" for alias, name in names.items())
        call.__doc__ = f"{function.__doc__}\n\n    Other names: {shown}.\n"
    return call  # type: ignore[return-value]


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line outside of this package that led here."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
