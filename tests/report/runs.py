"""Small run folders for the tests of the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]

RUN: Record = {
    "recipe": "tiny",
    "note": "two layers",
    "objective": "masked",
    "token_parts": ["masked"],
    "scored_by": "this model",
    "ask": {"verb": "fill-mask", "prompt": "It is <mask>", "prompt_of_samples": True},
    "parameters": 664_576,
    "steps": 40,
    "corpus": {"source": "embedded", "documents": 8415, "hash": "9f" * 32, "licences": None},
    "references": {
        "uniform_loss": 7.625,
        "uniform_top1": 0.000488,
        "unigram_loss": 6.12,
        "unigram_top1": 0.063,
    },
    "machine": {"device": "cpu", "threads": 2},
}


def train(step: int, loss: float, **more: Any) -> Record:
    return {
        "kind": "train",
        "step": step,
        "loss": loss,
        "parts": {"masked": loss},
        "learning_rate": 1e-3,
        "gradient_norm": 0.5,
        "tokens": step * 1000,
        "targets": 150,
    } | more


def evaluation(step: int, loss: float, **more: Any) -> Record:
    return {
        "kind": "evaluation",
        "step": step,
        "loss": loss,
        "perplexity": 60.0,
        "bits_per_byte": None,
        "top1": 0.294,
        "top5": 0.558,
    } | more


def sample(step: int, prompt: str, text: str) -> Record:
    return {"kind": "sample", "step": step, "prompt": prompt, "text": text}


def whole_run() -> list[Record]:
    """Forty steps, two evaluations, two samples of one prompt."""
    records = [train(step, 7.6 - step * 0.08) for step in range(1, 41)]
    records += [evaluation(20, 6.0), evaluation(40, 4.08)]
    records += [
        sample(20, "a [MASK] file", "a the file"),
        sample(40, "a [MASK] file", "a new file"),
    ]
    return records


def write_run(
    folder: Path,
    *,
    run: object = None,
    metrics: list[Record] | None = None,
    recipe: str = "a = 1\n",
) -> Path:
    """A run folder with everything in it; returns `folder`."""
    (folder / "checkpoints" / "step-00000040").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(RUN if run is None else run))
    lines = [json.dumps(r) for r in (whole_run() if metrics is None else metrics)]
    (folder / "metrics.jsonl").write_text("".join(line + "\n" for line in lines))
    timings = [
        {"step": s, "seconds": s / 10, "tokens_per_second": 10_000.0} for s in range(10, 41, 10)
    ]
    (folder / "timings.jsonl").write_text("".join(json.dumps(t) + "\n" for t in timings))
    (folder / "recipe.toml").write_text(recipe)
    return folder
