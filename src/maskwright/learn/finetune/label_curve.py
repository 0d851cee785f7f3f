"""Label-efficiency curve: methods × numbers of labels × seeds, with baselines without a model.

    out/
      curve.jsonl    a line for each finished training, which is not repeated
      curve.json     all metrics by method, number of labels and seed
      report.html    the curve, the table, and the best method for each number of labels

Each seed samples its own labels, so the spread over seeds includes that of sampling. Smaller
samples are prefixes of larger ones. Epochs are chosen on as many validation rows as there are
labels, and on fifty at least; so is the best method for a number of labels, whose test figure is
then no maximum over methods.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from maskwright.base import config
from maskwright.base.errors import DataError, UsageError
from maskwright.base.metrics import seeds as intervals
from maskwright.base.metrics.paired import Verdict
from maskwright.base.report import document
from maskwright.base.report.document import Table, figure
from maskwright.base.report.drawing.curves import Chart, Line, draw
from maskwright.base.report.drawing.svg import COLOURS, style
from maskwright.base.storage import commit
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import Say, counted, printer, quiet
from maskwright.learn.finetune import conclusion
from maskwright.learn.finetune.finished_seeds import REJECTS
from maskwright.learn.finetune.learner import Learner
from maskwright.learn.finetune.method import FULL, Method
from maskwright.learn.finetune.recipe import hash_rows, hashes
from maskwright.learn.finetune.tune import Settings, Watch, watching
from maskwright.learn.pretrain.run import LOCK
from maskwright.learn.tasks.base.choices import Long
from maskwright.learn.tasks.base.task_type import Encoded, TaskType, task_for
from maskwright.model.device.machine import Machine, unusual
from maskwright.model.opening.folders import Model
from maskwright.model.opening.open import open_weights
from maskwright.text.tables import splits
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION

SCRATCH = "from scratch"
UNTRAINED = " (no pretraining)"
LEVEL = 0.05
NOT_KNOWN = "not known"


@dataclass
class LabelCurve:
    """The metric by method, number of labels, and seed.

    Attributes:
        figures: {method: {number of labels: {seed: value of `measure`}}}.
        baselines: names of the methods without pretraining.
        validation: as `figures`, on the validation part, by which the best method is chosen.
    """

    measure: str
    counts: list[int]
    figures: dict[str, dict[int, dict[int, float]]] = field(default_factory=dict)
    validation: dict[str, dict[int, dict[int, float]]] = field(default_factory=dict)
    baselines: list[str] = field(default_factory=list)

    def put(
        self, approach: str, count: int, seed: int, value: float, validation: float | None = None
    ) -> None:
        """Add a metric, and that on the validation part if it is another one."""
        validation = value if validation is None else validation
        for table, number in ((self.figures, value), (self.validation, validation)):
            table.setdefault(approach, {}).setdefault(count, {})[seed] = number

    def put_baseline(
        self, name: str, count: int, seed: int, value: float, validation: float | None = None
    ) -> None:
        """Add the metrics of a method without pretraining, fitted on the same labels."""
        self.put(name, count, seed, value, validation)
        self.baselines += [name] if name not in self.baselines else []

    def mean(self, approach: str, count: int) -> float:
        return intervals.over_seeds(list(self.figures[approach][count].values())).mean

    def best(self, count: int, approaches: Sequence[str] | None = None) -> str:
        """Return the method with the best mean on the validation part, the first of equals."""

        def mean(approach: str) -> float:
            return intervals.over_seeds(list(self.validation[approach][count].values())).mean

        return max(approaches or list(self.figures), key=mean)

    def apart(self, approach: str, rival: str, count: int) -> bool | None:
        """Whether two methods differ significantly over the seeds, for one family of all methods
        and numbers of labels; None if a seed is missing, or if no seed changes either."""
        by_seed = {name: values[count] for name, values in self.figures.items()}
        most = max(map(len, by_seed.values()))
        by_seed = {name: values for name, values in by_seed.items() if len(values) == most}
        pair = [by_seed.get(name, {}) for name in (approach, rival)]
        candidates = intervals.candidates_by_seed(by_seed)
        if candidates is None or not all(pair) or max(len(set(v.values())) for v in pair) == 1:
            return None
        return candidates.p(approach, rival) < LEVEL / len(self.counts)


# ------------------------------------------------------------------------------ the report
def table(curve: LabelCurve) -> Table:
    """Return a table of mean and deviation of each method at each number of labels."""
    rows = []
    for approach, by_count in curve.figures.items():
        cells = []
        for count in curve.counts:
            spread = intervals.over_seeds(list(by_count[count].values()))
            has_deviation = math.isfinite(spread.deviation)
            cells.append(
                figure(spread.mean) + (f" ± {figure(spread.deviation)}" if has_deviation else "")
            )
        rows.append([approach, *cells])
    return {
        "title": f"{curve.measure} by number of labels",
        "head": ["", *(f"{count:,}" for count in curve.counts)],
        "rows": rows,
        "note": "± is the standard deviation over seeds; each seed draws its own labels.",
    }


def strategy(curve: LabelCurve) -> Table:
    """Return a table of the best method by validation data, and of those not significantly
    different from it."""
    rows = []
    for count in curve.counts:
        best = curve.best(count)
        significant = {m: curve.apart(m, best, count) for m in curve.figures if m != best}
        alike = [approach for approach, differs in significant.items() if differs is False]
        unknown = [approach for approach, differs in significant.items() if differs is None]
        shown_names = ", ".join(alike) or "–"
        if unknown:
            none_known = len(unknown) == len(significant)
            shown_names = (
                NOT_KNOWN if none_known else f"{shown_names}; {NOT_KNOWN}: {', '.join(unknown)}"
            )
        rows.append([f"{count:,}", best, figure(curve.mean(best, count)), shown_names])
    return {
        "title": "Which way at which number of labels",
        "head": ["labels", "best", curve.measure, "not told apart from it"],
        "rows": rows,
        "note": "Best by the mean on validation data. Told apart: Tukey's test in blocks of one "
        f"seed, p < {LEVEL:g} over all methods "
        "and numbers of labels; not known of one seed, or if no seed changed either figure.",
    }


def judge_curve(curve: LabelCurve) -> Verdict:
    """Judge the best method at the largest number of labels beside those without pretraining."""
    count, unpretrained = curve.counts[-1], [*curve.baselines, SCRATCH]
    best = curve.best(count, [name for name in curve.figures if name not in unpretrained])
    rivals = {name: curve.mean(name, count) for name in unpretrained if name in curve.figures}
    value, seeds = curve.mean(best, count), len(curve.figures[best][count])
    strongest = max(rivals, key=rivals.__getitem__)

    def name(rival: str) -> str:
        return conclusion.spoken(rival.removesuffix(UNTRAINED))

    def figures(rival: str) -> str:
        with_labels = f"with {counted(count, 'label')} {best} has {curve.measure} {figure(value)}"
        return f"{with_labels} ({counted(seeds, 'seed')}), {name(rival)} {figure(rivals[rival])}"

    constant = [n for n in rivals if n.removesuffix(UNTRAINED) in conclusion.CONSTANT]
    if beaten := [n for n in constant if rivals[n] >= value]:
        return Verdict("unusable", f"Unusable: {figures(beaten[0])}.", name(beaten[0]), False)
    if rivals[strongest] > value and curve.apart(best, strongest, count):
        sentence = f"{name(strongest).capitalize()} is better: {figures(strongest)}."
        return Verdict("no better", sentence, name(strongest), is_usable=False)
    as_good = [n for n in rivals if rivals[n] >= value or not curve.apart(best, n, count)]
    if as_good:
        rival = max(as_good, key=rivals.__getitem__)
        shown = "as far as these seeds show" if seeds > 1 else "as one seed tells nothing apart"
        sentence = f"No better than {name(rival)}, {shown}: {figures(rival)}."
        return Verdict("no better", sentence, name(rival))
    sentence = f"Good: {figures(strongest)}; nothing without pretraining is as good."
    return Verdict("good", sentence, name(strongest))


def _chart_lines(curve: LabelCurve) -> Iterator[Line]:
    shown = len(curve.figures) <= len(COLOURS)  # more areas would hide each other
    for number, (approach, by_count) in enumerate(curve.figures.items()):
        spread = [
            (float(c), min(by_count[c].values()), max(by_count[c].values())) for c in curve.counts
        ]
        points = [(float(c), curve.mean(approach, c)) for c in curve.counts]
        many_seeds = max(map(len, by_count.values())) > 1
        yield Line(
            approach,
            points,
            style(number),
            dots=True,
            spread=spread if many_seeds and shown else (),
        )


def render(curve: LabelCurve, about: dict[str, Any]) -> str:
    """Return the report as HTML."""
    lines = list(_chart_lines(curve))
    chart = Chart(
        f"{curve.measure} on the {about['asked']} part",
        lines,
        across="labels, logarithmic",
        say=figure,
        logarithmic=True,
        marks=[float(count) for count in curve.counts],
        height=360,
    )
    return document.render(
        "label_curve.html",
        name=f"{about['task']}: {Path(about['model']).name}",
        kind="Maskwright label curve",
        verdict=judge_curve(curve).sentence,
        curve=draw(chart),
        areas=any(line.spread for line in lines),
        tables=[strategy(curve), table(curve)],
    )


NAME, LINES, PAGE = "curve.json", "curve.jsonl", "report.html"
LARGEST = 1 << 20  # bytes of a line
LEAST_TO_CHOOSE_BY = 50


def measure_curve(
    model: Model | Path,
    data: Dataset,
    out: Path,
    *,
    methods: Sequence[Method],
    counts: Sequence[int],
    settings: Callable[[Method], Settings],
    seeds: Sequence[int] = range(3),
    length: int | None = None,
    long: Long = "head",
    options: Mapping[str, Any] | None = None,
    machine: Machine | None = None,
    stream: TextIO | None = None,
) -> LabelCurve:
    """Train every method, and the same model from scratch, with each number of labels.

    Args:
        counts: numbers of training rows; 0 stands for all.
        settings: returns the training settings of a method.
        options: options of the task type.

    Raises:
        UsageError: there are not so many labels, or `out` has the results of another study.
        OutputError: `out` has other content.
    """
    say = printer(stream)
    commit.require_own(out, LINES, beside=(REJECTS,))
    commit.probe_writable(out)
    model = model if isinstance(model, Model) else open_weights(model)
    task_type = task_for(data.task.name, () if data.labels is None else data.labels.names, options)
    task_type = task_type.of_data(data)
    eval_part = TEST if TEST in data.parts else VALIDATION
    label_counts = _label_counts(counts, len(data.parts[TRAIN]))
    about = {
        "task": task_type.task,
        "model": model.folder.name,
        "weights": hashes(model.path, model.hashes),
        "asked": eval_part,
        "data": hash_rows(data),
        "settled": dict(task_type.options),
    }
    trial = _Trial(model, task_type, length, long, eval_part, machine, watching(stream), say)
    # Without pretrained weights, body and head have the same learning rate.
    from_scratch = Method(FULL, head_rate=methods[0].head_rate or 1.0)
    with commit.Lock(out / LOCK):
        known_rows = _read_rows(out / LINES, about)
        curve = LabelCurve(task_type.measure, label_counts)
        for count, seed in itertools.product(label_counts, seeds):
            sampled = _sample(data, count, seed)
            by_part = {
                part: {
                    name: _or_zero(
                        task_type.metrics(sampled.parts[part], answers).values[curve.measure]
                    )
                    for name, answers in task_type.baselines(sampled, part)
                }
                for part in (VALIDATION, eval_part)
            }
            for name, value in by_part[eval_part].items():
                chosen_by = by_part[VALIDATION].get(name)
                curve.put_baseline(name + UNTRAINED, count, seed, value, chosen_by)
            for method, scratch in [*((m, False) for m in methods), (from_scratch, True)]:
                seed_settings = replace(settings(method), seed=seed)
                settings_hash = config.fingerprint(trial.hashed_settings(method, seed_settings))
                approach = SCRATCH if scratch else method.name
                row = {
                    "way": approach,
                    "labels": count,
                    "seed": seed,
                    "settings": settings_hash[:16],
                }
                train = partial(trial.train, sampled, method, seed_settings, scratch=scratch)
                evaluation = _stored_or_new(out / LINES, known_rows, row, train)
                value = evaluation["value"]
                curve.put(approach, count, seed, value, evaluation["validation"])
                cell = f"{approach}, {counted(count, 'label')}, seed {seed}"
                say(f"{cell}: {curve.measure} {figure(value)}")
        test = None
        if eval_part == TEST:
            test = conclusion.record_test(data.parts[TEST], task_type.labels, TEST)
        _write(curve, about, out, say, test)
    return curve


def _label_counts(counts: Sequence[int], total: int) -> list[int]:
    """Return the numbers of labels, sorted and each once; 0 stands for `total`.

    Raises:
        UsageError: a number is out of range.
    """
    numbers = sorted({count or total for count in counts})
    if numbers[-1] > total or numbers[0] < 1:
        raise UsageError(
            "the number of labels is out of range",
            where="--curve",
            found=numbers,
            wanted=f"1 to {total:,}, or all",
        )
    return numbers


def _write(
    curve: LabelCurve,
    about: dict[str, Any],
    out: Path,
    say: Say,
    test: dict[str, Any] | None,
) -> None:
    """Write curve.json and the report, and print the tables; `test` as in `record_test`."""
    judged, uses = judge_curve(curve), [] if test is None else conclusion.uses_of(test, out)
    plain = {
        "verdict": judged.to_json(),
        **({} if test is None else {"test": {**test, "other_uses": len(uses)}}),
        "measure": curve.measure,
        "figures": curve.figures,
        "validation": curve.validation,
    }
    document.write(out / NAME, json.dumps({**plain, **about}, indent=2) + "\n")
    say(f"\n{judged.sentence}")
    for report_table in (table(curve), strategy(curve)):
        say("\n" + document.for_terminal(report_table))
    for finding in conclusion.used_before(uses, out):
        say(finding.line())
    say(f"report: {document.write(out / PAGE, render(curve, about))}")


def _read_rows(path: Path, about: dict[str, Any]) -> dict[tuple[Any, ...], dict[str, float]]:
    """Read the results of earlier calls, by (method, labels, seed, settings). The first line of the
    file identifies the study; it is written if the file is new.

    Raises:
        UsageError: the file is of another study.
    """
    with path.open("a+b") as file:
        file.seek(0)
        written = file.read()
        file.truncate(written.rfind(b"\n") + 1)  # remove an incomplete last line
        if not written.count(b"\n"):
            file.write(json.dumps(about).encode() + b"\n")
    saved_about, *rows = (
        parse_object(line, f"{path}, line {number}", error=DataError, largest=LARGEST)
        for number, line in enumerate(path.read_bytes().splitlines(), start=1)
    )
    if saved_about != about:
        raise UsageError(
            "the folder holds the figures of another label curve",
            where=path,
            found=json.dumps(saved_about)[:200],
            wanted=json.dumps(about)[:200],
            do="choose another --out",
        )
    names = ("way", "labels", "seed", "settings")
    for number, row in enumerate(rows, start=2):
        figures = {name: value for name, value in row.items() if name not in names}
        if (
            not all(isinstance(row.get(n), str | int) for n in names)
            or "value" not in figures
            or (not all(isinstance(value, int | float) for value in figures.values()))
        ):
            raise DataError(
                "a line is not the figures of a training",
                where=f"{path}, line {number}",
                found=json.dumps(row)[:200],
                wanted=f"{', '.join(names)}, value",
                do="remove the line: it is measured again",
            )
    return {
        tuple(row[name] for name in names): {n: v for n, v in row.items() if n not in names}
        for row in rows
        if "validation" in row  # of an earlier release: measured again
    }


def _stored_or_new(
    path: Path,
    measured: dict[tuple[Any, ...], dict[str, float]],
    row: dict[str, Any],
    train: Callable[[], dict[str, float]],
) -> dict[str, float]:
    """Return the result of this `row` from `measured`, or train, and append it to the file."""
    key = tuple(row.values())
    if key not in measured:
        measured[key] = train()
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, **measured[key]}) + "\n")
            file.flush()
            os.fsync(file.fileno())
    return measured[key]


def _sample(data: Dataset, count: int, seed: int) -> Dataset:
    """Return `data` with `count` training rows and a validation part of about that size."""
    sampled = splits.draw_examples(data, count, seed)
    validation = data.parts[VALIDATION]
    size = min(len(validation), max(LEAST_TO_CHOOSE_BY, count))
    swapped = replace(sampled, parts={TRAIN: validation}, groups={})
    fewer = splits.draw_examples(swapped, size, seed).parts[TRAIN]
    return replace(sampled, parts={**sampled.parts, VALIDATION: fewer})


@dataclass(frozen=True)
class _Trial:
    """What all trainings of a study share."""

    model: Model
    task_type: TaskType
    length: int | None
    long: Long
    eval_part: str
    machine: Machine | None
    watch: Watch
    say: Say
    reported: set[tuple[str, int]] = field(default_factory=set)

    def hashed_settings(self, method: Method, settings: Settings) -> list[Any]:
        """Return what a stored result depends on."""
        plain = [method.layer_decay, method.head_factor, config.to_plain(settings)]
        further = method.changed_settings | unusual(self.machine)
        return [*plain, self.length, self.long, *([further] if further else [])]

    def train(
        self, data: Dataset, method: Method, settings: Settings, *, scratch: bool
    ) -> dict[str, float]:
        """Train once; return "value" (metric on `eval_part`) and "validation" (of the best
        epoch)."""
        learner = Learner.of(self.model, self.task_type, method, self.length, self.long)
        encoded_parts = {
            part_name: self.task_type.encode(rows, learner.frame)
            for part_name, rows in data.parts.items()
        }
        self._print_cuts(encoded_parts)
        approach = SCRATCH if scratch else method.name
        result = learner.learn(
            encoded_parts,
            method,
            settings,
            self.eval_part,
            quiet,
            self.watch,
            scratch=scratch,
            name=f"{approach}, {counted(len(data.parts[TRAIN]), 'label')}, seed {settings.seed}",
            machine=self.machine,
        )
        metrics = result.task_type.metrics(data.parts[self.eval_part], result.answers)
        value = _or_zero(metrics.values[self.task_type.measure])
        return {"value": value, "validation": _or_zero(result.validation)}

    def _print_cuts(self, encoded_parts: Mapping[str, Encoded]) -> None:
        """Print the findings of each part, such as truncation, once for each number of rows."""
        for part_name, encoded in encoded_parts.items():
            key = (part_name, len(encoded.rows))
            for finding in () if key in self.reported else encoded.findings:
                self.say(finding.of(part_name).line())
            self.reported.add(key)


def _or_zero(value: float) -> float:
    """Return `value`; 0 if undefined, such as the correlation of constant predictions."""
    return value if math.isfinite(value) else 0.0
