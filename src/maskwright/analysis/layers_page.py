"""The page of what each layer knows."""

from __future__ import annotations

from pathlib import Path

from maskwright.analysis import layers
from maskwright.analysis.hidden_states import ProbedModel
from maskwright.analysis.page import line, plain, write
from maskwright.report import tables
from maskwright.report.curves import Chart, draw
from maskwright.report.grid import grid
from maskwright.report.say import Say
from maskwright.report.svg import escape
from maskwright.report.tables import Table
from maskwright.report.wording import figure


def show_layers(subject: ProbedModel, out: Path, found: layers.Layered, say: Say) -> Path:
    """Say and write accuracy, control, selectivity and the learned mix by layer."""
    if found.cut:
        say(f"note: {found.cut}")
    table = _table(found)
    say("\n" + tables.for_terminal(table))
    xs = list(range(len(found.layers)))
    chart = Chart(
        title=f"Accuracy of {found.task} by layer (0: embeddings)",
        lines=[
            line("the task", found.accuracy, "one"),
            line("untrained", found.untrained, "two"),
            *([] if found.no_control else [line("control", found.control, "three")]),
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
    selectivity = [None if found.no_control else gap for gap in found.selectivity]
    values = {**plain(found), "selectivity": selectivity, "gravity": found.gravity}
    sections = [
        ("By layer", draw(chart)),
        ("The mix", weights),
        (escape(table["title"]), tables.for_page(table)),
    ]
    return write(out, subject, "What layers know", _head(found), sections, values, say)


def _table(found: layers.Layered) -> Table:
    return {
        "title": f"{found.task} on the {found.part} part, read off each layer",
        "head": ["", "accuracy", "control", "selectivity", "untrained", "in the mix"],
        "rows": [
            [
                name,
                one.render(),
                figure(two.value, 4),
                figure(gap, 4),
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
        f"{'word' if found.task == 'tagging' else 'first word of a text'}"
        + (f"; it says nothing here, as {found.no_control}" if found.no_control else "")
        + ". Selectivity: accuracy minus control. Untrained: a model of this shape with weights "
        "as drawn.",
    }


def _head(found: layers.Layered) -> str:
    """Which layer knows most, if one does, and beside what."""
    best, tied = found.best, found.tied
    most, name = found.accuracy[best], escape(found.layers[best])
    right = (
        f"<strong>{most.value:.1%}</strong> ({most.low:.1%} to {most.high:.1%} by the number of "
        "those asked)"
    )
    beside = f"{most.value - found.untrained[best].value:+.1%} beside a model that learned nothing"
    if found.no_control:
        beside += f"; there is no control, as {escape(found.no_control)}"
    else:
        beside += f", {found.selectivity[best]:+.1%} beside its control"
    if 1 < len(tied) == len(found.layers):
        lowest = min(each.value for each in found.accuracy)
        all_have = f"{lowest:.1%} at the lowest, in {'the ' if best == 0 else ''}{name}"
        all_have = "all have" if lowest == most.value else all_have
        return f"<p>No layer knows more than another: {all_have} {right}, {beside}.</p>"
    knows = f"{name.capitalize()} {'know' if best == 0 else 'knows'} most: {right}, {beside}."
    others = ", ".join(escape(found.layers[n]) for n in tied if n != best)
    return f"<p>{knows}{f' As good by that number: {others}.' if others else ''}</p>"
