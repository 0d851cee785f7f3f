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

`pretrain` writes the recipe and `resume` reads it; after that both are the same code. A resumed run
is bit-exact with the same build of torch, thread count and precision; if one of these changed, the
run says so and continues.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from maskwright.base import dotted, memory
from maskwright.base.errors import (
    ConfigError,
    IncompatibleError,
    MaskwrightError,
    OutputError,
    ResourceError,
    StoppedError,
    UsageError,
)
from maskwright.base.findings import Finding
from maskwright.base.report import document, opened, tables
from maskwright.base.report.page import write_report
from maskwright.base.report.panel import Panel
from maskwright.base.report.say import printer, quiet
from maskwright.base.storage import commit
from maskwright.base.storage.files import DOOMED, TEMPORARY
from maskwright.base.terminal import shell_word
from maskwright.base.toml import to_toml
from maskwright.learn.pretrain import build, by_value, journal
from maskwright.learn.pretrain.hooks import EvaluateHook, LogHook, SaveHook
from maskwright.learn.pretrain.prepare import (
    HELD_OUT,
    PreparedCorpus,
    is_prepared,
    prepare,
    take_tokens,
    text_changed,
    text_is_there,
)
from maskwright.learn.pretrain.rows import Microbatches, held_out_rows
from maskwright.learn.pretrain.session import TrainingSession, start_session
from maskwright.learn.recipes.base.find import read
from maskwright.learn.recipes.base.objective_rows import needs_sentences
from maskwright.learn.recipes.base.recipe import (
    FREE,
    INEXACT,
    Recipe,
    TokenizerFolder,
    frozen_part,
)
from maskwright.learn.train import distribute, loop
from maskwright.learn.train.diverged import DivergedError
from maskwright.learn.train.signals import listening
from maskwright.model.checkpoint.pretrained import CONFIG
from maskwright.model.checkpoint.safe_read import read_json
from maskwright.model.device import machine, process_memory
from maskwright.model.device.step_cost import training_flops
from maskwright.model.inference import held_out_loss as likelihood
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.opening.folders import has_checkpoint
from maskwright.model.opening.run_folder import is_run
from maskwright.text.store.loader import Loader

RECIPE, LOCK = "recipe.toml", "run.lock"
REFUSED, REJECTS = "refused.toml", "rejects.jsonl"
PASSING = (LOCK, TEMPORARY, DOOMED, REJECTS)
TRIAL_ROWS = 64
CRASHES, CRASH_ROWS, CRASH_TOKENS = "crash", 8, 64
AdjustRecipe = Callable[[Recipe, PreparedCorpus], Recipe]


def flops_per_token(recipe: Recipe, prepared: PreparedCorpus, objective: Objective) -> float:
    """Operations of matrix products, forward and backward, per token of a row: the mean over the
    phases of the run, on rows of its held-out text."""
    flops, phase_start = 0.0, 0.0
    for phase in recipe.phases:
        rows = held_out_rows(recipe, prepared.held_out, phase.length)
        middle = (
            phase_start + phase.until
        ) / 2  # where rates of masks that change are at their mean
        trial_batch = next(
            likelihood.evaluation_batches(objective, rows, TRIAL_ROWS, TRIAL_ROWS, middle)
        )
        share, phase_start = phase.until - phase_start, phase.until
        flops += share * training_flops(objective, trial_batch) / trial_batch.tokens.numel()
    return flops


def with_counted_budget(recipe: Recipe, prepared: PreparedCorpus) -> Recipe:
    """`recipe` with its budget in tokens where it is in floating-point operations."""
    if recipe.training.budget.flops is None:
        return recipe
    network = build.model(recipe, build.transformer_config(recipe, prepared.tokenizer))
    objective = build.objective(recipe, network, prepared.tokenizer)
    per_token = flops_per_token(recipe, prepared, objective)
    budget = recipe.training.budget.in_tokens(per_token)
    return replace(recipe, training=replace(recipe.training, budget=budget))


class Stopped(SystemExit):
    """A signal ended the run after a committed checkpoint; the exit code is 128 + the signal."""


class InitialFolder:
    """The content of the folder `out` before a command started.

    A refused command leaves nothing in a new folder that would stop the corrected command. A text
    that was prepared completely stays, as that may have taken hours, beside the recipe in
    `refused.toml`: the next command there uses it, or removes it if it reads another text.
    """

    def __init__(self, out: Path) -> None:
        self.out = out
        self.missing = [path for path in (out, *out.parents) if not path.exists()]
        was_refused = (out / REFUSED).is_file() and not (out / RECIPE).exists()
        self.fresh = was_refused or not out.exists() or (out.is_dir() and not _content(out))

    @contextlib.contextmanager
    def leaving_nothing(self) -> Iterator[None]:
        """A block that removes what it made in a new folder if it is refused before the first step.
        Enter it under the folder's lock."""
        try:
            yield
        except StoppedError:  # the same command goes on
            raise
        except MaskwrightError:
            if self.fresh and not _has_trained(self.out):
                with contextlib.suppress(OSError, MaskwrightError):
                    self._leave()
            raise

    def _leave(self) -> None:
        if (self.out / "data" / HELD_OUT).is_dir():
            (self.out / RECIPE).rename(self.out / REFUSED)
            return
        _clear(self.out)
        if (self.out / REJECTS).is_file():
            if (self.out / REJECTS).stat().st_size:
                return  # the refusal names it
            (self.out / REJECTS).unlink()
        for path in self.missing:
            for lock in path.glob(f"{LOCK}*") if path == self.out else ():
                lock.unlink()
            path.rmdir()  # refused where something else lies there by now


def pretrain(
    recipe: Recipe,
    out: Path | str,
    *,
    origin: Path | None = None,
    stream: TextIO | None = None,
    adjust: AdjustRecipe | None = None,
) -> Path:
    """Train `recipe` in the new folder `out`; returns the last checkpoint's folder.

    Args:
        origin: the run that the recipe comes from. If its text does not exist, its tokens are used.
        adjust: may change the recipe after its text is prepared and before anything is trained (the
            quickstart sets its budget so); the changed recipe is saved and run.

    Raises:
        OutputError: `out` holds something that this recipe did not make, or cannot be written.
        MaskwrightError: the recipe's text, sizes or machine make the run impossible.
    """
    recipe, out = build.resolved(_with_its_tokenizer(recipe, origin)), Path(out)
    processes = distribute.join()
    processes.share(recipe.training.microbatches)  # refused before anything is read
    initial_folder = InitialFolder(out)
    with contextlib.ExitStack() as exit_stack:
        if processes.first:
            _claim(recipe, out, exit_stack)
            exit_stack.enter_context(initial_folder.leaving_nothing())
            _reuse_tokens(recipe, origin, out, printer(stream))
            if adjust is not None:
                try:
                    recipe = adjust(recipe, prepare(recipe, out, printer(stream)))
                except KeyboardInterrupt:  # `resume` would train the recipe unadjusted
                    resume_hint = f"the same command with --out {shell_word(out)} goes on"
                    printer(stream)(f"stopped before the first step; {resume_hint}")
                    raise
                document.write(out / RECIPE, to_toml(recipe))
        processes.wait()
        return _run(recipe, out, processes, exit_stack, stream=stream)


def resume(
    out: Path | str, *, stream: TextIO | None = None, settings: Recipe | None = None
) -> Path:
    """Continue the run in `out` from its newest valid checkpoint.

    Args:
        settings: the recipe with changed free settings (how often to evaluate, for example).

    Raises:
        UsageError: `out` is not a run.  IncompatibleError: a changed setting changes the result.
        CheckpointError: there are checkpoints, and none is valid.
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
    processes = distribute.join()
    with contextlib.ExitStack() as exit_stack:
        if processes.first:
            exit_stack.enter_context(commit.Lock(out / LOCK))
        return _run(recipe, out, processes, exit_stack, stream=stream)


def _claim(recipe: Recipe, out: Path, exit_stack: contextlib.ExitStack) -> None:
    """Put the recipe into its folder: a new one, or one without a checkpoint whose content this
    recipe would make. From then on `exit_stack` has the lock of the folder."""
    commit.probe_writable(out)
    out.mkdir(parents=True, exist_ok=True)
    exit_stack.enter_context(commit.Lock(out / LOCK))
    was_refused = (out / REFUSED).is_file() and not (out / RECIPE).exists()
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
    document.write(out / RECIPE, to_toml(recipe))
    (out / REFUSED).unlink(missing_ok=True)


def _content(out: Path) -> list[Path]:
    """The content of `out` except locks, remains of a stopped process and a list of
    rejected rows."""
    return [path for path in out.iterdir() if not path.name.startswith(PASSING)]


def _clear(out: Path) -> None:
    """Remove the content of the folder `out`."""
    for path in _content(out):
        if path.is_dir() and not path.is_symlink():
            commit.remove_folder(path)
        else:
            os.unlink(path)


def _has_trained(out: Path) -> bool:
    steps = out / journal.METRICS
    return (
        has_checkpoint(out)
        or (out / CRASHES).exists()
        or (steps.is_file() and steps.stat().st_size > 0)
    )


def _same_tokens(first_recipe: Recipe, second_recipe: Recipe) -> bool:
    """Whether two recipes make the same tokens from one text."""

    def tokenizer(recipe: Recipe) -> object:
        chosen = recipe.tokenizer
        is_pinned = isinstance(chosen, TokenizerFolder) and chosen.fingerprint is not None
        return chosen.fingerprint if is_pinned else chosen  # type: ignore[union-attr]

    choices = (lambda r: r.corpus, tokenizer, needs_sentences)
    return all(choice(first_recipe) == choice(second_recipe) for choice in choices)


def _with_its_tokenizer(recipe: Recipe, origin: Path | None) -> Recipe:
    """`recipe` with the tokenizer in the run `origin`, if the tokenizer folder it names does not
    exist."""
    named = recipe.tokenizer
    if origin is None or not isinstance(named, TokenizerFolder) or Path(named.path).is_dir():
        return recipe
    saved = origin / "tokenizer"
    return replace(recipe, tokenizer=replace(named, path=str(saved))) if saved.is_dir() else recipe


def _reuse_tokens(
    recipe: Recipe, origin: Path | None, out: Path, say: Callable[[str], None]
) -> None:
    """Copy the tokens of the run `origin` into the run `out` if the text they were made of does not
    exist. If the text has changed it is read as it is now, with a note.

    Raises:
        OutputError, StorageError, StoppedError: they cannot be written.
    """
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
    """How the settings of the run in `out` differ from `recipe`; None if there is no run."""
    try:
        existing = read(out / RECIPE) if (out / RECIPE).is_file() else None
    except ConfigError:
        return None
    if existing is None:
        return None
    changes = list(dotted.differences(frozen_part(existing), frozen_part(recipe)))
    listed = "; ".join(
        f"{path} is {old!r} there and {new!r} here" for path, old, new in changes[:8]
    )
    return f"a run whose {listed}" if listed else "a run of this very recipe"


def _same_start(recipe: Recipe, out: Path, name: str = RECIPE) -> bool:
    """Whether `out` is a run without a checkpoint, and its text and tokenizer, if they exist, are
    those of `recipe`; the run's own recipe is in the file `name`."""
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
    changes = dotted.differences(frozen_part(before), frozen_part(after))
    refused = [change for change in changes if change[0] not in INEXACT]
    if refused:
        listed = "; ".join(f"{path}: {old!r} -> {new!r}" for path, old, new in refused[:8])
        raise IncompatibleError(
            "a resumed run cannot change what it computes",
            where=refused[0][0],
            found=listed,
            wanted="the settings of recipe.toml",
            do="start another run with the new settings; what may change here: "
            + ", ".join((*FREE, *INEXACT)),
        )


def _run(
    recipe: Recipe,
    out: Path,
    processes: distribute.Processes,
    locked: contextlib.ExitStack,
    *,
    stream: TextIO | None,
) -> Path:
    """Train in `out`, whose lock is in `locked`."""
    machine.use_threads(recipe.training.threads)
    chosen = machine.choose(recipe.training.precision, recipe.training.device)
    with locked.pop_all() as exit_stack:
        exit_stack.callback(distribute.leave)
        if processes.first:
            for parent in (out, out / "data", out / "checkpoints"):
                commit.sweep(parent)
        say = printer(stream) if processes.first else quiet
        prepared = None
        if processes.first:
            busy = machine.busy(recipe.training.threads, chosen.device.type)
            if busy and processes.world == 1:
                say(busy.line())
            try:
                prepared = prepare(recipe, out, say)
            except KeyboardInterrupt:
                resume_command = f"maskwright resume {shell_word(out)}"
                say(f"stopped before the first step; go on with: {resume_command}")
                raise
        processes.wait()
        prepared = prepared or prepare(recipe, out, quiet)
        stated_budget, recipe = recipe.training.budget, with_counted_budget(recipe, prepared)
        if stated_budget.flops is not None and processes.first:
            say(f"budget: {stated_budget} are {recipe.training.budget}")
            document.write(out / RECIPE, to_toml(recipe))
        processes.wait()
        stop_flag = exit_stack.enter_context(listening())
        session = start_session(recipe, out, prepared, chosen, processes, say, stream)
        session.stop = stop_flag
        if loop.finished(recipe.training.budget, session.state):
            say(
                "the run is complete; train it further with: maskwright adapt "
                f"{shell_word(out)} --text FILE"
            )
        _train(session)
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
            if num_skipped := sum(line["kind"] == "skipped" for line in journal.read(out)):
                message = f"{num_skipped:,} of {session.state.step:,} steps were skipped"
                reason = "their loss or gradient was no finite number"
                say(Finding("steps-skipped", message, reason).line())
            if (
                table := by_value.table(recipe, out, session.objective, session.average)
            ) is not None:
                tables.add(out, [table])
                say(tables.for_terminal(table))
            say(f"report: {write_report(out)}")
            _warn_if_misread(session.checkpoints.path(session.state.step), say)
    return session.checkpoints.path(session.state.step)


def _warn_if_misread(checkpoint: Path, say: Callable[[str], None]) -> None:
    """Print a note if another library would read the model wrongly."""
    if (checkpoint / CONFIG).is_file() and (
        finding := opened.misread(read_json(checkpoint, CONFIG))
    ):
        say(finding.line())


def _train(session: TrainingSession) -> None:
    recipe, training = session.recipe, session.recipe.training
    panel = Panel(session.run, session.stream, seconds=None) if session.processes.first else None
    run_journal = journal.Journal(session.out) if session.processes.first else None
    hooks: list[loop.Hook] = []
    if panel is not None and run_journal is not None:
        hooks = [
            LogHook(session, run_journal, panel),
            EvaluateHook(session, run_journal, panel),
            SaveHook(session, run_journal, panel),
        ]
    if session.stages is not None:  # before a checkpoint after the change, what was there at it
        hooks.insert(0, session.stages)
    process_memory.forget_peak(session.machine.device)
    plan = loop.TrainingPlan(
        seed=training.seed,
        microbatches=training.microbatches,
        budget=training.budget,
        schedule=training.schedule,
        device=session.machine.device,
        on_nonfinite=training.on_nonfinite,
    )
    phases = [
        (phase.until, Loader(rows, phase.batch, training.seed))
        for phase, rows in zip(recipe.phases, session.train_rows, strict=True)
    ]
    batches = Microbatches(session.objective, phases, plan, session.state, training.ramp)
    with contextlib.ExitStack() as exit_stack:
        if panel is not None and run_journal is not None:
            exit_stack.enter_context(run_journal)
            exit_stack.callback(panel.close)
            panel.start(session.state.seconds)
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
            if run_journal is None:
                raise
            run_journal.flush()
            report_path = _write_crash_report(session, batches, error)
            checkpoint_hint = (
                "; the last checkpoint is intact" if has_checkpoint(session.out) else ""
            )
            restart_hint = "resume" if checkpoint_hint else "begin again"
            raise error.advising(
                f"{report_path} tells more{checkpoint_hint}: start anew with a lower "
                "training.optimizer.learning_rate or a longer training.schedule.warmup, or "
                f"{restart_hint} with --set training.on_nonfinite=skip"
            ) from None


def _write_crash_report(
    session: TrainingSession, batches: Microbatches, error: DivergedError
) -> Path:
    """Write and return `crash/step-N.json`, the report on a step whose loss was not finite.

    step, loss, parts, gradient_norm, microbatches     as the loop computed them
    gradients_not_finite, weights_not_finite           names of parameters
    rows                                               by microbatch: row numbers in the store
    texts                                              by microbatch with such a loss: first tokens
    before                                             the steps before, as in metrics.jsonl

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    microbatch_rows = {number: batches.rows(number) for number in range(batches.plan.microbatches)}
    faulty = [int(n) for n, loss in error.report["microbatches"].items() if isinstance(loss, str)]
    decode = session.prepared.tokenizer.decode
    texts = {
        number: [
            decode(row[~special][:CRASH_TOKENS].tolist())
            for row, special in zip(rows.tokens[:CRASH_ROWS], rows.special, strict=False)
        ]
        for number, (rows, _) in microbatch_rows.items()
        if number in faulty
    }
    step_records = [line for line in journal.read(session.out) if line["kind"] != "sample"]
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
        do=f"--set training.microbatches={next_divisor} does the same work with less"
        if next_divisor
        else "choose a smaller model or shorter rows",
    )
