"""The pictures of docs/worldview.md, drawn from the figures that `worldview` found: SVG files for
light and dark pages, without anything outside them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.mask_pictures import STYLE, MaskPanel, draw_masks
from maskwright.base.report.drawing.curves import Chart, Line, draw
from maskwright.base.report.drawing.svg import COLOURS, picture, place, text
from maskwright.model.nn.mask import AttentionMask, bidirectional, causal

CSS = (
    STYLE
    + """
:root{--four:#8a4fbf;--five:#a8324a;--six:#5b6b00}
@media (prefers-color-scheme:dark){:root{--four:#c79cf0;--five:#ff8fa3;--six:#c3d36a}}
text.ink{fill:var(--ink)} text.title{font-weight:600}
.grid{stroke:var(--faint);stroke-width:1} .axis{fill:none;stroke:var(--faint)}
.reference{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:2 4}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round;stroke:var(--own)}
.raw{fill:none;stroke-width:1;opacity:.4;stroke:var(--own)}
.band{opacity:.18;fill:var(--own)} .dot,.bar{fill:var(--own);stroke:none}
""".replace("\n", "")
    + "".join(f".{colour}{{--own:var(--{colour})}}" for colour in COLOURS)
)
LETTERS = 12
Bars = Sequence[tuple[str, float, str]]


def write(found: dict[str, Any], out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, make in PICTURES.items():
        (out / f"{name}.svg").write_text(make(found) + "\n", encoding="utf-8")


def beside(pictures: Sequence[str], label: str, *, across: int = 2, gap: float = 36) -> str:
    """Several pictures as one, `across` in a row."""
    parts, x, y, right, low = [f"<style>{CSS}</style>"], 0.0, 0.0, 0.0, 0.0
    for number, each in enumerate(pictures):
        size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', each)
        assert size is not None
        width, height = float(size[1]), float(size[2])
        if number and number % across == 0:
            x, y = 0.0, low + gap
        where = (
            f'<svg x="{place(x)}" y="{place(y)}" width="{place(width)}" height="{place(height)}"'
        )
        parts.append(str(each).replace("<svg", where, 1))
        x, right, low = x + width + gap, max(right, x + width), max(low, y + height)
    return str(picture(right + 16, low + 12, label, parts, sized=True))


def bars(title: str, rows: Bars, *, most: float, say: Callable[[float], str], name: int) -> str:
    """Horizontal bars with their values; `name` is the room for what they are called."""
    height, parts = 30.0 + 22 * len(rows), [text(0, 14, title, size=14, css="ink title")]
    room = 230
    for number, (words, value, css) in enumerate(rows):
        y = 30 + 22 * number
        wide = max(1.0, room * value / most)
        parts.append(text(name - 8, y + 12, words, anchor="end", css="ink"))
        parts.append(
            f'<rect x="{name}" y="{y}" width="{place(wide)}" height="15" rx="2" class="{css} bar"/>'
        )
        parts.append(text(name + wide + 6, y + 12, say(value), size=11))
    return str(picture(name + room + 52, height, title, parts))


def share(value: float) -> str:
    return f"{value:.3f}"


def mean(found: dict[str, Any], *path: str) -> float:
    """Over the seeds, of a figure of the questions."""
    values = []
    for seed in found["questions"]:
        for step in path:
            seed = seed[step]
        values.append(seed)
    return statistics.mean(values)


def masks(found: dict[str, Any]) -> str:
    def rows(mask: AttentionMask) -> list[list[bool]]:
        return [[bool(seen) for seen in row] for row in mask.draw(LETTERS, LETTERS).dense[0]]

    return draw_masks(
        [
            MaskPanel("shakespeare-bert", "every character sees all", rows(bidirectional)),
            MaskPanel("shakespeare-gpt", "a character sees those before it", rows(causal)),
        ]
    ).rstrip()


def curves(found: dict[str, Any]) -> str:
    charts = []
    for name, words in (("gpt", "the next character"), ("bert", "hidden characters")):
        run = found["curves"][name]
        lines = run["references"]
        known = [(each, lines[f"{each}_loss"]) for each in ("uniform", "unigram")]
        charts.append(
            draw(
                Chart(
                    title=f"shakespeare-{name}: loss of {words}, nats",
                    lines=[
                        Line("training", run["loss"], "one", band=True),
                        Line("held out", [each[:2] for each in run["held_out"]], "two", dots=True),
                    ],
                    references=known,
                    across="steps",
                    width=460,
                    height=280,
                    say=lambda value: f"{value:.2f}",
                )
            )
        )
    return beside(charts, "Loss of both twins over their steps, with two baselines")


def temperatures(found: dict[str, Any]) -> str:
    panels, shown = [], {"\n": "line end", " ": "blank"}
    for temperature, each in found["temperatures"].items():
        rows = [(shown.get(letter, letter), chance, "one") for letter, chance in each["likeliest"]]
        title = f"temperature {temperature}: {each['entropy_bits']:.2f} bits"
        panels.append(bars(title, rows, most=1.0, say=share, name=64))
    return beside(panels, "What the next character is drawn from at four temperatures")


def answers(found: dict[str, Any]) -> str:
    panels = []
    for key, words in (("top1", "top-1"), ("top5", "top-5")):
        lines = found["curves"]["bert"]["references"]
        rows = [
            ("guessing evenly", lines[f"uniform_{key}"], "six"),
            ("random encoder", mean(found, "random encoder", "80/10/10", key), "two"),
            ("commonest characters", lines[f"unigram_{key}"], "six"),
            ("pretrained", mean(found, "bert", "80/10/10", key), "one"),
        ]
        panels.append(bars(f"{words}, hidden characters", rows, most=1.0, say=share, name=150))
    return beside(panels, "Pretrained against random against chance")


def spans(found: dict[str, Any]) -> str:
    asked = ("six apart", "spans of three", "their first", "their middle", "their last")
    panels = []
    for run, words in (("bert", "trained on single characters"), ("spans", "on spans of 1 to 3")):
        rows = [
            (each, mean(found, run, each, "top1"), "two" if "their" in each else "one")
            for each in asked
        ]
        panels.append(bars(f"{words}: top-1", rows, most=1.0, say=share, name=120))
    return beside(panels, "Accuracy on single characters and on spans of three")


def corruptions(found: dict[str, Any]) -> str:
    names = {"bert": "80/10/10", "all-mask": "100 % [MASK]", "all-random": "100 % random"}
    asked = ("80/10/10", "all [MASK]", "all random", "all kept")
    panels = []
    for run, words in names.items():
        rows = [
            (f"asked: {each}", mean(found, run, each, "top1"), COLOURS[place])
            for place, each in enumerate(asked)
        ]
        panels.append(bars(f"trained with {words}: top-1", rows, most=1.0, say=share, name=126))
    return beside(panels, "Three ways to hide characters, four ways to ask")


def task(found: dict[str, Any]) -> str:
    ways: Mapping[str, str] = {
        "full": "one",
        "probe": "three",
        "words (no pretraining)": "two",
        "from scratch": "five",
    }
    lines = []
    for way, css in ways.items():
        points: dict[int, list[float]] = {}
        for seed in found["task"]:
            for count, each in seed["bert"][way].items():
                points.setdefault(int(count), []).extend(each.values())
        ordered = sorted(points.items())
        lines.append(
            Line(
                way,
                [(count, statistics.mean(values)) for count, values in ordered],
                css,
                dots=True,
                spread=[(c, min(v), max(v)) for c, v in ordered] if len(found["task"]) > 1 else (),
            )
        )
    chart = Chart(
        title="Question or statement? Accuracy on 1,000 sentences",
        lines=lines,
        references=[("guessing", 0.5)],
        across="labels",
        width=620,
        logarithmic=True,
        marks=[point for point, _ in lines[0].points],
        say=share,
    )
    return beside([draw(chart)], "Accuracy by number of labels")


PICTURES: dict[str, Callable[[dict[str, Any]], str]] = {
    "masks": masks,
    "curves": curves,
    "temperatures": temperatures,
    "answers": answers,
    "spans": spans,
    "corruptions": corruptions,
    "task": task,
}
