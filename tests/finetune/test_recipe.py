"""A result is made again from the file that lies in its folder."""

from __future__ import annotations

import io
import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from maskwright.base.config import from_plain, to_toml
from maskwright.base.errors import ConfigError, MaskwrightError, UsageError
from maskwright.cli.main import main
from maskwright.learn.finetune.command import finetune_file, finetune_recipe
from maskwright.learn.finetune.recipe import NAME, FinetuneRecipe, changed, override, read, render
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.tables.reading_options import TableReadingOptions
from small_tasks import finetuned
from tinyrun import WORDS


def labelled(path: Path, separator: str = ";") -> Path:
    rows = [
        f"the {word} {animal}{separator}{label}"
        for word in WORDS
        for animal, label in (("cat", "meow"), ("dog", "woof"))
    ]
    path.write_text("\n".join([f"words{separator}said", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def made(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    finetuned(
        model,
        labelled(folder / "data.csv"),
        folder / "out",
        epochs=2,
        batch=8,
        rate=1e-3,
        method="lora",
        columns={"text": ["words"], "label": ["said"]},
        least_steps=0,
        read=TableReadingOptions(ReadingOptions(separator=";")),
    )
    return folder


def weights(folder: Path) -> bytes:
    return (folder / "model" / "model.safetensors").read_bytes()


def test_every_choice_comes_back() -> None:
    whole = FinetuneRecipe(
        model="m",
        data="$DATA/d",
        method="lora,full",
        adapters={"lora": {"rank": 4, "alpha": 2}},
        task="tagging",
        columns={"text": ("a b",)},
        seeds=5,
        folds=7,
        seed=9,
        epochs=7,
        batch=64,
        accumulate=4,
        rate=3e-4,
        length=99,
        long="pieces-max",
        layer_decay=0.9,
        head_rate=2.0,
        weight_decay=0.1,
        warmup=0.2,
        patience=2,
        least_steps=9,
        prompt="say: {source}",
        pooling="max",
        dimensions=(64, 32),
        hard_negatives=3,
        measure="accuracy",
        class_weights="balanced",
        label_smoothing=0.1,
        teacher="t",
        teacher_temperature=3.0,
        curve=(50, 0),
        threads=3,
        precision="float32",
        device="cpu",
        within_words=True,
        read=TableReadingOptions(
            ReadingOptions(separator="\t", on_bad="skip"), ("a", "b"), True, True, "-1"
        ),
        made_from={"data": "0"},
    )
    plain = FinetuneRecipe(model="m", data="d")
    for name in FinetuneRecipe.__dataclass_fields__:
        assert name in ("model", "budget") or getattr(whole, name) != getattr(plain, name), name
    assert from_plain(FinetuneRecipe, tomllib.loads(to_toml(whole))) == whole
    # What is saved says what was the default, too, and means the same.
    usual = {"rank": 8, "alpha": 16.0, "dropout": 0.0, "targets": ["query", "value"]}
    told = {"adapters": {"lora": usual | {"rank": 4, "alpha": 2.0}}, "seeds": 5}
    assert from_plain(FinetuneRecipe, tomllib.loads(render(whole))) == replace(whole, **told)
    assert from_plain(FinetuneRecipe, tomllib.loads(render(plain))) == replace(plain, seeds=3)


def test_a_result_is_made_again(made: Path, tmp_path: Path) -> None:
    said, again = io.StringIO(), tmp_path / "again"
    finetune_recipe(read(made / "out" / NAME), again, stream=said)
    assert weights(again) == weights(made / "out")
    assert (again / NAME).read_text() == (made / "out" / NAME).read_text()
    assert "note: the" not in said.getvalue()
    other = tmp_path / "other"
    finetune_recipe(changed(read(made / "out" / NAME), {"rate": 2e-3}), other, stream=said)
    assert weights(other) != weights(made / "out"), "the control"


def test_by_the_command_line(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(made / "out" / NAME)
    assert main(["finetune", file, "--epochs", "1", "--out", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(found["seeds"][0]["loss"]) == 1
    again = read(tmp_path / "out" / NAME)
    assert again == changed(read(made / "out" / NAME), {"epochs": 1})
    other = ["--read", "max_bad_fraction=0.5", "--column", "label=said", "--epochs", "1"]
    assert main(["finetune", file, *other, "--out", str(tmp_path / "read")]) == 0
    before, after = read(made / "out" / NAME), read(tmp_path / "read" / NAME)
    assert before.read.reading.separator and after.read.reading.max_bad_fraction == 0.5
    kept = replace(after.read.reading, max_bad_fraction=before.read.reading.max_bad_fraction)
    assert kept == before.read.reading, "options change what they name, and nothing else"
    assert after.columns == before.columns | {"label": ("said",)}
    few = labelled(tmp_path / "few.csv", separator=",")
    capsys.readouterr()
    again = f"finetune {file} --data {few} --read separator=, --epochs 1 --out {tmp_path / 'few'}"
    assert main(again.split()) == 0
    assert "note: the" not in capsys.readouterr().out, "other data were asked for"


def test_a_model_that_was_moved_is_named_anew(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = read(made / "out" / NAME)
    path = tmp_path / "mine.toml"
    path.write_text(render(replace(recipe, model=str(tmp_path / "gone"), epochs=1)))
    out = str(tmp_path / "out")
    assert main(["finetune", str(path), "--out", out]) == 64
    assert "--model PATH" in capsys.readouterr().err
    assert main(["finetune", str(path), "--model", recipe.model, "--out", out]) == 0
    assert "note: the" not in capsys.readouterr().out
    assert main(["finetune", recipe.model, "--model", recipe.model, "--data", recipe.data]) == 64


def test_data_that_changed_meanwhile_are_told(made: Path, tmp_path: Path) -> None:
    data = labelled(tmp_path / "data.csv")
    recipe = read(made / "out" / NAME)
    moved = FinetuneRecipe(**{**vars(recipe), "data": str(data), "epochs": 1})
    said = io.StringIO()
    finetune_recipe(moved, tmp_path / "same", stream=said)
    assert "note: the" not in said.getvalue(), "equal rows, wherever they lie"
    data.write_text(data.read_text().replace("meow", "purr"), encoding="utf-8")
    finetune_recipe(moved, tmp_path / "other", stream=said)
    assert "note: the data" in said.getvalue()
    assert "note: the model" not in said.getvalue()


def test_refusals(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    text = render(FinetuneRecipe(model=str(tmp_path), data=str(tmp_path)))
    path.write_text(text.replace("seeds", "seedz"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.toml, seedz(.|\n)*'seeds'"):
        read(path)
    path.write_text(text.replace('"head"', '"middle"'), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"mine\.toml, long"):
        read(path)
    assert main(["finetune", str(tmp_path)]) == 64
    assert "--data" in capsys.readouterr().err
    path.write_text(text.replace(json.dumps(str(tmp_path)), '"gone"'), encoding="utf-8")
    assert main(["finetune", str(path)]) == 64
    assert "gone" in capsys.readouterr().err
    with pytest.raises(UsageError, match="1 to 8"):
        FinetuneRecipe(model="m", data="d", batch=8, accumulate=9)


def test_rivals_of_a_step_are_not_parted(model: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("anchor,positive\n" + "".join(f"the {w},a {w}\n" for w in WORDS))
    with pytest.raises(MaskwrightError, match="--accumulate"):
        finetune_file(
            model, pairs, tmp_path / "no", task="matching", accumulate=2, stream=io.StringIO()
        )


def test_no_batch_and_no_epoch() -> None:
    for name in ("batch", "epochs"):
        with pytest.raises(UsageError, match=f"--{name}"):
            FinetuneRecipe(model="m", data="d", **{name: 0})  # type: ignore[arg-type]


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
    lora = FinetuneRecipe(model="m", data="d", method="lora")
    assert getattr(override(lora, [setting]), field) == wanted
    assert getattr(lora, field) != wanted, "the control"


def test_each_method_of_a_curve_has_its_own_settings() -> None:
    both = FinetuneRecipe(model="m", data="d", method="lora,prefix,full", curve=(5,))
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
        override(FinetuneRecipe(model="m", data="d", method="lora"), [setting])


def test_seeds_by_number() -> None:
    def numbers(**given: int) -> list[int]:
        return list(FinetuneRecipe(model="m", data="d", **given).seed_numbers)  # type: ignore[arg-type]

    assert numbers() == [0, 1, 2] and numbers(seeds=2) == [0, 1]
    assert numbers(seed=7) == [7] and numbers(seed=7, seeds=2) == [7, 8]
    three = FinetuneRecipe(model="m", data="d", seeds=3)
    assert list(changed(three, {"seed": 7}).seed_numbers) == [7], "one seed is the only one"


def test_settings_of_a_method_are_kept_and_repeated(made: Path, tmp_path: Path) -> None:
    usual = read(made / "out" / NAME)
    assert usual.adapters["lora"]["rank"] == 8
    command = ["finetune", str(made / "out" / NAME), "--set", "lora.rank=2", "--seed", "1"]
    command += ["--set", "lora.targets=[query]", "--precision", "float32", "--device", "cpu"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    kept = read(tmp_path / "out" / NAME)
    assert kept.adapters["lora"] == {
        "rank": 2,
        "alpha": 16.0,
        "dropout": 0.0,
        "targets": ["query"],
    }
    assert (kept.precision, kept.device, kept.seed, kept.seeds) == ("float32", "cpu", 1, 1)
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [one["seed"] for one in found["seeds"]] == [1] and found["adapter"]["rank"] == 2
    peft = json.loads((tmp_path / "out" / "adapter" / "adapter_config.json").read_text())
    assert (peft["r"], peft["lora_alpha"], peft["target_modules"]) == (2, 16.0, ["query"])
    finetune_recipe(kept, tmp_path / "again", stream=io.StringIO())
    assert weights(tmp_path / "again") == weights(tmp_path / "out")
    assert weights(tmp_path / "again") != weights(made / "out"), "the control"


def test_a_file_of_before_opens(made: Path, tmp_path: Path) -> None:
    """It knows no adapters, no single seed, no precision and no device."""
    text = (made / "out" / NAME).read_text()
    names = ("seed =", "precision", "device", "rank", "alpha", "dropout", "targets", "[adapters")
    lines = [line for line in text.splitlines() if not line.startswith(names)]
    old = tmp_path / "old.toml"
    old.write_text("\n".join(lines))
    assert len(lines) < len(text.splitlines()) - 6 and "adapters" not in old.read_text()
    assert replace(read(old), adapters=read(made / "out" / NAME).adapters) == read(
        made / "out" / NAME
    )
    assert render(read(old)) == text
