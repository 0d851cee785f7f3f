"""A run of a second or two on text that it makes itself, and what must be equal of two such
runs."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.base.budget import Budget
from maskwright.base.errors import MaskwrightError
from maskwright.learn.pretrain import run
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import (
    Checkpoints,
    Corpus,
    Evaluation,
    FamilyModel,
    Recipe,
    RowChoice,
)

SENTENCE = "the cat dog sat ran on mat rug and then saw one big red hat under a tall old tree"
WORDS = SENTENCE.split()


def text_file(folder: Path, documents: int = 120) -> Path:
    """Documents of a few sentences each, separated by blank lines."""
    generator = np.random.default_rng(0)
    parts = []
    for _ in range(documents):
        sentences = [
            " ".join(generator.choice(WORDS, generator.integers(4, 9))) + "."
            for _ in range(generator.integers(2, 6))
        ]
        parts.append(" ".join(s.capitalize() for s in sentences))
    path = folder / "text.txt"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def recipe(text: Path, *, steps: int = 24, dropout: float = 0.1, microbatches: int = 2) -> Recipe:
    """Two layers of width 16, dropout, dynamic masks and accumulation on."""
    base = find("tiny")
    assert isinstance(base.model, FamilyModel)
    return replace(
        base,
        name="test",
        corpus=Corpus(text=(str(text),), held_out=0.1),
        tokenizer=replace(base.tokenizer, vocabulary=120),
        model=replace(
            base.model,
            settings={
                **base.model.settings,
                "hidden_size": 16,
                "intermediate_size": 32,
                "max_position_embeddings": 32,
                "hidden_dropout_prob": dropout,
                "attention_probs_dropout_prob": dropout,
            },
        ),
        rows=RowChoice(length=16),
        training=replace(
            base.training,
            budget=Budget(steps=steps),
            batch=8,
            microbatches=microbatches,
            precision="float32",
            device="cpu",
            threads=1,
        ),
        evaluation=Evaluation(every=8, rows=16, batch=16),
        checkpoints=Checkpoints(every=4, keep=2),
    )


def train_quietly(chosen: Recipe, out: Path, **options: Any) -> Path:
    """Train silently; returns the last checkpoint."""
    return run.pretrain(chosen, out, stream=io.StringIO(), **options)


def resume_quietly(out: Path, **options: Any) -> Path:
    return run.resume(out, stream=io.StringIO(), **options)


def essence(out: Path) -> dict[str, str]:
    """Hashes of what an interrupted run must have in common with an uninterrupted one."""
    last = sorted((out / "checkpoints").glob("step-*"))[-1]
    files = {
        "step": last,
        "weights": last / "model.safetensors",
        "moments": last / "training" / "optimizer.safetensors",
        "log": out / "metrics.jsonl",
    }
    return {
        name: path.name if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        for name, path in files.items()
    }


def forked(work: Callable[[], object], log: Path) -> int:
    """Start `work` in a child of this process, which has torch imported already; returns its
    pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        work()
        code = 0
    except MaskwrightError as error:
        os.write(2, (error.render() + "\n").encode())
        code = error.exit_code
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def wait(pid: int, seconds: float = 120.0) -> int:
    """The exit code of a child, or minus the signal that ended it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise TimeoutError(f"the child did not end within {seconds} seconds")
