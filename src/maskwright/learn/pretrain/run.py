"""`pretrain(recipe, out)` and `resume(out)`: a whole run, from text to a model folder.

    out/
      recipe.toml         the resolved recipe, runnable as it stands
      run.json            what is trained, on what, where; the reference losses
      metrics.jsonl       one line per step, evaluation and sample; equal for equal runs
      timings.jsonl       seconds, tokens per second, memory
      tokenizer/  data/   made from the recipe's text
      checkpoints/        Hugging Face folders, each with the training state
      report.html         written at the end, and when it is stopped
      crash/              reports on steps whose loss was not finite

`pretrain` writes the recipe and `resume` reads it; after that both share all code. A resumed run is
bit-exact with the same build of torch, thread count and precision; if one of these changed, the run
continues with a warning.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TextIO

from maskwright.base import config, memory, threads
from maskwright.base.errors import (
    ConfigError,
    Finding,
    IncompatibleError,
    MaskwrightError,
    OutputError,
    ResourceError,
    StoppedError,
    UsageError,
)
from maskwright.base.report import document
from maskwright.base.report.page import health, read_run, write_report
from maskwright.base.report.panel import Panel
from maskwright.base.storage import commit
from maskwright.base.storage.files import DOOMED, TEMPORARY
from maskwright.base.storage.manifest import best_checkpoint
from maskwright.base.terminal import Say, printer, quiet, shell_word
from maskwright.learn.pretrain import build, checkpoints
from maskwright.learn.pretrain.prepare import (
    HELD_OUT,
    PreparedCorpus,
    is_prepared,
    prepare,
    take_tokens,
    text_changed,
    text_is_there,
)
from maskwright.learn.pretrain.rows import Microbatches, held_out_rows, token_counts
from maskwright.learn.pretrain.session import (
    RUN,
    EvaluateHook,
    LogHook,
    SaveHook,
    TrainingSession,
    held_out_by_value,
    less_memory,
)
from maskwright.learn.recipes.base.find import read
from maskwright.learn.recipes.base.recipe import INEXACT, Recipe, TokenizerFolder, frozen_part
from maskwright.learn.train import loop, state
from maskwright.learn.train.state import DivergedError, listening
from maskwright.model.checkpoint.pretrained import CONFIG
from maskwright.model.checkpoint.safe_read import read_json
from maskwright.model.device import machine
from maskwright.model.device.step_cost import training_flops
from maskwright.model.inference.held_out_loss import evaluation_batches
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.opening.folders import has_checkpoint
from maskwright.text.corpus.saved import is_run
from maskwright.text.store.loader import Loader

RECIPE, LOCK = "recipe.toml", "run.lock"
REFUSED, REJECTS = "refused.toml", "rejects.jsonl"
PASSING = (LOCK, TEMPORARY, DOOMED, REJECTS)
TRIAL_ROWS = 64
CRASHES, CRASH_ROWS, CRASH_TOKENS = "crash", 8, 64
AdjustRecipe = Callable[[Recipe, PreparedCorpus], Recipe]


def flops_of_phases(recipe: Recipe, prepared: PreparedCorpus, objective: Objective) -> list[float]:
    """Return the floating-point operations of matrix products, forward and backward, per token in
    each phase of the run, measured on held-out rows."""
    objective.use_corpus(prepared.train, partial(token_counts, recipe, prepared))
    flops, start = list[float](), 0.0
    for phase in recipe.phases:
        rows = held_out_rows(recipe, prepared.held_out, phase.length)
        middle, start = (start + phase.until) / 2, phase.until  # where changing rates are average
        batch = next(evaluation_batches(objective, rows, TRIAL_ROWS, TRIAL_ROWS, middle))
        flops.append(training_flops(objective, batch) / batch.tokens.shape[:2].numel())
    return flops


def flops_per_token(recipe: Recipe, prepared: PreparedCorpus, objective: Objective) -> float:
    """Return the mean of `flops_of_phases` over the run."""
    start, mean = 0.0, 0.0
    for phase, flops in zip(
        recipe.phases, flops_of_phases(recipe, prepared, objective), strict=True
    ):
        mean, start = mean + (phase.until - start) * flops, phase.until
    return mean


def with_counted_budget(recipe: Recipe, prepared: PreparedCorpus) -> Recipe:
    """Return `recipe`, with a budget in floating-point operations converted to tokens."""
    if recipe.training.budget.flops is None:
        return recipe
    network = build.model(recipe, build.transformer_config(recipe, prepared.words))
    objective = build.objective(recipe, network, prepared.words)
    per_token = flops_per_token(recipe, prepared, objective)
    budget = recipe.training.budget.in_tokens(per_token)
    return replace(recipe, training=replace(recipe.training, budget=budget))


class Stopped(SystemExit):
    """A signal stopped the run after a checkpoint was saved; the exit code is 128 + the signal."""


@contextlib.contextmanager
def _leaving_nothing(out: Path, missing: Sequence[Path], fresh: bool) -> Iterator[None]:
    """Context that cleans up the output folder, if it is `fresh`, when an error occurs before the
    first step. Enter it while holding the folder's lock.

    A failed command leaves nothing in a new folder that would stop the corrected command, except a
    completely prepared text, which may have taken hours, with its recipe in `refused.toml`: the
    next command there uses it, or removes it if it reads another text.

    Args:
        missing: `out` and its parents, as far as the command had to create them.
    """
    try:
        yield
    except StoppedError:  # the same command continues from what is there
        raise
    except MaskwrightError:
        if fresh and not _has_trained(out):
            with contextlib.suppress(OSError, MaskwrightError):
                _clean_up(out, missing)
        raise


def _clean_up(out: Path, missing: Sequence[Path]) -> None:
    if (out / "data" / HELD_OUT).is_dir():
        (out / RECIPE).rename(out / REFUSED)
        return
    _clear(out)
    if (out / REJECTS).is_file():
        if (out / REJECTS).stat().st_size:
            return  # the error message names it
        (out / REJECTS).unlink()
    for path in missing:
        for lock in path.glob(f"{LOCK}*") if path == out else ():
            lock.unlink()
        path.rmdir()  # fails if other files are there by now


def pretrain(
    recipe: Recipe,
    out: Path | str,
    *,
    origin: Path | None = None,
    stream: TextIO | None = None,
    adjust: AdjustRecipe | None = None,
) -> Path:
    """Train `recipe` in the new folder `out`; returns the folder of the checkpoint that is the
    model: the last, or the best if it is kept.

    Args:
        origin: the run that the recipe comes from. Its tokens are used if the text does not exist.
        adjust: called with the recipe and the prepared text, returns the recipe that is saved and
            trained (the quickstart sets its budget in this way).

    Raises:
        OutputError: `out` has content of another recipe, or cannot be written.
        MaskwrightError: the run is impossible with the recipe's text or sizes, or on this machine.
    """
    recipe, out = build.resolved(_with_its_tokenizer(recipe, origin)), Path(out)
    processes = state.join_processes()
    processes.share(recipe.training.microbatches)  # raises before anything is read
    missing = [path for path in (out, *out.parents) if not path.exists()]
    fresh = bool(missing) or _was_refused(out) or (out.is_dir() and not _content(out))
    with contextlib.ExitStack() as exit_stack:
        if processes.first:
            _claim(recipe, out, exit_stack)
            exit_stack.enter_context(_leaving_nothing(out, missing, fresh))
            _reuse(recipe, origin, out, printer(stream))
            if adjust is not None:
                try:
                    recipe = adjust(
                        recipe, prepare(recipe, out, printer(stream), build.pixels(recipe))
                    )
                except KeyboardInterrupt:  # `resume` would train the recipe unadjusted
                    resume_hint = f"the same command with --out {shell_word(out)} goes on"
                    printer(stream)(f"stopped before the first step; {resume_hint}")
                    raise
                document.write(out / RECIPE, config.to_toml(recipe))
        processes.wait()
        return _run(recipe, out, processes, exit_stack, stream=stream)


def resume(
    out: Path | str, *, stream: TextIO | None = None, settings: Recipe | None = None
) -> Path:
    """Continue the run in `out` from its newest valid checkpoint.

    Args:
        settings: the recipe with changed settings that do not affect the result; None: unchanged.

    Raises:
        UsageError: `out` is not a run.  IncompatibleError: a changed setting changes the result.
        CheckpointError: there are checkpoints, but none is valid.
    """
    out = Path(out)
    if not is_run(out):
        raise UsageError(
            "not the folder of a run",
            where=out,
            wanted=f"a folder with {RECIPE}",
            do="start one with: maskwright pretrain RECIPE --out FOLDER; what finetune, compare or "
            "curate began goes on by the same command",
        )
    recipe = read(out / RECIPE)
    if settings is not None:
        _refuse_changes(recipe, settings)
        recipe = settings
    processes = state.join_processes()
    with contextlib.ExitStack() as exit_stack:
        if processes.first:
            exit_stack.enter_context(commit.Lock(out / LOCK))
        return _run(recipe, out, processes, exit_stack, stream=stream)


def _claim(recipe: Recipe, out: Path, exit_stack: contextlib.ExitStack) -> None:
    """Lock the folder `out` until `exit_stack` closes and write the recipe there. The folder must
    be new, or have no checkpoint and only content that this recipe would create."""
    commit.probe_writable(out)
    out.mkdir(parents=True, exist_ok=True)
    exit_stack.enter_context(commit.Lock(out / LOCK))
    was_refused = _was_refused(out)
    if was_refused and not _same_start(recipe, out, REFUSED):
        _clear(out)
    if _content(out) and not was_refused and not _same_start(recipe, out):
        alternative = ""
        if (out / RECIPE).is_file():
            alternative = f", or go on with it: maskwright resume {shell_word(out)}"
            if not has_checkpoint(out):
                alternative = ", or remove it: it has no checkpoint"
        raise OutputError(
            "the output folder is not empty",
            where=out,
            found=_describe_other_run(recipe, out),
            do=f"choose another --out{alternative}",
        )
    document.write(out / RECIPE, config.to_toml(recipe))
    (out / REFUSED).unlink(missing_ok=True)


def _was_refused(out: Path) -> bool:
    """Whether a failed command left its prepared text in the folder `out`."""
    return (out / REFUSED).is_file() and not (out / RECIPE).exists()


def _content(out: Path) -> list[Path]:
    """Return the content of `out` except locks, temporary files and the list of rejected rows."""
    return [path for path in out.iterdir() if not path.name.startswith(PASSING)]


def _clear(out: Path) -> None:
    """Remove the content of the folder `out`."""
    for path in _content(out):
        if path.is_dir() and not path.is_symlink():
            commit.remove_folder(path)
        else:
            os.unlink(path)


def _has_trained(out: Path) -> bool:
    steps = out / checkpoints.METRICS
    return (
        has_checkpoint(out)
        or (out / CRASHES).exists()
        or (steps.is_file() and steps.stat().st_size > 0)
    )


def _same_tokens(first_recipe: Recipe, second_recipe: Recipe) -> bool:
    """Whether two recipes turn the same text into the same tokens."""

    def choices(recipe: Recipe) -> tuple[object, ...]:
        tokenizer: object = recipe.tokenizer
        if isinstance(recipe.tokenizer, TokenizerFolder):  # the same one may lie elsewhere
            tokenizer = recipe.tokenizer.fingerprint or tokenizer
        return recipe.corpus, tokenizer, recipe.needs_sentences, recipe.subwords or None

    return choices(first_recipe) == choices(second_recipe)


def _with_its_tokenizer(recipe: Recipe, origin: Path | None) -> Recipe:
    """Return `recipe`; if its tokenizer folder does not exist, with that of the run `origin`."""
    named = recipe.tokenizer
    if origin is None or not isinstance(named, TokenizerFolder) or Path(named.path).is_dir():
        return recipe
    saved = origin / "tokenizer"
    return replace(recipe, tokenizer=replace(named, path=str(saved))) if saved.is_dir() else recipe


def _reuse(recipe: Recipe, origin: Path | None, out: Path, say: Say) -> None:
    """Copy the tokens of the run `origin` into the run `out` if their text no longer exists. If the
    text has only changed, print a warning: it will be read in its current state."""
    corpus = recipe.corpus
    if origin is None or is_prepared(corpus, out) or not is_prepared(corpus, origin):
        return
    if not _same_tokens(read(origin / RECIPE), recipe):
        return
    if not (changed := text_changed(corpus, origin)):
        return
    change = changed[0] + ", …" * (len(changed) > 1)
    if text_is_there(corpus):
        message = f"the text is not what {origin} learned from"
        say(Finding("other-text", message, change, "this run reads it as it is now").line())
        return
    message = f"this run takes the tokens that {origin} made of its text"
    say(Finding("tokens-of-another-run", message, change).line())
    take_tokens(origin, out)


def _describe_other_run(recipe: Recipe, out: Path) -> str | None:
    """Describe how the run in `out` differs from `recipe`; None if there is no readable run."""
    if not (out / RECIPE).is_file():
        return None
    try:
        existing = frozen_part(read(out / RECIPE))
    except ConfigError:
        return None
    diffs = list(config.differences(existing, frozen_part(recipe)))
    listed = "; ".join(f"{path} is {old!r} there and {new!r} here" for path, old, new in diffs[:8])
    return f"a run whose {listed}" if listed else "a run of this very recipe"


def _same_start(recipe: Recipe, out: Path, name: str = RECIPE) -> bool:
    """Whether `out` is a run without a checkpoint (its recipe in the file `name`), whose text and
    tokenizer, if they exist, are those of `recipe`."""
    if not (out / name).is_file() or has_checkpoint(out):
        return False
    if not (out / "tokenizer").exists() and not (out / "data").exists():
        return True
    try:
        existing = read(out / name)
    except ConfigError:
        return False
    return _same_tokens(existing, recipe) and not text_changed(recipe.corpus, out)


def _refuse_changes(before: Recipe, after: Recipe) -> None:
    """Raise IncompatibleError if the two recipes differ in a setting that changes the result."""
    changes = config.differences(frozen_part(before), frozen_part(after))
    refused = [change for change in changes if change[0] not in INEXACT]
    if refused:
        listed = "; ".join(f"{path}: {old!r} -> {new!r}" for path, old, new in refused[:8])
        raise IncompatibleError(
            "a resumed run cannot change what it computes",
            where=refused[0][0],
            found=listed,
            wanted="the settings of recipe.toml",
            do="start another run with the new settings; what may change here: "
            + ", ".join((*before.free, *INEXACT)),
        )


def _run(
    recipe: Recipe,
    out: Path,
    processes: state.Processes,
    locked: contextlib.ExitStack,
    *,
    stream: TextIO | None,
) -> Path:
    """Train and report in `out`, whose lock is in `locked`; returns the model's checkpoint."""
    chosen_threads = machine.use_threads(recipe.training.threads or _recorded_threads(out))
    chosen = machine.choose(recipe.training.precision, recipe.training.device)
    with locked.pop_all() as exit_stack:
        exit_stack.callback(state.leave_processes)
        if processes.first:
            for parent in (out, out / "data", out / "checkpoints"):
                commit.sweep(parent)
        say = printer(stream) if processes.first else quiet
        prepared = None
        if processes.first:
            if chosen_threads and chosen.device.type == "cpu":
                say(chosen_threads.line())
            try:
                prepared = prepare(recipe, out, say, build.pixels(recipe))
            except KeyboardInterrupt:
                resume_command = f"maskwright resume {shell_word(out)}"
                say(f"stopped before the first step; go on with: {resume_command}")
                raise
        processes.wait()
        prepared = prepared or prepare(recipe, out, quiet, build.pixels(recipe))
        stated_budget, recipe = recipe.training.budget, with_counted_budget(recipe, prepared)
        if stated_budget.flops is not None and processes.first:
            say(f"budget: {stated_budget} are {recipe.training.budget}")
            document.write(out / RECIPE, config.to_toml(recipe))
        processes.wait()
        stop_flag = exit_stack.enter_context(listening())
        session = TrainingSession(recipe, out, prepared, chosen, processes, say, stop_flag)
        if session.is_finished:
            say(
                "the run is complete; train it further with: maskwright adapt "
                f"{shell_word(out)} --text FILE"
            )
        _train(session, stream or sys.stdout)
        if stop_flag.raised:
            if processes.first:
                say(f"report: {write_report(out)}")
            say(
                f"stopped at step {session.state.step}; go on with: maskwright resume "
                f"{shell_word(out)}"
            )
            raise Stopped(stop_flag.exit_code)
        processes.wait()
        if processes.first:
            _report(session, say)
    return best_checkpoint(session.checkpoints.path(session.state.step))


def _recorded_threads(out: Path) -> int | None:
    """Return the number of threads that the run in `out` began with, unless the environment has
    another: other numbers round otherwise."""
    if threads.chosen_by_user or not (out / RUN).is_file():
        return None
    recorded = read_json(out, RUN).get("machine")
    count = recorded.get("threads") if isinstance(recorded, dict) else None
    return count if isinstance(count, int) and count > 0 else None


def _report(session: TrainingSession, say: Say) -> None:
    """Write the report of a complete run, and print what is notable about it."""
    out, state = session.out, session.state
    for notable in health(read_run(out)):
        say(notable.line())
    if (table := held_out_by_value(session)) is not None:
        document.add(out, [table])
        say(document.for_terminal(table))
    say(f"report: {write_report(out)}")
    checkpoint = session.checkpoints.path(state.step)
    if (checkpoint / CONFIG).is_file() and (
        finding := document.misread(read_json(checkpoint, CONFIG))
    ):
        say(finding.line())


def _train(session: TrainingSession, stream: TextIO) -> None:
    recipe, training = session.recipe, session.recipe.training
    machine.forget_peak(session.machine.device)
    plan = loop.TrainingPlan(
        seed=training.seed,
        microbatches=training.microbatches,
        budget=training.budget,
        schedule=training.schedule,
        device=session.machine.device,
        on_nonfinite=training.on_nonfinite,
        patience=training.patience,
    )
    phases = [
        (phase.until, Loader(rows, phase.batch, training.seed))
        for phase, rows in zip(recipe.phases, session.train_rows, strict=True)
    ]
    batches = Microbatches(session.objective, phases, plan, session.state, training.ramp)
    # The stages must save the head before a later checkpoint is saved.
    hooks: list[loop.Hook] = [] if session.stages is None else [session.stages]
    with contextlib.ExitStack() as exit_stack:
        if session.processes.first:
            panel = Panel(session.run, stream, seconds=None)
            run_journal = exit_stack.enter_context(checkpoints.Journal(session.out))
            exit_stack.callback(panel.close)
            panel.start(session.state.seconds)
            panel.note(f"live page: maskwright explore {shell_word(session.out)}")
            hooks += [
                hook(session, run_journal, panel) for hook in (LogHook, EvaluateHook, SaveHook)
            ]
            if session.processes.world == 1:
                command = f"maskwright resume {shell_word(session.out)} --set training.threads="
                hooks.append(
                    loop.SlowdownHook(
                        session.objective, batches, plan, panel.note, command, training.log_seconds
                    )
                )
        try:
            loop.train(
                session.objective,
                batches,
                session.optimizer,
                plan,
                session.state,
                processes=session.processes,
                hooks=hooks,
                stop=session.stop,
                average=session.average,
            )
        except (RuntimeError, MemoryError) as error:
            if not memory.is_shortage(error):
                raise
            raise _out_of_memory(recipe, error) from error
        except DivergedError as error:
            if not session.processes.first:
                raise
            run_journal.flush()
            report_path = _write_crash_report(session, batches, error)
            intact = "; the last checkpoint is intact" if has_checkpoint(session.out) else ""
            restart_hint = "resume" if intact else "begin again"
            raise error.advising(
                f"{report_path} tells more{intact}: start anew with a lower "
                "training.optimizer.learning_rate or a longer training.schedule.warmup, or "
                f"{restart_hint} with --set training.on_nonfinite=skip"
            ) from None


def _write_crash_report(
    session: TrainingSession, batches: Microbatches, error: DivergedError
) -> Path:
    """Write `crash/step-N.json`, the report on a step whose loss was not finite; return its path.

    step, loss, parts, gradient_norm, microbatches     as the loop computed them
    gradients_not_finite, weights_not_finite           names of parameters
    rows                                               by microbatch: row numbers in the store
    texts                                              by microbatch with such a loss: first tokens
    before                                             the last steps in metrics.jsonl
    """
    microbatch_rows = {number: batches.rows(number) for number in range(batches.plan.microbatches)}
    faulty = [int(n) for n, loss in error.report["microbatches"].items() if isinstance(loss, str)]
    words = session.prepared.words
    texts = {
        number: [
            words.decode(row[~special][:CRASH_TOKENS].tolist())
            for row, special in zip(rows.tokens[:CRASH_ROWS], rows.special, strict=False)
        ]
        for number, (rows, _) in microbatch_rows.items()
        if words is not None and number in faulty
    }
    step_records = [
        line for line in checkpoints.read_journal(session.out) if line["kind"] != "sample"
    ]
    report = {
        **error.report,
        "rows": {number: rows.ids.tolist() for number, (rows, _) in microbatch_rows.items()},
        "texts": texts,
        "before": [line for line in step_records if line["step"] < error.report["step"]][-20:],
    }
    path = session.out / CRASHES / f"step-{error.report['step']}.json"
    path.parent.mkdir(exist_ok=True)
    return document.write(path, json.dumps(report, indent=2, ensure_ascii=False) + "\n")


def _out_of_memory(recipe: Recipe, error: Exception) -> ResourceError:
    training = recipe.training
    next_divisor = next((n for n in recipe.divisors if n > training.microbatches), None)
    return ResourceError(
        "out of memory",
        where="training.microbatches",
        found=f"{training.batch // training.microbatches} rows of {recipe.rows.length} tokens "
        f"at once: {memory.describe_shortage(error)}",
        do=less_memory(next_divisor),
    )
