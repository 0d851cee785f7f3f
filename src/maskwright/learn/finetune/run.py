"""From a model folder and labelled rows to a fine-tuned model, over several seeds.

Each seed has another initial head and another order of examples. Epoch and seed are chosen on
validation data; the test part is evaluated once, at the end. Data without such parts are
cross-validated (cross_validation.py). An interruption loses one seed or fold at most
(finished_seeds.py). The files of the result are listed in result.py; its metrics are compared with
baselines without pretraining, such as the most frequent label. A task is a `TaskType` (tasks/).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.base.config import to_plain
from maskwright.base.errors import Finding, MaskwrightError
from maskwright.base.report import document
from maskwright.base.storage import commit
from maskwright.base.storage import files as storage
from maskwright.base.terminal import Say, counted, printer, quiet, shell_word
from maskwright.learn.finetune.cost import disk_bytes, tell
from maskwright.learn.finetune.cross_validation import cross_validate, fold, is_cross_validated
from maskwright.learn.finetune.finished_seeds import FOLDER, REJECTS, FinishedSeeds
from maskwright.learn.finetune.learner import (
    SELECTABLE,
    BaseLearner,
    Learner,
    SeedResult,
    reader,
    soft_targets,
)
from maskwright.learn.finetune.method_selection import MethodSelection
from maskwright.learn.finetune.recipe import hash_rows
from maskwright.learn.finetune.result import PAGE, PASSES, RESULTS, SCRIPT, FinetuneResult, best_of
from maskwright.learn.finetune.tune import Settings, passes_of, watching
from maskwright.learn.pretrain.run import LOCK
from maskwright.learn.tasks.base.bag_of_words import OUT_OF_FOLD
from maskwright.learn.tasks.base.choices import LABEL_PROMPT, LAYER_MIX, POOLINGS, PROMPT, Long
from maskwright.learn.tasks.base.similarities import with_hard_negatives
from maskwright.model.checkpoint.fine_tuned import (
    ABOUT,
    ADAPTER,
    MODEL,
    finish,
    is_finished,
    require_no_result,
)
from maskwright.model.device.machine import Machine, unusual
from maskwright.model.inference.prepared import prepare
from maskwright.model.opening.folders import Model, called
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION


def finetune(
    learner: BaseLearner,
    data: Dataset,
    out: Path,
    *,
    settings: Settings,
    seeds: Sequence[int],
    folds: int,
    long: Long,
    hard_negatives: int = 0,
    teacher: Model | None = None,
    origin: Mapping[str, str] | None = None,
    extra_files: Mapping[str, str] | None = None,
    machine: Machine | None = None,
    stream: TextIO | None = None,
    dry: bool = False,
    on_result: Callable[[FinetuneResult], None] | None = None,
    selection: MethodSelection | None = None,
    candidates: Collection[str] = (),
) -> Path:
    """Fine-tune the model of `learner` on the training part of `data` and write the result to
    `out`. If there is no other part, the score comes from a cross-validation.

    Args:
        folds: the number of folds of a cross-validation; each of `seeds` is a repetition.
        long: as for `Learner.of`.
        hard_negatives, teacher: as in a recipe.
        origin: the SHA-256 of each file that `data` comes from, for the model card.
        extra_files: content of further text files for the folder, by file name.
        machine: that of the learner, for the record; None: the best of this machine.
        dry: only print the expected cost.
        on_result: receives the result before its files are written.
        selection: how the method was selected; what was trained for it is not trained again.
        candidates: other methods of a selection that follows: only check that `out` is free.

    Returns:
        The model folder; the adapter folder if only a head was trained.

    Raises:
        UsageError: `out` has a finished model.
        OutputError: `out` has other content.
    """
    say = quiet if candidates else printer(stream)
    task_type, method = learner.task_type, learner.method
    require_unfinished(out)
    foldings = fold(data, folds, seeds) if is_cross_validated(data) else []
    num_folds = len(foldings[0].folds) if foldings else 0
    if not dry:
        commit.probe_writable(out)
    first_seed = None if selection is None else selection.first_seed
    out_of_fold = None if selection is None else selection.out_of_fold
    if hard_negatives and isinstance(learner, Learner):
        embed = partial(_embed, learner)
        rows, finding = with_hard_negatives(data.parts[TRAIN], hard_negatives, embed)
        say(finding.line())
        data = replace(data, parts={**data.parts, TRAIN: rows})
    if teacher is not None and isinstance(learner, Learner):
        if task_type.problem == "number":  # which is learned as it is
            settings = replace(settings, temperature=1.0)
        targets = soft_targets(teacher, task_type, data.parts[TRAIN], settings.temperature, machine)
        learner = replace(learner, soft_targets=targets)
    encoded_parts = {name: learner.encode(rows) for name, rows in data.parts.items()}
    for part_name, encoded in encoded_parts.items():
        for finding in encoded.findings:
            say(finding.of(part_name).line())
    num_examples = len(encoded_parts[TRAIN].examples.training_indices)
    passes = passes_of(settings, num_examples)
    fitted = method.fitted
    if fitted is None and passes > 1:
        say(
            f"each epoch is {passes} passes over the {counted(len(data.parts[TRAIN]), 'row')}, for "
            f"at least {settings.least_steps} steps in all; --epochs N is N passes"
        )
    trains = fitted is None or fitted.steps(num_examples, settings) > 0
    if trains and VALIDATION in data.parts and (count := len(data.parts[VALIDATION])) < SELECTABLE:
        message = f"no epoch and no seed is selected by {counted(count, 'validation row')}"
        reason = f"it takes {SELECTABLE}: the last epoch of the first seed is saved"
        say(Finding("too-few-to-select-by", message, reason).line())
    if dry:
        count = len(seeds)
        tell(learner, data, encoded_parts, settings, count, out, say, num_folds)
        return out / MODEL
    eval_part = next((part for part in (TEST, VALIDATION) if part in data.parts), OUT_OF_FOLD)
    plain_method = to_plain(replace(method, head_rate=method.head_factor))  # without a default
    del plain_method["adapter"]
    if method.changed_settings:
        plain_method[method.name] = method.changed_settings
    finished_seeds = FinishedSeeds(
        out,
        {
            **learner.hashes,
            "data": hash_rows(data),
            "task": {
                "kind": task_type.task,
                "labels": task_type.labels,
                "settled": task_type.options,
            },
            "settings": {
                "training": {**to_plain(settings), "seed": 0},
                "method": plain_method,
                "length": None if learner.frame is None else learner.frame.length,
                "long": long,
                **({} if teacher is None else {"teacher": teacher.fingerprint}),
                **({"folds": folds} if eval_part == OUT_OF_FOLD else {}),
                **unusual(machine),
            },
        },
    )
    trained_seeds, trainings = seeds, len(seeds)
    facts = _facts(learner, settings, num_examples) | unusual(machine)
    if teacher is not None:
        facts["teacher"] = f"{called(teacher.folder)}, temperature {settings.temperature:g}"
    if eval_part == OUT_OF_FOLD:
        trained_seeds = seeds[:1]
        trainings = 1 if out_of_fold is not None else trainings * num_folds + 1
        num_folds = num_folds if out_of_fold is None else out_of_fold.num_folds
        facts |= {"folds": num_folds, "repetitions": len(seeds)}
    else:
        facts["seeds tried"] = len(seeds)
    remaining = sum(not finished_seeds.has(seed) for seed in trained_seeds)
    storage.require_space(out, disk_bytes(learner, remaining))
    if not learner.in_transformers and learner.frame is not None:
        message = "no class of transformers has such a model"
        consequence = "what is saved is read by Maskwright alone"
        say(Finding("read-by-maskwright-alone", message, consequence).line())
    with commit.Lock(out / LOCK):
        require_unfinished(out)  # another process may have finished it meanwhile
        commit.sweep(out)
        finished_seeds.require_same(candidates)
        if candidates:
            return out
        learn = partial(learner.learn, say=say, watch=watching(stream, out))
        trained_parts = encoded_parts
        with _told_when_stopped(finished_seeds, trainings, say):
            if eval_part == OUT_OF_FOLD:
                out_of_fold = out_of_fold or cross_validate(
                    learner, foldings, settings, partial(learn, say=quiet), finished_seeds
                )
                data = out_of_fold.data
                encoded_parts = {**encoded_parts, OUT_OF_FOLD: out_of_fold.encoded}
                for finding in out_of_fold.findings():
                    say(finding.line())
                # The model of all rows is not evaluated on them.
                trained_parts = {**encoded_parts, eval_part: learner.encode(data.parts[TRAIN][:1])}
            train = partial(
                learn, trained_parts, eval_part=eval_part, finished_seeds=finished_seeds
            )
            results = _train_seeds(train, settings, trained_seeds, first_seed)
        if out_of_fold is not None:
            results = out_of_fold.of_model(results[0])
        for partial_folder in (out / MODEL, out / ADAPTER):  # left by an interrupted process
            if partial_folder.exists():
                commit.remove_folder(partial_folder)
        result = FinetuneResult(
            *(out, learner, data, encoded_parts, eval_part, results, facts, origin or {}),
            None if out_of_fold is None else out_of_fold.baselines,
            selection,
        )
        if on_result is not None:
            on_result(result)
        result.write(say)
        for name, text in (extra_files or {}).items():
            document.write(out / name, text)
        finish(out, [RESULTS, PAGE, SCRIPT, *(extra_files or {})])
        finished_seeds.finish()
    folder = out / (ADAPTER if method.head_alone else MODEL)
    say(f"model: {folder}")
    say("\n".join([result.verdict.sentence, *result.advice]))
    if result.verdict.is_usable:
        say(f"next: maskwright predict {shell_word(out)} FILE")
    return folder


def _embed(learner: Learner, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the vectors (N, D) of texts by the pretrained model, for a task that embeds texts."""
    task_type, frame = learner.task_type, learner.frame
    encoded = task_type.encode([task_type.of_value(text, "") for text in texts], frame)
    network: Any = prepare(learner.loaded.network, device=str(learner.machine.device))
    outputs = reader(network, task_type, frame, learner.collation)(encoded)
    return np.asarray(task_type.merged(encoded, outputs), np.float32)


def _train_seeds(
    learn: Callable[..., SeedResult],
    settings: Settings,
    seeds: Sequence[int],
    first_seed: SeedResult | None = None,
) -> list[SeedResult]:
    """Train each seed with `learn`, but the first if there is its result; return all results. Only
    the best one keeps its model."""
    results = [] if first_seed is None else [first_seed]
    for seed in seeds[len(results) :]:
        results.append(learn(settings=replace(settings, seed=seed), announce=not results))
        best = best_of(results)
        results = [
            r if r is best else replace(r, tuned=replace(r.tuned, model=None), adapter=None)
            for r in results
        ]
    return results


@contextlib.contextmanager
def _told_when_stopped(finished_seeds: FinishedSeeds, trainings: int, say: Say) -> Iterator[None]:
    """Print how to go on if the user stops the `trainings` inside."""
    try:
        yield
    except KeyboardInterrupt:
        finished = f"{finished_seeds.count} of {counted(trainings, 'training')} finished and kept"
        progress = finished if finished_seeds.count else "none finished"
        again = f"the same command with --out {shell_word(finished_seeds.out)} goes on"
        say(f"stopped, {progress}; {again}")
        raise


def require_unfinished(out: Path) -> None:
    """Check that `out` has no finished model and no other content; the results of an interrupted
    fine-tuning are allowed. Removes temporary files of a killed process from a finished folder.

    Raises:
        UsageError: `out` has a finished model.
        OutputError: `out` has other content.
    """
    if is_finished(out):
        with contextlib.suppress(MaskwrightError):
            if (manifest := commit.read_manifest(out)).about == ABOUT:
                with commit.Lock(out / LOCK):
                    leftovers = [out / FOLDER, out / f"{storage.DOOMED}{FOLDER}"]
                    for name in (name for name in manifest.files if "/" not in name):
                        leftovers += storage.temporaries_of(out / name)
                    for path in filter(Path.exists, leftovers):
                        commit.remove_folder(path)
        require_no_result(out)
    commit.require_own(out, FOLDER, beside=(REJECTS,))


def _facts(learner: BaseLearner, settings: Settings, count: int) -> dict[str, Any]:
    """Return the settings of method, reading and step-by-step training by display name, for report
    and model card; `count`: of training examples."""
    method = learner.method
    facts: dict[str, Any] = {"method": method.name}
    if isinstance(learner, Learner):
        task_type, pooling = learner.task_type, None
        windows = task_type.head in ("token", "span")
        longer = "longer ones in windows" if windows else learner.frame.long
        if task_type.head == "sequence":
            (head,) = learner.config.heads
            pooling = next(name for name, value in POOLINGS.items() if value == head.pooling)
            pooling = f"{pooling}, then the pooler" if learner.config.pooler else pooling
        adapter = {} if method.adapter is None else to_plain(method.adapter)
        adapter_facts = [
            f"{name} {', '.join(value) if isinstance(value, list) else value}"
            for name, value in adapter.items()
            if name != "kind" and value is not None
        ]
        facts |= {
            "adapter": ", ".join(adapter_facts) or None,
            "threads": torch.get_num_threads(),
            "pooling": pooling,
            "layers read": "a learned mix of all" if task_type.options.get(LAYER_MIX) else None,
            **{name: task_type.options.get(name) for name in (PROMPT, LABEL_PROMPT)},
            "longest text": f"{learner.frame.length} tokens, {longer}",
        }
    fitted, factor = method.fitted, learner.head_factor
    steps = 0 if fitted is None else fitted.steps(count, settings)
    if fitted is None or steps:
        is_faster = fitted is None and factor != 1.0
        facts |= {
            "layer decay": method.layer_decay,
            "new head's learning rate": f"{factor:g} ×" if is_faster else None,
            "optimizer": settings.optimizer.kind,
            "learning rate": f"{settings.optimizer.learning_rate:g}",
            "weight decay": settings.optimizer.decay,
            "warm-up": f"{settings.schedule.warmup:g} of the run",
            "rates": None if settings.schedule.kind == "linear" else settings.schedule.kind,
            "epochs": None if steps else settings.epochs,
            PASSES: None if steps else passes_of(settings, count),
            "steps": steps or None,
            "batch": settings.batch,
            "label smoothing": settings.label_smoothing or None,
            "portions of a step": settings.accumulate if settings.accumulate > 1 else None,
        }
    facts["class weights"] = settings.class_weights
    return {name: value for name, value in facts.items() if value is not None}
