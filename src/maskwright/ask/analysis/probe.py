"""Probe what the layers of a model know: a page, `results.json`, and printed tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from maskwright.ask.analysis import layers, word_senses
from maskwright.ask.analysis.hidden_states import ProbedModel
from maskwright.base.errors import Finding, MaskwrightError, UsageError
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.metrics.paired import Verdict
from maskwright.base.report import document
from maskwright.base.report.document import Table, figure
from maskwright.base.report.drawing.curves import Chart, Line, draw
from maskwright.base.report.drawing.svg import COLOURS, scatter
from maskwright.base.terminal import Say, printer
from maskwright.model.opening import folders
from maskwright.text.tables import files, splits
from maskwright.text.tables.infer import infer
from maskwright.text.tables.labelled_texts import PAIR, TEXT
from maskwright.text.tables.layout import Dataset, Task
from maskwright.text.tables.prepare import build, prepare
from maskwright.text.tables.reading_options import DEFAULT_OPTIONS, TableReadingOptions
from maskwright.text.tables.rows import ALL
from maskwright.text.tables.shapes import shape_for
from maskwright.text.tables.survey import left_out_findings

DIVISION = splits.SplitOptions(validation=0.1, test=0.1)
ITEMS = 10_000


def probe(
    model: Path | str,
    out: Path | str,
    *,
    data: Path | str | None = None,
    word: str | None = None,
    task: str | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    items: int | None = None,
    read: TableReadingOptions = DEFAULT_OPTIONS,
    stream: TextIO | None = None,
) -> Path:
    """Probe each layer of `model` for the labels in `data`, or for the meanings of a `word`.

    Args:
        data: labelled texts; with a `word`, a csv of texts and meanings. None: built-in sentences
            with "bank".
        items: the maximum number of words or texts; None: 10,000, and all pairs.

    Returns:
        The path of the page.
    """
    if items is not None and items < 2:
        raise UsageError("too few to look at", where="--items", found=items, wanted="2 or more")
    say, out = printer(stream), Path(out)
    if data is None or word is not None:
        ignored = {
            "--task": task is not None,
            "--items": items is not None,
            "--column": bool(columns) and data is None,
            "--read": read != DEFAULT_OPTIONS and data is None,
        }
        for option in (name for name, is_given in ignored.items() if is_given):
            raise UsageError(
                "option has no effect here",
                where=option,
                do="leave it out, or give labelled --data without a --word",
            )
        if word is not None and not word.strip():
            raise UsageError("no word to look at", where="--word", found=repr(word))
    document.reserve(out)
    subject = ProbedModel.of(Path(model))
    if data is None or word is not None:
        labelled: Dataset | None = None
        if data is not None:
            shape = shape_for(TEXT, "classes")
            assert shape is not None
            labelled = prepare(data, columns=columns, task=shape.name, division=None, read=read)
        return show_senses(subject, out, word or word_senses.WORD, labelled, say)
    data = Path(data)
    examples = _pairs(data, columns, task, read)
    if examples is None:
        examples = prepare(data, columns=columns, task=task, division=DIVISION, read=read)
    for line in (
        *examples.task.lines(),
        *(finding.line() for finding in left_out_findings(examples)),
    ):
        say(line)
    if _is_alike(examples.task):
        return show_pooling(subject, out, layers.compare_pooling(subject, examples, items), say)
    items = ITEMS if items is None else items
    return show_layers(subject, out, layers.probe_layers(subject, examples, items=items), say)


def _pairs(
    data: Path,
    columns: Mapping[str, Sequence[str]] | None,
    task: str | None,
    read: TableReadingOptions,
) -> Dataset | None:
    """Read all pairs of texts with similarity scores as one part, since nothing is trained on them;
    None if the data are of another task."""
    loaded = files.load(data, header=read.header, reading=read.reading, learned=False)
    rows = [row for part_rows in loaded.parts.values() for row in part_rows]
    loaded = replace(loaded, parts={ALL: rows})
    try:
        pair_task = infer(loaded, columns, task, read.no_label)
    except MaskwrightError:
        return None  # `prepare` reports the error
    if not _is_alike(pair_task):
        return None
    return build(loaded, pair_task, read=read)


def _is_alike(task: Task) -> bool:
    """Whether the task is a similarity score of two texts, for which nothing is trained."""
    return task.columns.layout is PAIR and task.shape.label == "number"


# ------------------------------------------------------------------------------ reports
BY_LAYER = partial(Chart, across="layer", say="{:.2f}".format)


def write(
    out: Path, model: Path, template: str, figures: dict[str, Any], say: Say, **shown: Any
) -> Path:
    """Write `figures` as JSON, and the page of the `model` rendered from `template` with the
    variables `shown`, to `out`. Returns the path of the page."""
    page = document.render(template, name=folders.called(model), **shown)
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

    return {name: simple(value) for name, value in vars(measured).items()}


def _best(
    names: Sequence[str], estimates: Sequence[Estimate], measure: str
) -> list[tuple[str, str]]:
    """Return the best estimate and its layer as tiles."""
    best = max(range(len(estimates)), key=lambda layer: estimates[layer].value)
    return [(figure(estimates[best].value), f"{measure}, {names[best]}")]


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
    lines = [_line("the task", probed.accuracy, "one"), _line("untrained", probed.untrained, "two")]
    if not probed.no_control:
        lines.append(_line("control", probed.control, "three"))
    selectivity = [None if probed.no_control else gap for gap in probed.selectivity]
    title = f"Accuracy of {probed.task} by layer (0: embeddings)"
    marks = list(range(len(probed.layers)))
    by_layer = BY_LAYER(title, lines, list(probed.baselines.items()), marks=marks)
    return write(
        out,
        subject.path,
        "probe.html",
        {**plain(probed), "selectivity": selectivity, "gravity": probed.gravity},
        say,
        kind="What layers know",
        verdict=probed.verdict.sentence,
        tiles=_best(probed.layers, probed.accuracy, "accuracy"),
        charts={"By layer": draw(by_layer)},
        table=table,
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
        "head": ["", "accuracy", "control", "selectivity", "untrained", "layer weight"],
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
        f"as drawn. The centre of the mix is layer {probed.gravity:.1f}.",
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
    lines.append(_line("untrained, mean", compared.untrained, "five"))
    title = "Spearman's correlation by layer (0: embeddings)"
    marks = list(range(len(lines[0].points)))
    by_layer = BY_LAYER(title, lines, [("TF-IDF", compared.words)], marks=marks)
    return write(
        out,
        subject.path,
        "probe.html",
        plain(compared),
        say,
        kind="Texts as vectors",
        verdict=compared.verdict.sentence,
        tiles=[
            tile
            for name, estimates in compared.found.items()
            for tile in _best(compared.layers, estimates, f"Spearman's correlation, {name}")
        ],
        charts={"By layer": draw(by_layer)},
        table=table,
    )


# ------------------------------------------------------------------------------ meanings of a word
def show_senses(subject: ProbedModel, out: Path, word: str, data: Dataset | None, say: Say) -> Path:
    """Print and write how well each layer separates the meanings of `word`, which are the classes
    of `data` (None: built-in sentences, else a `UsageError`). Returns the path of the page."""
    texts, meanings = _sense_examples(word, data)
    room = subject.frame.length - sum(subject.tokenizer.frame_margins())
    if data is None and any(len(subject.tokenizer.encode(text)) > room for text in texts):
        message = f"the model reads {room} tokens of a text, so sentences are cut around the word"
        say(Finding("sentences-cut", message).line())
    senses = word_senses.tell_senses(subject, word, texts, meanings, shorten=data is None)
    table: Table = {
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
    say("\n" + document.for_terminal(table))
    xs = [float(x) for x in range(len(senses.layers))]
    lines = [
        Line("trained", list(zip(xs, senses.apart, strict=True)), COLOURS[0], dots=True),
        Line("untrained", list(zip(xs, senses.untrained, strict=True)), COLOURS[1], dots=True),
    ]
    apart = BY_LAYER("Distance of meanings by layer (0: embeddings)", lines, marks=xs)
    layer, share = senses.layers[senses.best], f"{senses.neighbour[senses.best].value:.0%}"
    points = scatter(
        f"“{word}” at {layer}: the two widest directions",
        [(float(x), float(y)) for x, y in senses.picture],
        senses.senses,
        senses.texts,
        axes=("widest direction", "second widest"),
    )
    return write(
        out,
        subject.path,
        "probe.html",
        plain(senses),
        say,
        kind="One word, two meanings",
        verdict=f"At {layer} the nearest other “{word}” has the same meaning in {share} of the "
        f"texts ({senses.chance:.0%} by chance).",
        tiles=[
            (share, f"nearest has the same meaning, {layer}"),
            (f"{senses.chance:.0%}", "by chance"),
        ],
        charts={"Where they lie": points, "By layer": draw(apart)},
        table=table,
    )


def _sense_examples(word: str, data: Dataset | None) -> tuple[list[str], list[str]]:
    """Return texts with `word` and its meaning in each: all rows of `data`, else built-in ones."""
    if data is not None and data.labels is not None:
        rows = [row for part_rows in data.parts.values() for row in part_rows]
        return [row.text for row in rows], [data.labels.names[row.label] for row in rows]
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
