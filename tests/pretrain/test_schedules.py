"""Whole runs with phases, a ramp, an average and each optimizer: what they read, what they save,
and that a resumed one ends as the one that was not stopped."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from maskwright.base.budget import Budget
from maskwright.base.terminal import quiet
from maskwright.learn.pretrain import build, checkpoints, cost, run
from maskwright.learn.pretrain.prepare import prepare
from maskwright.learn.pretrain.rows import Microbatches, held_out_rows
from maskwright.learn.recipes.base.recipe import FamilyModel, Recipe
from maskwright.learn.train import loop
from maskwright.learn.train.settings import Adafactor, AdamW, Lamb, Muon, Phase, Ramp, Schedule
from maskwright.learn.train.state import TrainState
from maskwright.model.checkpoint import files, pretrained
from maskwright.model.inference import held_out_loss
from maskwright.model.objectives import masked
from maskwright.model.objectives.modules.masked import Masked
from maskwright.model.opening import folders
from maskwright.text.store.loader import Loader
from maskwright.text.store.rows import Rows
from maskwright.text.store.store import TokenStore
from maskwright.text.tokenizer.splits import SubwordSampling
from tinyrun import essence, recipe, resume_quietly, train_quietly
from toys import VOCABULARY, FixedRows, bert

PHASES = (Phase(until=0.5, length=8, batch=16), Phase(until=0.75, length=12, batch=8))
OPTIMIZERS: dict[str, AdamW | Lamb | Adafactor | Muon] = {
    "adamw": AdamW(learning_rate=2e-3),
    "lamb": Lamb(learning_rate=1e-2, beta2=0.98, clip=2.0),
    "adafactor": Adafactor(learning_rate=3e-2),
    "muon": Muon(learning_rate=2e-3),
}


def scheduled(text: Path, name: str = "adamw", *, steps: int = 16, ema: float = 0.9) -> Recipe:
    """Everything at once: two phases before the last, a ramp, an average, dropout, and words that
    are split at random."""
    base = recipe(text, steps=steps)
    schedule = Schedule(kind="cosine", warmup=0.1, floor=0.1, cooldown=0.1)
    return replace(
        base,
        tokenizer=replace(base.tokenizer, kind="unigram"),
        subwords=SubwordSampling(unigram_alpha=0.5),
        training=replace(
            base.training,
            optimizer=OPTIMIZERS[name],
            schedule=schedule,
            ema=ema,
            phases=PHASES,
            ramp=Ramp(start=0.25, until=0.5),
        ),
    )


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ------------------------------------------------------------------------------ what is read
class Recording(Masked):
    """Remembers the rows that it is given."""

    seen: list[Rows]

    def corrupt(self, rows: Rows, epochs: np.ndarray, seed: int, progress: float = 1.0):  # type: ignore[no-untyped-def]
        self.seen.append(rows)
        return super().corrupt(rows, epochs, seed, progress)


def test_each_step_reads_what_its_phase_and_the_ramp_say() -> None:
    objective = Recording(bert(), masked.Options(), VOCABULARY)
    objective.seen = []
    sources = [FixedRows(length=8), FixedRows(length=16)]
    phases = [(0.5, Loader(sources[0], 16, 0)), (1.0, Loader(sources[1], 8, 0))]
    plan = loop.TrainingPlan(seed=0, microbatches=2, budget=Budget(steps=8), schedule=Schedule())
    state = TrainState()
    batches = Microbatches(objective, phases, plan, state, Ramp(start=0.25, until=0.5))
    shapes, wanted = [], []
    for step in range(8):
        state.step = step
        parts = [batches(step, number).tokens for number in range(2)]
        assert parts[0].shape == parts[1].shape
        shapes.append((2 * len(parts[0]), parts[0].shape[1]))
        loader = phases[step >= 4][1]
        wanted += loader.take(state.samples, shapes[-1][0])[0].tolist()
        state.samples += shapes[-1][0]
    assert shapes == [(4, 8), (8, 8), (10, 8), (12, 8), *4 * [(8, 16)]]
    # Rows follow each other in the loader's order: none is left out, none comes twice.
    assert np.concatenate([rows.ids for rows in objective.seen]).tolist() == wanted


def test_operations_are_counted_in_tokens_once(text: Path, tmp_path: Path) -> None:
    """As a comparison counts them; the recipe that is kept says how many tokens they are, and is
    one that the same run would have had."""
    asked = recipe(text)
    asked = replace(asked, training=replace(asked.training, budget=Budget(flops=1e8)))
    run.pretrain(asked, tmp_path / "run", stream=(log := io.StringIO()))
    made = run.read(tmp_path / "run" / "recipe.toml")
    prepared = prepare(made, tmp_path / "run", quiet)
    network = build.model(made, build.transformer_config(made, prepared.tokenizer))
    each = run.flops_per_token(made, prepared, build.objective(made, network, prepared.tokenizer))
    assert made.training.budget == Budget(tokens=int(1e8 / each))
    assert f"budget: 1e+08 flops are {made.training.budget}" in log.getvalue()
    state, _ = checkpoints.read_state(folders.newest(tmp_path / "run"))
    assert made.training.budget.spent(**state.counted) and state.step > 1
    train_quietly(made, tmp_path / "same")
    assert essence(tmp_path / "same") == essence(tmp_path / "run")


def test_the_cost_of_a_step_is_measured_on_a_sample(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the units of a run; twice the time of the processor is twice the time."""
    made = replace(recipe(text), training=replace(recipe(text).training, threads=1))
    with cost.sampled(made) as sample:
        measured = cost.measure(made, sample, seconds=0.2)
        ticks = itertools.count()
        monkeypatch.setattr(cost.time, "process_time", lambda: float(next(ticks)))
        counted = cost.measure(made, sample, seconds=5.0)
        folder = sample.prepared.held_out.path
    assert not folder.exists()
    monkeypatch.undo()
    assert measured.tokens == counted.tokens == made.training.batch * made.rows.length
    assert 0 < measured.seconds < counted.seconds * counted.processor_share
    train_quietly(made, out := tmp_path / "run")
    stores = [TokenStore.open(out / "data" / name) for name in ("train", "held-out")]
    assert sample.tokens == sum(store.num_tokens for store in stores)
    assert counted.parameters == json.loads((out / "run.json").read_text())["parameters"]
    roughly = cost.estimate(made, 1e-9)
    assert roughly is not None and 0.5 < roughly.flops / measured.flops < 2.0
    assert roughly.seconds == pytest.approx(roughly.flops * roughly.tokens * 1e-9)


# ------------------------------------------------------------------------------ what is saved
def test_the_average_is_the_model_and_the_masters_go_on(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    made = scheduled(text, ema=0.9)
    folder = train_quietly(made, out)
    opened = files.open_file(folder / checkpoints.MASTERS)
    masters = {n.removeprefix(checkpoints.PREFIX): opened.read(n) for n in opened.entries}
    loaded = pretrained.load(folder)
    weights = dict(loaded.model.named_parameters())
    assert weights.keys() == masters.keys()
    assert any(not torch.equal(weights[n], masters[n]) for n in masters)
    # What was evaluated is what was saved.
    prepared = prepare(made, out, lambda text: None)
    objective = build.objective(made, loaded.model, prepared.tokenizer)
    held_out = held_out_rows(made, prepared.held_out)
    logged = [r for r in checkpoints.read_journal(out) if r["kind"] == "evaluation"][-1]
    size = {"rows": made.evaluation.rows, "batch_rows": made.evaluation.batch}
    assert held_out_loss.evaluate(objective, held_out, **size).loss == pytest.approx(logged["loss"])
    # The control: the masters answer otherwise.
    for name, weight in weights.items():
        weight.data.copy_(masters[name])
    assert held_out_loss.evaluate(objective, held_out, **size).loss != pytest.approx(logged["loss"])


def test_an_average_changes_nothing_of_the_training(text: Path, tmp_path: Path) -> None:
    losses = []
    for ema in (0.0, 0.9):
        out = tmp_path / str(ema)
        folder = train_quietly(scheduled(text, ema=ema), out)
        losses.append([r["loss"] for r in checkpoints.read_journal(out) if r["kind"] == "train"])
        assert (folder / checkpoints.MASTERS).exists() is (ema > 0)
    assert losses[0] == losses[1]


# ------------------------------------------------------------------------------ to go on
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_resumed_run_is_the_run(name: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    last = train_quietly(scheduled(text, name), out)
    whole, masters = essence(out), digest(last / checkpoints.MASTERS)
    losses = [r["loss"] for r in checkpoints.read_journal(out) if r["kind"] == "train"]
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    shutil.rmtree(last)  # as if it had been stopped after step 12
    assert folders.newest(out).name == "step-00000012"
    resume_quietly(out)
    assert essence(out) == whole and digest(last / checkpoints.MASTERS) == masters


@pytest.mark.parametrize("forgotten", ["average", "samples", "optimizer"])
def test_the_comparison_sees_what_was_forgotten(
    forgotten: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a resume that restores all but one thing ends elsewhere."""
    out = tmp_path / "run"
    last = train_quietly(scheduled(text, "lamb"), out)
    whole = essence(out)
    shutil.rmtree(last)
    optimizers, read = "maskwright.learn.train.optimizers", checkpoints.read_state

    def forget(folder: Path) -> tuple[TrainState, int]:
        state, steps = read(folder)
        return replace(state, samples=0), steps

    if forgotten == "average":
        monkeypatch.setattr(f"{optimizers}.Average.load", lambda self, state: None)
    elif forgotten == "samples":
        monkeypatch.setattr(checkpoints, "read_state", forget)
    else:
        load = lambda self, state, steps: setattr(self, "steps", steps)  # noqa: E731
        monkeypatch.setattr(f"{optimizers}.LambState.load", load)
    resume_quietly(out)
    assert essence(out)["weights"] != whole["weights"]


def test_a_run_in_bfloat16_keeps_its_average_in_float32(text: Path, tmp_path: Path) -> None:
    made = scheduled(text, "muon", steps=8)
    assert isinstance(made.model, FamilyModel)
    narrow = replace(made, training=replace(made.training, precision="bfloat16"))
    folder = train_quietly(narrow, tmp_path / "run")
    weights = dict(pretrained.load(folder).model.named_parameters())
    assert any(not torch.equal(w, w.bfloat16().float()) for w in weights.values())
