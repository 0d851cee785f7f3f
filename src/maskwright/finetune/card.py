"""The model card of a fine-tuned model: README.md with metadata, filled from the run alone.

What the run does not know, such as a licence or a language, is left out; there are no blanks to
fill in. The front matter is YAML whose values are JSON, which YAML reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from maskwright.report.tables import Table
from maskwright.tasks.parts.task_type import TaskType
from maskwright.terminal import harmless, harmless_lines

SHOWN_LABELS = 40


def card(
    *,
    kind: TaskType,
    name: str,
    base: str,
    data: Mapping[str, str],
    rows: Mapping[str, int],
    cut: Mapping[str, str],
    settings: Mapping[str, Any],
    asked: str,
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
        cut: what did not fit, by part.
        settings: of the training, by name.
        figures: of the part `asked`, by measure.
        plain: whether transformers reads the folder.
        loads: lines of code, as a person would type them.
    """
    library = "transformers" if plain else "maskwright"
    lines = [
        _front_matter(kind, name, library, base, data, asked, figures),
        *(f"# {name}", f"A model for {kind.task}, fine-tuned from `{base}`."),
    ]
    if kind.labels:
        some = ", ".join(f"`{harmless(label)}`" for label in kind.labels[:SHOWN_LABELS])
        more = len(kind.labels) - SHOWN_LABELS
        lines.append(f"Labels: {some}" + (f" and {more} more" if more > 0 else "") + ".")
    lines.append("## Evaluation\n\n" + table["title"] + "\n\n" + _markdown(table))
    lines.append(table["note"])
    parts = ", ".join(f"{part} {count:,}" for part, count in rows.items())
    lines.append(f"## Data\n\nRows: {parts}.")
    if data:
        lines.append("\n".join(f"- `{file}`, SHA-256 `{digest}`" for file, digest in data.items()))
    if odd := {part: said for part, said in cut.items() if said}:
        lines.append("\n".join(f"- {part}: {said}" for part, said in odd.items()))
    settled = "\n".join(f"- {key}: {value}" for key, value in settings.items())
    lines.append(f"## Training\n\n{settled}")
    lines.append(
        "## Limits\n\nThe figures hold for texts like those of the data above. Beside the model "
        "stand what needs no pretraining and the spread over seeds; where the intervals overlap, "
        "the figures do not tell the ways apart. It was not looked at for fairness or for misuse."
    )
    code = "\n".join(loads)
    lines.append(f"## Use\n\n```python\n{code}\n```")
    return harmless_lines("\n\n".join(lines) + "\n")


def _front_matter(
    kind: TaskType,
    name: str,
    library: str,
    base: str,
    data: Iterable[str],
    asked: str,
    figures: Mapping[str, float],
) -> str:
    known = {m: round(v, 6) for m, v in figures.items() if math.isfinite(v)}
    result = {
        "task": {"type": kind.pipeline, "name": kind.task},
        "dataset": {"name": ", ".join(data) or "the rows given", "type": "local", "split": asked},
        "metrics": [{"type": m, "name": m, "value": v} for m, v in known.items()],
    }
    front = {
        "library_name": library,
        "base_model": base,
        "pipeline_tag": kind.pipeline,
        "tags": ["maskwright", kind.task],
        "metrics": list(known),
        "model-index": [{"name": name, "results": [result]}],
    }
    head = "".join(f"{key}: {json.dumps(value)}\n" for key, value in front.items())
    return f"---\n{head}---"


def _markdown(table: Table) -> str:
    rows = [table["head"], ["---"] * len(table["head"]), *table["rows"]]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows)


def _cell(value: object) -> str:
    return harmless(str(value)).replace("|", "\\|")
