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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TextIO

from maskwright.base import config
from maskwright.base.errors import DataError, UsageError
from maskwright.base.metrics.paired import Verdict
from maskwright.base.metrics.seeds import over_seeds, p_by_seed
from maskwright.base.report import document
from maskwright.base.report.document import Table, figure
from maskwright.base.report.drawing.curves import Chart, Line, draw
from maskwright.base.report.drawing.svg import COLOURS, style
from maskwright.base.storage import commit
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import Say, counted, printer, quiet
from maskwright.learn.finetune import conclusion
from maskwright.learn.finetune.finished_seeds import REJECTS
from maskwright.learn.finetune.learner import BaseLearner, Learner
from maskwright.learn.finetune.method import FULL, Method
from maskwright.learn.finetune.recipe import hash_rows, hashes
from maskwright.learn.finetune.tune import Settings, Watch, watching
from maskwright.learn.pretrain.run import LOCK
from maskwright.learn.tasks.base.choices import Long
from maskwright.model.device.machine import Machine, unusual
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
        validation: as `figures`, on the validation part, by which the best method is chosen.
    """

    measure: str
    counts: list[int]
    figures: dict[str, dict[int, dict[int, float]]] = field(default_factory=dict)
    validation: dict[str, dict[int, dict[int, float]]] = field(default_factory=dict)

    @property
    def unpretrained(self) -> list[str]:
        """The methods without pretraining."""
        return [name for name in self.figures if name.endswith(UNTRAINED) or name == SCRATCH]

    def put(
        self, approach: str, count: int, seed: int, value: float, validation: float | None = None
    ) -> None:
        """Add a metric, and that on the validation part if it is another one."""
        validation = value if validation is None else validation
        for table, number in ((self.figures, value), (self.validation, validation)):
            table.setdefault(approach, {}).setdefault(count, {})[seed] = number

    def mean(self, approach: str, count: int) -> float:
        return fmean(self.figures[approach][count].values())

    def best(self, count: int, approaches: Sequence[str] = ()) -> str:
        """Return the method with the best mean on the validation part, the first of equals."""
        means = {name: fmean(values[count].values()) for name, values in self.validation.items()}
        return max(approaches or means, key=means.__getitem__)

    def apart(self, approach: str, rival: str, count: int) -> bool | None:
        """Whether two methods differ significantly over the seeds, for one family of all methods
        and numbers of labels; None if there is one seed, or if no seed changes either."""
        by_seed = {name: values[count] for name, values in self.figures.items()}
        p = p_by_seed(by_seed, approach, rival)
        varies = any(len(set(by_seed[name].values())) > 1 for name in (approach, rival))
        return p < LEVEL / len(self.counts) if p is not None and varies else None


# ------------------------------------------------------------------------------ the report
def table(curve: LabelCurve) -> Table:
    """Return a table of mean and deviation of each method at each number of labels."""

    def cell(by_seed: Mapping[int, float]) -> str:
        spread = over_seeds(list(by_seed.values()))
        return figure(spread.mean) + f" ± {figure(spread.deviation)}" * (spread.count > 1)

    return {
        "title": f"{curve.measure} by number of labels",
        "head": ["", *(f"{count:,}" for count in curve.counts)],
        "rows": [
            [approach, *(cell(by_count[count]) for count in curve.counts)]
            for approach, by_count in curve.figures.items()
        ],
        "note": "± is the standard deviation over seeds; each seed draws its own labels.",
    }


def strategy(curve: LabelCurve) -> Table:
    """Return a table of the best method by validation data, and of those not significantly
    different from it."""
    rows = []
    for count in curve.counts:
        best = curve.best(count)
        apart = {name: curve.apart(name, best, count) for name in curve.figures if name != best}
        alike, unknown = ([n for n in apart if apart[n] is value] for value in (False, None))
        shown_names = ", ".join(alike) or "–"
        if unknown and len(unknown) < len(apart):
            shown_names += f"; {NOT_KNOWN}: {', '.join(unknown)}"
        elif unknown:
            shown_names = NOT_KNOWN
        rows.append([f"{count:,}", best, figure(curve.mean(best, count)), shown_names])
    return {
        "title": "Which way at which number of labels",
        "head": ["labels", "best", curve.measure, "not significantly worse"],
        "rows": rows,
        "note": "Best by the mean on validation data. Told apart: Tukey's test in blocks of one "
        f"seed, p < {LEVEL:g} over all methods "
        "and numbers of labels; not known of one seed, or if no seed changed either figure.",
    }


def judge_curve(curve: LabelCurve) -> Verdict:
    """Judge the best method at the largest number of labels beside those without pretraining."""
    count = curve.counts[-1]
    best = curve.best(count, [name for name in curve.figures if name not in curve.unpretrained])
    rivals = {name: curve.mean(name, count) for name in curve.unpretrained}
    value, seeds = curve.mean(best, count), len(curve.figures[best][count])
    names = {rival: conclusion.spoken(rival.removesuffix(UNTRAINED)) for rival in rivals}
    strongest = max(rivals, key=rivals.__getitem__)

    def figures(rival: str) -> str:
        with_labels = f"with {counted(count, 'label')} {best} has {curve.measure} {figure(value)}"
        return f"{with_labels} ({counted(seeds, 'seed')}), {names[rival]} {figure(rivals[rival])}"

    constant = [n for n in rivals if n.removesuffix(UNTRAINED) in conclusion.CONSTANT]
    if beaten := [n for n in constant if rivals[n] >= value]:
        return Verdict("unusable", f"Unusable: {figures(beaten[0])}.", names[beaten[0]], False)
    if rivals[strongest] > value and curve.apart(best, strongest, count):
        sentence = f"{names[strongest].capitalize()} is better: {figures(strongest)}."
        return Verdict("no better", sentence, names[strongest], is_usable=False)
    as_good = [n for n in rivals if rivals[n] >= value or not curve.apart(best, n, count)]
    if as_good:
        rival = max(as_good, key=rivals.__getitem__)
        shown = "as far as these seeds show" if seeds > 1 else "as one seed tells nothing apart"
        sentence = f"No better than {names[rival]}, {shown}: {figures(rival)}."
        return Verdict("no better", sentence, names[rival])
    sentence = f"Good: {figures(strongest)}; nothing without pretraining is as good."
    return Verdict("good", sentence, names[strongest])


def render(curve: LabelCurve, about: dict[str, Any]) -> str:
    """Return the report as HTML."""
    many_seeds = any(len(by_seed) > 1 for by in curve.figures.values() for by_seed in by.values())
    has_areas = many_seeds and len(curve.figures) <= len(COLOURS)  # more would hide each other
    lines = []
    for number, (approach, by_count) in enumerate(curve.figures.items()):
        points = [(float(count), curve.mean(approach, count)) for count in curve.counts]
        spread = [(c, min(by_count[c].values()), max(by_count[c].values())) for c in curve.counts]
        areas = spread if has_areas else ()
        lines.append(Line(approach, points, style(number), dots=True, spread=areas))
    chart = Chart(
        f"{curve.measure} on the {about['asked']} part",
        lines,
        across="labels, logarithmic",
        say=figure,
        logarithmic=True,
        marks=curve.counts,
    )
    return document.render(
        "comparison.html",
        name=f"{about['task']}: {Path(about['model']).name}",
        kind="Maskwright label curve",
        verdict=judge_curve(curve).sentence,
        recipes=(),
        verdicts=(),
        findings=(),
        charts=[draw(chart)],
        areas=has_areas,
        tiles=document.tiles_of(table(curve)),
        tables=[strategy(curve), table(curve)],
    )


NAME, LINES, PAGE = "curve.json", "curve.jsonl", "report.html"
KEY = ("way", "labels", "seed", "settings")  # of a line of `LINES`
LARGEST = 1 << 20  # bytes of a line
LEAST_TO_CHOOSE_BY = 50


def measure_curve(
    learner_for: Callable[[Method], BaseLearner],
    data: Dataset,
    out: Path,
    *,
    methods: Sequence[Method],
    counts: Sequence[int],
    settings: Callable[[Method], Settings],
    seeds: Sequence[int],
    length: int | None,
    long: Long,
    machine: Machine,
    stream: TextIO | None,
) -> LabelCurve:
    """Train every method, and the same model from scratch, with each number of labels.

    Args:
        learner_for, settings: return the learner and the training settings of a method.
        counts: numbers of training rows; 0 stands for all.

    Raises:
        UsageError: there are not so many labels, or `out` has the results of another study.
        OutputError: `out` has other content.
    """
    say = printer(stream)
    commit.require_own(out, LINES, beside=(REJECTS,))
    commit.probe_writable(out)
    learner = learner_for(methods[0])
    assert isinstance(learner, Learner)  # a curve has no method without a network
    task_type, model = learner.task_type, learner.loaded
    eval_part = TEST if TEST in data.parts else VALIDATION
    total = len(data.parts[TRAIN])
    label_counts = sorted({count or total for count in counts})
    if label_counts[-1] > total or label_counts[0] < 1:
        raise UsageError(
            "the number of labels is out of range",
            where="--curve",
            found=label_counts,
            wanted=f"1 to {total:,}, or all",
        )
    about = {
        "task": task_type.task,
        "model": model.folder.name,
        "weights": hashes(model.path, model.hashes),
        "asked": eval_part,
        "data": hash_rows(data),
        "settled": dict(task_type.options),
    }
    trial = _Trial(learner_for, length, long, eval_part, machine, watching(stream), say)
    # Without pretrained weights, body and head have the same learning rate.
    from_scratch = Method(FULL, head_rate=methods[0].head_rate or 1.0)
    approaches = {**{method.name: method for method in methods}, SCRATCH: from_scratch}
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
                curve.put(name + UNTRAINED, count, seed, value, by_part[VALIDATION].get(name))
            for approach, method in approaches.items():
                seed_settings = replace(settings(method), seed=seed)
                settings_hash = config.fingerprint(trial.hashed_settings(method, seed_settings))
                row = (approach, count, seed, settings_hash[:16])
                if row not in known_rows:
                    known_rows[row] = trial.train(sampled, approach, method, seed_settings)
                    with (out / LINES).open("a", encoding="utf-8") as file:
                        named = dict(zip(KEY, row, strict=True))
                        file.write(json.dumps({**named, **known_rows[row]}) + "\n")
                        file.flush()
                        os.fsync(file.fileno())
                value = known_rows[row]["value"]
                curve.put(approach, count, seed, value, known_rows[row]["validation"])
                cell = f"{approach}, {counted(count, 'label')}, seed {seed}"
                say(f"{cell}: {curve.measure} {figure(value)}")
        test = None
        if eval_part == TEST:
            test = conclusion.record_test(data.parts[TEST], task_type.labels, TEST)
        _write(curve, about, out, say, test)
    return curve


def _write(
    curve: LabelCurve, about: dict[str, Any], out: Path, say: Say, test: dict[str, Any] | None
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
    """Read the results of earlier calls, by `KEY`. The first line of the file identifies the study;
    it is written if the file is new."""
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
    for number, row in enumerate(rows, start=2):
        figures = [value for name, value in row.items() if name not in KEY]
        is_complete = {"value", "validation"} <= row.keys() and all(
            isinstance(row.get(n), str | int) for n in KEY
        )
        if not is_complete or not all(isinstance(value, int | float) for value in figures):
            raise DataError(
                "a line is not the figures of a training",
                where=f"{path}, line {number}",
                found=json.dumps(row)[:200],
                wanted=f"{', '.join(KEY)}, value, validation",
                do="remove the line: it is measured again",
            )
    return {
        tuple(row[name] for name in KEY): {n: v for n, v in row.items() if n not in KEY}
        for row in rows
    }


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

    learner_for: Callable[[Method], BaseLearner]
    length: int | None
    long: Long
    eval_part: str
    machine: Machine
    watch: Watch
    say: Say
    reported: set[tuple[str, int]] = field(default_factory=set)

    def hashed_settings(self, method: Method, settings: Settings) -> list[Any]:
        """Return what a stored result depends on."""
        plain = [method.layer_decay, method.head_factor, config.to_plain(settings)]
        further = method.changed_settings | unusual(self.machine)
        return [*plain, self.length, self.long, *([further] if further else [])]

    def train(
        self, data: Dataset, approach: str, method: Method, settings: Settings
    ) -> dict[str, float]:
        """Train once; return "value" (metric on `eval_part`) and "validation" (of the best
        epoch). Findings on rows, such as truncation, are printed once for each number of rows."""
        learner = self.learner_for(method)
        encoded_parts = {part: learner.encode(rows) for part, rows in data.parts.items()}
        for part, encoded in encoded_parts.items():
            key = (part, len(encoded.rows))
            for finding in () if key in self.reported else encoded.findings:
                self.say(finding.of(part).line())
            self.reported.add(key)
        result = learner.learn(
            encoded_parts,
            settings,
            self.eval_part,
            quiet,
            self.watch,
            scratch=approach == SCRATCH,
            name=f"{approach}, {counted(len(data.parts[TRAIN]), 'label')}, seed {settings.seed}",
        )
        metrics = result.task_type.metrics(data.parts[self.eval_part], result.answers)
        value = _or_zero(metrics.values[learner.task_type.measure])
        return {"value": value, "validation": _or_zero(result.validation)}


def _or_zero(value: float) -> float:
    """Return `value`; 0 if undefined, such as the correlation of constant predictions."""
    return value if math.isfinite(value) else 0.0
