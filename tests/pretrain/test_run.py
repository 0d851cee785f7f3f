"""A whole small run, and what it refuses."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from corpus.test_curated_folder import curate
from maskwright.base import threads
from maskwright.base.errors import (
    CheckpointError,
    DataError,
    IncompatibleError,
    MaskwrightError,
    OutputError,
    ResourceError,
    StoppedError,
    UsageError,
)
from maskwright.base.storage import commit
from maskwright.cli import main as cli
from maskwright.learn.pretrain import checkpoints, run
from maskwright.learn.pretrain.cost import measure
from maskwright.learn.pretrain.rows import held_out_rows, rows
from maskwright.learn.recipes.base.find import override
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.learn.train import loop
from maskwright.model.device import machine
from maskwright.model.nn import stack
from maskwright.model.opening import folders
from maskwright.text.store.store import TokenStore
from tinyrun import essence, forked, recipe, resume_quietly, text_file, train_quietly, wait


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path]:
    folder = tmp_path_factory.mktemp("made")
    chosen = recipe(text_file(folder), steps=8)
    train_quietly(chosen, folder / "run")
    return chosen, folder / "run"


@pytest.fixture
def again(made: tuple[Recipe, Path], tmp_path: Path) -> Path:
    """A copy of the run."""
    return shutil.copytree(made[1], tmp_path / "run")


def test_the_run_folder_holds_what_it_says(made: tuple[Recipe, Path]) -> None:
    chosen, out = made
    names = "recipe.toml run.json metrics.jsonl timings.jsonl data checkpoints report.html"
    assert {p.name for p in out.iterdir()} >= set(names.split())
    assert run.read(out / "recipe.toml") == chosen
    steps = [r["step"] for r in checkpoints.read_journal(out) if r["kind"] == "train"]
    assert steps == list(range(1, 9))
    assert [r["step"] for r in checkpoints.read_journal(out) if r["kind"] == "evaluation"] == [8]


def test_a_run_goes_on_with_its_threads_and_tests_fewer_beside_others(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test changes no bit of the run; OMP_NUM_THREADS wins over the recorded number."""
    out, requested = tmp_path / "run", list[int | None]()
    made = recipe(text, steps=2)
    made = replace(made, training=replace(made.training, threads=None, log_seconds=0.0))
    train_quietly(made, out)
    tested = []
    monkeypatch.setattr(
        machine.SlowdownWatch, "slowed", lambda self, _: tested.append(self.test(1))
    )
    monkeypatch.setattr(loop, "TEST_SECONDS", 0.01)
    train_quietly(replace(made, name="watched"), tmp_path / "watched")
    assert len(tested) == 2 and min(tested) > 0
    assert essence(tmp_path / "watched") == essence(out)
    about = json.loads((out / "run.json").read_text())
    assert about["waiting_threads"] and about["machine"]["threads"] == torch.get_num_threads()
    about["machine"]["threads"] = 3
    monkeypatch.setattr(machine, "use_threads", requested.append)
    for by_user in (True, False):
        (out / "run.json").write_text(json.dumps(about))
        monkeypatch.setattr(threads, "chosen_by_user", by_user)
        run.resume(out, stream=io.StringIO())
    assert requested == [None, 3]


def test_layers_that_are_computed_again_give_the_same_run(
    made: tuple[Recipe, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout included; a run may be resumed with it. The number of calls is the control."""
    chosen, out = made
    calls, checkpoint = list[int](), stack.checkpoint
    monkeypatch.setattr(stack, "checkpoint", lambda *a, **k: calls.append(1) or checkpoint(*a, **k))
    again = override(chosen, ["training.gradient_checkpointing=true"])
    train_quietly(again, tmp_path / "run")
    assert essence(tmp_path / "run") == essence(out) and again.fingerprint == chosen.fingerprint
    assert len(calls) == 8 * chosen.training.microbatches * 2, "steps, microbatches, layers"


def test_every_seed_is_asked_the_same(made: tuple[Recipe, Path]) -> None:
    chosen, out = made
    held_out = TokenStore.open(out / "data" / "held-out")
    other = replace(chosen, training=replace(chosen.training, seed=1))
    one, two = (held_out_rows(each, held_out) for each in (chosen, other))
    asked = np.arange(len(one))
    assert np.array_equal(one.rows(asked, 0).tokens, two.rows(asked, 0).tokens)
    # The control: what is trained on is packed otherwise by another seed.
    train = TokenStore.open(out / "data" / "train")
    one, two = (rows(each, train) for each in (chosen, other))
    asked = np.arange(min(len(one), len(two)))
    assert not np.array_equal(one.rows(asked, 0).tokens, two.rows(asked, 0).tokens)


def test_before_its_recipe_is_settled_an_interrupted_run_is_begun_again(tmp_path: Path) -> None:
    def interrupted(*_: object) -> Recipe:
        raise KeyboardInterrupt

    lines = io.StringIO()
    text, out = text_file(tmp_path), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run.pretrain(recipe(text), out, stream=lines, adjust=interrupted)
    assert f"--out {out}" in lines.getvalue() and "resume" not in lines.getvalue()


def test_a_refused_command_leaves_nothing_that_stops_the_next(again: Path, tmp_path: Path) -> None:
    text, out = text_file(tmp_path), tmp_path / "new" / "run"
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good\n\n" * 5 + b"bad \xff\n\n" * 5)
    empty = tmp_path / "empty.txt"
    empty.touch()

    def refused(chosen: Recipe) -> MaskwrightError:
        with pytest.raises(MaskwrightError) as caught:
            train_quietly(chosen, out)
        return caught.value

    refused(recipe(empty))
    assert not out.parent.exists()  # also the folder it had to make
    out.mkdir(parents=True)
    refused(recipe(bad))
    assert out.is_dir() and {p.name for p in out.iterdir()} <= {"run.lock"}  # it was there before
    error = refused(override(recipe(bad), ["corpus.on_bad=skip"]))
    assert "rejects.jsonl" in str(error.do)
    assert {p.name for p in out.iterdir()} == {"run.lock", "rejects.jsonl"}  # what is advised works
    refused(override(recipe(text, steps=2), ["rows.length=64"]))
    last = train_quietly(recipe(text, steps=2), out)
    assert last.parent.parent == out and not (out / "refused.toml").exists()
    # What was trained, or stopped, stays.
    before = essence(out)
    with pytest.raises(OutputError, match="maskwright resume"):
        train_quietly(recipe(empty), out)
    assert essence(out) == before and resume_quietly(out) == last
    shutil.rmtree(again / "checkpoints")
    with pytest.raises(OutputError, match="remove it"):
        train_quietly(recipe(text), again)
    assert (again / "recipe.toml").exists() and (again / "data").exists()


def test_memory_that_does_not_suffice_on_a_processor_is_told_with_a_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        )

    monkeypatch.setattr("maskwright.learn.train.loop.train", full)
    chosen = recipe(text_file(tmp_path), steps=2)
    with pytest.raises(ResourceError, match="microbatches=4") as caught:
        train_quietly(chosen, tmp_path / "run")
    assert "9 bytes" in str(caught.value.found) and "are free" in str(caught.value.found)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_F08_an_unwritable_place_is_refused_before_training(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    with pytest.raises(OutputError):
        train_quietly(recipe(text_file(tmp_path)), closed / "run")


def test_F11_a_second_process_is_told_who_holds_the_folder(
    made: tuple[Recipe, Path], tmp_path: Path
) -> None:
    with commit.Lock(made[1] / "run.lock"):
        pid = forked(lambda: run.resume(made[1]), tmp_path / "log")
        assert wait(pid) == StoppedError.exit_code
    assert str(os.getpid()) in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    "setting",
    ["training.batch=16", "training.seed=5", "training.optimizer.learning_rate=1", "rows.length=8"],
)
def test_F32_a_setting_that_changes_the_result_is_refused_on_resume(
    made: tuple[Recipe, Path], setting: str
) -> None:
    chosen, out = made
    other = override(chosen, [setting])
    with pytest.raises(IncompatibleError) as error:
        resume_quietly(out, settings=other)
    assert error.value.where == setting.partition("=")[0]
    with pytest.raises(OutputError) as taken:
        train_quietly(other, out)
    assert setting.partition("=")[0] in str(taken.value.found)


def test_F32_a_recipe_that_was_changed_by_hand_is_named(again: Path) -> None:
    path = again / "recipe.toml"
    written = path.read_text()
    assert "\nbatch = 8\n" in written
    path.write_text(written.replace("\nbatch = 8\n", "\nbatch = 16\n", 1))
    with pytest.raises(IncompatibleError, match=r"training\.batch") as refused:
        resume_quietly(again)
    assert refused.value.found == "training.batch = 16"
    assert refused.value.wanted == "training.batch = 8"
    path.write_text(written)
    resume_quietly(again)  # as the advice says


def test_F32_a_free_setting_may_change(made: tuple[Recipe, Path], again: Path) -> None:
    for name in (".tmp-step-00000099", ".del-step-00000001"):  # as a kill leaves them
        (again / "checkpoints" / name).mkdir()
        (again / "data" / name).mkdir()
    chosen, out = made
    resume_quietly(again, settings=override(chosen, ["evaluation.every=3"]))
    assert essence(again)["weights"] == essence(out)["weights"]
    assert not list(again.glob("*/.*"))


def test_F33_changed_data_is_refused(again: Path) -> None:
    tokens = again / "data" / "train" / "tokens.bin"
    tokens.write_bytes(tokens.read_bytes()[:-2])
    with pytest.raises(DataError, match=r"tokens\.bin"):
        resume_quietly(again)


def test_F30_another_tokenizer_is_refused(
    made: tuple[Recipe, Path], again: Path, tmp_path: Path
) -> None:
    other = replace(made[0], tokenizer=replace(made[0].tokenizer, lowercase=False))
    train_quietly(other, tmp_path / "other")
    shutil.copytree(tmp_path / "other" / "tokenizer", again / "tokenizer", dirs_exist_ok=True)
    with pytest.raises(IncompatibleError, match="tokenizer"):
        resume_quietly(again)


@pytest.mark.parametrize(
    ("setting", "where"), [("model.settings.vocab_size=30", "model"), ("rows.length=64", "rows")]
)
def test_F31_a_table_that_is_too_short_is_refused(
    tmp_path: Path, text: Path, setting: str, where: str
) -> None:
    changed = override(recipe(text), [setting])
    for attempt in (lambda: train_quietly(changed, tmp_path / "run"), lambda: measure(changed)):
        with pytest.raises(IncompatibleError) as error:
            attempt()
        assert str(error.value.where).startswith(where)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "manifest"])
def test_F21_F22_F23_a_damaged_checkpoint_is_passed_over(
    made: tuple[Recipe, Path], again: Path, damage: str, findings: list[str]
) -> None:
    newest = folders.newest(again)
    weights = newest / "model.safetensors"
    data = bytearray(weights.read_bytes())
    if damage == "truncated":
        weights.write_bytes(data[:-1])
    elif damage == "flipped":
        data[len(data) // 2] ^= 1
        weights.write_bytes(data)
    elif damage == "missing":
        (newest / "training" / "optimizer.safetensors").unlink()
    else:
        (newest / "MANIFEST.json").write_text("{}")
    resume_quietly(again)
    assert "damaged-checkpoint" in findings
    assert essence(again) == essence(made[1])


def test_F24_without_a_valid_checkpoint_nothing_starts_afresh(again: Path, tmp_path: Path) -> None:
    for folder in (again / "checkpoints").iterdir():
        (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError):
        resume_quietly(again)
    with pytest.raises(UsageError):
        resume_quietly(tmp_path)  # no run


def test_F40_weights_that_are_no_numbers_are_not_saved(made: tuple[Recipe, Path]) -> None:
    from maskwright.model.checkpoint import pretrained

    loaded = pretrained.load(folders.newest(made[1]))
    state = {n: p.detach().clone() for n, p in loaded.model.named_parameters()}
    state["tokens.weight"][0, 0] = float("nan")
    with pytest.raises(CheckpointError, match=r"tokens\.weight"):
        pretrained.save_files(loaded.model, loaded.tokenizer, state=state)


def test_a_copy_of_a_checkpoint_is_nobodys(again: Path) -> None:
    """A copy that a user made does not count among those that are kept, and is never removed."""
    folder = again / "checkpoints"
    for name in ("step-best", "step-00000004-keep"):
        shutil.copytree(folder / "step-00000004", folder / name)
    kept = checkpoints.CheckpointStore(again, keep=1, about={})
    kept.retain(kept.path(8))
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["step-00000004-keep", "step-00000008", "step-best"]
    assert folders.newest(again).name == "step-00000008"


def test_a_damaged_checkpoint_that_was_passed_over_is_in_nobodys_way(
    tmp_path: Path, findings: list[str]
) -> None:
    chosen = override(recipe(text_file(tmp_path), steps=6), ["checkpoints.every=3"])
    out = tmp_path / "run"
    train_quietly(chosen, out)
    wanted = essence(out)
    weights = out / "checkpoints" / "step-00000006" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x55")
    saving = override(chosen, ["checkpoints.every=1", "checkpoints.keep=2"])
    resume_quietly(out, settings=saving)  # saves at 4 and 5 before it comes to 6
    assert "damaged-checkpoint" in findings
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert names == ["step-00000005", "step-00000006"]
    assert essence(out)["weights"] == wanted["weights"]


def test_a_run_goes_on_in_more_microbatches(
    made: tuple[Recipe, Path], again: Path, findings: list[str]
) -> None:
    """Else a run that is out of memory on another machine could not go on."""
    chosen, _ = made
    resume_quietly(again, settings=override(chosen, ["training.microbatches=4"]))
    assert "other-machine" in findings
    for count, advice in ((4, "--set training.microbatches=8 "), (8, "smaller model")):
        settings = override(chosen, [f"training.microbatches={count}"])
        assert advice in str(run._out_of_memory(settings, MemoryError()).do)


def test_a_run_may_be_made_in_a_thread(tmp_path: Path) -> None:
    """As in a server, where only the main thread may ask for signals."""
    given = (recipe(text_file(tmp_path), steps=1), tmp_path / "run")
    thread = threading.Thread(target=train_quietly, args=given)
    thread.start()
    thread.join()
    assert folders.newest(tmp_path / "run").name == "step-00000001"


def test_F07_lines_wait_where_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the flush before a checkpoint tells of it, and nothing is lost once there is room."""
    monkeypatch.setattr(checkpoints, "WAITING", 100)
    full, write = [False], io.FileIO.write

    class File(io.FileIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            if full[0] and len(data) > 10:
                return write(self, data[:10])
            if full[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(self, data)

    monkeypatch.setattr(Path, "open", lambda path, mode, buffering: File(path, "a"))
    records = [{"kind": "train", "step": n, "loss": 0.5} for n in range(20)]
    with checkpoints.Journal(tmp_path) as log:
        for n, record in enumerate(records):
            full[0] = 5 <= n < 15
            log.write(record)
            if n == 10:
                with pytest.raises(StoppedError, match="full"):
                    log.flush()
    monkeypatch.undo()
    assert checkpoints.read_journal(tmp_path) == records


@pytest.mark.parametrize(
    "setting", ["model.settings.classifier_dropout=null", "objective.options.final_rate=null"]
)
def test_a_setting_of_nothing_can_be_resumed(tmp_path: Path, setting: str) -> None:
    """A null is left out of the recipe's file, so it must not count in what is compared."""
    chosen = override(recipe(text_file(tmp_path), steps=1), [setting])
    train_quietly(chosen, tmp_path / "run")
    resume_quietly(tmp_path / "run")


def test_a_corpus_is_no_run_though_it_has_a_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (curate(tmp_path / "clean", (3,)) / "recipe.toml").write_text('steps = ["normalise"]\n')
    (tmp_path / "rows.csv").write_text("text,label\na,x\nb,y\n")
    for line, code, said in (
        ("finetune clean --data rows.csv", 65, "a corpus, not a model"),
        ("evaluate clean", 65, "pretrain bert-mini --text clean"),
        ("pretrain clean --text clean", 64, "text, not a recipe"),
        ("show clean", 64, "clean/card.md"),
        ("pretrain clean/recipe.toml", 64, "maskwright curate TEXT --out DIR --recipe"),
        ("finetune clean/recipe.toml --data rows.csv", 64, "this is a recipe of curation"),
    ):
        assert cli.main(line.split()) == code, line
        assert said in capsys.readouterr().err
