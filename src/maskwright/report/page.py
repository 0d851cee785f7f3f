"""`write_report(run_folder)`: one page about a run that needs nothing but itself.

Every text from the run is escaped; what the run does not have is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from maskwright.report import markup, opened, tables
from maskwright.report.curves import draw
from maskwright.report.document import document, write
from maskwright.report.run_charts import main_chart, small_charts
from maskwright.report.run_folder import Record, RunFolder, read, table
from maskwright.report.svg import escape
from maskwright.report.wording import (
    count,
    duration,
    figure,
    number,
    percent,
    standing,
    token_loss,
)
from maskwright.terminal import shell_word

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
    return write(Path(run_folder) / NAME, render(read(Path(run_folder))))


def render(folder: RunFolder) -> str:
    """The page of `folder` as text."""
    name = str(folder.run.get("recipe") or folder.path.resolve().name)
    summary = "".join(f"<p>{line}</p>" for line in _summary(folder))
    head = f"{summary}{_warnings(folder)}{_tiles(folder)}"
    return document(name, "Maskwright run", head, _sections(folder))


def _sections(folder: RunFolder) -> Iterator[tuple[str, str]]:
    yield "Curves", _curves(folder)
    yield "Held-out text", _evaluation(folder)
    yield "What the model writes", _samples(folder)
    for made in folder.tables:
        yield escape(made.get("title", "")), tables.for_page(made)
    yield "How to go on", _next_steps(folder)
    corpus = folder.run.get("corpus")
    yield "The text it was trained on", markup.facts(corpus) if corpus else ""
    machine = folder.run.get("machine")
    yield "The machine", markup.facts(machine) if machine else ""
    if folder.recipe:
        words = "Every choice of the run. It can be run again as it stands."
        yield "The recipe", f'<p class="soft">{words}</p>{markup.block(folder.recipe)}'


# ------------------------------------------------------------------------------------ the top
def _summary(folder: RunFolder) -> Iterator[str]:
    """What was trained, in at most three lines."""
    run, last = folder.run, folder.train[-1] if folder.train else {}
    model = "A model"
    if math.isfinite(number(run, "parameters")):
        model += f" of {count(number(run, 'parameters'))} parameters"
    if run.get("objective"):
        model += f" with the objective “{escape(run['objective'])}”"
    done = []
    if math.isfinite(number(last, "step")):
        done.append(f"{number(last, 'step'):,.0f} steps")
    if math.isfinite(number(last, "tokens")):
        done.append(f"{count(number(last, 'tokens'))} tokens")
    seconds = folder.seconds
    took = f" in {duration(seconds)}" if math.isfinite(seconds) else ""
    yield f"{model}, trained for {' on '.join(done)}{took}." if done else f"{model}; no step yet."
    if run.get("note"):
        yield f'<span class="soft">{escape(run["note"])}</span>'
    loss = _held_out_loss(folder)
    words = standing(loss, folder.references, folder.share)
    if words:
        yield f"On text it never saw: <strong>{escape(words)}</strong>."


def _warnings(folder: RunFolder) -> str:
    found = []
    bad = next((r for r in folder.train if not math.isfinite(number(r, "loss"))), None)
    if bad is not None:
        found.append(f"The loss was not a number at step {number(bad, 'step'):.0f}.")
    if folder.skipped:
        of = len(folder.skipped) + len(folder.train)
        found.append(
            f"{len(folder.skipped)} of {of} steps were skipped: their loss or gradient "
            "was no finite number."
        )
    if folder.unreadable:
        lines = "line" if folder.unreadable == 1 else "lines"
        found.append(f"{folder.unreadable} {lines} of the run's records could not be read.")
    return "".join(f'<p class="warning">{escape(words)}</p>' for words in found)


def _tiles(folder: RunFolder) -> str:
    last = folder.evaluations[-1] if folder.evaluations else {}
    top1, unigram = number(last, "top1"), number(folder.references, "unigram_top1")
    beside = f", by frequency {percent(unigram)}" if math.isfinite(unigram) else ""
    speeds = [number(t, "tokens_per_second") for t in folder.timings]
    speeds = sorted(s for s in speeds if math.isfinite(s))
    tiles = [
        (figure(number(last, "loss"), 2), "held-out loss, nats"),
        (percent(top1), f"predicted right{beside}"),
        (figure(number(last, "bits_per_byte"), 2), "bits per byte"),
        (count(speeds[len(speeds) // 2]) if speeds else "–", "tokens per second"),
        (_took(folder.seconds), "of training"),
    ]
    items = "".join(
        f"<li><b>{escape(value)}</b><span>{escape(what).replace(' %', '&nbsp;%')}</span></li>"
        for value, what in tiles
        if value != "–"
    )
    return f'<ul class="tiles">{items}</ul>' if items else ""


def _took(seconds: float) -> str:
    """One number and its unit: 48 s, 3.6 min, 2.1 h."""
    if not seconds >= 100:
        return duration(seconds)
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _held_out_loss(folder: RunFolder) -> float:
    if folder.evaluations:
        return number(folder.evaluations[-1], "loss")
    return token_loss(folder.train[-1], folder.run) if folder.train else math.nan


# ------------------------------------------------------------------------------------ the sections
def _curves(folder: RunFolder) -> str:
    large = draw(main_chart(folder))
    small = "".join(f"<div>{draw(chart)}</div>" for chart in small_charts(folder))
    return large + (f'<div class="small">{small}</div>' if small else "")


def _evaluation(folder: RunFolder) -> str:
    """The model's last figures above those that need no model; then how they came about."""
    if not folder.evaluations:
        return ""
    last = folder.evaluations[-1]
    own = str(folder.run.get("scored_by") or "this model")
    known = {own: last, **_reference_rows(folder.references)}
    measures = [m for m in MEASURES if any(math.isfinite(number(r, m)) for r in known.values())]
    head = ["", *(_heading(m) for m in measures)]
    rows = [[name, *(_cell(row, m) for m in measures)] for name, row in known.items()]
    text = f'<div class="first">{markup.table(head, rows)}</div>'
    text += (
        '<p class="note">Uniform guesses every token evenly; unigram by how often each occurs '
        "in the training text. Loss is in nats per predicted token; perplexity its exponential.</p>"
    )
    if math.isfinite(number(last, "told_apart")):
        right, usual = (percent(number(last, n)) for n in ("decided_right", "decided_usual"))
        text += (
            f"<p>{escape(str(last.get('decides')).capitalize())} told apart: "
            f"<b>{figure(number(last, 'told_apart'))}</b>, where 0.5 is chance and 1 would be "
            f"without fault; {right} decided right, always giving the commoner answer {usual}.</p>"
        )
    if len(folder.evaluations) > 1:
        shown = [m for m in (*measures, *DECIDED) if math.isfinite(number(last, m))]
        course = [
            [f"{number(r, 'step'):.0f}", *(_cell(r, m) for m in shown)] for r in folder.evaluations
        ]
        inner = markup.table(["step", *(_heading(m) for m in shown)], course)
        text += f"<details><summary>All {len(course)} evaluations</summary>{inner}</details>"
    return text


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
        "loss": "loss (perplexity)",
        "top1": "first guess right",
        "top5": "right in five",
        "told_apart": "yes and no told apart",
        "decided_right": "decided right",
    }
    return names.get(measure, measure.replace("_", " "))


def _cell(row: Record, measure: str) -> str:
    value = number(row, measure)
    if measure == "loss" and math.isfinite(value):
        return f"{figure(value)} ({figure(math.exp(min(value, 60.0)), 1)})"
    shares = measure.startswith("top") or measure == "decided_right"
    return percent(value) if shares else figure(value)


def _samples(folder: RunFolder) -> str:
    """For each prompt, what the model made of it early and late."""
    prompts: dict[str, list[Record]] = {}
    for record in folder.samples:
        prompts.setdefault(str(record.get("prompt") or ""), []).append(record)
    parts = []
    for prompt, records in list(prompts.items())[:PROMPTS]:
        if prompt:
            parts.append(f"<h3>{escape(prompt)}</h3>")
        lines = "".join(
            f"<p><span>step {number(r, 'step'):.0f}</span>"
            f"<q>{markup.marked(prompt, str(r.get('text') or ''))}</q></p>"
            for r in _spread(records)
        )
        parts.append(f'<div class="samples">{lines}</div>')
    left = len(prompts) - PROMPTS
    if left > 0:
        parts.append(f'<p class="note">{left} more prompts are in metrics.jsonl.</p>')
    return "".join(parts)


def _spread(records: list[Record]) -> list[Record]:
    """The first, the last, and some evenly between."""
    if len(records) <= STAGES:
        return records
    last = len(records) - 1
    return [records[round(i * last / (STAGES - 1))] for i in range(STAGES)]


def _next_steps(folder: RunFolder) -> str:
    """Commands that work from where the run was started."""
    where = shell_word(folder.path)
    steps = []
    if folder.checkpoints and (ask := table(folder.run.get("ask"))):
        prompt = shell_word(_prompt(folder, ask))
        steps.append(("Ask it", f"maskwright {shell_word(str(ask.get('verb')))} {where} {prompt}"))
    if folder.checkpoints and folder.share < 1.0:
        steps.append(("Train further, from where it stopped", f"maskwright resume {where}"))
    elif folder.checkpoints:
        command = f"maskwright adapt {where} --text your-texts/ --out runs/further"
        steps.append(("Train it further, on text of your own", command))
    if folder.recipe:
        command = f"maskwright pretrain {where}/recipe.toml --text your-texts/ --out runs/mine"
        steps.append(("The same recipe on your own text", command))
    warning = ""
    if folder.checkpoints and folder.saved:
        place = f"{folder.path}/checkpoints/{folder.checkpoints[-1]}"
        warning = opened.misread(folder.saved)
        steps.append(("In Python", opened.code(folder.saved, place)))
    shown = "".join(f"<h3>{escape(what)}</h3>{markup.block(how)}" for what, how in steps)
    return shown + (f'<p class="warning">{escape(warning)}</p>' if warning else "")


def _prompt(folder: RunFolder, ask: Record) -> str:
    """A short prompt of the run's samples where these are plain text, or the one that it names."""
    samples = folder.samples if ask.get("prompt_of_samples") else []
    prompts = [str(sample.get("prompt") or "") for sample in samples]
    return next((p for p in prompts if 0 < len(p) <= 60), str(ask.get("prompt") or ""))
