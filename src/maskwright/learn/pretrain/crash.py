"""The report on a step whose loss was not finite: `crash/step-N.json` in the run's folder.

step, loss, parts, gradient_norm, microbatches     as the loop computed them
gradients_not_finite, weights_not_finite           names of parameters
rows, texts                                        by microbatch: row numbers in the store; for
                                                   microbatches with such a loss, their first
                                                   tokens
before                                             the steps before, as in metrics.jsonl
"""

from __future__ import annotations

import json
from pathlib import Path

from maskwright.base.report import document
from maskwright.learn.pretrain import journal
from maskwright.learn.pretrain.rows import Microbatches
from maskwright.learn.pretrain.session import TrainingSession
from maskwright.learn.train.diverged import DivergedError

FOLDER = "crash"
BEFORE, SHOWN_ROWS, SHOWN_TOKENS = 20, 8, 64


def write(session: TrainingSession, batches: Microbatches, error: DivergedError) -> Path:
    """Write the file; returns it.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    rows_of = {number: batches.rows(number) for number in range(batches.plan.microbatches)}
    faulty = [int(n) for n, loss in error.report["microbatches"].items() if isinstance(loss, str)]
    decode = session.prepared.tokenizer.decode
    texts = {
        number: [
            decode(row[~special][:SHOWN_TOKENS].tolist())
            for row, special in zip(rows.tokens[:SHOWN_ROWS], rows.special, strict=False)
        ]
        for number, (rows, _) in rows_of.items()
        if number in faulty
    }
    trained = [line for line in journal.read(session.out) if line["kind"] != "sample"]
    report = {
        **error.report,
        "rows": {number: rows.ids.tolist() for number, (rows, _) in rows_of.items()},
        "texts": texts,
        "before": [line for line in trained if line["step"] < error.report["step"]][-BEFORE:],
    }
    path = session.out / FOLDER / f"step-{error.report['step']}.json"
    path.parent.mkdir(exist_ok=True)
    return document.write(path, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
