"""Maskwright: text of your own to a language Transformer of your own.

    import maskwright

    model = maskwright.load("runs/reviews")  # what `maskwright finetune` wrote
    model.predict(["What a film!"])

`load` is `maskwright.predict.language_model.load`; it is imported when it is first asked for,
because it brings torch with it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from maskwright.predict.language_model import load as load

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "load":
        return importlib.import_module("maskwright.predict.language_model").load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
