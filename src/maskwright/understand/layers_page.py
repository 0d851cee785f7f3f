"""The page of what each layer knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from maskwright.report import tables
from maskwright.report.curves import Chart, draw
from maskwright.report.grid import grid
from maskwright.report.say import Say
from maskwright.report.svg import escape
from maskwright.report.tables import Table
from maskwright.understand import layers
from maskwright.understand.page import line, plain, write
from maskwright.understand.states import Subject


def show_layers(subject: Subject, out: Path, found: layers.Layered, say: Say) -> Path:
    """Say and write accuracy, control, selectivity and the learned mix by layer."""
    if found.cut:
        say(f"note: {found.cut}")
    best = int(np.argmax([each.value for each in found.accuracy]))
    table: Table = {
        "title": f"{found.task} on the {found.part} part, read off each layer",
        "head": ["", "accuracy", "control", "selectivity", "untrained", "in the mix"],
        "rows": [
            [
                name,
                one.render(),
                f"{two.value:.4f}",
                f"{gap:.4f}",
                f"{three.value:.4f}",
                f"{weight:.3f}",
            ]
            for name, one, two, gap, three, weight in zip(
                found.layers,
                found.accuracy,
                found.control,
                found.selectivity,
                found.untrained,
                found.weights,
                strict=True,
            )
        ]
        + [["learned mix", found.mixed.render(), "", "", "", ""]]
        + [[name, f"{value:.4f}", "", "", "", ""] for name, value in found.baselines.items()],
        "note": f"Logistic regression on frozen states, learned from {found.learned:,} and asked "
        f"{found.asked:,}; 95 % intervals. Control: a class drawn for each "
        f"{'word' if found.task == 'tagging' else 'first word of a text'}. Selectivity: "
        "accuracy minus control. Untrained: a model of this shape with weights as drawn.",
    }
    say("\n" + tables.for_terminal(table))
    xs = list(range(len(found.layers)))
    chart = Chart(
        title=f"Accuracy of {found.task} by layer (0: embeddings)",
        lines=[
            line("the task", found.accuracy, "one"),
            line("untrained", found.untrained, "two"),
            line("control", found.control, "three"),
        ],
        references=list(found.baselines.items()),
        across="layer",
        marks=xs,
        say=lambda value: f"{value:.2f}",
    )
    weights = grid(
        "Weight of each layer in the mix",
        [found.weights],
        [""],
        [str(x) for x in xs],
        high=max(found.weights),
    )
    weights = f'<div class="grid">{weights}</div><p>The centre of gravity is layer '
    weights += f"{found.gravity:.1f}; on the mix, {found.mixed.value:.1%} are right.</p>"
    most = found.accuracy[best]
    gain = most.value - found.untrained[best].value
    head = (
        f"<p>{escape(found.layers[best]).capitalize()} knows most: "
        f"<strong>{most.value:.1%}</strong> ({most.low:.1%} to {most.high:.1%} by the number of "
        f"those asked), {gain:+.1%} beside a model that learned nothing, "
        f"{found.selectivity[best]:+.1%} beside its control.</p>"
    )
    values = {**plain(found), "selectivity": found.selectivity, "gravity": found.gravity}
    sections = [
        ("By layer", draw(chart)),
        ("The mix", weights),
        (escape(table["title"]), tables.for_page(table)),
    ]
    return write(out, subject, "What layers know", head, sections, values, say)
