"""What a probe shows: tables for the screen, `results.json`, and a page for each thing that is
probed. All pages of this room are written here."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.ask.analysis import layers, pooling, word_senses
from maskwright.ask.analysis.hidden_states import ProbedModel
from maskwright.base.errors import UsageError
from maskwright.base.findings import Finding
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.report import document, tables
from maskwright.base.report.drawing.curves import Chart, Line, draw
from maskwright.base.report.drawing.shades import grid, scatter
from maskwright.base.report.drawing.svg import COLOURS
from maskwright.base.report.say import Say
from maskwright.base.report.tables import Table
from maskwright.base.report.wording import figure
from maskwright.model.opening import folders
from maskwright.text.tables.split_files import ALL

PAGE = "report.html"
BY_LAYER = partial(Chart, across="layer", say="{:.2f}".format)


def require_new(out: Path) -> None:
    """Refuse to write over the figures or the page of something else in `out`.

    Raises:
        UsageError: naming the file.
    """
    document.require_new(out / tables.NAME, out / PAGE)


def write(
    out: Path, subject: ProbedModel, template: str, figures: dict[str, Any], say: Say, **shown: Any
) -> Path:
    """Write `figures` and the page of `template` with what is `shown` into `out`, and say where the
    page is."""
    page = document.render(template, name=folders.called(subject.path), **shown)
    document.write_new(out, {tables.NAME: json.dumps(figures, indent=2) + "\n", PAGE: page})
    say(f"report: {out / PAGE}")
    return out / PAGE


def plain(found: Any) -> dict[str, Any]:
    """What was found as JSON values; None where a figure is not defined."""

    def simple(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, Estimate):
            each = dataclasses.asdict(value)
            return {name: one if math.isfinite(one) else None for name, one in each.items()}
        if isinstance(value, Finding):
            return value.to_json()
        if isinstance(value, dict):
            return {name: simple(each) for name, each in value.items()}
        return [simple(each) for each in value] if isinstance(value, list | tuple) else value

    return {field.name: simple(getattr(found, field.name)) for field in dataclasses.fields(found)}


def _line(name: str, each: Sequence[Estimate], css: str) -> Line:
    """Figures by layer with their intervals."""
    points = [(float(x), one.value) for x, one in enumerate(each)]
    ends = [(e.low, e.high) if math.isfinite(e.low) else (e.value, e.value) for e in each]
    spread = [(x, low, high) for (x, _), (low, high) in zip(points, ends, strict=True)]
    return Line(name, points, css, dots=True, spread=spread)


# ------------------------------------------------------------------------------ labels by layer
def show_layers(subject: ProbedModel, out: Path, found: layers.Layered, say: Say) -> Path:
    """Say and write accuracy, control, selectivity and the learned mix by layer."""
    for each in found.findings:
        say(each.line())
    table = _layer_table(found)
    say("\n" + tables.for_terminal(table))
    xs = list(range(len(found.layers)))
    lines = [_line("the task", found.accuracy, "one"), _line("untrained", found.untrained, "two")]
    if not found.no_control:
        lines.append(_line("control", found.control, "three"))
    selectivity = [None if found.no_control else gap for gap in found.selectivity]
    return write(
        out,
        subject,
        "layers.html",
        {**plain(found), "selectivity": selectivity, "gravity": found.gravity},
        say,
        kind="What layers know",
        chart=draw(
            BY_LAYER(
                f"Accuracy of {found.task} by layer (0: embeddings)",
                lines,
                list(found.baselines.items()),
                marks=xs,
            )
        ),
        weights=grid(
            "Weight of each layer in the mix",
            [found.weights],
            [""],
            [str(x) for x in xs],
            across="layer",
            high=max(found.weights),
        ),
        gravity=f"{found.gravity:.1f}",
        mixed=f"{found.mixed.value:.1%}",
        table=table,
        **_best_layer(found),
    )


def _layer_table(found: layers.Layered) -> Table:
    by_layer = zip(
        found.layers,
        found.accuracy,
        found.control,
        found.selectivity,
        found.untrained,
        found.weights,
        strict=True,
    )
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
            for name, one, two, gap, three, weight in by_layer
        ]
        + [["learned mix", found.mixed.render(), "", "", "", ""]]
        + [[name, f"{value:.4f}", "", "", "", ""] for name, value in found.baselines.items()],
        "note": f"Logistic regression on frozen states, learned from {found.learned:,} and asked "
        f"{found.evaluated:,}; 95 % intervals. Control: a class drawn for each "
        f"{'first word of a text' if found.of_texts else 'word'}"
        + (f"; it says nothing here, as {found.no_control}" if found.no_control else "")
        + ". Selectivity: accuracy minus control. Untrained: a model of this shape with weights "
        "as drawn.",
    }


def _best_layer(found: layers.Layered) -> dict[str, Any]:
    """Which layer knows most, if one does, and by how much."""
    best, tied = found.best, found.tied
    most, name = found.accuracy[best], found.layers[best]
    beside = f"{most.value - found.untrained[best].value:+.1%} beside a model that learned nothing"
    if found.no_control:
        beside += f"; there is no control, as {found.no_control}"
    else:
        beside += f", {found.selectivity[best]:+.1%} beside its control"
    all_alike = ""
    if 1 < len(tied) == len(found.layers):
        lowest = min(each.value for each in found.accuracy)
        all_alike = "all have"
        if lowest != most.value:
            all_alike = f"{lowest:.1%} at the lowest, in {'the ' if best == 0 else ''}{name}"
    return {
        "most": {"value": f"{most.value:.1%}", "interval": f"{most.low:.1%} to {most.high:.1%}"},
        "best": f"{name.capitalize()} {'know' if best == 0 else 'knows'}",
        "beside": beside,
        "all_alike": all_alike,
        "tied": ", ".join(found.layers[n] for n in tied if n != best),
    }


# ------------------------------------------------------------------------------ texts as vectors
def show_pooling(subject: ProbedModel, out: Path, found: pooling.Pooled, say: Say) -> Path:
    """Say and write how well each layer and pooling tell how alike two texts are."""
    for each in found.findings:
        say(each.line())
    where = "" if found.part == ALL else f" on the {found.part} part"
    drawn = "" if found.pairs == found.there else f", drawn from {found.there:,}"
    table: Table = {
        "title": f"Likeness of pairs{where}: Spearman's correlation",
        "head": ["", *found.found, "untrained, mean"],
        "rows": [
            [
                name,
                *(figure(each[layer].value, 4) for each in found.found.values()),
                figure(found.untrained[layer].value, 4),
            ]
            for layer, name in enumerate(found.layers)
        ],
        "note": f"{found.pairs:,} pairs{drawn}; the cosine of two frozen vectors, nothing is "
        f"trained. Counting words (TF-IDF) has {found.words:.4f}.",
    }
    say("\n" + tables.for_terminal(table))
    lines = [_line(n, each, c) for (n, each), c in zip(found.found.items(), COLOURS, strict=False)]
    name, layer = max(
        ((n, i) for n, each in found.found.items() for i in range(len(each))),
        key=lambda at: np.nan_to_num(found.found[at[0]][at[1]].value, nan=-1.0),
    )
    return write(
        out,
        subject,
        "pooling.html",
        plain(found),
        say,
        kind="Texts as vectors",
        pooling=name,
        layer=found.layers[layer],
        best=found.found[name][layer].render(),
        chart=draw(
            BY_LAYER(
                "Spearman's correlation by layer (0: embeddings)",
                [*lines, _line("untrained, mean", found.untrained, "five")],
                [("TF-IDF", found.words)],
                marks=list(range(len(found.layers))),
            )
        ),
        table=table,
    )


# ------------------------------------------------------------------------------ meanings of a word
def show_senses(
    subject: ProbedModel,
    out: Path,
    word: str,
    data: Path | None,
    columns: Mapping[str, Sequence[str]] | None,
    say: Say,
) -> Path:
    """Find `word` in the texts of `data`, or of the built-in sentences; say and write how far its
    meanings lie apart by layer.

    Raises:
        UsageError: a word of which there are no texts.
    """
    texts, meanings = _texts(word, data, columns)
    room = subject.frame.length - sum(subject.tokenizer.frame_margins())
    if data is None and any(len(subject.tokenizer.encode(text)) > room for text in texts):
        what = f"the model reads {room} tokens of a text, so sentences are cut around the word"
        say(Finding("sentences-cut", what).line())
    found = word_senses.tell_senses(subject, word, texts, meanings, shorten=data is None)
    table = _sense_table(word, found)
    say("\n" + tables.for_terminal(table))
    xs = [float(x) for x in range(len(found.layers))]
    by_layer = {"trained": found.apart, "untrained": found.untrained}
    layer = found.layers[found.best]
    return write(
        out,
        subject,
        "word_senses.html",
        plain(found),
        say,
        kind="One word, two meanings",
        word=word,
        layer=layer,
        share=f"{found.neighbour[found.best].value:.0%}",
        chance=f"{found.chance:.0%}",
        points=scatter(
            f"“{word}” at {layer}: the two widest directions",
            [(float(x), float(y)) for x, y in found.picture],
            found.senses,
            found.texts,
            axes=("widest direction", "second widest"),
        ),
        chart=draw(
            BY_LAYER(
                "How far meanings are apart, by layer (0: embeddings)",
                [
                    Line(name, list(zip(xs, each, strict=True)), css, dots=True)
                    for (name, each), css in zip(by_layer.items(), COLOURS, strict=False)
                ],
                marks=xs,
            )
        ),
        table=table,
    )


def _texts(
    word: str, data: Path | None, columns: Mapping[str, Sequence[str]] | None
) -> tuple[list[str], list[str]]:
    """Texts with `word`, and what it means in each."""
    if data is not None:
        return word_senses.read_senses(data, columns)
    if word == word_senses.WORD:
        texts = [text for group in word_senses.SENTENCES.values() for text in group]
        meanings = [name for name, group in word_senses.SENTENCES.items() for _ in group]
        return texts, meanings
    raise UsageError(
        "no texts with this word",
        where="--word",
        found=word,
        do="give a csv with the columns text and label: --data FILE",
    )


def _sense_table(word: str, found: word_senses.Told) -> Table:
    return {
        "title": f"“{word}” in {len(found.senses)} texts and {len(set(found.senses))} meanings",
        "head": ["", "nearest has the same meaning", "apart", "apart, untrained"],
        "rows": [
            [name, near.render(), f"{one:+.4f}", f"{two:+.4f}"]
            for name, near, one, two in zip(
                found.layers, found.neighbour, found.apart, found.untrained, strict=True
            )
        ],
        "note": f"Apart: the mean cosine within a meaning minus that across. By chance the nearest "
        f"has the same meaning in {found.chance:.0%}. The embeddings know no context.",
    }
