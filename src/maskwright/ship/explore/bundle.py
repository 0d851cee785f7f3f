"""A model as files that the browser loads (browser/model.js).

model.json          config, conventions, special ids, task
tokenizer.json      the tokenizer
model.safetensors   weights with the names of `nn.Transformer`, in float32 or bfloat16

A check shows that the browser computes the same scores from these files as Python. Node, if it is
installed, runs the modules of the browser.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from copy import deepcopy
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from maskwright.ask.predict.predictor import of_vectors, predictor
from maskwright.base.errors import CheckpointError, IncompatibleError, MaskwrightError
from maskwright.base.randomness import purpose_key
from maskwright.model.inference.growing_rows import trained_length
from maskwright.model.nn.characters import SpelledVectors
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening import special_tokens
from maskwright.model.opening.folders import Model

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
        "parameters": model.network.num_parameters(),
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


def bundle_files(model: Model, dtype: torch.dtype = torch.float32) -> dict[str, bytes]:
    """Return the contents of the three files of a model without an adapter, by name.

    Args:
        dtype: the dtype of the weights, float32 or bfloat16.

    Raises:
        IncompatibleError: the model has no tokenizer, or layers that the browser does not compute.
    """
    stacks = model.config.stacks.values()
    is_recurrent = any(len(stack.attention_blocks) < len(stack.blocks) for stack in stacks)
    if is_recurrent or isinstance(model.network.tokens, SpelledVectors):
        raise IncompatibleError(
            "the browser does not compute this model",
            where=model.path,
            found="recurrent layers" if is_recurrent else "vectors of n-grams",
            wanted="layers with attention, and a table of vectors",
            do="ask it from Python or by the command line",
        )
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


# ----------------------------------------------------------------------------- check in the browser
SECONDS = 120


def node() -> str | None:
    """Return the path of Node; None if it is not installed."""
    return shutil.which("node")


def read_again(network: Transformer, folder: Path) -> Transformer:
    """Return a copy of a network with the weights in the folder."""
    network_copy, weights = deepcopy(network), load_file(folder / "model.safetensors")
    for name, parameter in network_copy.named_parameters():
        parameter.data.copy_(weights[name])
    return network_copy


@torch.no_grad()
def reference_scores(network: Transformer, ids: Tensor) -> Tensor:
    """Return scores (T, V) for token ids (T,), or states (T, D) without a vocabulary head."""
    memory = None if network.encoder is None else network.encode(ids[None])
    if network.decoder is None:
        assert memory is not None
        states = memory
    else:
        states = network.decode(ids[None], memory=memory)
    return (states if network.vocabulary_head is None else network.logits(states))[0]


def scores_in_browser(folder: Path, rows: list[list[int]]) -> list[Tensor]:
    """Compute the scores of rows of token ids with the browser's modules; each result is flat.

    Raises:
        CheckpointError: the modules could not read the files.
    """
    program = node()
    assert program is not None
    with resources.as_file(resources.files(__package__)) as package:
        run = subprocess.run(
            [program, str(package / "check.mjs"), str(package / "browser"), str(folder)],
            input=json.dumps(rows),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    if run.returncode:
        raise CheckpointError(
            "the browser cannot read what was exported",
            where=folder,
            found=run.stderr.strip().splitlines()[-1][:200] if run.stderr.strip() else "no answer",
        )
    return [torch.tensor(row) for row in json.loads(run.stdout)]
