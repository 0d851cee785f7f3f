"""How many labels are worth what: methods × numbers of labels × seeds, beside what needs no
pretraining.

    out/
      curve.jsonl    a line for each training, written when it is done; what is there is not redone
      curve.json     all figures by way, number of labels and seed
      report.html    the curve, the table, and which way to take at which number of labels

Each seed draws its own labels, so the spread is that of the draw too. Fewer labels are a beginning
of more. Epochs are chosen on as many validation rows as there are labels, and on fifty at least,
because who has few labels has few to choose by. How far the weights moved from where they began,
and how much better the model is on what it learned from, is told for each training: bounds on what
is lost on new texts grow with the first (McAllester 1999; Dziugaite & Roy 2017).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from maskwright import commit, config
from maskwright.errors import UsageError
from maskwright.evaluate import intervals
from maskwright.finetune.hashes import hash_rows, hashes
from maskwright.finetune.kind import Kind, Long, kind_of
from maskwright.finetune.learner import Learner, reader
from maskwright.finetune.method import FULL, Method
from maskwright.finetune.progress import Watch, watching
from maskwright.finetune.tune import Settings
from maskwright.pretrain import checkpoints
from maskwright.report import document, tables
from maskwright.report.curves import Chart, Line, draw
from maskwright.report.say import printer, quiet
from maskwright.report.svg import COLOURS, escape
from maskwright.report.tables import Table
from maskwright.report.wording import figure
from maskwright.strict_json import parse
from maskwright.tasks import examples as labelled
from maskwright.tasks import splits
from maskwright.tasks.parts import TEST, TRAIN, VALIDATION

NAME, LINES, PAGE = "curve.json", "curve.jsonl", "report.html"
SCRATCH = "from scratch"
LEAST_TO_CHOOSE_BY = 50
ASKED_AGAIN = 500  # rows of the training part
LEVEL = 0.05


@dataclass
class Curve:
    """Figures by way, number of labels, and seed.

    Attributes:
        baselines: ways that need no training of a model.
        moved, learned: as `figures`, of what is trained: how far the weights moved, and the figure
            on (some of) what was learned from.
    """

    measure: str
    counts: list[int]
    figures: dict[str, dict[int, dict[int, float]]] = field(default_factory=dict)
    baselines: list[str] = field(default_factory=list)
    moved: dict[str, dict[int, dict[int, float]]] = field(default_factory=dict)
    learned: dict[str, dict[int, dict[int, float]]] = field(default_factory=dict)

    def put(self, way: str, count: int, seed: int, value: float) -> None:
        self.figures.setdefault(way, {}).setdefault(count, {})[seed] = value

    def put_trained(self, way: str, count: int, seed: int, told: Mapping[str, float]) -> None:
        """What `_trained` told of a training."""
        self.put(way, count, seed, told["value"])
        for name, each in (("moved", self.moved), ("learned", self.learned)):
            each.setdefault(way, {}).setdefault(count, {})[seed] = told[name]

    def mean(self, way: str, count: int) -> float:
        return intervals.over_seeds(list(self.figures[way][count].values())).mean

    def best(self, count: int, ways: Sequence[str] | None = None) -> str:
        """The way with the best mean; of equals the first."""
        return max(ways or list(self.figures), key=lambda way: self.mean(way, count))

    def apart(self, way: str, other: str, count: int) -> bool | None:
        """Whether the seeds tell the two apart; None where there is only one seed."""
        ours, theirs = self.figures[way][count], self.figures[other][count]
        gap = intervals.difference(ours, theirs)
        return None if gap is None else gap.welch < LEVEL


def measure_curve(
    folder: Path,
    data: labelled.Examples,
    out: Path,
    *,
    methods: Sequence[Method],
    counts: Sequence[int],
    settings: Callable[[Method], Settings],
    seeds: int = 3,
    length: int | None = None,
    long: Long = "head",
    settled: Mapping[str, Any] | None = None,
    stream: TextIO | None = None,
) -> Curve:
    """Train every method, and the same model from scratch, with each number of labels.

    Args:
        counts: of training rows; 0 is all of them.
        settings: of each method.
        settled: what of the kind is chosen beforehand.

    Raises:
        UsageError: more labels than there are, or figures of another task in `out`.
    """
    say, watch = printer(stream), watching(stream)
    commit.probe_writable(out)
    kind = kind_of(data.task.kind, () if data.labels is None else data.labels.names, settled)
    last = TEST if TEST in data.parts else VALIDATION
    whole = len(data.parts[TRAIN])
    numbers = sorted({count or whole for count in counts})
    if numbers[-1] > whole or numbers[0] < 1:
        raise UsageError("no such number of labels to draw", where="--curve", found=numbers,
                         wanted=f"1 to {whole:,}, or all")  # fmt: skip
    about = {
        "task": kind.task,
        "model": folder.name,
        "weights": hashes(checkpoints.model_folder(folder)),
        "asked": last,
        "data": hash_rows(data),
        "settled": dict(kind.settled),
    }
    known = _known(out / LINES, about)
    curve = Curve(kind.measure, numbers)

    for count in numbers:
        for seed in range(seeds):
            drawn = _drawn(data, count, seed)
            for name, answers in kind.baselines(drawn, last):
                way = f"{name} (no pretraining)"
                value = kind.measured(drawn.parts[last], answers)[curve.measure]
                curve.put(way, count, seed, _defined(value))
                curve.baselines += [way] if way not in curve.baselines else []
            anew = Method(FULL, head_rate=methods[0].head_rate)
            for method, scratch in [*((m, False) for m in methods), (anew, True)]:
                way = SCRATCH if scratch else method.name
                chosen = replace(settings(method), seed=seed)
                how = config.fingerprint(
                    [method.layer_decay, method.head_factor, config.to_plain(chosen), length, long]
                )
                row = {"way": way, "labels": count, "seed": seed, "settings": how[:16]}
                if tuple(row.values()) not in known:
                    told = _trained(
                        folder, kind, drawn, method, chosen, length, long, last, watch,
                        scratch=scratch,
                    )  # fmt: skip
                    known[tuple(row.values())] = told
                    with (out / LINES).open("a", encoding="utf-8") as file:
                        file.write(json.dumps({**row, **told}) + "\n")
                told = known[tuple(row.values())]
                curve.put_trained(way, count, seed, told)
                shown = figure(told["value"])
                say(f"{way}, {count:,} labels, seed {seed}: {curve.measure} {shown}")
    plain = {"measure": curve.measure, "figures": curve.figures, "moved": curve.moved,
             "learned": curve.learned}  # fmt: skip
    document.write(out / NAME, json.dumps({**about, **plain}, indent=2) + "\n")
    for made in (table(curve), strategy(curve), journeys(curve)):
        say("\n" + tables.for_terminal(made))
    say("\n".join(verdicts(curve)))
    say(f"report: {document.write(out / PAGE, render(curve, about))}")
    return curve


def _known(path: Path, about: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, float]]:
    """What an earlier call has measured, by way, labels, seed and settings; the first line says of
    what.

    Raises:
        UsageError: of something else.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    whole = text[: text.rfind("\n") + 1] or json.dumps(about) + "\n"  # a kill may tear a line
    path.write_text(whole, encoding="utf-8")
    first, *rest = whole.splitlines()
    if parse(first, path) != about:
        raise UsageError("figures of something else are there", where=path, found=first[:200],
                         wanted=json.dumps(about)[:200], do="choose another --out")  # fmt: skip
    rows = [parse(line, path) for line in rest]
    names = ("way", "labels", "seed", "settings")
    return {
        tuple(row[name] for name in names): {n: v for n, v in row.items() if n not in names}
        for row in rows
    }


def _drawn(data: labelled.Examples, count: int, seed: int) -> labelled.Examples:
    """The same with `count` training rows, and a validation part of that size."""
    drawn = splits.with_few(data, count, seed)
    choosing = data.parts[VALIDATION]
    size = min(len(choosing), max(LEAST_TO_CHOOSE_BY, count))
    swapped = replace(drawn, parts={TRAIN: choosing}, groups={})
    few = splits.with_few(swapped, size, seed).parts[TRAIN]
    return replace(drawn, parts={**drawn.parts, VALIDATION: few})


def _trained(
    folder: Path,
    kind: Kind,
    data: labelled.Examples,
    method: Method,
    settings: Settings,
    length: int | None,
    long: Long,
    last: str,
    watch: Watch,
    *,
    scratch: bool,
) -> dict[str, float]:
    learner = Learner.of(folder, kind, method, length, long)
    parts = {part: kind.encode(rows, learner.frame) for part, rows in data.parts.items()}
    way = SCRATCH if scratch else method.name
    name = f"{way}, {len(data.parts[TRAIN]):,} labels, seed {settings.seed}"
    found = learner.learn(parts, method, settings, last, quiet, watch, scratch=scratch, name=name)
    again = kind.encode(data.parts[TRAIN][:ASKED_AGAIN], learner.frame)
    read = reader(found.tuned.model, found.kind, learner.frame, learner.collation)
    figures = {
        "value": kind.measured(data.parts[last], found.answers),
        "learned": kind.measured(again.rows, found.kind.answers(again, read(again))),
    }
    told = {name: _defined(each[kind.measure]) for name, each in figures.items()}
    return {**told, "moved": found.moved}


def _defined(value: float) -> float:
    """The figure; answers that are all alike have no correlation with anything, which is 0 here."""
    return value if math.isfinite(value) else 0.0


# ------------------------------------------------------------------------------ what is told
def table(curve: Curve) -> Table:
    """Mean and deviation of each way at each number of labels."""
    rows = []
    for way, by_count in curve.figures.items():
        cells = []
        for count in curve.counts:
            spread = intervals.over_seeds(list(by_count[count].values()))
            known = math.isfinite(spread.deviation)
            cells.append(figure(spread.mean) + (f" ± {figure(spread.deviation)}" if known else ""))
        rows.append([way, *cells])
    return {
        "title": f"{curve.measure} by number of labels",
        "head": ["", *(f"{count:,}" for count in curve.counts)],
        "rows": rows,
        "note": "± is the standard deviation over seeds; each seed draws its own labels.",
    }


def strategy(curve: Curve) -> Table:
    """Which way to take: the best by its mean, and what the seeds do not tell apart from it."""
    rows = []
    for count in curve.counts:
        best = curve.best(count)
        alike = [w for w in curve.figures if w != best and curve.apart(w, best, count) is False]
        rows.append([f"{count:,}", best, figure(curve.mean(best, count)), ", ".join(alike) or "–"])
    return {
        "title": "Which way at which number of labels",
        "head": ["labels", "best mean", curve.measure, "not told apart from it"],
        "rows": rows,
        "note": f"Told apart: Welch's test over the seeds, p < {LEVEL:g}, for each pair by itself.",
    }


def journeys(curve: Curve) -> Table:
    """How far the weights moved, and what is lost from known texts to new ones."""
    rows = []
    for way, by_count in curve.moved.items():
        for count in curve.counts:
            far = intervals.over_seeds(list(by_count[count].values())).mean
            known = intervals.over_seeds(list(curve.learned[way][count].values())).mean
            new = curve.mean(way, count)
            cells = (figure(far), figure(known), figure(new), figure(known - new))
            rows.append([way, f"{count:,}", *cells])
    return {
        "title": "How far the weights moved, and what that cost on new texts",
        "head": ["", "labels", "moved", "known texts", "new texts", "gap"],
        "rows": rows,
        "note": "Moved: the distance of all weights below the head from where they began, beside "
        f"their length there. Known texts: at most {ASKED_AGAIN} of those learned from.",
    }


def verdicts(curve: Curve) -> list[str]:
    """What pretraining is worth at each number of labels, in a sentence."""
    without = [*curve.baselines, SCRATCH]
    ours = [way for way in curve.figures if way not in without]
    found = []
    for count in curve.counts:
        best, rival = curve.best(count, ours), curve.best(count, without)
        gap = curve.mean(best, count) - curve.mean(rival, count)
        apart = curve.apart(best, rival, count)
        word = {None: "with one seed there is no verdict", False: "which these seeds do not tell "
                "from nothing", True: "by more than the spread"}[apart]  # fmt: skip
        found.append(
            f"With {count:,} labels the best with pretraining ({best}) is {figure(abs(gap))} "
            f"{'above' if gap >= 0 else 'below'} the best without it ({rival}), {word}."
        )
    return found


def _lines(curve: Curve) -> Iterator[Line]:
    for place, (way, by_count) in enumerate(curve.figures.items()):
        spread = [
            (float(c), min(by_count[c].values()), max(by_count[c].values())) for c in curve.counts
        ]
        points = [(float(c), curve.mean(way, c)) for c in curve.counts]
        several = max(map(len, by_count.values())) > 1
        css = COLOURS[place % len(COLOURS)]
        yield Line(way, points, css, dots=True, spread=spread if several else ())


def render(curve: Curve, about: dict[str, Any]) -> str:
    """The page as text."""
    chart = Chart(
        title=f"{curve.measure} on the {about['asked']} part",
        lines=list(_lines(curve)),
        across="labels, logarithmic",
        say=figure,
        logarithmic=True,
        marks=[float(count) for count in curve.counts],
        height=360,
    )
    sentences = "".join(f"<p>{escape(line)}</p>" for line in verdicts(curve))
    note = '<p class="note">Lines are means over seeds; the area goes from worst to best.</p>'
    sections = [("What the labels are worth", draw(chart) + note + sentences)]
    moved = Chart(
        title="How far the weights moved from where they began",
        lines=[
            Line(way, [(float(c), intervals.over_seeds(list(by_count[c].values())).mean)
                       for c in curve.counts], COLOURS[place % len(COLOURS)], dots=True)
            for place, (way, by_count) in enumerate(curve.moved.items())
        ],
        across="labels, logarithmic",
        say=figure,
        logarithmic=True,
        marks=[float(count) for count in curve.counts],
        from_zero=True,
    )  # fmt: skip
    sections.append(("How far it is from the pretrained weights", draw(moved)))
    for made in (strategy(curve), table(curve), journeys(curve)):
        sections.append((escape(made["title"]), tables.for_page(made)))
    return document.document(
        f"{about['task']}: {Path(about['model']).name}", "Maskwright label curve", "", sections
    )
