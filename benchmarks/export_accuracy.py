"""What 8 bits cost on the test part of a task: the two graphs of an export, on the same rows.

maskwright export MODEL --to onnx --int8 --data DATA --out GRAPHS
python -m benchmarks.export_accuracy MODEL GRAPHS DATA
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from maskwright.ask.evaluate.labelled_rows import rows_for
from maskwright.base.terminal import quiet
from maskwright.model.graph.session import Session
from maskwright.model.opening.open import open_merged
from maskwright.ship.export.folder import graphs, predictor_of
from maskwright.ship.export.int8 import EvaluationRows


def main(model: str, exported: str, data: str) -> None:
    loaded = open_merged(model)
    answers = predictor_of(loaded)
    assert answers is not None
    (graph,) = graphs(loaded, answers)
    part, rows, task_type, *_ = rows_for(answers, data, say=quiet)
    evaluation = EvaluationRows(
        task_type, task_type.encode(rows, answers.frame), answers.collation, part
    )
    ours = answers.task_type.metrics(
        rows, task_type.answers(evaluation.encoded, answers.reader(task_type)(evaluation.encoded))
    ).values
    print(
        f"{part}, {len(rows)} rows, {task_type.measure}: the engine {ours[task_type.measure]:.4f}"
    )
    about = json.loads((Path(exported) / "export.json").read_text())
    first = Path(exported) / about["graphs"][0]["file"]
    reference = None
    for file in sorted(first.parent.glob("*.onnx"), key=lambda each: each != first):
        figure, found = evaluation.evaluate(graph, Session(file).run)
        reference = found if reference is None else reference
        difference = float(np.abs(found - reference).mean())
        size = file.stat().st_size / 1e6
        print(f"{file.name}: {figure:.4f}, {size:.1f} MB, mean difference {difference:.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
