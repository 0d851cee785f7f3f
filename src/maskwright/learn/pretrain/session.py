"""One training session of a run, from its start or from a checkpoint: all objects that it uses."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maskwright.base import config
from maskwright.base.errors import ResourceError
from maskwright.base.findings import Finding
from maskwright.base.memory import free_bytes
from maskwright.base.report import document
from maskwright.base.report.say import Say, quiet
from maskwright.base.storage import commit
from maskwright.base.storage import files as storage
from maskwright.learn.pretrain import build, journal
from maskwright.learn.pretrain.checkpoints import CheckpointStore, describe, usage_of
from maskwright.learn.pretrain.head_first import HeadFirst, expect_frequencies
from maskwright.learn.pretrain.prepare import PreparedCorpus
from maskwright.learn.pretrain.rows import (
    check_length,
    held_out_rows,
    mixture_of_run,
    training_rows,
    untrained_positions,
    weights_of,
)
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import Folder, Recipe, frozen_part
from maskwright.learn.train.distribute import Processes
from maskwright.learn.train.loop import StopFlag
from maskwright.learn.train.optimizers.states import ParameterRates, start_optimizer
from maskwright.learn.train.parameters import Average, Parameters
from maskwright.learn.train.state import TrainState
from maskwright.model.checkpoint import layout
from maskwright.model.checkpoint.layout import About
from maskwright.model.checkpoint.shapes import num_parameters
from maskwright.model.device import machine
from maskwright.model.device.machine import Machine
from maskwright.model.device.step_cost import kept_bytes
from maskwright.model.inference import held_out_loss as likelihood
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.objectives.base.encoder_decoder import EncoderDecoder
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.opening.folders import has_checkpoint
from maskwright.text.store.rows import RowSource

RUN = "run.json"
FEW_TARGETS = 100
LOOKED_AT, UNEVEN = 512, 0.05  # number of counted sentence pairs; minimum share of a label


class TrainingSession:
    """The objects of one session of a run in the folder `out`, which hooks and loop share; restored
    from the newest checkpoint if there is one.

    Args:
        chosen: the machine that the run computes on.
        stop: the flag that signals raise.

    Attributes:
        train_rows: one source of rows for each phase.
        run: the content of run.json.

    Raises:
        IncompatibleError: model, objective, tokenizer or checkpoint do not match.
        ResourceError: the model does not fit into memory.
    """

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        prepared: PreparedCorpus,
        chosen: Machine,
        processes: Processes,
        say: Say,
        stop: StopFlag,
    ) -> None:
        self.recipe, self.out, self.prepared = recipe, out, prepared
        self.machine, self.processes, self.stop = chosen, processes, stop
        has_saved = has_checkpoint(out)
        self.objective, family = _build_objective(recipe, out, prepared, chosen, has_saved, say)
        parameters = Parameters(self.objective, chosen.compute)
        self.optimizer = start_optimizer(recipe.training.optimizer, parameters)
        self.stages: HeadFirst | None = None
        if HeadFirst.is_needed(recipe.model):
            self.stages = HeadFirst(
                recipe.model, recipe.training.budget, parameters, out if processes.first else None
            )
            self.optimizer = ParameterRates(self.optimizer, self.stages)
        ema = recipe.training.ema
        self.average = Average(parameters, ema) if ema else None
        facts = _checkpoint_facts(recipe, out, prepared, chosen)
        start = self.objective.start if isinstance(self.objective, EncoderDecoder) else None
        network, about = self.objective.product.config, About(family=family, decoder_start=start)
        about = describe(recipe, network, prepared.tokenizer, about)
        self.checkpoints = CheckpointStore(out, recipe.checkpoints.keep, facts, about)
        self.state = TrainState()
        if has_saved:
            self.state, findings = self.checkpoints.restore(self.optimizer, self.average)
            for finding in findings:
                say(finding.line())
            say(f"resuming after step {self.state.step}")
        if processes.first:
            journal.cut(out, self.state.step)
        if self.stages is not None:
            self.stages.begin(self.state)
        self.train_rows = [training_rows(recipe, prepared.train, p.length) for p in recipe.phases]
        self.held_out_rows = held_out_rows(recipe, prepared.held_out)
        self.run: dict[str, Any] = {}
        if processes.first:
            for finding in _pair_findings(recipe, self.train_rows[-1]):
                say(finding.line())
            self.run = _run_json(self)
            for line in self.run.get("mixture", ()):
                say(line)
            if (targets := self.run["references"]["targets"]) < FEW_TARGETS:
                message = f"only {targets:,} targets are held out, so held-out figures say little"
                remedy = "give more text, or raise corpus.held_out or evaluation.rows"
                say(Finding("few-held-out-targets", message, remedy=remedy).line())
            document.write(out / RUN, json.dumps(self.run, indent=2) + "\n")


def _build_objective(
    recipe: Recipe, out: Path, prepared: PreparedCorpus, chosen: Machine, saved: bool, say: Say
) -> tuple[Objective, str | None]:
    """Return the objective around the initial model of the run, and the family that names its
    parameters. If there is a checkpoint (`saved`), its weights are loaded later."""
    original = build.resumed(recipe, out) if saved else recipe
    architecture = build.transformer_config(original, prepared.tokenizer)
    check_length(recipe, architecture)
    _check_memory(architecture, chosen, recipe)
    storage.require_space(out, checkpoint_bytes(num_parameters(architecture), recipe, out))
    network = build.model(original, architecture, quiet if saved else say).to(chosen.device)
    objective = build.objective(recipe, network, prepared.tokenizer)
    family = build.family_name(original)
    layout.require(objective.product.config, prepared.tokenizer, family)  # before the first step
    if saved:
        return objective, family
    if finding := untrained_positions(recipe, architecture):
        say(finding.line())
    if not isinstance(recipe.model, Folder):
        objective.start_run()
        return objective, family
    build.load_objective_state(objective, recipe.model, say)
    if "vocabulary_head" in recipe.model.new:
        counts = likelihood.token_counts(prepared.train, weights_of(recipe.corpus, prepared.train))
        expect_frequencies(objective.product, counts)
    return objective, family


def _checkpoint_facts(
    recipe: Recipe, out: Path, prepared: PreparedCorpus, chosen: Machine
) -> dict[str, Any]:
    """Return the facts in a checkpoint's manifest that a resumed run must match."""
    original = find(str(out))  # without the changes of this session, which are all allowed
    return {
        "recipe": original.fingerprint,
        "settings": frozen_part(original),
        "tokenizer": prepared.tokenizer.fingerprint,
        "data": prepared.train_fingerprint,
        "machine": {
            **machine.describe(chosen),
            "training.microbatches": recipe.training.microbatches,  # dropout is keyed by them
        },
    }


def _run_json(session: TrainingSession) -> dict[str, Any]:
    """Return the content of run.json, which panel and report show, with the reference losses."""
    recipe, prepared, objective = session.recipe, session.prepared, session.objective
    references = likelihood.reference_lines(
        objective,
        likelihood.token_counts(prepared.train, weights_of(recipe.corpus, prepared.train)),
        session.train_rows[-1],
        session.held_out_rows,
        rows=recipe.evaluation.rows,
        batch_rows=recipe.evaluation.batch,
    )
    return {
        "recipe": recipe.name,
        "note": recipe.note,
        "parameters": objective.product.num_parameters(),
        "steps": recipe.training.budget.steps,
        "budget": config.to_plain(recipe.training.budget),
        "objective": recipe.objective.name,
        "token_parts": list(recipe.objective.spec.token_parts),
        "scored_by": recipe.objective.spec.scored_by,
        "ask": _usage_json(session),
        "corpus": prepared.provenance,
        **mixture_of_run(recipe, session.train_rows[-1], prepared.train),
        "references": references.to_json(),
        "machine": session.checkpoints.about["machine"],
    }


def _usage_json(session: TrainingSession) -> dict[str, Any] | None:
    """Return the report's example of use; None if the model neither fills masks nor generates."""
    conventions, network = session.checkpoints.model.conventions, session.objective.product.config
    assert conventions is not None
    spec, tokenizer = session.recipe.objective.spec, session.prepared.tokenizer
    usage = usage_of(spec, network, tokenizer, conventions)
    # Samples of encoder-decoder objectives show special tokens, so they are no prompts.
    plain = not isinstance(session.objective, EncoderDecoder)
    if usage is None:
        return None
    return {"verb": usage.verb, "prompt": usage.prompt, "prompt_of_samples": plain}


def _pair_findings(recipe: Recipe, rows: RowSource) -> Iterator[Finding]:
    """Yield the share of negatives among the sentence pairs, if the rows are pairs, and a warning
    if nearly all of them have the same label."""
    indices = np.arange(min(len(rows), LOOKED_AT))
    labels = rows.rows(indices, 0).pair_label if len(indices) else None
    if labels is None:
        return
    share = float((labels == 1).mean())
    swapped = recipe.row_kind == "swapped-pairs"
    description = "in the wrong order" if swapped else "the second part is from another document"
    negatives = f"{share:.1%} of the first {len(indices):,} are negatives ({description})"
    yield Finding("pairs-of-sentences", f"pairs of sentences: {negatives}")
    if not UNEVEN <= share <= 1 - UNEVEN:
        yield Finding(
            "pairs-of-one-kind",
            f"{max(share, 1 - share):.0%} of the first {len(indices):,} "
            "pairs of sentences have the same label, so the pair task has little to learn",
            remedy="documents need several sentences",
        )


def checkpoint_bytes(parameters: int, recipe: Recipe, out: Path) -> float:
    """Return the minimum number of bytes that further checkpoints in `out` will need. A new one is
    written before an old one is removed."""
    training, every = recipe.training, recipe.checkpoints.every
    bytes_each = 4 + training.optimizer.bytes_per_parameter + 4 * (training.ema > 0.0)
    steps = training.budget.steps
    num_written = 1 if not every else 2 if steps is None else -(-steps // every)
    existing = len(commit.numbered(out / "checkpoints"))
    count = min(recipe.checkpoints.keep + 1, num_written) - existing
    return parameters * bytes_each * max(0, count)


def _check_memory(architecture: TransformerConfig, chosen: Machine, recipe: Recipe) -> None:
    """Check before allocation that weights, gradients, moments and the activations of a microbatch
    fit into memory.

    Raises:
        ResourceError: with the needed and the free bytes.
    """
    if chosen.device.type != "cpu":
        return  # a shortage raises an error there and does not kill the process
    training, available = recipe.training, free_bytes()
    parameters = num_parameters(architecture)
    is_narrow, has_average = chosen.compute != torch.float32, training.ema > 0.0
    bytes_each = 8 + training.optimizer.bytes_per_parameter + 2 * is_narrow + 4 * has_average
    tokens_per_step = max(phase.batch * phase.length for phase in recipe.phases)
    activations = kept_bytes(architecture, tokens_per_step, chosen.compute.itemsize)

    def needed(microbatches: float) -> float:
        return parameters * bytes_each + activations / microbatches

    if needed(training.microbatches) <= available:
        return
    fitting = [n for n in recipe.divisors if needed(n) <= available]
    remedy = "choose a smaller model or shorter rows"
    if fitting:
        remedy = f"--set training.microbatches={fitting[0]} does the same work with less"
    raise ResourceError(
        "the model and one microbatch do not fit into memory",
        where="training.microbatches" if needed(math.inf) <= available else "model",
        found=f"{parameters:,} parameters need {parameters * bytes_each:,} bytes to train, "
        f"{tokens_per_step // training.microbatches:,} tokens at once at least "
        f"{activations // training.microbatches:,}",
        wanted=f"at most the {available:,} bytes that are free",
        do=remedy,
    )
