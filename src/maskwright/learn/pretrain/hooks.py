"""Hooks of the training loop: log, evaluate, save; and the table of losses by value at the end."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.base.errors import DataError, StoppedError
from maskwright.base.findings import Finding
from maskwright.base.report.panel import Panel
from maskwright.base.report.tables import Table
from maskwright.base.terminal import shell_word
from maskwright.learn.pretrain.journal import Journal
from maskwright.learn.pretrain.journal import read as read_journal
from maskwright.learn.pretrain.prepare import (
    PreparedCorpus,
    held_out_stores_by_value,
    names_of,
    values_of,
)
from maskwright.learn.pretrain.rows import held_out_rows
from maskwright.learn.pretrain.session import TrainingSession
from maskwright.learn.train.state import TrainState
from maskwright.model.device.machine import SlowdownWatch
from maskwright.model.device.process_memory import peak_memory
from maskwright.model.inference import held_out_loss as likelihood
from maskwright.model.inference.fill_mask import fill
from maskwright.model.inference.generation import generate
from maskwright.model.inference.generation_settings import GenerationSettings
from maskwright.model.inference.held_out_loss import SEED
from maskwright.model.inference.prepared import prepare
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.encoder_decoder import EncoderDecoder
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.opening.special_tokens import opening
from maskwright.text.store.rows import RowSource

PROMPT_TOKENS, SHOWN_TOKENS = 12, 40
PATIENCE = 3  # checkpoints that may fail on a full disk before the run stops
NOTHING = "–"


def sample(
    objective: Objective, prepared: PreparedCorpus, rows: RowSource, step: int
) -> dict[str, Any] | None:
    """Return a `sample` record for the journal; None if the model neither fills nor generates.

    Args:
        rows: rows of the held-out text, which encoder-decoder objectives need.
    """
    model, tokenizer = objective.scorer, prepared.tokenizer
    # At most half a row, so that the decoded and re-encoded prompt still fits into the model.
    length = min(2 * PROMPT_TOKENS, rows.length // 2)
    ids = [int(i) for i in prepared.held_out.document(0)[:length]]
    if not ids:
        return None
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
            alone=True,
        )[0]
        text = "  ".join(f"{c.token} {c.probability:.0%}" for c in predictions[0].candidates)
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
    return {"kind": "sample", "step": step, "prompt": prompt, "text": text}


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


class LogHook:
    """Writes every step to the journal and the panel."""

    def __init__(self, session: TrainingSession, journal: Journal, panel: Panel) -> None:
        self.journal, self.panel = journal, panel
        self.device = session.machine.device
        self._last = (session.state.seconds, session.state.tokens)
        self._written = time.monotonic()
        self._every = session.recipe.training.log_seconds
        command = f"maskwright resume {shell_word(session.out)}"
        is_alone = session.processes.world == 1 and self.device.type == "cpu"
        self._neighbours = SlowdownWatch(torch.get_num_threads(), command) if is_alone else None

    def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
        self.journal.write(record)
        if record["kind"] == "skipped":
            self.panel.skipped(record)
        else:
            self.panel.step(record)
        if time.monotonic() - self._written >= self._every:
            self._time(state)

    def at_end(self, state: TrainState) -> None:
        self._time(state)

    def _time(self, state: TrainState) -> None:
        seconds, tokens = self._last
        if state.seconds > seconds:
            tokens_per_second = (state.tokens - tokens) / (state.seconds - seconds)
            peak = peak_memory(self.device)
            self.journal.time(state.step, state.seconds, tokens_per_second, peak)
            if self._neighbours and (finding := self._neighbours.slowed(tokens_per_second)):
                self.panel.note(finding.line())
        self._last = (state.seconds, state.tokens)
        self._written = time.monotonic()


class EvaluateHook:
    """Evaluates on held-out text and records a sample, every `evaluation.every` steps and at the
    end of the run."""

    def __init__(self, session: TrainingSession, journal: Journal, panel: Panel) -> None:
        self.session, self.journal, self.panel = session, journal, panel
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
        with nullcontext() if s.average is None else s.average.in_place():
            evaluation = likelihood.evaluate(
                s.objective,
                s.held_out_rows,
                rows=s.recipe.evaluation.rows,
                batch_rows=s.recipe.evaluation.batch,
                bytes_per_token=bytes_per_token if s.objective.is_language_model else None,
                live=True,
            )
            record = {"kind": "evaluation", "step": state.step, **evaluation.to_json()}
            self.journal.write(record)
            self.panel.evaluation(record)
            if sample_record := sample(s.objective, s.prepared, s.held_out_rows, state.step):
                self.journal.write(sample_record)
                self.panel.sample(sample_record)
        self._done = state.step


class SaveHook:
    """Saves a checkpoint every `checkpoints.every` steps, at the end, and when the run is stopped.

    If the disk is full, the older checkpoint stays and training continues with a note; after a few
    attempts the run stops.
    """

    def __init__(self, session: TrainingSession, journal: Journal, panel: Panel) -> None:
        self.session, self.journal, self.panel = session, journal, panel
        self._failures = 0
        self._saved = -1

    def after_step(self, state: TrainState, record: dict[str, Any]) -> None:
        every = self.session.recipe.checkpoints.every
        if every and state.step % every == 0:
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
            s.objective.product, s.prepared.tokenizer, s.optimizer, state, s.average
        )
        self.panel.checkpoint(path.name)
        self._saved = state.step


def held_out_by_value(session: TrainingSession) -> Table | None:
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
                    result = likelihood.evaluate(
                        session.objective, rows, rows=num_rows, batch_rows=batch
                    )
                    cells = [f"{result.targets:,}", f"{result.loss:.3f}", f"{result.top1:.1%}"]
            table_rows.append([name, f"{documents:,}", *cells])
    return {
        "title": f"Held-out text by {recipe.corpus.mix_by}",
        "head": ["", "documents", "targets", "loss", "top-1"],
        "rows": table_rows,
        "note": f"Loss in nats per target, of at most {num_rows:,} rows each; {NOTHING}: "
        "too little text is held out.",
    }
