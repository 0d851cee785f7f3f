"""The page of frozen vectors of texts."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from maskwright.analysis import pooling
from maskwright.analysis.hidden_states import ProbedModel
from maskwright.analysis.page import line, plain, write
from maskwright.labelled.formats.parts import ALL
from maskwright.metrics.intervals import Estimate
from maskwright.report import tables
from maskwright.report.curves import Chart, draw
from maskwright.report.say import Say
from maskwright.report.svg import COLOURS, escape
from maskwright.report.tables import Table


def show_pooling(subject: ProbedModel, out: Path, found: pooling.Pooled, say: Say) -> Path:
    """Say and write how well each layer and pooling tell how alike two texts are."""
    if found.cut:
        say(f"note: {found.cut}")
    rows = [
        [
            name,
            *(_number(way[layer]) for way in found.found.values()),
            _number(found.untrained[layer]),
        ]
        for layer, name in enumerate(found.layers)
    ]
    where = "" if found.part == ALL else f" on the {found.part} part"
    drawn = "" if found.pairs == found.there else f", drawn from {found.there:,}"
    table: Table = {
        "title": f"Likeness of pairs{where}: Spearman's correlation",
        "head": ["", *found.found, "untrained, mean"],
        "rows": rows,
        "note": f"{found.pairs:,} pairs{drawn}; the cosine of two frozen vectors, nothing is "
        f"trained. Counting words (TF-IDF) has {found.words:.4f}.",
    }
    say("\n" + tables.for_terminal(table))
    lines = [line(n, way, c) for (n, way), c in zip(found.found.items(), COLOURS, strict=False)]
    chart = Chart(
        title="Spearman's correlation by layer (0: embeddings)",
        across="layer",
        lines=[*lines, line("untrained, mean", found.untrained, "five")],
        references=[("TF-IDF", found.words)],
        marks=list(range(len(found.layers))),
        say=lambda value: f"{value:.2f}",
    )
    name, layer = max(
        ((n, i) for n, way in found.found.items() for i in range(len(way))),
        key=lambda at: np.nan_to_num(found.found[at[0]][at[1]].value, nan=-1.0),
    )
    told = found.found[name][layer]
    head = (
        f"<p>The best frozen vector of a text: the {escape(name)} at "
        f"{escape(found.layers[layer])}, <strong>{told.render()}</strong>. "
        "It was picked among all on these pairs, so it flatters a little.</p>"
    )
    sections = [("By layer", draw(chart)), (escape(table["title"]), tables.for_page(table))]
    return write(out, subject, "Texts as vectors", head, sections, plain(found), say)


def _number(estimate: Estimate) -> str:
    return f"{estimate.value:.4f}" if math.isfinite(estimate.value) else "–"
