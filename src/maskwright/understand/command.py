"""Look into a model and write what was found: `results.json`, one page, tables for the screen."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from maskwright import commit
from maskwright.corpus.read import read
from maskwright.errors import UsageError
from maskwright.pretrain import checkpoints
from maskwright.pretrain.run import printer
from maskwright.report import document, tables
from maskwright.report.curves import Chart, Line, draw
from maskwright.report.grid import grid
from maskwright.report.scatter import scatter
from maskwright.report.svg import COLOURS, escape
from maskwright.report.tables import Table
from maskwright.tasks import splits
from maskwright.tasks.how_read import AS_IT_COMES, HowRead
from maskwright.tasks.metrics import Estimate
from maskwright.tasks.prepare import prepare
from maskwright.understand import heads, layers, pooling, senses, trees
from maskwright.understand.states import Subject

DIVISION = splits.Division(validation=0.1, test=0.1)
TEXTS, ITEMS = 200, 10_000
# Maps of single heads on a page, and their cells; tokens of a text that is drawn.
SMALL_GRIDS, CELLS = 36, 40_000
DRAWN, FEW_DRAWN = 64, 24


def probe(
    model: Path,
    out: Path,
    *,
    data: Path | None = None,
    word: str | None = None,
    task: str | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    items: int | None = None,
    read: HowRead = AS_IT_COMES,
    stream: TextIO | None = None,
) -> Path:
    """What each layer of `model` knows: of the labels in `data`, or of the meanings of a `word`.

    Args:
        data: labelled texts; with a `word`, a csv of texts and meanings. None: sentences about two
            banks.
        items: how many words or texts are looked at, at most; None: 10,000.
        read: how labelled files are read: separator, encoding, and so on.

    Returns:
        The page.
    """
    if items is not None and items < 2:
        raise UsageError("too few to look at", where="--items", found=items, wanted="2 or more")
    say = printer(stream)
    commit.probe_writable(out)
    if data is None or word is not None:
        ignored = {
            "--task": task is not None,
            "--items": items is not None,
            "--column": bool(columns) and data is None,
            "--read": read != AS_IT_COMES,
        }
        for option in (name for name, given in ignored.items() if given):
            raise UsageError(
                "option has no effect here",
                where=option,
                do="leave it out, or give labelled --data without a --word",
            )
        if word is not None and not word.strip():
            raise UsageError("no word to look at", where="--word", found=repr(word))
    subject = Subject.of(model)
    if data is None or word is not None:
        return _senses(subject, out, word or senses.WORD, data, columns, say)
    items = ITEMS if items is None else items
    examples = prepare(data, columns=columns or None, kind=task, division=DIVISION,
                       reading=read.reading, header=read.header,
                       fold_labels=read.fold_labels)  # fmt: skip
    for line in examples.task.lines():
        say(line)
    if examples.task.kind in ("similarity", "embedding"):
        return _pooling(subject, out, pooling.compare_pooling(subject, examples, items), say)
    return _layers(subject, out, layers.probe_layers(subject, examples, items=items), say)


def attention(
    model: Path,
    out: Path,
    *,
    text: Sequence[Path] = (),
    sentence: str | None = None,
    tree: Path | None = None,
    stream: TextIO | None = None,
) -> Path:
    """What the heads of `model` look at: in the first texts of `text`, in one `sentence`, and in a
    `tree` bank.

    Returns:
        The page.
    """
    say = printer(stream)
    commit.probe_writable(out)
    subject = Subject.of(model)
    drawn = []
    if sentence is not None:
        drawn = heads.beginning(subject, sentence, subject.frame.length)
        whole = len(subject.tokenizer.encode(sentence))
        if len(drawn) > DRAWN or not whole:
            raise UsageError(
                "not a text that can be drawn",
                where="--sentence",
                found=f"{whole} tokens",
                wanted=f"1 to about {DRAWN}",
            )
    texts = [each for group in senses.SENTENCES.values() for each in group]
    bank = trees.read_trees(tree) if tree is not None else []
    if text:
        texts = []
        for document_ in read(list(text)):
            texts.append(document_.text)
            if len(texts) == TEXTS:
                say(f"note: only the first {TEXTS} texts are looked at")
                break
    elif bank:
        texts = [" ".join(each.words) for each in bank[:TEXTS]]
    found = heads.look_at_heads(subject, texts)
    if short := len(texts) - found.texts:
        say(f"note: {short:,} texts of fewer than two tokens are left out")
    relations, passed = trees.compare_with_trees(subject, bank) if bank else ([], 0)
    if passed:
        say(
            f"passed over: {passed:,} of {len(bank):,} sentences of the tree bank, too long or "
            "with two words in one token"
        )
    shown = [_head_table(found)] + ([_tree_table(relations)] if relations else [])
    for each in shown:
        say("\n" + tables.for_terminal(each))
    names = [f"layer {n + 1}" for n in range(len(found.found["entropy"]))]
    numbers = [str(n + 1) for n in range(found.found["entropy"].shape[1])]
    maps = ""
    for name, values in found.found.items():
        high = max(1.0, float(values.max()))
        made = grid(_measured(found, name), values.tolist(), names, numbers, high=high)
        maps += f'<div class="grid">{made}</div>'
    drawn = drawn or heads.beginning(subject, texts[0], FEW_DRAWN)
    sections = [(escape(each["title"]), tables.for_page(each)) for each in shown]
    sections.append(("Every head", f'<div class="grids">{maps}</div>{HEADS}'))
    sections.append(("One text", _one_text(subject, drawn)))
    plain = {
        "texts": found.texts,
        "tokens": found.tokens,
        "cut": found.cut,
        "even": found.even,
        "passed_over": passed,
        "heads": {name: values.tolist() for name, values in found.found.items()},
        "relations": [dataclasses.asdict(each) for each in relations],
    }
    head = (
        f"<p>Attention on {found.tokens:,} tokens of {found.texts:,} texts"
        + (f", {found.cut:,} of them cut at {heads.LONGEST} tokens" if found.cut else "")
        + ".</p>"
    )
    return _write(out, subject, "What heads look at", head, sections, plain, say)


# ------------------------------------------------------------------------------ probes
def _layers(subject: Subject, out: Path, found: layers.Layered, say: Any) -> Path:
    if found.cut:
        say(f"note: {found.cut}")
    best = int(np.argmax([each.value for each in found.accuracy]))
    table: Table = {
        "title": f"{found.task} on the {found.part} part, read off each layer",
        "head": ["", "accuracy", "control", "selectivity", "untrained", "in the mix"],
        "rows": [
            [
                name,
                _interval(one),
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
        + [["learned mix", _interval(found.mixed), "", "", "", ""]]
        + [[name, f"{value:.4f}", "", "", "", ""] for name, value in found.baselines.items()],
        "note": f"Logistic regression on frozen states, learned from {found.learned:,} and asked "
        f"{found.asked:,}; 95 % intervals. Control: a class drawn for each word. Selectivity: "
        "accuracy minus control. Untrained: a model of this shape with weights as drawn.",
    }
    say("\n" + tables.for_terminal(table))
    xs = list(range(len(found.layers)))
    chart = Chart(
        title=f"Accuracy of {found.task} by layer (0: embeddings)",
        lines=[
            _line("the task", found.accuracy, "one"),
            _line("untrained", found.untrained, "two"),
            _line("control", found.control, "three"),
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
    gain = found.accuracy[best].value - found.untrained[best].value
    head = (
        f"<p>{escape(found.layers[best]).capitalize()} knows most: "
        f"<strong>{found.accuracy[best].value:.1%}</strong>, {gain:+.1%} beside a model that "
        f"learned nothing, {found.selectivity[best]:+.1%} beside its control.</p>"
    )
    plain = {**_plain(found), "selectivity": found.selectivity, "gravity": found.gravity}
    sections = [
        ("By layer", draw(chart)),
        ("The mix", weights),
        (escape(table["title"]), tables.for_page(table)),
    ]
    return _write(out, subject, "What layers know", head, sections, plain, say)


def _pooling(subject: Subject, out: Path, found: pooling.Pooled, say: Any) -> Path:
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
    table: Table = {
        "title": f"Likeness of pairs on the {found.part} part: Spearman's correlation",
        "head": ["", *found.found, "untrained, mean"],
        "rows": [*rows, ["words (TF-IDF)", f"{found.words:.4f}", *[""] * len(found.found)]],
        "note": f"{found.pairs:,} pairs; the cosine of two frozen vectors, nothing is trained.",
    }
    say("\n" + tables.for_terminal(table))
    lines = [_line(n, way, c) for (n, way), c in zip(found.found.items(), COLOURS, strict=False)]
    chart = Chart(
        title="Spearman's correlation by layer (0: embeddings)",
        across="layer",
        lines=[*lines, _line("untrained, mean", found.untrained, "five")],
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
        f"{escape(found.layers[layer])}, <strong>{_interval(told)}</strong>. "
        "It was picked among all on these pairs, so it flatters a little.</p>"
    )
    sections = [("By layer", draw(chart)), (escape(table["title"]), tables.for_page(table))]
    return _write(out, subject, "Texts as vectors", head, sections, _plain(found), say)


def _senses(
    subject: Subject,
    out: Path,
    word: str,
    data: Path | None,
    columns: Mapping[str, Sequence[str]] | None,
    say: Any,
) -> Path:
    if data is not None:
        texts, meanings = senses.read_senses(data, columns)
    elif word == senses.WORD:
        texts = [text for group in senses.SENTENCES.values() for text in group]
        meanings = [name for name, group in senses.SENTENCES.items() for _ in group]
    else:
        raise UsageError(
            "no texts with this word",
            where="--word",
            found=word,
            do="give a csv with the columns text and label: --data FILE",
        )
    found = senses.tell_senses(subject, word, texts, meanings)
    table: Table = {
        "title": f"“{word}” in {len(found.senses)} texts and {len(set(found.senses))} meanings",
        "head": ["", "nearest has the same meaning", "apart", "apart, untrained"],
        "rows": [
            [name, _interval(near), f"{one:+.4f}", f"{two:+.4f}"]
            for name, near, one, two in zip(
                found.layers, found.neighbour, found.apart, found.untrained, strict=True
            )
        ],
        "note": f"Apart: the mean cosine within a meaning minus that across. By chance the nearest "
        f"has the same meaning in {found.chance:.0%}. The embeddings know no context.",
    }
    say("\n" + tables.for_terminal(table))
    xs = list(range(len(found.layers)))
    lines = [
        Line("trained", list(zip(map(float, xs), found.apart, strict=True)), "one", dots=True),
        Line(
            "untrained", list(zip(map(float, xs), found.untrained, strict=True)), "two", dots=True
        ),
    ]
    chart = Chart(
        title="How far meanings are apart, by layer (0: embeddings)",
        lines=lines,
        across="layer",
        marks=xs,
        say=lambda value: f"{value:.2f}",
    )
    seen = scatter(
        f"“{word}” at {found.layers[found.best]}: the two widest directions",
        [(float(x), float(y)) for x, y in found.picture],
        found.senses,
        found.texts,
    )
    sections = [
        ("Where they lie", seen),
        ("By layer", draw(chart)),
        (escape(table["title"]), tables.for_page(table)),
    ]
    head = (
        f"<p>A table of words has one vector for “{escape(word)}”. Here the context moves it: "
        f"at {escape(found.layers[found.best])} the nearest other occurrence has the same "
        f"meaning in <strong>{found.neighbour[found.best].value:.0%}</strong> of the texts "
        f"({found.chance:.0%} by chance).</p>"
    )
    return _write(out, subject, "One word, two meanings", head, sections, _plain(found), say)


def _line(name: str, each: Sequence[Estimate], css: str) -> Line:
    spread = [
        (float(x), one.low, one.high)
        if math.isfinite(one.low)
        else (float(x), one.value, one.value)
        for x, one in enumerate(each)
    ]
    return Line(
        name, [(float(x), one.value) for x, one in enumerate(each)], css, dots=True, spread=spread
    )


# ------------------------------------------------------------------------------ attention
def _measured(found: heads.Heads, name: str) -> str:
    return f"{name} (even weights: {found.even[name]:.2f})"


def _head_table(found: heads.Heads) -> Table:
    rows = []
    for kind in heads.KINDS:
        layer, head = found.best(kind)
        values = found.found[kind]
        rows.append(
            [
                kind,
                f"layer {layer}, head {head}",
                f"{values.max():.3f}",
                f"{found.even[kind]:.3f}",
                f"{int((values > 0.5).sum())} of {values.size}",
            ]
        )
    return {
        "title": f"Heads on {found.tokens:,} tokens of {found.texts:,} texts",
        "head": ["looks at", "most", "weight", "even weights", "heads above 0.5"],
        "rows": rows,
        "note": "The mean weight of attention over positions of ordinary tokens.",
    }


def _tree_table(relations: Sequence[trees.Relation]) -> Table:
    return {
        "title": "Heads of attention beside heads of grammar",
        "head": ["relation", "words", "head", "which", "right", "best distance", "right"],
        "rows": [
            [
                r.name,
                f"{r.words:,}",
                f"layer {r.layer}, head {r.head}",
                r.way,
                f"{r.right:.3f}",
                f"{r.distance:+d}",
                f"{r.fixed:.3f}",
            ]
            for r in relations
        ],
        "note": "Head and distance were chosen on one half of the sentences, the shares are of the "
        "other half.",
    }


def _one_text(subject: Subject, ids: list[int]) -> str:
    tokens, weights = heads.one_text(subject, ids)
    most = min(SMALL_GRIDS, max(1, CELLS // len(tokens) ** 2))
    many = weights.shape[0] * weights.shape[1]
    shown: list[str] = []
    for layer in range(weights.shape[0]):
        for head in range(weights.shape[1]):
            if len(shown) == most:
                break
            made = grid(
                f"layer {layer + 1}, head {head + 1}",
                weights[layer, head].tolist(),
                tokens,
                [""] * len(tokens),
                side=max(4.0, 180 / len(tokens)),
                sparse=True,
            )
            shown.append(f'<div class="grid">{made}</div>')
    left = f" {many - len(shown)} heads are not drawn." if many > len(shown) else ""
    return (
        f'<div class="grids">{"".join(shown)}</div><p class="note">A row is a token '
        f"that looks, a column one that is looked at, in the order of the text.{left}</p>"
    )


HEADS = (
    '<p class="note">A shade is the mean weight, in full at 1 (or at the largest value, for the '
    "distance). Entropy 1 is a head that looks everywhere alike.</p>"
)


# ------------------------------------------------------------------------------ what they share
def _write(
    out: Path,
    subject: Subject,
    kind: str,
    head: str,
    sections: Sequence[tuple[str, str]],
    plain: dict[str, Any],
    say: Any,
) -> Path:
    document.write(out / tables.NAME, json.dumps(plain, indent=2) + "\n")
    page = document.document(checkpoints.called(subject.path), kind, head, sections)
    target = document.write(out / "report.html", page)
    say(f"report: {target}")
    return target


def _plain(found: Any) -> dict[str, Any]:
    def simple(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.tolist()
        if isinstance(value, Estimate):
            each = dataclasses.asdict(value)
            return {name: one if math.isfinite(one) else None for name, one in each.items()}
        if isinstance(value, dict):
            return {name: simple(each) for name, each in value.items()}
        return [simple(each) for each in value] if isinstance(value, list) else value

    return {field.name: simple(getattr(found, field.name)) for field in dataclasses.fields(found)}


def _interval(estimate: Estimate) -> str:
    if not math.isfinite(estimate.value):
        return "–"
    if not math.isfinite(estimate.low):
        return f"{estimate.value:.4f}"
    return f"{estimate.value:.4f} ({estimate.low:.4f} to {estimate.high:.4f})"


def _number(estimate: Estimate) -> str:
    return f"{estimate.value:.4f}" if math.isfinite(estimate.value) else "–"
