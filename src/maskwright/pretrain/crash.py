"""What is left behind when a loss is no number: `crash/step-N.json` in the run's folder.

step, loss, parts, gradient_norm, microbatches     as the loop met them
gradients_not_finite, weights_not_finite           names of parameters
rows, texts                                        by microbatch: numbers in the store; of those
                                                   with an odd loss, what they begin with
before                                             the steps before, as in metrics.jsonl
"""

from __future__ import annotations

import json
from pathlib import Path

from maskwright.pretrain import journal
from maskwright.pretrain.microbatches import Microbatches
from maskwright.pretrain.session import TrainingSession
from maskwright.report import document
from maskwright.train.diverged import DivergedError

FOLDER = "crash"
BEFORE, SHOWN_ROWS, SHOWN_TOKENS = 20, 8, 64


def write(sitting: TrainingSession, batches: Microbatches, error: DivergedError) -> Path:
    """Write the file; returns it.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    drawn = {number: batches.rows(number) for number in range(batches.plan.microbatches)}
    odd = [int(n) for n, loss in error.report["microbatches"].items() if isinstance(loss, str)]
    decode = sitting.prepared.tokenizer.decode
    texts = {
        number: [
            decode(row[~special][:SHOWN_TOKENS].tolist())
            for row, special in zip(rows.tokens[:SHOWN_ROWS], rows.special, strict=False)
        ]
        for number, (rows, _) in drawn.items()
        if number in odd
    }
    trained = [line for line in journal.read(sitting.out) if line["kind"] != "sample"]
    told = {
        **error.report,
        "rows": {number: rows.ids.tolist() for number, (rows, _) in drawn.items()},
        "texts": texts,
        "before": [line for line in trained if line["step"] < error.report["step"]][-BEFORE:],
    }
    path = sitting.out / FOLDER / f"step-{error.report['step']}.json"
    path.parent.mkdir(exist_ok=True)
    return document.write(path, json.dumps(told, indent=2, ensure_ascii=False) + "\n")
