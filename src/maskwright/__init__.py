"""Maskwright: text of your own to a language Transformer of your own.

    import maskwright

    maskwright.pretrain("bert-mini", "runs/mine", text="my-documents/")
    maskwright.finetune("runs/mine", "reviews.csv", "runs/reviews", method="lora")
    model = maskwright.load("runs/reviews")
    model.predict(["What a film!"])

The functions are those of `maskwright.api`, named as the verbs of the command line are.
`__init__.pyi` has their signatures. They are imported when they are first used, because they load
torch. `TextClassifier` is an estimator of scikit-learn, `maskwright.errors` has the exceptions, and
`maskwright.plugins` what extensions import.

The packages, each of which imports only from those before it:

    base    errors, findings, settings, files, pages and pictures, statistics
    text    files to documents, tokenizers, token stores, labelled tables, curation; no torch
    model   networks, families, objectives, adapters, checkpoints, inference; no tables
    learn   the training loop, recipes, pretraining, task types, fine-tuning
    ask     prediction, evaluation, analysis, the quickstart
    ship    the server, exports, the explorers, speed measurements
"""

from __future__ import annotations

import importlib
from typing import Any

from maskwright.base import privacy, threads
from maskwright.base.calls import checked
from maskwright.base.version import VERSION

privacy.turn_off_reports()
__version__ = VERSION

# Names of functions of `api`.
VERBS = (
    *("adapt", "attention", "bench", "compare", "connect", "curate", "doctor", "evaluate"),
    *("experiment", "explore", "export", "fill_mask", "finetune", "generate", "import_vectors"),
    *("load", "neighbours", "plan", "predict", "pretrain", "probe", "quickstart", "resume"),
    *("serve", "show", "tokenizer", "tokens"),
)
MODULES = ("api", "errors", "plugins")
ESTIMATOR = "TextClassifier"  # which imports scikit-learn


def __getattr__(name: str) -> Any:
    if name in (*VERBS, ESTIMATOR, "api", "plugins"):
        threads.prepare()  # before torch is loaded
    if name in VERBS:
        function = checked(getattr(importlib.import_module("maskwright.api"), name))
        globals()[name] = function
        return function
    if name == ESTIMATOR:
        return importlib.import_module("maskwright.ask.estimator").TextClassifier
    if name in MODULES:
        return importlib.import_module(f"maskwright.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*VERBS, *MODULES, ESTIMATOR, "__version__"])
