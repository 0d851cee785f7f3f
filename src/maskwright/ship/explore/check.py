"""That the browser computes what Python computes, of the files of a model as they were written.

Node runs the modules of the browser where it is installed; a browser runs the same ones.
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
    """Where Node is, if it is installed."""
    return shutil.which("node")


def read_again(network: Transformer, folder: Path) -> Transformer:
    """The network with the weights that lie in the folder.

    Raises:
        CheckpointError: a weight is missing or has another shape.
    """
    made = build(network.config, torch.Generator().manual_seed(0)).eval()
    tensors = files.open_file(folder / "model.safetensors")
    found = {name: tensors.read(name) for name in tensors.entries}
    for name, parameter in made.named_parameters():
        if name not in found or found[name].shape != parameter.shape:
            raise CheckpointError("a weight is missing", where=folder, found=name)
        parameter.data.copy_(found[name])
    return made


@torch.no_grad()
def scores(network: Transformer, ids: Tensor) -> Tensor:
    """(T, V) of one row of ids, or its states where there is no vocabulary."""
    memory = None if network.encoder is None else network.encode(ids[None])
    if network.decoder is None:
        assert memory is not None
        states = memory
    else:
        states = network.decode(ids[None], memory=memory)
    return (states if network.vocabulary_head is None else network.logits(states))[0]


def in_the_browser(folder: Path, rows: list[list[int]]) -> list[Tensor]:
    """The same of each row, flat, by the modules of the browser.

    Raises:
        CheckpointError: they could not read the files.
    """
    program = node()
    assert program is not None
    with resources.as_file(resources.files(__package__)) as own:
        ran = subprocess.run(
            [program, str(own / "check.mjs"), str(own / "browser"), str(folder)],
            input=json.dumps(rows),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    if ran.returncode:
        raise CheckpointError(
            "the browser cannot read what was exported",
            where=folder,
            found=ran.stderr.strip().splitlines()[-1][:200] if ran.stderr.strip() else "no answer",
        )
    return [torch.tensor(row) for row in json.loads(ran.stdout)]
