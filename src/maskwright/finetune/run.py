"""From a model folder and labelled rows to a fine-tuned model, over several seeds.

    out/
      model/         the best seed by validation, a Hugging Face folder with the names of the labels
      adapter/       what was trained, where a method trains little, as `peft` reads it if it can;
                     folded into the model above where it can be, else read beside it
      task.json      what is read of a file, and how, to predict with it
      results.json   every seed's figures, the chosen one's with intervals, the baselines
      report.html    the same to look at, with the figures of each class and the worst mistakes
      finetune.toml  what it was made from, to make it again (recipe.py)

Each seed draws another head and another order. Epoch and seed are chosen on validation data; the
test part is asked once, at the end. A stop costs one seed at most (kept.py). Everything is said
beside what needs no pretraining, such as the commonest label. What a task asks of the model is a
`Kind` (kind.py, kinds/).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from maskwright import commit
from maskwright.adapters import folder as folder_of_adapters
from maskwright.adapters.adapter import Adapter
from maskwright.checkpoint import pretrained
from maskwright.checkpoint.layout import About
from maskwright.config import fingerprint
from maskwright.errors import UsageError
from maskwright.evaluate import intervals
from maskwright.finetune import page
from maskwright.finetune.card import card
from maskwright.finetune.hashes import hash_rows, hashes
from maskwright.finetune.kept import FOLDER, Kept
from maskwright.finetune.kind import Encoded, Long, kind_of
from maskwright.finetune.learner import Learner, Seed
from maskwright.finetune.method import FULL, Method
from maskwright.finetune.progress import watching
from maskwright.finetune.tune import Settings, passes_of
from maskwright.objectives.supervised import Problem
from maskwright.pretrain import checkpoints
from maskwright.pretrain.checkpoints import MODEL, TASK
from maskwright.pretrain.run import LOCK
from maskwright.report import document, tables
from maskwright.report.say import printer
from maskwright.report.tables import Table
from maskwright.tasks import examples as labelled
from maskwright.tasks.labels import Vocabulary
from maskwright.tasks.parts import TEST, TRAIN, VALIDATION
from maskwright.train.optimizer import AdamW

RESULTS, ADAPTER, PAGE = "results.json", "adapter", "report.html"
PROBLEM_TYPES: dict[Problem, str] = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "regression": "regression",
}
# What the reference library asks a folder of ours by, in its last two generations.
PIPELINES = ("text-classification", "token-classification")
EVERYTHING = Method(FULL)


def finetune(
    folder: Path,
    data: labelled.Examples,
    out: Path,
    *,
    method: Method = EVERYTHING,
    settings: Settings | None = None,
    seeds: int = 3,
    length: int | None = None,
    long: Long = "head",
    settled: Mapping[str, Any] | None = None,
    origin: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
) -> Path:
    """Fine-tune the model in `folder` (also a run) on the training part of `data`.

    Args:
        method: what of the model trains, and how fast beside the rate in `settings`.
        settings: None: the published ones, with a rate that fits method and width.
        length: the most ids of an example; None: what the model has positions for, at most 512.
        long: what becomes of a whole text that is longer.
        settled: what of the kind is chosen beforehand, such as the "prompt" of written answers.
        origin: the SHA-256 of each file that `data` comes from, for the model card.

    Returns:
        The model folder.

    Raises:
        UsageError: a task that is not learned here, or a model in `out` already.
        IncompatibleError: a model without tokenizer.
    """
    say = printer(stream)
    kind = kind_of(data.task.kind, () if data.labels is None else data.labels.names, settled)
    kind = kind.of_data(data)
    require_unfinished(out)
    commit.probe_writable(out)
    learner = Learner.of(folder, kind, method, length, long)
    settings = settings or Settings(
        optimizer=AdamW(learning_rate=method.rate(learner.config.width))
    )
    parts = {part: kind.encode(rows, learner.frame) for part, rows in data.parts.items()}
    for part, encoded in parts.items():
        if encoded.cut:
            say(f"{part}: {encoded.cut}")
    passes = passes_of(settings, len(parts[TRAIN].examples))
    if passes > 1:
        say(f"each epoch is {passes} passes over the {len(data.parts[TRAIN]):,} rows, for "
            f"at least {settings.least_steps} steps in all")  # fmt: skip
    last = TEST if TEST in parts else VALIDATION
    plain_method = replace(method, head_rate=method.head_factor)  # however it was said
    kept = Kept(out, {
        "model": fingerprint(hashes(learner.path)),
        "data": hash_rows(data),
        "task": [kind.task, kind.labels, kind.settled],
        "settings": fingerprint([settings, plain_method, learner.frame.length, long]),
    })  # fmt: skip
    factor = learner.head_factor(method)
    facts = {
        "method": method.name,
        "layer decay": method.layer_decay,
        **({} if factor == 1.0 else {"new head's learning rate": f"{factor:g} ×"}),
        "optimizer": settings.optimizer.kind,
        "learning rate": f"{settings.optimizer.learning_rate:g}",
        "weight decay": settings.optimizer.decay,
        "warm-up": f"{settings.schedule.warmup:g} of the run",
        "epochs": settings.epochs,
        "passes over the rows in each": passes,
        "batch": settings.batch,
        **({} if settings.accumulate == 1 else {"portions of a step": settings.accumulate}),
        **({"prompt": kind.settled["prompt"]} if "prompt" in kind.settled else {}),
        "longest text": f"{learner.frame.length} tokens"
        + (", longer ones in windows" if kind.head in ("token", "span") else f", {long}"),
        "seeds tried": seeds,
    }
    if learner.family is None:
        say("note: no class of the reference library has such a model, so what is saved is read by "
            "Maskwright alone")  # fmt: skip
    with commit.Lock(out / LOCK):
        require_unfinished(out)  # another process may have ended it meanwhile
        kept.require_same()
        found: list[Seed] = []
        watch = watching(stream)
        try:
            for seed in range(seeds):
                chosen = replace(settings, seed=seed)
                found.append(learner.learn(parts, method, chosen, last, say, watch, kept=kept))
        except KeyboardInterrupt:
            say(f"stopped; finished seeds are kept ({len(found)}): the same command goes on")
            raise
        if (out / MODEL).exists():  # of a try that was stopped while it wrote
            commit.remove_folder(out / MODEL)
        _write(out, learner, data, parts, method, found, facts, origin or {}, say)
        kept.finish()
    say(f"model: {out / MODEL}\nnext: maskwright predict {out} FILE")
    return out / MODEL


def require_unfinished(out: Path) -> None:
    """Refuse a folder with a finished model; one that was stopped while writing still has what its
    seeds came to.

    Raises:
        UsageError: the model is there already.
    """
    if (out / MODEL).exists() and not (out / FOLDER).is_dir():
        raise UsageError("a fine-tuned model is there already", where=out / MODEL,
                         do="choose another --out")  # fmt: skip


def _write(
    out: Path,
    learner: Learner,
    data: labelled.Examples,
    parts: Mapping[str, Encoded],
    method: Method,
    found: Sequence[Seed],
    facts: Mapping[str, Any],
    origin: Mapping[str, str],
    say: Callable[[str], None],
) -> None:
    """Say what the seeds came to, and write the best of them with all that belongs to it."""
    kind, last = learner.kind, TEST if TEST in parts else VALIDATION
    best = max(found, key=lambda one: (one.validation, -one.seed))
    shown = _table(data, last, found, best)
    say("\n" + tables.for_terminal(shown))
    if best.adapter is not None:
        folder_of_adapters.save(best.adapter, out / ADAPTER, base=str(learner.path),
                                family=learner.family)  # fmt: skip
    attached = _left_beside(best.adapter)
    facts = {
        **facts, "chosen": f"seed {best.seed}, epoch {best.tuned.epoch}, by the validation part",
    }  # fmt: skip
    readme = card(
        kind=kind,
        name=out.resolve().name,
        base=checkpoints.called(learner.path),
        data=origin,
        rows={part: len(each) for part, each in data.parts.items()},
        cut={part: encoded.cut for part, encoded in parts.items()},
        settings=facts,
        asked=last,
        figures=kind.measured(parts[last].rows, best.answers),
        table=shown,
        plain=learner.family is not None,
        loads=_loads(out, learner, attached),
    )
    problem_type = PROBLEM_TYPES[kind.problem] if kind.head == "sequence" else None
    about = About(
        family=learner.family,
        labels=() if kind.writes else kind.labels,
        problem_type=problem_type,
        readme=readme,
        decoder_start=learner.collation.decoder_start,
    )
    pretrained.save(best.tuned.model, learner.frame.tokenizer.padding(), out / MODEL, about)
    for name, text in kind.files(learner.frame, learner.config.width).items():
        (out / MODEL / name).parent.mkdir(exist_ok=True)
        document.write(out / MODEL / name, text)
    roles = data.task.columns.roles
    task = {
        "kind": kind.task,
        "columns": {role: list(names) for role, names in roles.items() if role in kind.roles},
        "targets": {role: list(names) for role, names in roles.items() if role not in kind.roles},
        "length": learner.frame.length,
        "long": learner.frame.long,
        "labels": list(kind.labels),
        "values": _numbers(data.labels),
        "settled": dict(best.kind.settled),
        "attached": attached,
    }
    for folder in (out, out / MODEL):  # a model that is copied away is read as it was trained
        document.write(folder / TASK, json.dumps(task, indent=2) + "\n")
    plain = {
        "task": kind.task, "method": method.name, "layer_decay": method.layer_decay,
        "head_rate": learner.head_factor(method),
        "measure": kind.measure, "asked": last,
        "chosen": best.seed, "cut": {part: encoded.cut for part, encoded in parts.items()},
        "seeds": [
            {"seed": one.seed, "epoch": one.tuned.epoch,
             "validation": [_finite(v) for v in one.tuned.figures],
             "loss": one.tuned.losses, "seconds": one.tuned.seconds,
             **{m: _finite(v) for m, v in kind.measured(parts[last].rows, one.answers).items()}}
            for one in found
        ],
        "table": shown,
    }  # fmt: skip
    document.write(out / RESULTS, json.dumps(plain, indent=2) + "\n")
    shown_page = page.render(
        name=out.resolve().name,
        kind=best.kind,
        asked=last,
        table=shown,
        figures={f"seed {one.seed}": one.tuned.figures for one in found},
        losses={f"seed {one.seed}": one.tuned.losses for one in found},
        rows=parts[last].rows,
        answers=best.answers,
        mistakes=best.kind.mistakes(parts[last], best.outputs),
        facts={"model": checkpoints.called(learner.path), **facts, "data": dict(origin)},
    )
    say(f"report: {document.write(out / PAGE, shown_page)}")


def _loads(out: Path, learner: Learner, attached: bool) -> list[str]:
    """How the model is used; `attached`: only with the adapter beside it."""
    name, kind, frame = out.resolve().name, learner.kind, learner.frame
    lines = ["import maskwright", f"maskwright.load({name!r}).predict([…])"]
    if attached:
        lines.insert(0, f"# What was learned is in {name}/{ADAPTER}; {MODEL}/ alone goes without.")
    elif learner.family is not None and kind.pipeline in PIPELINES:
        lines += ["", "from transformers import pipeline",
                  f"ask = pipeline({kind.pipeline!r}, model='{name}/{MODEL}')"]  # fmt: skip
        if kind.head == "sequence":
            cut = "" if frame.long == "head" else f" (their head; {frame.long} is Maskwright's)"
            several = ", top_k=None" if kind.problem == "multi" else ""
            lines += [f"ask('…', truncation=True, max_length={frame.length}{several})  "
                      f"# cuts longer texts{cut}"]  # fmt: skip
            if several:
                lines += ["# Every label with its score; those above 0.5 are told."]
        else:
            lines += ["ask('…')"]
    elif learner.family is not None and kind.head is None and not kind.writes:
        lines += ["", "from sentence_transformers import SentenceTransformer",
                  f"SentenceTransformer('{name}/{MODEL}').encode(['…'])"]  # fmt: skip
    return lines


def _left_beside(adapter: Adapter | None) -> bool:
    """Make the model an ordinary one; whether its adapter has to be attached again to use it."""
    if adapter is None:
        return False
    if adapter.settings.merges:
        adapter.merge()
        return False
    adapter.detach()
    return True


def _table(data: labelled.Examples, asked: str, found: Sequence[Seed], best: Seed) -> Table:
    """The figures of the chosen seed and of the baselines, with intervals; the spread of seeds."""
    kind, truth, rows = best.kind, data.parts[asked], []
    for name, answers in [
        (f"fine-tuned, seed {best.seed}", best.answers),
        *kind.baselines(data, asked),
    ]:
        rows.append([name, *(each.render() for each in kind.estimated(truth, answers).values())])
    if len(found) > 1:
        each = [kind.measured(truth, one.answers) for one in found]
        spreads = (intervals.over_seeds([e[m] for e in each]) for m in kind.measures)
        rows.insert(1, [f"all {len(found)} seeds", *map(_spread, spreads)])
    return {
        "title": f"{kind.task} on the {asked} part, {len(truth):,} examples",
        "own_first": True,
        "head": ["", *kind.measures],
        "rows": rows,
        "note": "95 % intervals by resampling the examples; ± is the standard deviation over "
        f"seeds. Epoch and seed were chosen on {VALIDATION} data."
        + (" There is no test part: these figures flatter." if asked == VALIDATION else ""),
    }


def _numbers(known: Vocabulary | None) -> list[int] | None:
    """What stands for the classes in the data, where these are numbers."""
    if known is None or not known.has_numbers:
        return None
    return [value for value in known.values if isinstance(value, int)]


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _spread(spread: intervals.Spread) -> str:
    """Mean and deviation; a dash where one seed's figure is not defined."""
    if not math.isfinite(spread.mean):
        return "–"
    return f"{spread.mean:.4f} ± {spread.deviation:.4f}"
