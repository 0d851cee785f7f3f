"""Check that the browser computes the same scores as Python from the files of a model. Node, if it
is installed, runs the modules of the browser.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from maskwright.base.errors import CheckpointError
from maskwright.model.checkpoint import files
from maskwright.model.nn.initialise import build
from maskwright.model.nn.transformer import Transformer

SECONDS = 120


def node() -> str | None:
    """Return the path of Node; None if it is not installed."""
    return shutil.which("node")


def read_again(network: Transformer, folder: Path) -> Transformer:
    """Return a network of the same config with the weights in the folder.

    Raises:
        CheckpointError: a weight is missing or has another shape.
    """
    network_copy = build(network.config, torch.Generator().manual_seed(0)).eval()
    tensors = files.open_file(folder / "model.safetensors")
    weights = {name: tensors.read(name) for name in tensors.entries}
    for name, parameter in network_copy.named_parameters():
        if name not in weights or weights[name].shape != parameter.shape:
            raise CheckpointError("a weight is missing", where=folder, found=name)
        parameter.data.copy_(weights[name])
    return network_copy


@torch.no_grad()
def scores(network: Transformer, ids: Tensor) -> Tensor:
    """Return scores (T, V) for token ids (T,), or states (T, D) without a vocabulary head."""
    memory = None if network.encoder is None else network.encode(ids[None])
    if network.decoder is None:
        assert memory is not None
        states = memory
    else:
        states = network.decode(ids[None], memory=memory)
    return (states if network.vocabulary_head is None else network.logits(states))[0]


def in_the_browser(folder: Path, rows: list[list[int]]) -> list[Tensor]:
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
