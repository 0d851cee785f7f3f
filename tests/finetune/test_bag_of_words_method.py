"""`--method bag-of-words`: a result without a network, which answers like any other result."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import maskwright
from maskwright.api import finetune_file
from maskwright.ask.predict.predictor import load
from maskwright.ask.predict.shared_encoder import load_shared
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.cli.verbs.show import show
from maskwright.learn.finetune import command
from maskwright.learn.tasks.base.bag_of_words import BagOfWords
from maskwright.model.opening.open import open_model, open_weights
from maskwright.ship.export.run import export_model
from maskwright.text.tables.rows import TextExample
from serve.servers import server
from small_tasks import results_of, table

pytestmark = pytest.mark.loopback

METHOD = "bag-of-words"
TASKS = ("classification", "pair-classification", "multi-label", "regression", "similarity")


def fitted(folder: Path, task: str, **settings: Any) -> tuple[Path, str]:
    """A result, from a folder that is no model at all, and what was printed."""
    data, out, stream = table(folder / "data.csv", task, 240), folder / "out", io.StringIO()
    finetune_file(folder, data, out, method=METHOD, stream=stream, **settings)
    return out, stream.getvalue()


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "open_weights", lambda folder: pytest.fail("a network was opened"))
        return fitted(tmp_path_factory.mktemp("bag"), "classification")[0]


def test_the_baseline_of_a_fold_is_what_the_method_was_fitted_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits, fit = list[int](), BagOfWords.fit

    def counted_fit(train: Sequence[Any], *rest: Any) -> BagOfWords:
        fits.append(len(train))
        return fit(train, *rest)

    monkeypatch.setattr(BagOfWords, "fit", counted_fit)
    fitted(tmp_path, "classification", folds=2, seeds=1)
    assert sorted(fits) == [120, 120, 240]


def test_many_classes_of_few_rows_give_no_warning_of_the_library(
    recwarn: pytest.WarningsRecorder,
) -> None:
    rows = [TextExample(f"a text of number {n}", n % 20, f"row {n}") for n in range(30)]
    BagOfWords.fit(rows, 20, "accuracy")
    assert not [str(warning.message) for warning in recwarn]


@pytest.mark.parametrize("task", TASKS)
def test_every_task_of_whole_texts(task: str, tmp_path: Path) -> None:
    out, printed = fitted(tmp_path, task)
    results = results_of(out)
    assert results["verdict"]["state"] == "good" and results["method"] == METHOD
    assert "words" not in [row[0] for row in results["table"]["rows"]]
    assert "next: maskwright predict" in printed
    # The saved model answers as its scores say, in a file and in Python.
    row = ("cat mat", "dog log") if "pair" in task or task == "similarity" else "cat mat"
    (answer,) = maskwright.load(out).predict([row])
    assert answer == load(out).predict([row])[0] == load(out / "model").predict([row])[0]
    assert answer.get("label", answer.get("labels", answer.get("score")))


def test_the_files_are_plain_and_say_what_they_are(result: Path) -> None:
    config = json.loads((result / "model" / "config.json").read_text())
    assert config["model_type"] == "maskwright-bag-of-words"
    assert "base_model" not in (result / "model" / "README.md").read_text()
    suffixes = {path.suffix for path in result.rglob("*") if path.is_file()}
    assert suffixes == {".json", ".safetensors", ".md", ".py", ".html", ".toml", ".lock"}
    assert "bag of words" in show(str(result), [])
    assert maskwright.load(result).abilities == ("predict",)
    with pytest.raises(UsageError) as caught:
        maskwright.load(result, engine="onnxruntime")
    assert caught.value.where == "engine"


def test_it_is_served(result: Path) -> None:
    with server({"bag": result}) as served:
        wanted = maskwright.load(result).predict(["a cat sat", "the dog"])
        answer = served.ask("predict", ["a cat sat", "the dog"])
        assert answer["values"] == wanted and answer["windows"] == [1, 1]
        assert served.post("/ask/embed", {"inputs": "a cat"}).status == 424


USES: dict[str, Callable[[Path, Path], object]] = {
    "open": lambda result, out: open_model(result),
    "open the model folder": lambda result, out: open_model(result / "model"),
    "train on": lambda result, out: open_weights(result),
    "embed": lambda result, out: maskwright.load(result).embed("a"),
    "fill masks": lambda result, out: maskwright.load(result).fill_mask("a [MASK]"),
    "generate": lambda result, out: maskwright.load(result).generate("a"),
    "network": lambda result, out: maskwright.load(result).model,
    "tokens": lambda result, out: maskwright.load(result).tokens("a"),
    "adapter": lambda result, out: maskwright.load(result).load_adapter(result),
    "beside another": lambda result, out: load_shared([result]),
    "export": lambda result, out: export_model(result, out / "onnx", to="onnx"),
}


@pytest.mark.parametrize("use", USES)
def test_what_needs_a_network_is_refused(use: str, result: Path, tmp_path: Path) -> None:
    with pytest.raises(IncompatibleError) as caught:
        USES[use](result, tmp_path)
    error = caught.value
    assert error.where is not None and error.found is not None and error.wanted is not None


@pytest.mark.parametrize(
    ("where", "settings"),
    [
        ("--epochs", {"epochs": 3}),
        ("--pooling", {"pooling": "mean"}),
        ("--length", {"length": 64}),
        ("--curve", {"curve": (20,)}),
        ("--long", {"long": "pieces-mean"}),
    ],
)
def test_settings_without_effect_are_refused(
    where: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        fitted(tmp_path, "classification", **settings)
    assert caught.value.where == where and not (tmp_path / "out").exists()


def test_tasks_of_words_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tags.conll").write_text("".join(f"a\tO\ncat\tB-X\n{n}\tO\n\n" for n in range(40)))
    with pytest.raises(UsageError) as caught:
        finetune_file(tmp_path, tmp_path / "tags.conll", tmp_path / "out", method=METHOD)
    assert caught.value.where == "--method"
