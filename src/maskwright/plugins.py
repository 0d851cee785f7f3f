"""What extensions import: families, objectives, adapters, task types, steps, dialects, targets.

`docs/extending.md` shows a member of each open set. Names are imported when they are first used,
so that a member's settings do not load torch. Names of this module are stable; where they are
defined may change.
"""

from __future__ import annotations

import importlib
from typing import Any

# Module -> the names that it defines; `name:public_name` where the public name differs.
_DEFINED_IN = {
    "base.config": "require",
    "base.errors": "CheckpointError ConfigError DataError IncompatibleError Note UsageError",
    "base.metrics.intervals": "Estimate",
    "base.randomness": "key:random_key",
    "base.storage.commit": "Staging commit",
    "text.curate.step": "CurationBatch Outcome RuleMeasure:Measure Step",
    "text.store.rows": "Rows",
    "text.tables.cell_values": "text_in",
    "text.tables.rows": "BETWEEN Example Row",
    "text.tables.labels": "LabelVocabulary",
    "text.tables.layout": "Columns Layout Shape Task",
    "text.tables.columns": "ColumnSearch",
    "model.adapters.base.adapter": "AdapterModule projections",
    "model.adapters.base.settings": "Settings:AdapterSettings",
    "model.batch": "Batch",
    "model.families.base.family": "Architecture Coordinate Fields",
    "model.families.base.weights": "Rename Rule Tie linear norm",
    "model.inference.encoded": "EncodedExamples:Examples",
    "model.nn.config": "Attention Block Embeddings FeedForward Norm Sinusoidal Stack Tokens"
    " TransformerConfig VocabularyHead layers",
    "model.nn.kernels.vocabulary_loss": "vocabulary_loss",
    "model.nn.transformer": "Transformer",
    "model.objectives.base.corruption": "choose_tokens",
    "model.objectives.base.objective": "Loss Objective Part Vocabulary encode_targets facts",
    "model.objectives.base.spec": "Spec",
    "model.opening.folders": "Model",
    "learn.recipes.base.find": "find:find_recipe",
    "learn.recipes.base.recipe": "Recipe",
    "learn.train.records": "on_record",
    "learn.tasks.base.encode": "Frame encode",
    "learn.tasks.base.task_type": "Answers Encoded Scores TaskMetrics TaskType metrics_of_means"
    " text",
    "ship.export.target": "Report:TargetReport",
    "ship.serve.dialects.base.messages": "Body Many:ManyTexts embeddings_of headers_of"
    " resolve:find_model",
    "ship.serve.errors": "Refusal",
    "ship.serve.host": "Host",
}
_DEFINITIONS = {
    public or name: (module, name)
    for module, names in _DEFINED_IN.items()
    for name, _, public in (entry.partition(":") for entry in names.split())
}
__all__ = sorted(_DEFINITIONS)


def __getattr__(name: str) -> Any:
    if name not in _DEFINITIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, defined_name = _DEFINITIONS[name]
    value = getattr(importlib.import_module(f"maskwright.{module}"), defined_name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
