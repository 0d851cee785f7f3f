"""A result is made again from the file that lies in its folder."""

from __future__ import annotations

import io
import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from maskwright.base.config import from_plain, to_toml
from maskwright.base.errors import ConfigError, MaskwrightError, UsageError
from maskwright.cli.main import main
from maskwright.learn.finetune.command import finetune_recipe
from maskwright.learn.finetune.recipe import NAME, FinetuneRecipe, changed, override, read, render
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.reading_options import TableReadingOptions
from small_tasks import finetuned, results_of
from tinyrun import WORDS


def labelled(path: Path, separator: str = ";") -> Path:
    animals = (("cat", "meow"), ("dog", "woof"))
    rows = [f"the {word} {a}{separator}{label}" for word in WORDS for a, label in animals]
    path.write_text("\n".join([f"words{separator}said", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    settings: dict[str, Any] = {"method": "lora", "epochs": 2, "batch": 8, "rate": 1e-3}
    settings["columns"] = {"text": ["words"], "label": ["said"]}
    settings["read"] = TableReadingOptions(ReadingOptions(separator=";"))
    finetuned(model, labelled(folder / "data.csv"), folder / "out", least_steps=0, **settings)
    return folder


def recipe(**settings: Any) -> FinetuneRecipe:
    return FinetuneRecipe(**{"model": "m", "data": "d", **settings})


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def test_every_choice_comes_back() -> None:
    reading = ReadingOptions(separator="\t", on_bad="skip")
    settings: dict[str, Any] = {"data": "$DATA/d", "method": "lora,full", "task": "tagging"}
    settings |= {"adapters": {"lora": {"rank": 4, "alpha": 2}}, "columns": {"text": ("a b",)}}
    settings |= {"seeds": 5, "folds": 7, "seed": 9, "epochs": 7, "batch": 64, "accumulate": 4}
    settings |= {"rate": 3e-4, "length": 99, "long": "pieces-max", "layer_decay": 0.9}
    settings |= {
        "head_rate": 2.0,
        "weight_decay": 0.1,
        "warmup": 0.2,
        "schedule": "slanted",
        "patience": 2,
    }
    settings |= {"least_steps": 9, "prompt": "say: {source}", "pooling": "max", "layer_mix": True}
    settings |= {"global_attention": "first", "gradient_checkpointing": True}
    settings |= {"dimensions": (64, 32), "hard_negatives": 3, "measure": "accuracy"}
    settings |= {"class_weights": "balanced", "label_smoothing": 0.1}
    settings |= {"teacher": "t", "teacher_temperature": 3.0, "curve": (50, 0), "threads": 3}
    settings |= {"precision": "float32", "device": "cpu", "within_words": True}
    settings |= {"read": TableReadingOptions(reading, ("a", "b"), True, True, "-1")}
    whole, plain = recipe(**settings, made_from={"data": "0"}), recipe()
    for name in FinetuneRecipe.__dataclass_fields__:
        is_free = name in ("model", "search", "budget")
        assert is_free or getattr(whole, name) != getattr(plain, name), name
    assert from_plain(FinetuneRecipe, tomllib.loads(to_toml(whole))) == whole
    # What is saved says what was the default, too, and means the same.
    lora = {"rank": 4, "alpha": 2.0, "dropout": 0.0, "targets": ["query", "value"]}
    rendered = replace(whole, adapters={"lora": lora}, seeds=5)
    assert from_plain(FinetuneRecipe, tomllib.loads(render(whole))) == rendered
    assert from_plain(FinetuneRecipe, tomllib.loads(render(plain))) == replace(plain, seeds=3)


def test_a_result_is_made_again(made: Path, tmp_path: Path) -> None:
    stream, again, other = io.StringIO(), tmp_path / "again", tmp_path / "other"
    finetune_recipe(read(made / "out" / NAME), again, stream=stream)
    assert weights(again) == weights(made / "out")
    assert (again / NAME).read_text() == (made / "out" / NAME).read_text()
    assert "note: the" not in stream.getvalue()
    finetune_recipe(changed(read(made / "out" / NAME), {"rate": 2e-3}), other, stream=stream)
    assert weights(other) != weights(made / "out"), "the control"


def test_by_the_command_line(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read(made / "out" / NAME)

    def again(name: str, options: str = "") -> FinetuneRecipe:
        command = f"finetune {made / 'out' / NAME} --epochs 1 --out {tmp_path / name} {options}"
        assert main(command.split()) == 0
        return read(tmp_path / name / NAME)

    assert again("plain") == changed(before, {"epochs": 1})
    assert len(results_of(tmp_path / "plain")["seeds"][0]["loss"]) == 1
    after = again("read", "--read max_bad_fraction=0.5 --column label=said")
    assert before.read.reading.separator and after.read.reading.max_bad_fraction == 0.5
    kept = replace(after.read.reading, max_bad_fraction=before.read.reading.max_bad_fraction)
    assert kept == before.read.reading, "options change what they name, and nothing else"
    assert after.columns == before.columns | {"label": ("said",)}
    few = labelled(tmp_path / "few.csv", separator=",")
    capsys.readouterr()
    again("few", f"--data {few} --read separator=,")
    assert "note: the" not in capsys.readouterr().out, "other data were asked for"


def test_a_model_that_was_moved_is_named_anew(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, path, out = read(made / "out" / NAME), tmp_path / "mine.toml", str(tmp_path / "out")
    path.write_text(render(replace(saved, model=str(tmp_path / "gone"), epochs=1)))
    assert main(["finetune", str(path), "--out", out]) == 64
    assert "--model PATH" in capsys.readouterr().err
    assert main(["finetune", str(path), "--model", saved.model, "--out", out]) == 0
    assert "note: the" not in capsys.readouterr().out
    assert main(["finetune", saved.model, "--model", saved.model, "--data", saved.data]) == 64


def test_data_that_changed_meanwhile_are_told(made: Path, tmp_path: Path) -> None:
    data = labelled(tmp_path / "data.csv")
    moved = replace(read(made / "out" / NAME), data=str(data), epochs=1)
    finetune_recipe(moved, tmp_path / "same", stream=(stream := io.StringIO()))
    assert "note: the" not in stream.getvalue(), "equal rows, wherever they lie"
    data.write_text(data.read_text().replace("meow", "purr"), encoding="utf-8")
    finetune_recipe(moved, tmp_path / "other", stream=stream)
    assert "note: the data" in stream.getvalue()
    assert "note: the model" not in stream.getvalue()


def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, text = tmp_path / "mine.toml", render(recipe(model=str(tmp_path), data=str(tmp_path)))
    for old, new, says in (
        ("seeds", "seedz", r"mine\.toml, seedz(.|\n)*'seeds'"),
        ('"head"', '"middle"', r"mine\.toml, long"),
    ):
        path.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(ConfigError, match=says):
            read(path)
    path.write_text(text.replace(json.dumps(str(tmp_path)), '"gone"'), encoding="utf-8")
    for folder, says in ((tmp_path, "--data"), (path, "gone")):
        assert main(["finetune", str(folder)]) == 64
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"batch": 8, "accumulate": 9}, "--accumulate"),
        ({"batch": 0}, "--batch"),
        ({"epochs": 0}, "--epochs"),
    ],
)
def test_numbers_out_of_range_are_refused(settings: dict[str, Any], where: str) -> None:
    with pytest.raises(UsageError) as refused:
        recipe(**settings)
    assert refused.value.where == where


def test_rivals_of_a_step_are_not_parted(model: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("anchor,positive\n" + "".join(f"the {w},a {w}\n" for w in WORDS))
    with pytest.raises(MaskwrightError, match="--accumulate"):
        finetuned(model, pairs, tmp_path / "no", task="matching", accumulate=2)


SETTINGS = (
    ("lora.rank=16", "adapters", {"lora": {"rank": 16}}),
    ("lora.targets=[query,key]", "adapters", {"lora": {"targets": ["query", "key"]}}),
    ("adapters.lora.alpha=4", "adapters", {"lora": {"alpha": 4.0}}),
    ("weight_decay=0.2", "weight_decay", 0.2),
    ("precision=float32", "precision", "float32"),
    ("columns.text=[a,b]", "columns", {"text": ("a", "b")}),
    ("seed=7", "seed_numbers", range(7, 8)),
)


@pytest.mark.parametrize(("setting", "field", "wanted"), SETTINGS)
def test_settings_by_name(setting: str, field: str, wanted: object) -> None:
    lora = recipe(method="lora")
    assert getattr(override(lora, [setting]), field) == wanted
    assert getattr(lora, field) != wanted, "the control"


def test_each_method_of_a_curve_has_its_own_settings() -> None:
    both = recipe(method="lora,prefix,full", curve=(5,))
    lora, prefix, full = override(both, ["lora.rank=2", "prefix.length=3"]).methods
    assert lora.changed_settings == {"rank": 2} and prefix.changed_settings == {"length": 3}
    assert full.adapter is None and both.methods[0].changed_settings == {}, "the control"


REFUSED = (
    ("lora.rnak=16", "lora.rnak(.|\n)*'rank'"),
    ("lora.rank=0", "lora.rank(.|\n)*1 to"),
    ("lora.rank=many", "lora.rank(.|\n)*whole number"),
    ("method.rank=16", "no such setting(.|\n)*'lora.rank'"),
    ("rank=16", "no such setting(.|\n)*'lora.rank'"),
    ("bacth=3", "no such setting(.|\n)*'batch'"),
    ("prefix.length=3", "not trained(.|\n)*method is lora(.|\n)*--method prefix"),
    ("method=lorra", "no such method(.|\n)*'lora'"),
    ("precision=fp16", "precision(.|\n)*'bfloat16'"),
    ("device=gpu", "no such device(.|\n)*cuda"),
    ("pooling=men", "--pooling(.|\n)*'mean'"),
    ("task=clasification", "no such task(.|\n)*'classification'"),
    ("measure=acuracy", "no such metric(.|\n)*'accuracy'"),
    ("seed=-1", "--seed"),
    ("rank", "name=value|path=value"),
)


@pytest.mark.parametrize(("setting", "says"), REFUSED)
def test_settings_that_are_none(setting: str, says: str) -> None:
    with pytest.raises(MaskwrightError, match=says):
        override(recipe(method="lora"), [setting])


def test_settings_of_a_method_are_kept_and_repeated(made: Path, tmp_path: Path) -> None:
    file, out = made / "out" / NAME, tmp_path / "out"
    assert read(file).adapters["lora"]["rank"] == 8
    command = f"finetune {file} --set lora.rank=2 --set lora.targets=[query] --seed 1 --out {out}"
    assert main([*command.split(), "--precision", "float32", "--device", "cpu"]) == 0
    kept = read(out / NAME)
    lora = {"rank": 2, "alpha": 16.0, "dropout": 0.0, "targets": ["query"]}
    assert kept.adapters["lora"] == lora
    assert (kept.precision, kept.device, kept.seed, kept.seeds) == ("float32", "cpu", 1, 1)
    results = results_of(out)
    assert [seed["seed"] for seed in results["seeds"]] == [1] and results["adapter"]["rank"] == 2
    peft = json.loads((out / "adapter" / "adapter_config.json").read_text())
    assert (peft["r"], peft["lora_alpha"], peft["target_modules"]) == (2, 16.0, ["query"])
    finetune_recipe(kept, tmp_path / "again", stream=io.StringIO())
    assert weights(tmp_path / "again") == weights(out)
    assert weights(tmp_path / "again") != weights(made / "out"), "the control"


def test_a_file_of_before_opens(made: Path, tmp_path: Path) -> None:
    """It knows no adapters, no single seed, no precision and no device."""
    file, old = made / "out" / NAME, tmp_path / "old.toml"
    text = file.read_text()
    names = ("seed =", "precision", "device", "rank", "alpha", "dropout", "targets", "[adapters")
    lines = [line for line in text.splitlines() if not line.startswith(names)]
    old.write_text("\n".join(lines))
    assert len(lines) < len(text.splitlines()) - 6 and "adapters" not in old.read_text()
    assert replace(read(old), adapters=read(file).adapters) == read(file)
    assert render(read(old)) == text
