"""Every JSON file of ours, changed in small ways: what is read of it is as before, or refused."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.faults.mutations import Outcomes, attack

from maskwright.ask.evaluate.compare import compare
from maskwright.base.report import document
from maskwright.base.report.page import write_report
from maskwright.base.terminal import quiet
from maskwright.cli.verbs.show import show
from maskwright.learn.pretrain import checkpoints
from maskwright.learn.pretrain.prepare import prepare, training_stores
from maskwright.learn.recipes.base.find import read
from maskwright.model.adapters.base import folder as adapters
from maskwright.model.adapters.base.adapter import attach
from maskwright.model.adapters.ia3 import IA3
from maskwright.model.adapters.lora import LoRA
from maskwright.model.checkpoint import pretrained
from maskwright.model.nn.transformer import Transformer
from maskwright.model.opening import folders
from maskwright.text.store.store import TokenStore
from maskwright.text.tokenizer.tokenizer import Tokenizer
from tinyrun import recipe, text_file, train_quietly

TEXT = "the cat sat on the mat"
TOKENS = torch.arange(5, 17).reshape(1, 12)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("mutated")
    train_quietly(recipe(text_file(base), steps=8), base / "run")
    table = {"title": "t", "head": ["", "right"], "rows": [["mean", "1"]], "note": "n"}
    document.add(base / "run", [table])
    return base / "run"


def _scores(model: Transformer) -> Any:
    with torch.no_grad():
        return model.encode(TOKENS).tolist()


def _weights(folder: Path) -> Any:
    loaded = pretrained.load(folders.model_folder(folder))
    assert loaded.tokenizer is not None
    state, steps = checkpoints.read_state(folders.newest(folder))
    return _scores(loaded.model), loaded.tokenizer.encode(TEXT), state, steps


def _tokenizer(folder: Path) -> Any:
    return Tokenizer.load(folder).encode(TEXT)


def _store(folder: Path) -> Any:
    store = TokenStore.open(folder, verify=True)
    facts = (store.special, store.vocabulary_size, store.largest_id, store.tokenizer_fingerprint)
    return store.tokens.tolist(), store.offsets.tolist(), facts


def _prepared(folder: Path) -> Any:
    """What a resumed run learns from: the tokens, and the texts they are said to be made of."""
    made = prepare(read(folder / "recipe.toml"), folder, quiet)
    return made.train_fingerprint, made.held_out.fingerprint, made.tokenizer.fingerprint


def _shown(folder: Path) -> Any:
    """Pages are drawn of whatever can be read; what a hand puts into a journal is shown as such."""
    write_report(folder)
    show(str(folder), [])
    return [store.fingerprint for store in training_stores(folder)]


# The part of a run that is changed, what is read of it, and how many changes are tried: every day,
# and by `make proof`.
READS: dict[str, tuple[str, Callable[[Path], Any], int, int]] = {
    "tokenizer": ("tokenizer", _tokenizer, 40, 400),
    "store": ("data/train", _store, 60, 1000),
    "checkpoint": ("", _weights, 4, 60),
    "prepared": ("", _prepared, 6, 60),
    "shown": ("", _shown, 6, 60),
}
OTHER = {"checkpoint": ("checkpoints",), "prepared": ("data", "tokenizer"), "shown": ("",)}
OFTEN = [False, pytest.param(True, marks=pytest.mark.proof)]


@pytest.mark.parametrize("often", OFTEN)
@pytest.mark.parametrize("where", READS)
def test_mutations_of_a_run(trained: Path, where: str, often: bool, tmp_path: Path) -> None:
    part, read_part, count, many = READS[where]
    folder = shutil.copytree(trained, tmp_path / "run") / part
    total = Outcomes()
    for name in OTHER.get(where, ("",)):
        outcomes = attack(folder / name, lambda: read_part(folder), many if often else count)
        assert not outcomes.faults, outcomes.faults[:5]
        total.unchanged += outcomes.unchanged
        total.refused += outcomes.refused
    assert total.tried >= 10 and (where == "shown" or total.refused > total.tried / 4)


def _adapter(trained: Path, settings: Any, folder: Path, *, listed: bool) -> Callable[[], Any]:
    """An adapter's folder, with a manifest or as others leave it, and what is read of it."""
    model = pretrained.load(folders.model_folder(trained)).model
    made = attach(settings, model, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for parameter in made.trainable().values():
            parameter += 0.1
    adapters.save(made, folder, base="base")
    made.detach()
    if not listed:
        (folder / "MANIFEST.json").unlink()

    def opened() -> Any:
        attached = adapters.load(model, folder)
        try:
            return _scores(model)
        finally:
            attached.detach()

    return opened


@pytest.mark.parametrize("often", OFTEN)
@pytest.mark.parametrize(("listed", "count"), [(True, 40), (False, 80)])
@pytest.mark.parametrize("settings", [LoRA(rank=2), IA3()], ids=["lora", "ia3"])
def test_mutations_of_an_adapter(
    trained: Path, settings: Any, listed: bool, count: int, often: bool, tmp_path: Path
) -> None:
    """Without a manifest nobody knows that another alpha is another: a traceback is the fault."""
    folder = tmp_path / "adapter"
    read_adapter = _adapter(trained, settings, folder, listed=listed)
    outcomes = attack(folder, read_adapter, 400 if often else count)
    faults = [fault for fault in outcomes.faults if listed or "another value" not in fault]
    assert not faults, faults[:5]


@pytest.mark.proof
def test_mutations_of_a_comparison(tmp_path: Path) -> None:
    chosen, out = recipe(text_file(tmp_path), steps=8), tmp_path / "out"

    def compared() -> Any:
        said = io.StringIO()
        made = compare([chosen], out, budget="tokens=1500", seeds=1, stream=said)
        return [(r.tokens, r.operations, r.final) for c in made.contenders for r in c.runs]

    compared()
    found = attack(out / "runs", compared, 6)
    assert not found.faults, found.faults[:5]


def test_the_driver_sees_what_no_manifest_guards(tmp_path: Path) -> None:
    """Negative control."""
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"labels": ["bad", "good"], "length": 64}))
    found = attack(tmp_path, lambda: json.loads(path.read_bytes())["labels"][0], 60)
    assert any("another value" in each for each in found.faults)
    assert any("Error" in each for each in found.faults)
