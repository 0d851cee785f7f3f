"""The reports of probes: tables for the terminal, `results.json`, and an HTML page for each kind of
probe."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.ask.analysis import layers, word_senses
from maskwright.ask.analysis.hidden_states import ProbedModel
from maskwright.base.errors import Finding, UsageError
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.metrics.paired import Verdict
from maskwright.base.report import document
from maskwright.base.report.document import Table, figure
from maskwright.base.report.drawing.curves import Chart, Line, draw
from maskwright.base.report.drawing.svg import COLOURS, grid, scatter
from maskwright.base.terminal import Say
from maskwright.model.opening import folders
from maskwright.text.tables.rows import ALL

BY_LAYER = partial(Chart, across="layer", say="{:.2f}".format)


def write(
    out: Path, subject: ProbedModel, template: str, figures: dict[str, Any], say: Say, **shown: Any
) -> Path:
    """Write `figures` as JSON, and the page rendered from `template` with the variables `shown`,
    to `out`. Returns the path of the page."""
    page = document.render(template, name=folders.called(subject.path), **shown)
    document.publish(out, document.NAME, figures, page, say)
    return out / document.PAGE


def plain(measured: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as JSON values; None for NaN in estimates."""

    def simple(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, Estimate | Finding | Verdict):
            return value.to_json()
        if isinstance(value, dict):
            return {name: simple(element) for name, element in value.items()}
        return [simple(element) for element in value] if isinstance(value, list | tuple) else value

    names = [field.name for field in dataclasses.fields(measured)]
    return {name: simple(getattr(measured, name)) for name in names}


def _line(name: str, estimates: Sequence[Estimate], css: str) -> Line:
    """Return a chart line of estimates by layer, with their intervals."""
    points = [(float(x), estimate.value) for x, estimate in enumerate(estimates)]
    spread = [
        (float(x), e.low, e.high) if math.isfinite(e.low) else (float(x), e.value, e.value)
        for x, e in enumerate(estimates)
    ]
    return Line(name, points, css, dots=True, spread=spread)


# ------------------------------------------------------------------------------ labels by layer
def show_layers(subject: ProbedModel, out: Path, probed: layers.LayerProbe, say: Say) -> Path:
    """Print and write the results of layer probes; returns the path of the page."""
    for finding in probed.findings:
        say(finding.line())
    table = _layer_table(probed)
    say(f"\n{probed.verdict.sentence}\n\n" + document.for_terminal(table))
    xs = list(range(len(probed.layers)))
    lines = [_line("the task", probed.accuracy, "one"), _line("untrained", probed.untrained, "two")]
    if not probed.no_control:
        lines.append(_line("control", probed.control, "three"))
    selectivity = [None if probed.no_control else gap for gap in probed.selectivity]
    return write(
        out,
        subject,
        "layers.html",
        {**plain(probed), "selectivity": selectivity, "gravity": probed.gravity},
        say,
        kind="What layers know",
        verdict=probed.verdict.sentence,
        chart=draw(
            BY_LAYER(
                f"Accuracy of {probed.task} by layer (0: embeddings)",
                lines,
                list(probed.baselines.items()),
                marks=xs,
            )
        ),
        weights=grid(
            "Weight of each layer in the mix",
            [probed.weights],
            [""],
            [str(x) for x in xs],
            across="layer",
            high=max(probed.weights),
        ),
        gravity=f"{probed.gravity:.1f}",
        mixed=f"{probed.mixed.value:.1%}",
        table=table,
        **_best_layer(probed),
    )


def _layer_table(probed: layers.LayerProbe) -> Table:
    by_layer = zip(
        probed.layers,
        probed.accuracy,
        probed.control,
        probed.selectivity,
        probed.untrained,
        probed.weights,
        strict=True,
    )
    return {
        "title": f"{probed.task} on the {probed.part} part, read off each layer",
        "head": ["", "accuracy", "control", "selectivity", "untrained", "in the mix"],
        "rows": [
            [
                name,
                accuracy.render(),
                figure(control.value, 4),
                figure(gap, 4),
                f"{untrained.value:.4f}",
                f"{weight:.3f}",
            ]
            for name, accuracy, control, gap, untrained, weight in by_layer
        ]
        + [["learned mix", probed.mixed.render(), "", "", "", ""]]
        + [[name, f"{value:.4f}", "", "", "", ""] for name, value in probed.baselines.items()],
        "note": f"Logistic regression on frozen states, learned from {probed.learned:,} and asked "
        f"{probed.evaluated:,}; 95 % intervals. Control: a class drawn for each "
        f"{'first word of a text' if probed.of_texts else 'word'}"
        + (f"; it says nothing here, as {probed.no_control}" if probed.no_control else "")
        + ". Selectivity: accuracy minus control. Untrained: a model of this shape with weights "
        "as drawn.",
    }


def _best_layer(probed: layers.LayerProbe) -> dict[str, Any]:
    """Return the template variables about the best layer: its accuracy, the difference from an
    untrained model and the control, and the layers whose intervals overlap."""
    best, tied = probed.best, probed.tied
    most, name = probed.accuracy[best], probed.layers[best]
    gain = f"{most.value - probed.untrained[best].value:+.1%} beside a model that learned nothing"
    if probed.no_control:
        gain += f"; there is no control, as {probed.no_control}"
    else:
        gain += f", {probed.selectivity[best]:+.1%} beside its control"
    all_alike = ""
    if 1 < len(tied) == len(probed.layers):
        lowest = min(accuracy.value for accuracy in probed.accuracy)
        all_alike = "all have"
        if lowest != most.value:
            all_alike = f"{lowest:.1%} at the lowest, in {'the ' if best == 0 else ''}{name}"
    return {
        "most": {"value": f"{most.value:.1%}", "interval": f"{most.low:.1%} to {most.high:.1%}"},
        "best": f"{name.capitalize()} {'know' if best == 0 else 'knows'}",
        "beside": gain,
        "all_alike": all_alike,
        "tied": ", ".join(probed.layers[n] for n in tied if n != best),
    }


# ------------------------------------------------------------------------------ texts as vectors
def show_pooling(
    subject: ProbedModel, out: Path, compared: layers.PoolingComparison, say: Say
) -> Path:
    """Print and write a comparison of poolings by layer; returns the path of the page."""
    for finding in compared.findings:
        say(finding.line())
    where = "" if compared.part == ALL else f" on the {compared.part} part"
    drawn = "" if compared.pairs == compared.there else f", drawn from {compared.there:,}"
    table: Table = {
        "title": f"Likeness of pairs{where}: Spearman's correlation",
        "head": ["", *compared.found, "untrained, mean"],
        "rows": [
            [
                name,
                *(figure(estimates[layer].value, 4) for estimates in compared.found.values()),
                figure(compared.untrained[layer].value, 4),
            ]
            for layer, name in enumerate(compared.layers)
        ],
        "note": f"{compared.pairs:,} pairs{drawn}; the cosine of two frozen vectors, nothing is "
        f"trained. Counting words (TF-IDF) has {compared.words:.4f}.",
    }
    say(f"\n{compared.verdict.sentence}\n\n" + document.for_terminal(table))
    pairs = zip(compared.found.items(), COLOURS, strict=False)
    lines = [_line(n, estimates, colour) for (n, estimates), colour in pairs]
    name, layer = max(
        ((n, i) for n, estimates in compared.found.items() for i in range(len(estimates))),
        key=lambda at: np.nan_to_num(compared.found[at[0]][at[1]].value, nan=-1.0),
    )
    return write(
        out,
        subject,
        "pooling.html",
        plain(compared),
        say,
        kind="Texts as vectors",
        verdict=compared.verdict.sentence,
        pooling=name,
        layer=compared.layers[layer],
        best=compared.found[name][layer].render(),
        chart=draw(
            BY_LAYER(
                "Spearman's correlation by layer (0: embeddings)",
                [*lines, _line("untrained, mean", compared.untrained, "five")],
                [("TF-IDF", compared.words)],
                marks=list(range(len(compared.layers))),
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
    """Print and write how well each layer separates the meanings of `word` in the texts of `data`
    (None: built-in sentences, else a `UsageError`). Returns the path of the page."""
    texts, meanings = _texts(word, data, columns)
    room = subject.frame.length - sum(subject.tokenizer.frame_margins())
    if data is None and any(len(subject.tokenizer.encode(text)) > room for text in texts):
        message = f"the model reads {room} tokens of a text, so sentences are cut around the word"
        say(Finding("sentences-cut", message).line())
    senses = word_senses.tell_senses(subject, word, texts, meanings, shorten=data is None)
    table = _sense_table(word, senses)
    say("\n" + document.for_terminal(table))
    xs = [float(x) for x in range(len(senses.layers))]
    by_layer = {"trained": senses.apart, "untrained": senses.untrained}
    layer = senses.layers[senses.best]
    return write(
        out,
        subject,
        "word_senses.html",
        plain(senses),
        say,
        kind="One word, two meanings",
        word=word,
        layer=layer,
        share=f"{senses.neighbour[senses.best].value:.0%}",
        chance=f"{senses.chance:.0%}",
        points=scatter(
            f"“{word}” at {layer}: the two widest directions",
            [(float(x), float(y)) for x, y in senses.picture],
            senses.senses,
            senses.texts,
            axes=("widest direction", "second widest"),
        ),
        chart=draw(
            BY_LAYER(
                "How far meanings are apart, by layer (0: embeddings)",
                [
                    Line(name, list(zip(xs, values, strict=True)), css, dots=True)
                    for (name, values), css in zip(by_layer.items(), COLOURS, strict=False)
                ],
                marks=xs,
            )
        ),
        table=table,
    )


def _texts(
    word: str, data: Path | None, columns: Mapping[str, Sequence[str]] | None
) -> tuple[list[str], list[str]]:
    """Return texts with `word`, and its meaning in each."""
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


def _sense_table(word: str, senses: word_senses.WordSenses) -> Table:
    return {
        "title": f"“{word}” in {len(senses.senses)} texts and {len(set(senses.senses))} meanings",
        "head": ["", "nearest has the same meaning", "apart", "apart, untrained"],
        "rows": [
            [name, near.render(), f"{apart:+.4f}", f"{untrained:+.4f}"]
            for name, near, apart, untrained in zip(
                senses.layers, senses.neighbour, senses.apart, senses.untrained, strict=True
            )
        ],
        "note": f"Apart: the mean cosine within a meaning minus that across. By chance the nearest "
        f"has the same meaning in {senses.chance:.0%}. The embeddings know no context.",
    }
