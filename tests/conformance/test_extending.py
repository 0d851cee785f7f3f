"""A toy member of each open set, a new file each, does what others do.

The files are those shown in docs/extending.md. They join as another package would, by entry points.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from checkpoint.small import SMALL
from conformance import test_adapters as adapters
from conformance import test_families as families
from conformance import test_objectives as objectives
from maskwright.api import finetune_file
from maskwright.ask.predict.predictor import load
from maskwright.base import catalogue
from maskwright.base.errors import DataError, UsageError
from maskwright.cli import main as cli
from maskwright.learn.pretrain import checkpoints, run
from maskwright.learn.recipes.base.recipe import FamilyModel, ObjectiveChoice
from maskwright.model.checkpoint import pretrained
from maskwright.model.families.base.family import family
from maskwright.ship.serve.command import serve
from maskwright.text.tables.prepare import prepare
from maskwright.text.tables.shapes import shapes
from serve.clients import TasksServer
from tinyrun import WORDS, recipe, text_file
from toys import bert

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
DIFFS = re.findall(
    r"```diff\n--- /dev/null\n\+\+\+ b/(\S+)\n@@ -0,0 \+1,(\d+) @@\n(.*?)```",
    PAGE.read_text(encoding="utf-8"),
    re.S,
)
FAMILY, OBJECTIVE, ADAPTER, TASK = "sinusoidal-encoder", "shuffled", "offsets", "preference"
STEP, VERB, TARGET, DIALECT = "shouting", "word-count", "token-vectors", "ollama"
MEMBERS = {
    **{"families": FAMILY, "objectives": OBJECTIVE, "adapters": ADAPTER, "tasks": TASK},
    **{"curate.steps": STEP, "verbs": VERB, "export.targets": TARGET, "serve.dialects": DIALECT},
}


def install(folder: Path, members: dict[str, str], package: str = "tidepool") -> None:
    """A package in `folder` with the files of the page, and entry points for `members`."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    for path, _, diff in DIFFS:
        lines = [line.removeprefix("+") for line in diff.splitlines()]
        (folder / package / Path(path).name).write_text("\n".join(lines) + "\n")
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    points = [
        f"[maskwright.{room}]\n{name} = {package}.{MEMBERS[room].replace('-', '_')}\n"
        for room, name in members.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(points))


@pytest.fixture
def arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs the members under these names, and forgets them after the test."""
    monkeypatch.syspath_prepend(tmp_path)

    def arriving(**members: str) -> None:
        install(tmp_path, members)
        catalogue._modules.cache_clear()
        importlib.invalidate_caches()

    yield arriving
    catalogue._modules.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "tidepool"]:
        del sys.modules[name]


@pytest.fixture
def joined(arrive: Callable[..., None]) -> None:
    arrive(**MEMBERS)


def test_each_is_one_new_file() -> None:
    """The page shows a new file of each open set, whole: so many lines, all of them added."""
    assert [path for path, _, _ in DIFFS] == [
        f"src/{Path(*module.split('.')[:-1])}/{name.replace('-', '_')}.py"
        for room, name in MEMBERS.items()
        for module in [next(iter(catalogue._modules(room).values()))]
    ]
    for path, count, diff in DIFFS:
        assert not (PAGE.parents[1] / path).exists()
        assert all(line.startswith("+") for line in diff.splitlines())
        assert len(diff.splitlines()) == int(count) <= 110


@pytest.mark.usefixtures("joined")
def test_they_are_listed_beside_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = capsys.readouterr().out
    for room, name in MEMBERS.items():
        assert name in catalogue.names(room) and name in listed
        assert catalogue.load(room, name).__name__.startswith("tidepool.")
        assert len(catalogue.names(room)) > 3
    with pytest.raises(UsageError) as refused:
        family("sinusoidal-encode")
    assert FAMILY in str(refused.value.wanted)


def test_without_the_package_they_are_unknown() -> None:
    for room, name in MEMBERS.items():
        with pytest.raises(UsageError):
            catalogue.load(room, name)


def test_a_name_that_is_taken_is_refused(arrive: Callable[..., None]) -> None:
    arrive(families="bert")
    with pytest.raises(UsageError, match=r"maskwright\.model\.families\.bert") as refused:
        catalogue.names("families")
    assert "tidepool.sinusoidal_encoder" in refused.value.found


# ------------------------------------------------------------------------------ the same tests
ONCE = ("a_file_is_its_registration", "every_coordinate_is_said_by_some_architecture", "mask_law")
OF_A_CLASS = (
    "config_with_odd_values_comes_back",
    "every_key_of_the_coordinates_moves_the_config",
    "every_tensor_is_named_once",
    "forward_and_backward",
)


@pytest.mark.usefixtures("joined")
def test_the_family_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    member = family(FAMILY)
    shape = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}
    small = {"vocab_size": 61, "intermediate_size": 40, "max_position_embeddings": 32, **shape}
    monkeypatch.setitem(SMALL, FAMILY, small)
    monkeypatch.setitem(families.FAMILIES, FAMILY, member)
    for name in ONCE:
        getattr(families, f"test_{name}")(FAMILY)
    for size in member.sizes:
        families.test_published_config_comes_back(FAMILY, size)
    for kind in member.architectures:
        for name in OF_A_CLASS:
            getattr(families, f"test_{name}")(FAMILY, kind)
        families.test_saved_and_loaded_is_the_same(FAMILY, kind, tmp_path / kind)
    others = [n for n, other in families.FAMILIES.items() if other.belongs(member.config(small))]
    assert others == [FAMILY]


@pytest.mark.usefixtures("joined")
def test_the_objective_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(objectives.MODELS, OBJECTIVE, bert)
    monkeypatch.setattr(objectives, "MASKING", (*objectives.MASKING, OBJECTIVE))
    options: dict[str, Any] = {"rate": 0.4}
    objectives.test_corruption_is_a_function_of_its_keys(OBJECTIVE, options)
    objectives.test_special_tokens_and_unchosen_ones_are_not_touched(OBJECTIVE, options)
    objectives.test_a_loss_adds_up_over_the_parts_of_a_batch(OBJECTIVE, options)


@pytest.mark.usefixtures("joined")
@pytest.mark.parametrize("name", ["modernbert", "gpt2", "bart"])
def test_the_adapter_conforms(name: str) -> None:
    adapters.test_a_file_is_its_registration(ADAPTER)
    adapters.test_a_fresh_adapter_changes_no_output(ADAPTER, name)
    adapters.test_only_what_is_declared_trains(ADAPTER, name)
    adapters.test_detached_is_as_before_bit_for_bit(ADAPTER, name)
    adapters.test_what_is_no_weight_is_not_merged(ADAPTER)
    adapters.test_state_is_all_there_is(ADAPTER, name)


@pytest.mark.usefixtures("joined")
def test_they_train_together_and_the_folder_loads(tmp_path: Path) -> None:
    base = recipe(text_file(tmp_path), steps=24)
    assert isinstance(base.model, FamilyModel)
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape |= {"intermediate_size": 32, "max_position_embeddings": 32}
    kind = "SinusoidalEncoderForMaskedLM"
    model = FamilyModel(family=FAMILY, architecture=kind, settings=shape)
    objective = ObjectiveChoice(name=OBJECTIVE, options={"rate": 0.3})
    chosen = replace(base, model=model, objective=objective)
    last = run.pretrain(chosen, tmp_path / "run", stream=io.StringIO())
    rows = checkpoints.read_journal(tmp_path / "run")
    losses = [row["loss"] for row in rows if row["kind"] == "train"]
    assert len(losses) == 24 and losses[-1] < losses[0]
    assert pretrained.load(last).model_type == FAMILY


def replies(path: Path, count: int) -> Path:
    """Replies with "cat" in them are preferred, whatever the prompt is."""
    rows = []
    for n in range(count):
        prompt, end = WORDS[n % len(WORDS)], WORDS[(3 * n + 1) % len(WORDS)]
        rows.append({"prompt": prompt, "chosen": f"cat {end}", "rejected": f"dog {end} {n % 7}"})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.usefixtures("joined")
def test_the_task_type_goes_from_a_file_to_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by its columns, fine-tuned, evaluated and asked, by the commands of all others."""
    train, asked = replies(tmp_path / "train.jsonl", 60), replies(tmp_path / "test.jsonl", 20)
    assert TASK in shapes() and prepare(train).task.name == TASK
    base = run.pretrain(recipe(text_file(tmp_path), steps=4), tmp_path / "r", stream=io.StringIO())
    said = io.StringIO()
    settings: dict[str, Any] = {"seeds": 1, "epochs": 12, "batch": 8, "rate": 3e-3}
    out = finetune_file(base, train, tmp_path / "out", stream=said, **settings)
    assert f"task: {TASK}, " in said.getvalue()
    assert cli.main(["evaluate", str(out), "--data", str(asked)]) == 0
    assert "accuracy" in capsys.readouterr().out
    made = load(out)
    better, worse = ("tree", "cat the", "dog the 3"), ("tree", "dog the 3", "cat the")
    first, second = (answer["score"] for answer in made.predict([better, worse]))
    assert first > 0 > second and first == pytest.approx(-second, abs=1e-5)
    with pytest.raises(DataError):
        made.predict([("tree", " ", "dog")])


def test_the_step_curates_beside_ours(
    arrive: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("BUY IT NOW\n\nA quiet word.\n\nA quiet  word.\n")
    steps = ["--steps", f"{STEP},exact-duplicates", "--out", str(tmp_path / "clean")]
    command = ["curate", str(tmp_path / "a.txt"), *steps]
    assert cli.main(command) == 64  # the control: without the file there is no such step
    arrive(**MEMBERS)
    assert cli.main(command) == 0
    told = capsys.readouterr().out
    assert "shouting: 1 of 3" in told and "output: 1" in told
    page = (tmp_path / "clean" / "page.html").read_text(encoding="utf-8")
    assert "shouting" in page and "BUY IT NOW" in page


def test_its_data_are_of_no_other_task(tmp_path: Path) -> None:
    """The control: without the file these columns mean nothing."""
    with pytest.raises(DataError):
        prepare(replies(tmp_path / "train.jsonl", 60))


@pytest.mark.usefixtures("joined")
def test_two_tasks_of_the_same_data_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = shapes()[TASK]
    again = ModuleType("another")
    again.SHAPES = (replace(shape, name="reward"),)  # type: ignore[attr-defined]
    names, loaded = catalogue.names, catalogue.load
    monkeypatch.setattr(catalogue, "names", lambda room: [*names(room), "another"])
    monkeypatch.setattr(
        catalogue, "load", lambda room, name: again if name == "another" else loaded(room, name)
    )
    with pytest.raises(UsageError) as refused:
        shapes()
    assert refused.value.found == "preference, reward"
    again.SHAPES = (replace(shape, name="reward", inferred=False),)  # type: ignore[attr-defined]
    monkeypatch.setattr(catalogue, "names", lambda room: ["another", *names(room)])
    assert {"reward", TASK} <= shapes().keys()


@pytest.mark.usefixtures("joined")
def test_the_verb_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("a cat sat")
    assert cli.main([VERB, str(tmp_path / "text.txt")]) == 0
    assert capsys.readouterr().out == "3\n"
    assert cli.main([VERB]) == UsageError.exit_code


@pytest.mark.usefixtures("joined")
def test_the_target_exports(tmp_path: Path, model: Path) -> None:
    out = tmp_path / "vectors"
    assert cli.main(["export", str(model), "--to", TARGET, "--unit", "--out", str(out)]) == 0
    vectors, tokens = np.load(out / "vectors.npy"), json.loads((out / "tokens.json").read_text())
    assert len(vectors) == len(tokens)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)


@pytest.mark.loopback
@pytest.mark.usefixtures("joined")
def test_the_dialect_answers(model: Path) -> None:
    running = serve(names={"toy": model}, port=0, background=True)
    assert running is not None
    with running as server:
        client = TasksServer(server.url, {"toy": model})
        body = {"model": "toy", "input": ["the cat sat", "a dog"]}
        vectors = client.post("/api/embed", body)["embeddings"]
        assert np.allclose(vectors, client.opened("toy").embed(body["input"]), atol=1e-5)
        status, _, refusal = client.ask("POST", "/api/embed", body | {"other": 1})
        assert status == 422 and set(refusal) == {"error"}
