"""One training session of a run: all objects that it uses, and the hooks of its loop.

The hooks log, evaluate and save; `held_out_by_value` makes the table of losses by value at the end.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.base import config
from maskwright.base.errors import DataError, Finding, ResourceError, StoppedError
from maskwright.base.memory import free_bytes
from maskwright.base.report import document
from maskwright.base.report.page import EARLY_STOP
from maskwright.base.report.panel import Panel
from maskwright.base.storage import commit
from maskwright.base.storage import files as storage
from maskwright.base.terminal import Say, quiet
from maskwright.learn.pretrain import build, checkpoints
from maskwright.learn.pretrain.checkpoints import (
    CheckpointStore,
    Journal,
    describe,
    read_journal,
    usage_of,
)
from maskwright.learn.pretrain.prepare import (
    PreparedCorpus,
    held_out_stores_by_value,
    names_of,
    values_of,
)
from maskwright.learn.pretrain.rows import (
    check_length,
    held_out_rows,
    mixture_of_run,
    token_counts,
    training_rows,
    untrained_positions,
)
from maskwright.learn.recipes.base.find import find
from maskwright.learn.recipes.base.recipe import Folder, Recipe, frozen_part
from maskwright.learn.train.loop import Hook, StopFlag, finished
from maskwright.learn.train.optimizers import Average, ParameterRates, Parameters, start_optimizer
from maskwright.learn.train.state import Processes, TrainState
from maskwright.model.checkpoint import layout
from maskwright.model.checkpoint.layout import About, num_parameters
from maskwright.model.device import machine
from maskwright.model.device.machine import Machine, peak_memory
from maskwright.model.device.step_cost import kept_bytes
from maskwright.model.inference import held_out_loss
from maskwright.model.inference.fill_mask import fill
from maskwright.model.inference.generation import generate
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.held_out_loss import SEED
from maskwright.model.inference.prepared import prepare
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.encoder_decoder import EncoderDecoder
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.opening.folders import has_checkpoint
from maskwright.model.opening.special_tokens import opening
from maskwright.text.images.processor import ImageProcessor
from maskwright.text.store.rows import RowSource

# ------------------------------------------------------------------------------ the session
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
        self.objective.use_corpus(prepared.train, partial(token_counts, recipe, prepared))
        parameters = Parameters(self.objective, chosen.compute)
        self.optimizer = start_optimizer(recipe.training.optimizer, parameters)
        self.stages: build.HeadFirst | None = None
        decay = recipe.model.layer_decay if isinstance(recipe.model, Folder) else 1.0
        rates = build.layer_rates(self.objective.product, parameters, decay)
        if build.HeadFirst.is_needed(recipe.model):
            home = out if processes.first else None
            budget = recipe.training.budget
            self.stages = build.HeadFirst(recipe.model, budget, parameters, home, rates)
            self.optimizer = ParameterRates(self.optimizer, self.stages)
        elif decay != 1.0:
            self.optimizer = ParameterRates(self.optimizer, lambda step: rates)
        ema = recipe.training.ema
        self.average = Average(parameters, ema) if ema else None
        facts = _checkpoint_facts(recipe, out, prepared, chosen)
        start = self.objective.start if isinstance(self.objective, EncoderDecoder) else None
        images = recipe.tokenizer if isinstance(recipe.tokenizer, ImageProcessor) else None
        network = self.objective.product.config
        about = About(family=family, decoder_start=start, images=images)
        about = describe(recipe, network, prepared.words, about)
        keep, keep_best = recipe.checkpoints.keep, recipe.training.keeps_best
        self.checkpoints = CheckpointStore(out, keep, facts, about, keep_best)
        self.state = TrainState()
        if has_saved:
            self.state, findings = self.checkpoints.restore(self.optimizer, self.average)
            for finding in findings:
                say(finding.line())
            say(f"resuming after step {self.state.step}")
        if processes.first:
            checkpoints.cut_journal(out, self.state.step)
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
                remedy = "give more, or raise corpus.held_out or evaluation.rows"
                say(Finding("few-held-out-targets", message, remedy=remedy).line())
            document.write(out / RUN, json.dumps(self.run, indent=2) + "\n")

    @property
    def is_finished(self) -> bool:
        """Whether the run is complete."""
        training = self.recipe.training
        return finished(training.budget, self.state, training.patience)


def _build_objective(
    recipe: Recipe, out: Path, prepared: PreparedCorpus, chosen: Machine, saved: bool, say: Say
) -> tuple[Objective, str | None]:
    """Return the objective around the initial model of the run, and the family that names its
    parameters. If there is a checkpoint (`saved`), its weights are loaded later."""
    original = build.resumed(recipe, out) if saved else recipe
    architecture = build.transformer_config(original, prepared.words)
    check_length(recipe, architecture)
    _check_memory(architecture, chosen, recipe)
    storage.require_space(out, checkpoint_bytes(num_parameters(architecture), recipe, out))
    network = build.model(original, architecture, quiet if saved else say).to(chosen.device)
    objective = build.objective(recipe, network, prepared.words)
    family = build.family_name(original)
    layout.require_layout(objective.product.config, prepared.words, family)  # before the first step
    if saved:
        return objective, family
    if finding := untrained_positions(recipe, architecture):
        say(finding.line())
    if not isinstance(recipe.model, Folder):
        objective.start_run()
        return objective, family
    # Its own weights, such as the generator of replaced tokens.
    if names := checkpoints.load_objective(objective, Path(recipe.model.path)):
        components = sorted({name.partition(".")[0] for name in names})
        say(f"also loaded from the folder: {', '.join(components)}")
    if "vocabulary_head" in recipe.model.new:
        build.expect_frequencies(objective.product, token_counts(recipe, prepared))
    return objective, family


def _checkpoint_facts(
    recipe: Recipe, out: Path, prepared: PreparedCorpus, chosen: Machine
) -> dict[str, Any]:
    """Return the facts in a checkpoint's manifest that a resumed run must match."""
    original = find(str(out))  # without the changes of this session, which are all allowed
    return {
        "recipe": original.fingerprint,
        "settings": frozen_part(original),
        "tokenizer": prepared.held_out.tokenizer_fingerprint,
        "data": prepared.train_fingerprint,
        "machine": {
            **machine.describe(chosen),
            "training.microbatches": recipe.training.microbatches,  # dropout is keyed by them
        },
    }


def _run_json(session: TrainingSession) -> dict[str, Any]:
    """Return the content of run.json, which panel and report show, with the reference losses."""
    recipe, prepared, objective = session.recipe, session.prepared, session.objective
    sources = session.train_rows[-1], session.held_out_rows
    of_image = getattr(objective.product.config.tokens, "per_image", 0)
    size: dict[str, Any] = {"rows": recipe.evaluation.rows, "batch_rows": recipe.evaluation.batch}
    if recipe.objective.spec.predicts == "pixels":
        references = held_out_loss.pixel_lines(objective, *sources, **size)
    else:
        counts = token_counts(recipe, prepared)
        references = held_out_loss.reference_lines(objective, counts, *sources, **size).to_json()
    return {
        "recipe": recipe.name,
        "note": recipe.note,
        "parameters": objective.product.num_parameters(),
        "steps": recipe.training.budget.steps,
        "budget": config.to_plain(recipe.training.budget),
        "objective": recipe.objective.name,
        "predicts": recipe.objective.spec.predicts,
        **({"image_tokens": of_image} if of_image else {}),
        "token_parts": list(recipe.objective.spec.token_parts),
        "scored_by": recipe.objective.spec.scored_by,
        "ask": _usage_json(session),
        "corpus": prepared.provenance,
        **mixture_of_run(recipe, session.train_rows[-1], prepared.train),
        "references": references,
        "machine": session.checkpoints.about["machine"],
        "waiting_threads": machine.waiting(),
    }


def _usage_json(session: TrainingSession) -> dict[str, Any] | None:
    """Return the report's example of use; None if the model neither fills masks nor generates."""
    conventions, network = session.checkpoints.model.conventions, session.objective.product.config
    assert conventions is not None
    spec, tokenizer = session.recipe.objective.spec, session.prepared.words
    usage = None if tokenizer is None else usage_of(spec, network, tokenizer, conventions)
    if usage is None:
        return None
    # Samples of encoder-decoder objectives show special tokens, so they are no prompts.
    plain = not isinstance(session.objective, EncoderDecoder)
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
    count = min(recipe.checkpoints.keep + 1, num_written) + training.keeps_best - existing
    return parameters * bytes_each * max(0, count)


def training_bytes(
    architecture: TransformerConfig, compute: torch.dtype, recipe: Recipe
) -> tuple[int, int]:
    """Return the bytes of weights, gradients and moments, and at least those of the activations of
    one step, all its microbatches together."""
    training = recipe.training
    bytes_each = 8 + training.optimizer.bytes_per_parameter + 4 * (training.ema > 0.0)
    bytes_each += 2 * (compute != torch.float32)
    largest = max(recipe.phases, key=lambda phase: phase.batch * phase.length)
    tokens = largest.batch * largest.length
    sizes = (tokens, compute.itemsize, largest.length, training.gradient_checkpointing)
    activations = kept_bytes(architecture, *sizes)
    return num_parameters(architecture) * bytes_each, activations


def _check_memory(architecture: TransformerConfig, chosen: Machine, recipe: Recipe) -> None:
    """Check before allocation that weights, gradients, moments and the activations of a microbatch
    fit into memory."""
    if chosen.device.type != "cpu":
        return  # a shortage raises an error there and does not kill the process
    training, available = recipe.training, free_bytes()
    of_parameters, activations = training_bytes(architecture, chosen.compute, recipe)

    def needed(microbatches: float) -> float:
        return of_parameters + activations / microbatches

    if needed(training.microbatches) <= available:
        return
    fitting = [n for n in recipe.divisors if needed(n) <= available]
    raise ResourceError(
        "the model and one microbatch do not fit into memory",
        where="training.microbatches" if needed(math.inf) <= available else "model",
        found=f"{num_parameters(architecture):,} parameters need {of_parameters:,} bytes to train, "
        f"the tokens of a microbatch at least {activations // training.microbatches:,}",
        wanted=f"at most the {available:,} bytes that are free",
        do=less_memory(next(iter(fitting), None)),
    )


def less_memory(microbatches: int | None) -> str:
    """Return what to do where the memory is too small; `microbatches`: a number that fits."""
    if microbatches is None:
        return "choose a smaller model, shorter rows or training.gradient_checkpointing = true"
    return f"--set training.microbatches={microbatches} does the same work with less"


# ------------------------------------------------------------------------------ hooks
PROMPT_TOKENS, SHOWN_TOKENS = 12, 40
PATIENCE = 3  # checkpoints that may fail on a full disk before the run stops
NOTHING = "–"


def sample(
    objective: Objective, prepared: PreparedCorpus, rows: RowSource, step: int
) -> dict[str, Any] | None:
    """Return a `sample` record for the journal; None if the model neither fills nor generates.
    Where a mask was filled, `original` is the text before a word was hidden.

    Args:
        rows: rows of the held-out text, which encoder-decoder objectives need.
    """
    model, tokenizer = objective.scorer, prepared.words
    if tokenizer is None:
        return None
    # At most half of what the model reads, so that the decoded and re-encoded prompt still fits.
    length = min(2 * PROMPT_TOKENS, min(rows.length, model.config.longest or rows.length) // 2)
    ids = [int(i) for i in prepared.held_out.document(0)[:length]]
    if not ids or model.config.vocabulary_head is None:
        return None
    original = {}
    if isinstance(objective, EncoderDecoder):
        prompt, text = _rewritten(objective, prepared, rows)
    elif model.config.encoder is not None and tokenizer.mask is not None:
        mask = tokenizer.tokens([tokenizer.mask])[0]
        space = "" if tokenizer.kind == "character" else " "
        is_first = np.arange(len(ids)) == 0
        begin, end = _middle_word(prepared.held_out.begins_word(np.array(ids), is_first))
        text_before, text_after = tokenizer.decode(ids[:begin]), tokenizer.decode(ids[end:])
        prompt = f"{text_before}{space}{mask}{space}{text_after.removeprefix(space)}"
        # In a model of two stacks such an objective trains the encoder alone; use only that.
        predictions = fill(
            prepare(model, live=True),
            tokenizer,
            [prompt],
            top=5,
            shift=objective.prediction_offset,
        )[0]
        text = "  ".join(f"{c.token} {c.probability:.0%}" for c in predictions[0].candidates)
        original = {"original": tokenizer.decode(ids)}
    elif model.config.decoder is not None and model.config.encoder is None:
        prompt_ids = ids[:PROMPT_TOKENS]
        generated = generate(
            prepare(model, live=True),
            [prompt_ids],
            GenerationSettings(tokens=SHOWN_TOKENS),
            forbidden=_non_text_ids(prepared, model),
            bidirectional_prefix=objective.bidirectional_prefix,
        )[0]
        prompt = tokenizer.decode(prompt_ids)
        text = tokenizer.decode(prompt_ids + generated)[len(prompt) :]
    else:
        return None
    return {"kind": "sample", "step": step, "prompt": prompt, "text": text, **original}


def _rewritten(
    objective: EncoderDecoder, prepared: PreparedCorpus, source: RowSource
) -> tuple[str, str]:
    """Return the corrupted beginning of the first row and the decoder's output for it."""
    first_row = source.rows(np.array([0]), 0)
    length = min(2 * PROMPT_TOKENS, int((first_row.documents == 1).sum()))
    batch = objective.corrupt(first_row.cut(0, length), np.zeros(1, dtype=np.int64), SEED)
    assert batch.decoder_tokens is not None
    encoder_ids = batch.tokens[0] if batch.documents is None else batch.tokens[batch.documents != 0]
    generated = generate(
        prepare(objective.product, live=True),
        [_decoder_prefix(batch.decoder_tokens[0].tolist(), opening(prepared.tokenizer))],
        GenerationSettings(tokens=SHOWN_TOKENS, temperature=0.0),
        forbidden=_non_text_ids(prepared, objective.product),
        sources=[encoder_ids.tolist()],
        end=objective.vocabulary.end,
    )[0]
    # Omit special tokens except the sentinels, which say which gap is filled.
    tokenizer = prepared.tokenizer
    hidden_ids = tokenizer.special_ids - {*tokenizer.sentinels}
    text = tokenizer.decode([token for token in generated if token not in hidden_ids], False)
    return tokenizer.decode(encoder_ids.tolist(), False), text


def _decoder_prefix(decoded: list[int], opening_tokens: list[int]) -> list[int]:
    """Return the decoder's start token and, if they follow it in `decoded`, the opening tokens."""
    count = 1 + len(opening_tokens)
    return decoded[:count] if decoded[1:count] == opening_tokens else decoded[:1]


def _non_text_ids(prepared: PreparedCorpus, model: Transformer) -> tuple[int, ...]:
    """Return the ids of padding and those beyond the tokenizer's vocabulary."""
    vocabulary_size, rows = prepared.tokenizer.vocabulary_size, model.config.tokens.vocabulary
    padding = [] if prepared.tokenizer.pad is None else [prepared.tokenizer.pad]
    return (*padding, *range(vocabulary_size, rows))


def _middle_word(begins: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the (first, stop) positions of the word nearest to the middle of the text, among the
    words of one token if there are any.

    Args:
        begins: (T,) whether a word begins at the token.
    """
    starts = np.flatnonzero(begins).tolist() or [0]
    ends = [*starts[1:], len(begins)]
    one_token_words = [(a, b) for a, b in zip(starts, ends, strict=True) if b - a == 1]
    words = one_token_words or list(zip(starts, ends, strict=True))
    return min(words, key=lambda word: abs(word[0] - len(begins) // 2))


class SessionHook(Hook):
    """A hook of a session, which writes to its journal and shows on its panel."""

    def __init__(self, session: TrainingSession, journal: Journal, panel: Panel) -> None:
        self.session, self.journal, self.panel = session, journal, panel


class LogHook(SessionHook):
    """Writes every step to the journal and the panel."""

    def __init__(self, session: TrainingSession, journal: Journal, panel: Panel) -> None:
        super().__init__(session, journal, panel)
        self._last = (session.state.seconds, session.state.tokens)
        self._written = time.monotonic()

    def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
        self.journal.write(record)
        self.panel.step(record)
        if time.monotonic() - self._written >= self.session.recipe.training.log_seconds:
            self._time(state)

    def at_end(self, state: TrainState) -> None:
        self._time(state)

    def _time(self, state: TrainState) -> None:
        seconds, tokens = self._last
        if state.seconds > seconds:
            tokens_per_second = (state.tokens - tokens) / (state.seconds - seconds)
            peak = peak_memory(self.session.machine.device)
            self.journal.time(state.step, state.seconds, tokens_per_second, peak)
        self._last = (state.seconds, state.tokens)
        self._written = time.monotonic()


class EvaluateHook(SessionHook):
    """Evaluates on held-out text and records a sample, every `evaluation.every` steps and at the
    end of the run; counts evaluations for `training.patience`."""

    def __init__(self, session: TrainingSession, journal: Journal, panel: Panel) -> None:
        super().__init__(session, journal, panel)
        # The journal has the evaluations of earlier sessions.
        lines = read_journal(session.out)
        self._done = max((r["step"] for r in lines if r["kind"] == "evaluation"), default=-1)

    def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
        every = self.session.recipe.evaluation.every
        if every and state.step % every == 0:
            self._evaluate(state)

    def at_end(self, state: TrainState) -> None:
        if not self.session.stop.raised and self._done != state.step:
            self._evaluate(state)

    def _evaluate(self, state: TrainState) -> None:
        s = self.session
        bytes_per_token = s.prepared.held_out_bytes_per_token
        size = {"rows": s.recipe.evaluation.rows, "batch_rows": s.recipe.evaluation.batch}
        with nullcontext() if s.average is None else s.average.in_place():
            if s.recipe.objective.spec.predicts == "pixels":
                figures = held_out_loss.pixel_error(s.objective, s.held_out_rows, **size)
            else:
                figures = held_out_loss.evaluate(
                    s.objective,
                    s.held_out_rows,
                    **size,
                    bytes_per_token=bytes_per_token if s.objective.is_language_model else None,
                    live=True,
                ).to_json()
            record = {"kind": "evaluation", "step": state.step, **figures}
            self.journal.write(record)
            self.panel.evaluation(record)
            training, was_finished = s.recipe.training, s.is_finished
            if training.tracks_loss:
                state.record_evaluation(figures["loss"], training.min_improvement)
            if s.is_finished and not was_finished:
                end = {"kind": EARLY_STOP, "step": state.step, "evaluations": state.stalled}
                self.journal.write(end)
            if sample_record := sample(s.objective, s.prepared, s.held_out_rows, state.step):
                self.journal.write(sample_record)
                self.panel.sample(sample_record)
        self._done = state.step


class SaveHook(SessionHook):
    """Saves a checkpoint every `checkpoints.every` steps, at the end, when the run is stopped, and
    when the held-out loss is the lowest so far, if the best checkpoint is kept.

    If the disk is full, the older checkpoint stays and training continues with a note; after a few
    attempts the run stops.
    """

    _failures = 0
    _saved = -1

    def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
        recipe = self.session.recipe
        every, training = recipe.checkpoints.every, recipe.training
        is_due = bool(every) and state.step % every == 0
        is_due |= training.keeps_best and state.best_step == state.step
        if training.tracks_loss and self.session.is_finished:
            is_due = False  # the last evaluation comes first
        if is_due:
            try:
                self._save(state)
                self._failures = 0
            except StoppedError as error:
                self._failures += 1
                if self._failures >= PATIENCE:
                    raise
                message, reason = "not saved, training goes on", f"{error.what}, {error.found}"
                finding = Finding("checkpoint-not-saved", message, reason, severity="warning")
                self.panel.note(finding.line())

    def at_end(self, state: TrainState) -> None:
        if self._saved != state.step:
            self._save(state)

    def _save(self, state: TrainState) -> None:
        s = self.session
        self.journal.flush()
        path = s.checkpoints.save(
            s.objective.product, s.prepared.words, s.optimizer, state, s.average
        )
        self.panel.checkpoint(path.name)
        self._saved = state.step


def held_out_by_value(session: TrainingSession) -> document.Table | None:
    """Return loss and accuracy on the held-out text of each value of the column that the run mixes
    by; None if there are no such stores. One evaluation's number of rows is divided among them."""
    recipe, average = session.recipe, session.average
    stores = held_out_stores_by_value(session.out)
    if not stores:
        return None
    batch = recipe.evaluation.batch
    num_rows = max(batch, recipe.evaluation.rows // len(stores))
    table_rows: list[list[str]] = []
    values, names = values_of(session.out) or [], names_of(recipe.corpus, session.out)
    with nullcontext() if average is None else average.in_place():
        for value, name in zip(values, names, strict=True):
            documents, cells = 0, [NOTHING] * 3
            if value in stores:
                documents = stores[value].num_documents
                rows = held_out_rows(recipe, stores[value])
                with suppress(DataError):  # the text does not fill a row, or has no target
                    result = held_out_loss.evaluate(
                        session.objective, rows, rows=num_rows, batch_rows=batch
                    )
                    cells = [f"{result.targets:,}", f"{result.loss:.3f}", f"{result.top1:.1%}"]
            table_rows.append([name, f"{documents:,}", *cells])
    return {
        "title": f"Held-out text by {recipe.corpus.mix_by}",
        "head": ["", "documents", "targets", "loss", "top-1"],
        "rows": table_rows,
        "note": f"After the last step: loss in nats per target, of at most {num_rows:,} rows each; "
        f"{NOTHING}: too little text is held out.",
    }
