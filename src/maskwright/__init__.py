"""Maskwright: text of your own to a language Transformer of your own.

    import maskwright

    maskwright.pretrain("bert-mini", "runs/mine", text="my-documents/")
    maskwright.finetune("runs/mine", "reviews.csv", "runs/reviews", method="lora")
    model = maskwright.load("runs/reviews")
    model.predict(["What a film!"])

The verbs are those of the command line and lie in `maskwright.api`; `dir(maskwright)` names them.
They are imported when they are first called, because they bring torch with them. Some rooms of the
package are called as a verb is: `maskwright.pretrain` is the room and can be called, too.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from maskwright.base import privacy
from maskwright.base.version import VERSION

if TYPE_CHECKING:
    from maskwright.api import adapt as adapt
    from maskwright.api import attention as attention
    from maskwright.api import bench as bench
    from maskwright.api import compare as compare
    from maskwright.api import connect as connect
    from maskwright.api import curate_files as curate  # noqa: F401
    from maskwright.api import evaluate as evaluate
    from maskwright.api import explore as explore
    from maskwright.api import export_model as export  # noqa: F401
    from maskwright.api import fill_mask as fill_mask
    from maskwright.api import finetune_file as finetune  # noqa: F401
    from maskwright.api import generate_text as generate  # noqa: F401
    from maskwright.api import load as load
    from maskwright.api import predict as predict
    from maskwright.api import pretrain as pretrain
    from maskwright.api import probe as probe
    from maskwright.api import quickstart as quickstart
    from maskwright.api import resume as resume
    from maskwright.api import serve as serve
    from maskwright.api import show as show
    from maskwright.api import train_and_report as tokenizer  # noqa: F401

privacy.turn_off_reports()
__version__ = VERSION

# Verb -> its function in `api`.
VERBS = {
    "adapt": "adapt",
    "attention": "attention",
    "bench": "bench",
    "compare": "compare",
    "connect": "connect",
    "curate": "curate_files",
    "evaluate": "evaluate",
    "explore": "explore",
    "export": "export_model",
    "fill_mask": "fill_mask",
    "finetune": "finetune_file",
    "generate": "generate_text",
    "load": "load",
    "predict": "predict",
    "pretrain": "pretrain",
    "probe": "probe",
    "quickstart": "quickstart",
    "resume": "resume",
    "serve": "serve",
    "show": "show",
    "tokenizer": "train_and_report",
}
ROOMS = (
    "bench",
    "curate",
    "evaluate",
    "explore",
    "export",
    "finetune",
    "predict",
    "pretrain",
    "quickstart",
    "serve",
    "tokenizer",
)
MODULES = ("api", "errors")


class _Room(ModuleType):
    """A package of this one that has the name of a verb: calling it calls the verb."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        return _function(self.__name__.rpartition(".")[2])(*given, **named)

    @property
    def __signature__(self) -> Any:
        """Of the verb, for `help`, completion and notebooks."""
        import inspect

        return inspect.signature(_function(self.__name__.rpartition(".")[2]))


class _Package(ModuleType):
    """This package. Whoever imports a room that is named as a verb is, makes it callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ROOMS and type(value) is ModuleType:
            value.__class__ = _Room
        super().__setattr__(name, value)


def _function(verb: str) -> Any:
    return getattr(importlib.import_module("maskwright.api"), VERBS[verb])


def __getattr__(name: str) -> Any:
    if name in (*ROOMS, *MODULES):
        return importlib.import_module(f"maskwright.{name}")
    if name in VERBS:
        return _function(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*VERBS, *MODULES, "__version__"])


sys.modules[__name__].__class__ = _Package
