"""The report of a run: one self-contained page, made of the files in its folder.

Only one of the files is required; parts for which the run has no records are left out. The run may
still be active or may have stopped within a line: unreadable lines are counted and left out, an
unreadable `run.json` is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from maskwright.base.errors import CheckpointError, DataError, Finding, StorageError, UsageError
from maskwright.base.report import document
from maskwright.base.report.document import (
    Table,
    count,
    counts_of,
    duration,
    figure,
    is_in_nats,
    number,
    percent,
    predicts_pixels,
    simple_losses,
    standing,
    token_loss,
    token_parts,
    with_sentences,
)
from maskwright.base.report.drawing.curves import Chart, Line, Point, draw
from maskwright.base.report.panel import budget
from maskwright.base.storage.manifest import best_checkpoint, numbered
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import counted, shell_word

# ------------------------------------------------------------------------------ the run folder
Record = dict[str, Any]
LARGEST = 64 << 20  # bytes of run.json
EARLY_STOP = "early-stop"  # kind of a record
OVERFITTED = 0.01  # from this rise of the held-out loss on, as a share of the lowest


@dataclass(frozen=True)
class RunFolder:
    """The files of a run as plain values. `saved` is the config.json of the newest checkpoint,
    `unreadable` the number of lines left out, `written` the time of the newest record, `early_stop`
    the record of an end before the budget was used up, `best` the name of the checkpoint that is
    the model because its held-out loss is the lowest."""

    path: Path
    run: Record = field(default_factory=dict)
    train: list[Record] = field(default_factory=list)
    skipped: list[Record] = field(default_factory=list)
    evaluations: list[Record] = field(default_factory=list)
    samples: list[Record] = field(default_factory=list)
    timings: list[Record] = field(default_factory=list)
    tables: list[Record] = field(default_factory=list)
    recipe: str = ""
    checkpoints: tuple[str, ...] = ()
    saved: Record = field(default_factory=dict)
    unreadable: int = 0
    written: datetime | None = None
    early_stop: Record = field(default_factory=dict)
    best: str = ""

    @property
    def references(self) -> Record:
        return table(self.run.get("references"))

    @property
    def seconds(self) -> float:
        """Seconds of training; NaN if not recorded."""
        return number(self.timings[-1], "seconds") if self.timings else math.nan

    @property
    def share(self) -> float:
        """The share of the budget that is used, 0 to 1."""
        lasts, latest = budget(self.run), self.train[-1] if self.train else {}
        if lasts is None:
            return 0.0
        steps, tokens = number(latest, "step"), number(latest, "tokens")
        return lasts.share(steps=steps, tokens=tokens, seconds=self.seconds)

    @property
    def evaluation(self) -> Record:
        """The evaluation of the model, which is the last unless the best is kept; {} if none."""
        latest = self.evaluations[-1] if self.evaluations else {}
        at_step = {f"step-{number(r, 'step'):08.0f}": r for r in self.evaluations}
        return at_step.get(self.best, latest)

    @property
    def is_complete(self) -> bool:
        """Whether the run has ended, and was not only interrupted."""
        return bool(self.early_stop) or self.share >= 1.0

    @property
    def end(self) -> str:
        """How a run ended that stopped early, as a clause; else ""."""
        if not self.early_stop:
            return ""
        evaluations = counted(int(number(self.early_stop, "evaluations")), "evaluation")
        remaining = f"{percent(1.0 - self.share)} of its budget left"
        return f"stopped early, after {evaluations} without improvement, with {remaining}"


def read_run(folder: Path) -> RunFolder:
    """Read the folder of a run.

    Raises:
        UsageError: no such folder, or neither `run.json` nor `metrics.jsonl` is in it.
        DataError: `run.json` is not a JSON object.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError("there is no such run folder", where=folder, do="look in runs/")
    metrics_file, run_file = folder / "metrics.jsonl", folder / "run.json"
    if not metrics_file.is_file() and not run_file.is_file():
        raise UsageError(
            "this is not a run folder", where=folder, found="neither run.json nor metrics.jsonl"
        )
    run: Record = {}
    if run_file.is_file():
        run = parse_object(run_file.read_bytes(), run_file, error=DataError, largest=LARGEST)
    metrics, lost = _lines(metrics_file)
    timings, lost_timings = _lines(folder / "timings.jsonl")
    recipe_file = folder / "recipe.toml"
    checkpoints = numbered(folder / "checkpoints")
    return RunFolder(
        path=folder,
        run=run,
        train=[r for r in metrics if r.get("kind") == "train"],
        skipped=[r for r in metrics if r.get("kind") == "skipped"],
        early_stop=next((r for r in metrics if r.get("kind") == EARLY_STOP), {}),
        evaluations=[r for r in metrics if r.get("kind") == "evaluation"],
        samples=[r for r in metrics if r.get("kind") == "sample"],
        timings=timings,
        tables=document.read(folder),
        recipe=recipe_file.read_text("utf-8", "replace") if recipe_file.is_file() else "",
        checkpoints=tuple(p.name for p in checkpoints),
        saved=_saved(checkpoints[-1]) if checkpoints else {},
        best=_best(checkpoints[-1]) if checkpoints else "",
        unreadable=lost + lost_timings,
        written=datetime.fromtimestamp(metrics_file.stat().st_mtime, UTC) if metrics else None,
    )


def table(value: object) -> Record:
    """Return `value` if it is a table, else an empty one."""
    return value if isinstance(value, dict) else {}


def _saved(checkpoint: Path) -> Record:
    """Return the config.json of a checkpoint; empty if it cannot be read."""
    try:
        return table(json.loads((checkpoint / "config.json").read_text("utf-8")))
    except (OSError, ValueError, RecursionError):
        return {}


def _best(newest: Path) -> str:
    """Return the name of the checkpoint that is the model of the run in place of the newest."""
    try:
        best = best_checkpoint(newest)
        return "" if best == newest else best.name
    except (CheckpointError, StorageError):
        return ""


def _lines(path: Path) -> tuple[list[Record], int]:
    """Return the objects of a JSON-lines file and the number of invalid lines."""
    records: list[Record] = []
    lost = 0
    if path.is_file():
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    value = None
                if isinstance(value, dict):
                    records.append(value)
                elif line.strip():
                    lost += 1
    return records, lost


# ------------------------------------------------------------------------------ charts
SHORT = "{:.3g}".format
PIXEL_LOSS = "Mean absolute error of hidden pixels"
PIXEL_NOTE = (
    "Loss is the mean absolute error of the values of hidden patches. Mean and median image: of "
    "training images, at the same pixel; visible neighbours: the mean of each channel over the "
    "patches around that are seen."
)
TOKEN_NOTE = (
    "Uniform gives each token the same probability, unigram its frequency in the training text. "
    "Loss is in nats per predicted token."
)
PERPLEXITY = " In brackets its exponential, the perplexity."


def main_chart(folder: RunFolder) -> Chart:
    """Return the chart of training and held-out loss, with the losses of two trivial models."""
    axis = Axis(folder)
    references = [*simple_losses(folder.references).items()]
    held_out, of_pixels = axis.points(folder.evaluations, "loss"), predicts_pixels(folder.run)
    comparable = folder.train if of_pixels or is_in_nats(folder.run) else []
    training = [(axis.at(r), token_loss(r, folder.run)) for r in comparable]
    return Chart(
        title=PIXEL_LOSS if of_pixels else "Loss, nats per predicted token",
        lines=(
            Line("training", training, band=True),
            Line("held-out", held_out, css="two", dots=len(held_out) <= 40),
        ),
        references=references,
        across=axis.name,
        say=lambda value: figure(value, 2),
        width=480,
        height=260,
    )


def small_charts(folder: RunFolder) -> list[Chart]:
    """Return charts of accuracy, other parts of the loss, learning rate, gradient norm, speed."""
    axis = Axis(folder)
    charts = [_accuracy(folder, axis), *_other_parts(folder, axis)]
    question = next((str(r["decides"]) for r in folder.evaluations if "decides" in r), "")
    title = f"{question.capitalize()} ROC AUC (0.5 is chance)"
    charts.append(_single(title, axis.points(folder.evaluations, "told_apart"), axis, SHORT))
    rates = axis.points(folder.train, "learning_rate")
    charts.append(_single("Learning rate", rates, axis, "{:.2g}".format))
    norms = axis.points(folder.train, "gradient_norm")
    charts.append(_single("Gradient norm", norms, axis, SHORT, band=True))
    speed = axis.points(folder.timings, "tokens_per_second")
    title = f"{counts_of(folder.run).capitalize()} per second"
    charts.append(_single(title, speed, axis, count))
    return [chart for chart in charts if chart]


class Axis:
    """The horizontal axis: the tokens of a record's step, or the step if these are unknown."""

    def __init__(self, folder: RunFolder) -> None:
        steps = [*folder.train, *folder.skipped]
        self._tokens = {number(r, "step"): number(r, "tokens") for r in steps}
        has_tokens = any(math.isfinite(t) for t in self._tokens.values())
        self.name = counts_of(folder.run) if has_tokens else "steps"

    def at(self, record: Record) -> float:
        step = number(record, "step")
        return step if self.name == "steps" else self._tokens.get(step, math.nan)

    def points(self, records: list[Record], name: str) -> list[Point]:
        return [(self.at(r), number(r, name)) for r in records]


def _accuracy(folder: RunFolder, axis: Axis) -> Chart:
    records = folder.evaluations
    lines = [
        Line(name, axis.points(records, key), css=css, dots=len(records) <= 40)
        for name, key, css in (("first guess", "top1", "one"), ("in five", "top5", "three"))
    ]
    unigram = ("unigram", number(folder.references, "unigram_top1"))
    return Chart(
        title="Accuracy on held-out tokens",
        lines=lines,
        references=[unigram] if lines[0].finite else [],
        across=axis.name,
        say=lambda value: f"{value * 100:.0f} %" if value >= 0.1 else f"{value * 100:.2g} %",
        from_zero=True,
    )


def _other_parts(folder: RunFolder, axis: Axis) -> list[Chart]:
    """Return a chart for each part of the loss that does not predict tokens."""
    points: dict[str, list[Point]] = {}
    for record in folder.train:
        for name in (parts := table(record.get("parts"))):
            points.setdefault(name, []).append((axis.at(record), number(parts, name)))
    return [
        _single(f"Loss of the part “{name}”", by_step, axis, SHORT, band=True)
        for name, by_step in points.items()
        if name not in token_parts(folder.run) and not predicts_pixels(folder.run)
    ]


def _single(
    title: str, points: list[Point], axis: Axis, say: Callable[[float], str], *, band: bool = False
) -> Chart:
    return Chart(
        title=title,
        lines=(Line("last", points, band=band),),
        across=axis.name,
        say=say,
        from_zero=True,
    )


# ------------------------------------------------------------------------------ the page
NAME = "report.html"
PROMPTS, STAGES = 6, 5
MEASURES = ("loss", "top1", "top5", "bits_per_byte")
DECIDED = ("told_apart", "decided_right")  # of questions beside the tokens


def write_report(run_folder: Path) -> Path:
    """Write `report.html` into `run_folder` and return its path.

    Raises:
        UsageError: no such folder, or it is not a run's.
        DataError: `run.json` is damaged.
        OutputError, StorageError, StoppedError: the page cannot be written.
    """
    return document.write(Path(run_folder) / NAME, render(read_run(Path(run_folder))))


def render(folder: RunFolder) -> str:
    """Return the page of `folder` as HTML."""
    run, evaluations = folder.run, _evaluations(folder)
    samples = _samples(folder)
    return document.render(
        "run.html",
        name=str(run.get("recipe") or folder.path.resolve().name),
        material=_material(folder),
        kind="Maskwright run",
        summary=_summary(folder),
        about=run.get("note"),
        verdict=_verdict(folder),
        unfinished=_unfinished(folder),
        health=list(health(folder)),
        tiles=_tiles(folder),
        main_chart=draw(main_chart(folder)),
        small_charts=[draw(chart) for chart in small_charts(folder)],
        evaluation=_evaluation(folder),
        binary=_binary(folder),
        evaluations=evaluations,
        samples=samples[:PROMPTS],
        fills=any(document.filled(written) for _, written in samples),
        more_samples=len(samples) - PROMPTS,
        tables=folder.tables,
        next_steps=list(_next_steps(folder)),
        misread=document.misread(folder.saved) if folder.checkpoints and folder.saved else None,
        corpus=with_sentences(run.get("corpus")),
        machine=run.get("machine"),
        recipe=folder.recipe,
    )


# ------------------------------------------------------------------------------------ the top
def _summary(folder: RunFolder) -> str:
    run, latest = folder.run, folder.train[-1] if folder.train else {}
    model = "A model"
    if math.isfinite(number(run, "parameters")):
        model += f" of {count(number(run, 'parameters'))} parameters"
    if run.get("objective"):
        model += f" with the objective “{run['objective']}”"
    done = []
    if math.isfinite(number(latest, "step")):
        done.append(f"{number(latest, 'step'):,.0f} steps")
    if math.isfinite(number(latest, "tokens")):
        done.append(f"{count(number(latest, 'tokens'))} {counts_of(run)}")
    took = f" in {duration(folder.seconds)}" if math.isfinite(folder.seconds) else ""
    return f"{model}, trained for {' on '.join(done)}{took}." if done else f"{model}; no step yet."


def _verdict(folder: RunFolder) -> str:
    """Return what the held-out loss says, as a sentence; "" before it is known."""
    words = standing(_held_out_loss(folder), folder.references, folder.share)
    words = f"{words} on {_material(folder)} it never saw" if words else ""
    return "; ".join(filter(None, (words, folder.end)))


def _unfinished(folder: RunFolder) -> str:
    """Return the progress of a run that is not finished, else ""."""
    if folder.written is None or folder.is_complete or budget(folder.run) is None:
        return ""
    return (
        f"Not finished: {percent(folder.share)} of the budget is used up. The newest record is of "
        f"{folder.written:%d %B %Y, %H:%M} UTC."
    )


def health(folder: RunFolder) -> Iterator[Finding]:
    """Yield what is notable about how the run went."""
    yield from _which_model(folder)
    if folder.early_stop:
        rates = [number(r, "learning_rate") for r in folder.train]
        rate = percent(rates[-1] / max(rates)) if rates and max(rates) > 0 else "–"
        why = (
            f"the learning rate was at {rate} of its peak; the rest of its schedule did not happen"
        )
        yield Finding("stopped-early", f"the run {folder.end}", why)
    bad = [r for r in folder.train if not math.isfinite(number(r, "loss"))]
    if bad:
        message = f"the loss was not a number at step {number(bad[0], 'step'):.0f}"
        yield Finding("loss-not-finite", message, severity="warning")
    if folder.skipped:
        num_steps = len(folder.skipped) + len(folder.train)
        message = f"{len(folder.skipped)} of {num_steps} steps were skipped"
        why = "their loss or gradient was no finite number"
        yield Finding("steps-skipped", message, why, severity="warning")
    if folder.unreadable:
        message = f"{counted(folder.unreadable, 'line')} of the run's records could not be read"
        yield Finding("records-unreadable", message, severity="warning")


def _which_model(folder: RunFolder) -> Iterator[Finding]:
    """Yield which evaluation's model is saved, if that is a question."""
    finite = [r for r in folder.evaluations if math.isfinite(number(r, "loss"))]
    by_loss = sorted(finite, key=lambda r: number(r, "loss"))
    if len(by_loss) < 2:
        return
    best, latest = by_loss[0], folder.evaluations[-1]
    lowest, now = number(best, "loss"), number(latest, "loss")
    figures = f"held-out loss {figure(lowest)} at step {number(best, 'step'):,.0f}"
    if best is not latest:
        figures += f", {figure(now)} at the last evaluation"
    if folder.best:
        message = f"the model is the best of {len(by_loss)} evaluations, {folder.best}"
        yield Finding("best-checkpoint", message, figures)
    elif now > (1 + OVERFITTED) * lowest:
        remedy = "training.keep_best = true keeps the best one"
        message = "the held-out loss was lower before, and the model is that of the last step"
        yield Finding("lower-loss-before", message, figures, remedy)


def _tiles(folder: RunFolder) -> list[tuple[str, str]]:
    latest = folder.evaluation
    top1, unigram = number(latest, "top1"), number(folder.references, "unigram_top1")
    beside = f", by frequency {percent(unigram)}" if math.isfinite(unigram) else ""
    speeds = [number(t, "tokens_per_second") for t in folder.timings]
    speeds = sorted(s for s in speeds if math.isfinite(s))
    unit = "" if predicts_pixels(folder.run) else ", nats"
    tiles = [
        (figure(number(latest, "loss"), 2), f"held-out loss{unit}"),
        (percent(top1), f"predicted right{beside}"),
        (figure(number(latest, "bits_per_byte"), 2), "bits per byte"),
        _speed_tile(folder.run, speeds[len(speeds) // 2] if speeds else math.nan),
        (duration(folder.seconds), "of training"),
    ]
    return [(value, label) for value, label in tiles if value != "–"]


def _speed_tile(run: Record, speed: float) -> tuple[str, str]:
    of_image = number(run, "image_tokens")
    if of_image > 0:
        return count(speed / of_image), "images per second"
    return count(speed), f"{counts_of(run)} per second"


def _held_out_loss(folder: RunFolder) -> float:
    if folder.evaluations:
        return number(folder.evaluation, "loss")
    return token_loss(folder.train[-1], folder.run) if folder.train else math.nan


# ------------------------------------------------------------------------------------ the sections
def _evaluation(folder: RunFolder) -> Table:
    """Return the table of the last evaluation and of the trivial models."""
    if not folder.evaluations:
        return {}
    model_name = str(folder.run.get("scored_by") or "this model")
    rows = {model_name: folder.evaluation, **_reference_rows(folder.references)}
    measures, coding = _measures(folder), _is_coding(folder)
    return {
        "title": f"{'Best' if folder.best else 'Last'} evaluation, with baselines",
        "head": ["", *map(_heading, measures)],
        "rows": [[name, *(_cell(row, m, coding) for m in measures)] for name, row in rows.items()],
        "note": PIXEL_NOTE if predicts_pixels(folder.run) else TOKEN_NOTE + PERPLEXITY * coding,
        "own_first": True,
    }


def _measures(folder: RunFolder) -> list[str]:
    """Return the measures that the last evaluation or a trivial model has."""
    records = [folder.evaluation, *_reference_rows(folder.references).values()]
    return [m for m in MEASURES if any(math.isfinite(number(row, m)) for row in records)]


def _binary(folder: RunFolder) -> dict[str, str]:
    """Return the last figures of the binary predictions of an objective."""
    latest = folder.evaluation
    if not math.isfinite(number(latest, "told_apart")):
        return {}
    return {
        "what": str(latest.get("decides")).capitalize(),
        "told_apart": figure(number(latest, "told_apart")),
        "right": percent(number(latest, "decided_right")),
        "usual": percent(number(latest, "decided_usual")),
    }


def _evaluations(folder: RunFolder) -> Table:
    """Return the table of evaluations by step; empty for a single one."""
    if len(folder.evaluations) < 2:
        return {}
    latest = folder.evaluations[-1]
    shown = [m for m in (*_measures(folder), *DECIDED) if math.isfinite(number(latest, m))]
    return {
        "title": "Held-out figures by step",
        "head": ["step", *map(_heading, shown)],
        "rows": [
            [f"{number(r, 'step'):.0f}", *(_cell(r, m, _is_coding(folder)) for m in shown)]
            for r in folder.evaluations
        ],
    }


def _reference_rows(references: Record) -> dict[str, Record]:
    """{"unigram_loss": x, "unigram_top1": y, ...} as one row per name, best loss first."""
    rows: dict[str, Record] = {}
    for key, value in references.items():
        for measure in MEASURES:
            if key.endswith(f"_{measure}"):
                rows.setdefault(key.removesuffix(f"_{measure}"), {})[measure] = value
    return dict(sorted(rows.items(), key=lambda item: (number(item[1], "loss"), item[0])))


def _heading(measure: str) -> str:
    names = {
        "top1": "first guess right",
        "top5": "right in five",
        "told_apart": "ROC AUC of the decision",
        "decided_right": "decided right",
    }
    return names.get(measure, measure.replace("_", " "))


def _is_coding(folder: RunFolder) -> bool:
    """Whether the loss is that of a language model, which has a perplexity."""
    return math.isfinite(number(folder.evaluations[-1], "bits_per_byte"))


def _cell(row: Record, measure: str, coding: bool) -> str:
    value = number(row, measure)
    if measure == "loss" and coding:
        return f"{figure(value)} ({figure(math.exp(min(value, 60.0)), 1)})"
    shares = measure.startswith("top") or measure == "decided_right"
    return percent(value) if shares else figure(value)


def _samples(folder: RunFolder) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each prompt with some of its samples: (step, text)."""
    prompts: dict[str, list[tuple[str, str]]] = {}
    for record in folder.samples:
        sample = f"{number(record, 'step'):.0f}", str(record.get("text") or "")
        prompts.setdefault(str(record.get("prompt") or ""), []).append(sample)
    return [(prompt, _spread(samples)) for prompt, samples in prompts.items()]


def _spread(samples: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the first, the last and some evenly spaced samples."""
    if len(samples) <= STAGES:
        return samples
    return [samples[round(i * (len(samples) - 1) / (STAGES - 1))] for i in range(STAGES)]


def next_commands(run: Path) -> list[str]:
    """Return commands for the model of a complete run."""
    where, folder = shell_word(run), read_run(run)
    of_images = predicts_pixels(folder.run)
    look = f"attention {where} --image FILE" if of_images else f"explore {where}"
    return [*_ask(folder), f"maskwright finetune {where} --data FILE", f"maskwright {look}"]


def _ask(folder: RunFolder) -> list[str]:
    """Return the command that queries the model of a run; empty if there is none."""
    if not folder.checkpoints or not (ask := table(folder.run.get("ask"))):
        return []
    verb, prompt = shell_word(str(ask.get("verb"))), shell_word(_prompt(folder, ask))
    return [f"maskwright {verb} {shell_word(folder.path)} {prompt}"]


def _material(folder: RunFolder) -> str:
    return "images" if predicts_pixels(folder.run) else "text"


def _next_steps(folder: RunFolder) -> Iterator[tuple[str, str]]:
    """Yield (label, command) for the folder where the run was started."""
    where, material = shell_word(folder.path), _material(folder)
    yield from (("Ask it", command) for command in _ask(folder))
    if folder.checkpoints and not folder.is_complete:
        yield "Continue the training", f"maskwright resume {where}"
    elif folder.checkpoints:
        command = f"maskwright adapt {where} --text your-{material}/ --out runs/further"
        yield f"Continue pretraining on your own {material}", command
    if folder.recipe:
        command = f"maskwright pretrain {where}/recipe.toml --text your-{material}/ --out runs/mine"
        yield f"The same recipe on your own {material}", command
    if folder.checkpoints and folder.saved:
        checkpoint = f"{folder.path}/checkpoints/{folder.best or folder.checkpoints[-1]}"
        yield "In Python", document.opening_code(folder.saved, checkpoint)


def _prompt(folder: RunFolder, ask: Record) -> str:
    """Return a short prompt of the samples if these are plain text, else the one of the run."""
    samples = folder.samples if ask.get("prompt_of_samples") else []
    prompts = [str(sample.get("prompt") or "") for sample in samples]
    return next((p for p in prompts if 0 < len(p) <= 60), str(ask.get("prompt") or ""))
