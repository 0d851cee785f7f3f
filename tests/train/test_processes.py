"""Two processes (gloo) and one compute the same run, to a stated tolerance."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from maskwright.base.config import to_toml
from maskwright.learn.recipes.base.recipe import Checkpoints
from tinyrun import recipe, text_file, train_quietly

TOLERANCE = 1e-5  # relative to the largest loss or weight, over 12 fp32 steps with dropout


def train_by_two(toml: Path, out: Path) -> Path:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    where = ["--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    command = [sys.executable, "-m", "torch.distributed.run", *where, "-m", "maskwright.cli.main"]
    command += ["pretrain", str(toml), "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def losses(out: Path) -> np.ndarray:
    lines = (json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines())
    return np.array([r["loss"] for r in lines if r["kind"] == "train"])


def weights(out: Path) -> dict[str, np.ndarray]:
    last = sorted((out / "checkpoints").glob("step-*"))[-1]
    return load_file(last / "model.safetensors")


@pytest.mark.loopback
def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    made = replace(recipe(text_file(tmp_path), steps=12), checkpoints=Checkpoints(every=0))
    toml = tmp_path / "recipe.toml"
    toml.write_text(to_toml(made))
    train_quietly(made, one := tmp_path / "one")
    two = train_by_two(toml, tmp_path / "two")
    first, second = losses(one), losses(two)
    assert len(first) == 12
    assert np.abs(first - second).max() <= TOLERANCE * np.abs(first).max()
    ours, theirs = weights(one), weights(two)
    for name in ours:
        largest = np.abs(ours[name]).max()
        assert np.abs(ours[name] - theirs[name]).max() <= 100 * TOLERANCE * largest, name
    # The control: another seed is far outside the tolerance.
    train_quietly(replace(made, training=replace(made.training, seed=1)), other := tmp_path / "3")
    assert np.abs(losses(other) - first).max() > 100 * TOLERANCE * np.abs(first).max()
