"""A model as files that the browser loads (browser/model.js).

model.json          config, conventions, special ids, task
tokenizer.json      the tokenizer
model.safetensors   weights with the names of `nn.Transformer`, in float32 or bfloat16
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import torch
from safetensors.torch import save

from maskwright.ask.predict.predictor import of_vectors, predictor
from maskwright.base.errors import MaskwrightError
from maskwright.base.randomness import purpose_key
from maskwright.model.inference.growing_rows import trained_length
from maskwright.model.opening import special_tokens
from maskwright.model.opening.model import Model

# The key for the name of a dataclass in the config.
TAGGED = "type"


def facts(model: Model) -> dict[str, Any]:
    """Return the contents of model.json: all that a page needs besides weights and tokenizer."""
    tokenizer = model.tokenizer
    vocabulary = special_tokens.vocabulary(tokenizer)
    unused_ids = range(tokenizer.vocabulary_size, model.config.tokens.vocabulary)
    end = vocabulary.end
    decoder_trained = model.num_stacks == 2 and model.conventions.decoder_trained
    return {
        "config": tagged(model.config),
        "conventions": {
            name: value
            for name, value in dataclasses.asdict(model.conventions).items()
            if name != "measure"
        },
        "objective": None
        if model.conventions.measure is None
        else model.conventions.measure.objective,
        "model_type": model.model_type,
        "fingerprint": model.fingerprint,
        "kind": tokenizer.kind,
        "alphabet": None if tokenizer.alphabet is None else sorted(tokenizer.alphabet),
        "labels": list(model.about.labels),
        "mask": tokenizer.mask,
        "sentinels": list(tokenizer.sentinels),
        "begin": tokenizer.begin,
        "end": end,
        "opening": special_tokens.opening(tokenizer),
        "special": sorted(tokenizer.special_ids),
        "never": sorted({*tokenizer.special_ids, *unused_ids} - {end}),
        "decoder_start": model.decoder_start if decoder_trained else None,
        "filled_by_decoder": decoder_trained and tokenizer.mask is not None,
        "longest": model.config.longest,
        "trained_length": trained_length(model.config),
        "task": _task(model),
        "purposes": {"sample": str(purpose_key("sample"))},
    }


def _task(model: Model) -> dict[str, Any]:
    """Describe the task of the model, or the mean pooling of its states if it has no task."""
    is_trained = True
    try:
        task_predictor = predictor(model)
    except MaskwrightError:
        is_trained, task_predictor = False, of_vectors(model, "mean")
    task, record = task_predictor.task_type, model.task
    targets = () if record is None else next(iter(record.targets.values()), ())
    return {
        "trained": is_trained,
        "kind": None if record is None else record.kind,
        "target": targets[0] if len(targets) == 1 else None,
        "head": task.head,
        "writes": task.writes,
        "problem": task.problem,
        "labels": list(task.labels),
        "roles": list(task.roles),
        "length": task_predictor.frame.length,
        "long": task_predictor.frame.long,
        "last": task_predictor.collation.last,
        "decoder_start": task_predictor.collation.decoder_start,
        "told": task.decoding,
    }


def tagged(value: Any) -> Any:
    """Convert a config to JSON values; dataclasses become objects with the name of their type."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: tagged(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {TAGGED: type(value).__name__, **fields}
    if isinstance(value, tuple | list):
        return [tagged(element) for element in value]
    return value


def files(model: Model, dtype: torch.dtype = torch.float32) -> dict[str, bytes]:
    """Return the contents of the three files of a model without an adapter, by name.

    Args:
        dtype: the dtype of the weights, float32 or bfloat16.

    Raises:
        IncompatibleError: the model has no tokenizer.
    """
    weights = {
        name: parameter.detach().to("cpu", dtype).contiguous()
        for name, parameter in model.network.named_parameters()
    }
    return {
        "model.json": _json(facts(model)),
        "tokenizer.json": _json(model.tokenizer.plain),
        "model.safetensors": save(weights),
    }


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
