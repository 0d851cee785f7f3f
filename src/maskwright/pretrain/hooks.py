"""What happens between steps: log, evaluate, save. The loop knows none of it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import torch

from maskwright.errors import StoppedError
from maskwright.findings import Finding
from maskwright.inference import held_out_loss as likelihood
from maskwright.pretrain.journal import Journal
from maskwright.pretrain.journal import read as read_journal
from maskwright.pretrain.samples import sample
from maskwright.pretrain.session import TrainingSession
from maskwright.report.panel import Panel
from maskwright.terminal import shell_word
from maskwright.train.machine.neighbours import Neighbours
from maskwright.train.machine.process_memory import peak_memory
from maskwright.train.state import TrainState

# How often a full disk is waited out before the run stops.
PATIENCE = 3


class Log:
    """Writes every step to the journal and the panel."""

    def __init__(self, session: TrainingSession, journal: Journal, panel: Panel) -> None:
        self.journal, self.panel = journal, panel
        self.device = session.machine.device
        self._last = (session.state.seconds, session.state.tokens)
        self._written = time.monotonic()
        self._every = session.recipe.training.log_seconds
        again = f"maskwright resume {shell_word(session.out)}"
        alone = session.processes.world == 1 and self.device.type == "cpu"
        self._neighbours = Neighbours(torch.get_num_threads(), again) if alone else None

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
            if self._neighbours and (found := self._neighbours.slowed(tokens_per_second)):
                self.panel.note(found.line())
        self._last = (state.seconds, state.tokens)
        self._written = time.monotonic()


class Evaluate:
    """Measures held-out text and makes a sample, every so many steps and when the run is
    complete."""

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
        average = self.session.average
        with nullcontext() if average is None else average.in_place():
            self._ask(state)
        self._done = state.step

    def _ask(self, state: TrainState) -> None:
        s = self.session
        figures = likelihood.evaluate(
            s.objective,
            s.held_out_rows,
            rows=s.recipe.evaluation.rows,
            batch_rows=s.recipe.evaluation.batch,
            bytes_per_token=s.prepared.held_out_bytes_per_token
            if s.objective.is_language_model
            else None,
            live=True,
        )
        record = {"kind": "evaluation", "step": state.step, **figures.to_json()}
        self.journal.write(record)
        self.panel.evaluation(record)
        shown = sample(s.objective, s.prepared, s.held_out_rows, state.step)
        if shown is not None:
            self.journal.write(shown)
            self.panel.sample(shown)


class Save:
    """Saves a checkpoint every so many steps, at the end, and when the run is stopped.

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
                why = f"{error.what}, {error.found}"
                self.panel.note(
                    Finding(
                        "checkpoint-not-saved",
                        "not saved, training goes on",
                        why,
                        severity="warning",
                    ).line()
                )

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
