"""Several heads above one body: they say what each says alone, and each text is read once."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from finetune.test_command import table
from maskwright.ask.predict.predictor import load
from maskwright.ask.predict.shared_encoder import load_shared
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.cli.main import main
from maskwright.learn.finetune.command import finetune_file
from maskwright.model.inference.shared_layers import SharedLayers

TEXTS = ["the cat sat on the mat", "a dog", "one big red dog ran and saw a hat", "tree"] * 5


@pytest.fixture(scope="module")
def heads(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three heads above one body, and a model that moved."""
    folder, made = tmp_path_factory.mktemp("heads"), {}
    for name, kind, method in (
        ("sound", "classification", "probe"),
        ("how-much", "regression", "probe"),
        ("sounds", "multi-label", "probe"),
        ("moved", "classification", "full"),
    ):
        made[name] = folder / name
        data = table(folder / f"{name}.csv", kind, 120)
        finetune_file(
            model,
            data,
            made[name],
            method=method,
            seeds=1,
            epochs=2,
            batch=16,
            rate=1e-2,
            least_steps=0,
            stream=io.StringIO(),
        )
    return made


def test_together_they_say_what_each_says(
    heads: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("sound", "how-much", "sounds")
    alone = {name: load(heads[name]).predict(TEXTS) for name in names}
    several = load_shared([heads[name] for name in names])
    reads: list[int] = []
    read = SharedLayers.ragged
    monkeypatch.setattr(
        SharedLayers, "ragged", lambda self, *a, **k: (reads.append(1), read(self, *a, **k))[1]
    )
    together = several.predict(TEXTS)
    assert len(reads) == 1, "one batch, read once for three heads"
    assert together == [
        dict(zip(names, row, strict=True)) for row in zip(*alone.values(), strict=True)
    ]
    assert together[0].keys() == set(names) and together[0]["sound"] != together[0]["how-much"]
    bodies = {id(each.model.encoder) for each in several.members.values()}
    assert len(bodies) == 1, "the body is held once"


def test_by_the_command_line(heads: dict[str, Path], tmp_path: Path) -> None:
    source, lines, cells = tmp_path / "in.csv", tmp_path / "told.jsonl", tmp_path / "told.csv"
    with source.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text"], *([text] for text in TEXTS)])
    for out in (lines, cells):
        given = [
            str(heads["sound"]),
            str(source),
            "--also",
            str(heads["sounds"]),
            "--out",
            str(out),
        ]
        assert main(["predict", *given]) == 0
    wanted = load_shared([heads["sound"], heads["sounds"]]).predict(TEXTS)
    told = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert [row["prediction"] for row in told] == wanted
    with cells.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["predicted_sound_label"] for row in rows] == [w["sound"]["label"] for w in wanted]
    assert json.loads(rows[0]["predicted_sounds_labels"]) == wanted[0]["sounds"]["labels"]


def test_refusals(heads: dict[str, Path], model: Path, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleError, match="moved") as refused:
        load_shared([heads["sound"], heads["moved"]])
    assert "--method probe" in str(refused.value)
    with pytest.raises(UsageError, match="sound"):
        load_shared([heads["sound"], heads["sound"]])
    short = tmp_path / "short"
    finetune_file(
        model,
        table(tmp_path / "d.csv", "classification", 60),
        short,
        method="probe",
        seeds=1,
        epochs=1,
        length=9,
        stream=io.StringIO(),
    )
    with pytest.raises(IncompatibleError, match="short") as refused:
        load_shared([heads["sound"], short])
    assert "length 9" in str(refused.value)
