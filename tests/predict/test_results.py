"""What Python gets back from training, the estimator of scikit-learn, and what an opened model
answers beside predictions."""

from __future__ import annotations

import csv
import io
import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import maskwright
from maskwright.ask.estimator import TextClassifier
from maskwright.ask.predict.language_model import CutWarning, LanguageModel
from maskwright.ask.results import TrainedModel
from maskwright.base.errors import DataError, MaskwrightError, UsageError
from small_tasks import table
from tinyrun import recipe, text_file

QUICK: dict[str, Any] = {"method": "bag-of-words", "folds": 0}


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    path = table(tmp_path_factory.mktemp("rows") / "rows.csv", "classification", 60)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="session")
def result(
    model: Path, rows: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> TrainedModel:
    out = tmp_path_factory.mktemp("results") / "out"
    return maskwright.finetune(model, iter(rows), out, stream=io.StringIO(), **QUICK)


def test_a_result_is_a_path_with_its_metrics(
    result: TrainedModel, rows: list[dict[str, str]]
) -> None:
    assert os.fspath(result) == str(result) == str(result.folder / "model")
    assert Path(result) == result and result / "x" == result.path / "x" and result.is_dir()
    assert result.page is not None and result.page.is_file() and result.name == "model"
    assert result.metrics["accuracy"].value == 1 - len(result.mistakes) / 6
    assert result.verdict in repr(result) and result.verdict in result._repr_html_()
    assert isinstance(result.model, LanguageModel) and result.model is result.model
    (data,) = result.folder.parent.glob("out-*.jsonl")
    assert str(data) in (result.folder / "finetune.toml").read_text()
    assert not hasattr(result, "no_such_attribute")


def test_rows_in_memory_are_evaluated_as_those_of_a_file(
    result: TrainedModel, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    wrong = [{**rows[0], "label": next(r["label"] for r in rows if r["label"] != rows[0]["label"])}]
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows[:20] + wrong)
    of_file = maskwright.evaluate(result.folder, path, stream=io.StringIO())
    in_memory = maskwright.evaluate(result.model, rows[:20] + wrong, stream=io.StringIO())
    assert of_file == in_memory and of_file.verdict == in_memory.verdict
    assert "data, row 21" in {mistake["where"] for mistake in in_memory.mistakes}
    assert "accuracy" in repr(in_memory) and in_memory.page is None
    unreadable = [*rows[:5], {"text": 3.5, "label": None}]
    with pytest.raises(DataError) as caught:
        maskwright.evaluate(result, unreadable, stream=io.StringIO())
    assert "data, row 6" in (caught.value.where or "")


def test_texts_in_memory_are_pretrained_on(tmp_path: Path) -> None:
    texts = text_file(tmp_path, 40).read_text().split("\n\n")
    out = tmp_path / "runs" / "mine"
    run = maskwright.pretrain(
        recipe(tmp_path / "no.txt", steps=2), out, text=(t for t in texts), stream=io.StringIO()
    )
    (data,) = out.parent.glob("mine-*.jsonl")
    assert len(data.read_text().splitlines()) == len(texts)
    assert run.folder == out and run.page == out / "report.html" and run.path.is_dir()
    assert run.metrics["loss"] > 0 and run.verdict.startswith("Loss ")
    with pytest.raises(MaskwrightError):
        maskwright.pretrain(
            "tiny", out.with_name("new"), text=iter(texts), set={"training.bach": 1}
        )
    assert not list(out.parent.glob("new*"))


def test_words_are_explained_by_what_the_text_is_without_them(result: TrainedModel) -> None:
    model = result.model
    explanation = model.explain("the cat sat")
    assert [text.word for text in explanation.words] == ["the", "cat", "sat"]
    column = model.labels.index(explanation.label)
    whole, without = model.predict_proba(["the cat sat", "the  sat"])[:, column]
    assert explanation.words[1].weight == pytest.approx(whole - without)
    assert explanation.ranked[0].word == "cat" and "<span" in explanation._repr_html_()
    other = next(label for label in model.labels if label != explanation.label)
    flipped = model.explain("the cat sat", label=other).words[1].weight
    assert flipped == pytest.approx(-explanation.words[1].weight, abs=1e-6)
    for arguments in ({"text": "..."}, {"text": "the cat", "label": "moo"}):
        with pytest.raises(UsageError):
            model.explain(**arguments)


def test_search_orders_texts_by_similarity(model: Path) -> None:
    opened = maskwright.load(model, device="cpu")
    texts = ["the cat sat", "a big red hat", "the dog ran"]
    assert np.array_equal(opened.encode(texts), opened.embed(texts))
    scores = opened.similarity(["the cat sat", "a hat"], texts)
    assert scores.shape == (2, 3)
    assert np.allclose(scores[1], opened.similarity("a hat", texts), atol=1e-6)
    best = opened.search("the cat sat", texts, top=2)
    assert [hit.number for hit in best] == np.argsort(-scores[0])[:2].tolist()
    assert best[0].text == texts[0] and best[0].score == pytest.approx(1, abs=1e-5)
    assert [len(hits) for hits in opened.search(texts[:2], texts)] == [3, 3]
    for wrong in ({"top": 0}, {"tpo": 1}):
        with pytest.raises((MaskwrightError, TypeError)):
            opened.search("a", texts, **wrong)
    with pytest.raises(MaskwrightError):
        maskwright.load(model, device="gpu")


def test_a_setting_of_opening_is_refused_for_an_opened_model(result: TrainedModel) -> None:
    for model in (result.model, result):
        assert maskwright.predict(model, ["the cat"]) == result.model.predict(["the cat"])
    with pytest.raises(UsageError, match="precision"):
        maskwright.predict(result.model, ["the cat"], precision="float32")


def test_warnings_point_at_the_line_of_the_caller(small_task: Any) -> None:
    model = maskwright.load(small_task("classification"))
    for ask in (model.predict, model.predict_proba, lambda t: maskwright.predict(model, t)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ask(["the cat " * 400])
        assert {w.filename for w in caught if w.category is CutWarning} == {__file__}


# ------------------------------------------------------------------------------ scikit-learn
class OfNumbers(TextClassifier):  # type: ignore[misc]
    """Says that it reads matrices of numbers, so that scikit-learn tries all of its checks."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = True, False
        return tags


class Untidy(OfNumbers):
    def __init__(self, model: Any = None) -> None:
        super().__init__(model)
        self.computed = 1


REASON = "texts are read, and the check gives a matrix of numbers"
PASSED = """
    estimator_cloneable estimator_tags_renamed valid_tag_types estimator_repr
    no_attributes_set_in_init mixin_order parameters_default_constructible get_params_invariance
    set_params do_not_raise_errors_in_init_or_set_params estimators_unfitted
""".split()  # noqa: SIM905


def test_the_checks_of_scikit_learn_that_apply(model: Path) -> None:
    def outcomes(estimator: Any) -> dict[str, str]:
        results = check_estimator(estimator, on_fail=None, on_skip=None)
        return {each["check_name"].removeprefix("check_"): each["status"] for each in results}

    found = outcomes(OfNumbers(str(model), **QUICK))
    failed = {name for name, status in found.items() if status == "failed"}
    assert not failed & set(PASSED), "these are about no data"
    assert {name for name in PASSED if found.get(name) == "passed"} == set(PASSED)
    assert outcomes(Untidy())["no_attributes_set_in_init"] == "failed"


def test_the_estimator_in_a_pipeline_and_a_search(
    model: Path, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    texts, labels = [row["text"] for row in rows], np.array([r["label"] == "meow" for r in rows])
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = make_pipeline(lower, TextClassifier(str(model), **QUICK))
    search = GridSearchCV(pipeline, {"textclassifier__seed": [3]}, cv=2, error_score="raise")
    search.fit(texts, labels)
    fitted = search.best_estimator_[-1]
    assert fitted.seed == 3 and fitted.classes_.tolist() == [False, True]
    assert search.score(texts, labels) > 0.9 and search.predict(texts[:2]).dtype == bool
    probabilities = search.predict_proba(np.array(texts, object))
    assert probabilities.shape == (60, 2) and np.allclose(probabilities.sum(1), 1, atol=1e-5)
    saved = maskwright.load(fitted.save(tmp_path / "saved"))
    assert np.allclose(saved.predict_proba(texts), probabilities)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params() and not hasattr(copy, "model_")
    assert pickle.loads(pickle.dumps(copy)).seed == 3  # as joblib sends it to other processes
    with pytest.raises(NotFittedError):
        copy.predict(texts)


@pytest.mark.parametrize(
    ("X", "y", "error"),
    [
        (["a", "b"], ["x"], UsageError),
        ("a b", ["x"], DataError),
        ([3, 4], ["x", "y"], DataError),
        ({"text": ["a", "b"], "label": ["c", "d"]}, ["x", "y"], DataError),
        (["a", "b"], [["x"], ["y"]], UsageError),
    ],
)
def test_what_the_estimator_refuses(X: Any, y: Any, error: type[Exception], model: Path) -> None:
    with pytest.raises(error):
        TextClassifier(str(model), **QUICK).fit(X, y)
    with pytest.raises(UsageError):
        TextClassifier().fit(["a"], ["x"])
    with pytest.raises(UsageError, match="learning_rate"):
        TextClassifier(learning_rat=1)
