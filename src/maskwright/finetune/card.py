"""The model card of a fine-tuned model: README.md with metadata, filled from the run alone.

What the run does not know, such as a licence or a language, is left out; there are no blanks to
fill in. The front matter is YAML whose values are JSON, which YAML reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from maskwright.counted import rounded
from maskwright.findings import Finding
from maskwright.report import document
from maskwright.report.tables import Table
from maskwright.tasks.parts.task_type import TaskType

SHOWN_LABELS = 40


def card(
    *,
    task_type: TaskType,
    name: str,
    base: str,
    data: Mapping[str, str],
    rows: Mapping[str, int],
    findings: Mapping[str, Sequence[Finding]],
    settings: Mapping[str, Any],
    eval_part: str,
    figures: Mapping[str, float],
    table: Table,
    plain: bool,
    loads: Sequence[str],
) -> str:
    """The card as text.

    Args:
        base: the model that was fine-tuned.
        data: SHA-256 of each file.
        rows: how many of each part.
        findings: what did not fit, by part.
        settings: of the training, by name.
        figures: of the part `asked`, by measure.
        plain: whether transformers reads the folder.
        loads: lines of code, as a person would type them.
    """
    return document.render(
        "finetuned.md",
        front=_front_matter(task_type, name, base, plain, data, eval_part, figures),
        name=name,
        task=task_type.task,
        base=base,
        labels=task_type.labels[:SHOWN_LABELS],
        more_labels=len(task_type.labels) - SHOWN_LABELS,
        table=table,
        rows=rows,
        data=data,
        findings=[found.of(part) for part, listed in findings.items() for found in listed],
        settings=settings,
        loads=loads,
    )


def _front_matter(
    task_type: TaskType,
    name: str,
    base: str,
    plain: bool,
    data: Iterable[str],
    eval_part: str,
    figures: Mapping[str, float],
) -> dict[str, Any]:
    known = {m: rounded(v) for m, v in figures.items() if math.isfinite(v)}
    result = {
        "task": {"type": task_type.pipeline, "name": task_type.task},
        "dataset": {
            "name": ", ".join(data) or "the rows given",
            "type": "local",
            "split": eval_part,
        },
        "metrics": [{"type": m, "name": m, "value": v} for m, v in known.items()],
    }
    return {
        "library_name": "transformers" if plain else "maskwright",
        "base_model": base,
        "pipeline_tag": task_type.pipeline,
        "tags": ["maskwright", task_type.task],
        "metrics": list(known),
        "model-index": [{"name": name, "results": [result]}],
    }
