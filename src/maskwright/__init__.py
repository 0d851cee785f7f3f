"""Maskwright: text of your own to a language Transformer of your own.

    import maskwright

    maskwright.pretrain("bert-mini", "runs/mine", text="my-documents/")
    maskwright.finetune("runs/mine", "reviews.csv", "runs/reviews", method="lora")
    model = maskwright.load("runs/reviews")
    model.predict(["What a film!"])

The functions are those of `maskwright.api`, named as the verbs of the command line are;
`dir(maskwright)` lists them. They are imported when they are first used, because they load torch.
`maskwright.errors` has the exceptions, `maskwright.plugins` what extensions import.

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
from typing import TYPE_CHECKING, Any

from maskwright.base import privacy, threads
from maskwright.base.calls import checked
from maskwright.base.version import VERSION

if TYPE_CHECKING:
    from maskwright.api import adapt as adapt
    from maskwright.api import attention as attention
    from maskwright.api import bench as bench
    from maskwright.api import compare as compare
    from maskwright.api import connect as connect
    from maskwright.api import curate as curate
    from maskwright.api import doctor as doctor
    from maskwright.api import evaluate as evaluate
    from maskwright.api import experiment as experiment
    from maskwright.api import explore as explore
    from maskwright.api import export as export
    from maskwright.api import fill_mask as fill_mask
    from maskwright.api import finetune as finetune
    from maskwright.api import generate as generate
    from maskwright.api import import_vectors as import_vectors
    from maskwright.api import load as load
    from maskwright.api import neighbours as neighbours
    from maskwright.api import plan as plan
    from maskwright.api import predict as predict
    from maskwright.api import pretrain as pretrain
    from maskwright.api import probe as probe
    from maskwright.api import quickstart as quickstart
    from maskwright.api import resume as resume
    from maskwright.api import serve as serve
    from maskwright.api import show as show
    from maskwright.api import tokenizer as tokenizer
    from maskwright.api import tokens as tokens
    from maskwright.ask.estimator import TextClassifier as TextClassifier

privacy.turn_off_reports()
__version__ = VERSION

# Names of functions of `api`.
VERBS = (
    *("adapt", "attention", "bench", "compare", "connect", "curate", "doctor", "evaluate"),
    *("experiment", "explore", "export", "fill_mask", "finetune", "generate", "import_vectors"),
    *(
        "load",
        "neighbours",
        "plan",
        "predict",
        "pretrain",
        "probe",
        "quickstart",
        "resume",
        "serve",
    ),
    *("show", "tokenizer", "tokens"),
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
