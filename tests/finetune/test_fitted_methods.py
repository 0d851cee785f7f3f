"""Methods that are fitted: the saved model predicts as scikit-learn does, and so does its graph."""

from __future__ import annotations

import csv
import io
import itertools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.special import expit, softmax
from scipy.stats import spearmanr
from sklearn.linear_model import LogisticRegression
from torch.nn import functional

import maskwright
from labelled.tables import write_rows
from maskwright.api import finetune_file
from maskwright.ask.predict.predictor import load
from maskwright.base import catalogue
from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.cli.main import main
from maskwright.learn.finetune import learner
from maskwright.learn.finetune.conclusion import AS_IT_IS
from maskwright.learn.finetune.method import FITTED, STEP, Method, names
from maskwright.learn.finetune.methods.base import frozen_vectors, linear
from maskwright.learn.finetune.tune import Settings
from maskwright.model.graph.session import Session
from maskwright.model.inference.encoded import EncodedExamples
from maskwright.model.inference.likelihood import prompt_scores
from maskwright.model.inference.prepared import prepare
from maskwright.model.objectives.modules.supervised import Contrast
from maskwright.model.opening.open import open_model, open_weights
from maskwright.ship.export.folder import graphs
from maskwright.text.tokenizer.tokenizer import Tokenizer
from small_tasks import finetuned, results_of, table, write_pooling

METHOD = "embeddings"


def test_fitted_methods_are_an_open_set() -> None:
    assert METHOD in catalogue.names(FITTED) and set(catalogue.names(FITTED)) <= set(names())
    fitted = Method(METHOD).fitted
    assert fitted is not None and Method(METHOD).head_alone and Method("probe").fitted is None


def test_many_classes_of_few_rows_give_no_warning() -> None:
    classes = np.arange(21) % 12
    with pytest.warns(UserWarning, match="unique classes"):  # the control
        LogisticRegression().fit(np.eye(12)[classes], classes)
    weight, _ = linear.fit_linear(np.eye(12)[classes], classes, "single", 12)
    assert weight.argmax(1).tolist() == list(range(12))


def test_the_penalty_is_selected_and_folded_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise dimensions and few rows need a strong penalty, many rows a weak one."""
    draw = np.random.default_rng(0)
    vectors = draw.normal(3.0, 0.1, (600, 20))
    classes = (vectors[:, 0] > 3.0).astype(np.int64) + 1  # class 0 has no row
    ones = np.ones(3)
    strengths = [linear._select_strength(vectors[:n], classes[:n], ones, 0) for n in (20, 600)]
    assert strengths[0] < strengths[1]

    def scores(model: tuple[Any, Any], read: np.ndarray[Any, Any] = vectors) -> Any:
        return read @ model[0].T + model[1]

    few, many = (linear.fit_linear(vectors[:n], classes[:n], "single", 3) for n in (20, 600))
    assert (scores(many).argmax(1) == classes).mean() > 0.97
    assert scores(few).argmax(1).min() > 0
    factors = [1.0, 1.0, 30.0]
    weighted = linear.fit_linear(vectors, classes, "single", 3, class_weights=factors)
    assert scores(weighted).argmax(1).sum() > scores(many).argmax(1).sum()
    # Any unit and origin of the vectors gives the same scores.
    moved = 1e3 * vectors - 50
    again = scores(linear.fit_linear(moved, classes, "single", 3), moved)
    np.testing.assert_allclose(again, scores(many), atol=1e-5)
    monkeypatch.setattr(linear, "SAMPLE", 50)
    rare = np.where(np.arange(600) < 2, 2, 0)  # which the sample has not
    assert linear._select_strength(vectors, rare, ones, 0) == linear.USUAL_STRENGTH
    assert np.isfinite(scores(linear.fit_linear(vectors, rare, "single", 3))).all()


Fitted = tuple[Path, list[str], np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def fitted(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """A result, the training texts, and scikit-learn's probabilities for them."""
    folder, models = tmp_path_factory.mktemp("fitted"), []
    out, data = folder / "out", table(folder / "data.csv", "classification", 120)
    regressions, learn = linear._regressions, learner.Learner.learn
    training_parts: dict[str, Any] = {}

    def recorded(*args: Any) -> Any:
        models.append((args[0], regressions(*args)[-1]))
        return [models[-1][1]] if len(args[-1]) == 1 else regressions(*args)

    def noted(self: Any, parts: Any, *args: Any, **options: Any) -> Any:
        training_parts.update(parts)
        return learn(self, parts, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "_regressions", recorded)
        patch.setattr(learner.Learner, "learn", noted)
        finetuned(model, data, out, method=METHOD, pooling="mean")
    vectors, regression = models[-1]
    texts = [row.text for row in training_parts["train"].rows]
    settled = json.loads((out / "task.json").read_text())["settled"]
    scores = regression.decision_function(vectors) / settled.get("temperature", 1.0)
    return out, texts, np.stack([expit(-scores), expit(scores)], 1)


def scores_of(out: Path, texts: list[str]) -> np.ndarray[Any, Any]:
    answers = load(out).predict(texts, top=2)
    by_label = [{a["label"]: a["score"] for a in answer} for answer in answers]
    return np.array([[row[label] for label in sorted(row)] for row in by_label])


def test_predictions_are_those_of_scikit_learn(fitted: Fitted) -> None:
    out, texts, expected = fitted
    np.testing.assert_allclose(scores_of(out, texts), expected, atol=1e-5)
    results = results_of(out)
    assert results["method"] == METHOD and [s["seed"] for s in results["seeds"]] == [0]
    # Negative control: the text matters, so that texts in another order differ.
    assert np.abs(scores_of(out, texts[::-1]) - expected).max() > 0.01


@pytest.mark.proof  # a graph takes seconds
def test_the_graph_has_the_head(fitted: Fitted, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    out, texts, expected = fitted
    assert main(["export", str(out), "--to", "onnx", "--out", str(tmp_path / "graph")]) == 0
    session = Session(tmp_path / "graph/onnx/model.onnx")
    tokenizer = Tokenizer.load(tmp_path / "graph")
    for text, row in zip(texts[:8], expected, strict=False):
        ids, segments = tokenizer.frame(tokenizer.encode(text))
        inputs = {"input_ids": ids, "attention_mask": [1] * len(ids), "token_type_ids": segments}
        logits = session.run({n: np.array([v], np.int64) for n, v in inputs.items()})["logits"][0]
        np.testing.assert_allclose(softmax(logits), row, atol=1e-5)


@pytest.mark.parametrize(
    "kind", ["pair-classification", "multi-label", "regression", "similarity", "tagging"]
)
def test_tasks(model: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    computed, compute = list[int](), frozen_vectors.scores

    def record(objective: Any, examples: EncodedExamples, *args: Any) -> Any:
        computed.append(len(examples))
        return compute(objective, examples, *args)

    monkeypatch.setattr(frozen_vectors, "scores", record)
    stream, reading = io.StringIO(), dict[str, Any]() if kind == "tagging" else {"pooling": "mean"}
    if kind == "multi-label":  # some texts in two pieces
        reading |= {"long": "vectors-mean", "length": 14}
    if kind == "tagging":
        lines = table(tmp_path / "data.csv", "classification").read_text().splitlines()[1:]
        words = [line.split(",")[0].split() for line in lines]
        tags = [["B-PET" if word in ("cat", "dog") else "O" for word in row] for row in words]
        rows = [{"tokens": w, "tags": t} for w, t in zip(words, tags, strict=True)]
        data = write_rows(tmp_path / "data.jsonl", rows)
    else:
        data = table(tmp_path / "data.csv", kind, 200)
    finetuned(model, data, tmp_path / "out", method=METHOD, stream=stream, **reading)
    results = results_of(tmp_path / "out")
    assert sum(computed) == 200 and stream.getvalue().count("fitted in") == 1
    if kind in ("multi-label", "regression", "tagging"):  # linear in what the words are
        assert results["seeds"][0][results["measure"]] > 0.6, stream.getvalue()


@pytest.mark.parametrize("task", ["similarity", "pair-classification"])
def test_a_model_of_vectors_reads_a_pair_apart(model: Path, tmp_path: Path, task: str) -> None:
    """What is scored are the squared differences of two vectors of length 1."""
    folder = shutil.copytree(open_weights(model).path, tmp_path / "means")
    data = table(tmp_path / "data.csv", task)
    write_pooling(folder)
    joint, apart = (
        finetuned(path, data, tmp_path / name, method=METHOD)
        for path, name in ((model, "joint"), (folder, "apart"))
    )
    records = [json.loads((path.parent / "task.json").read_text()) for path in (joint, apart)]
    assert [record["long"] for record in records] == ["head", "apart"]
    opened, pairs = load(apart), [("the cat sat", "a dog ran"), ("the cat", "the cat")]
    first, second = (maskwright.load(folder).embed([*texts]) for texts in zip(*pairs, strict=True))
    head = opened.model.heads[opened.model.config.heads[0].name]
    units = (torch.nn.functional.normalize(torch.from_numpy(v), dim=1) for v in (first, second))
    differences = torch.sub(*units).square() * first.shape[1]
    with torch.no_grad():
        scores = head(differences)
    expected = scores[:, 0] if task == "similarity" else scores.softmax(1).amax(1)
    answers = [answer["score"] for answer in opened.predict(pairs)]
    assert answers == pytest.approx(expected.tolist(), abs=1e-5)
    # Negative controls: a text is no different from itself; and other models read both together.
    assert not differences[1].any() and differences[0].any()
    assert [answer["score"] for answer in load(joint).predict(pairs)] != pytest.approx(answers)
    # The model as it is answers for two columns of a file, as the advice of a result says.
    rows, out = write_rows(tmp_path / "p.jsonl", [{"a": a, "b": b} for a, b in pairs]), tmp_path
    line = ["predict", str(folder), str(rows), "--out", str(out / "answers.jsonl")]
    assert main([*line, "--column", "first=a", "--column", "third=b"]) == 64
    assert main([*line, "--column", "first=a", "--column", "second=b"]) == 0
    answers = [json.loads(row) for row in (out / "answers.jsonl").read_text().splitlines()]
    cosines = 1 - differences.sum(1) / first.shape[1] / 2
    assert [row["prediction"]["score"] for row in answers] == pytest.approx(cosines, abs=1e-5)
    for refused, where in (
        (lambda: finetuned(folder, data, tmp_path / "full", method="full", long="apart"), "--long"),
        (lambda: graphs(open_model(apart), opened), "task.json: long"),
    ):
        with pytest.raises((UsageError, IncompatibleError)) as refusal:
            refused()
        assert refusal.value.where == where and not (tmp_path / "full").exists()


RENAMED = {"source": "text", "target": "label"}


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"epochs": 2}, "--epochs"),
        ({"seeds": 3, "folds": 0}, "--seeds"),
        ({"rate": 1e-3}, "--rate"),
        ({"long": "hierarchical"}, "--long"),
        ({"long": "pieces-max"}, "--long"),
        ({"long": "apart"}, "--long"),
        ({"task": "matching", "columns": {"anchor": "text", "positive": "label"}}, "--method"),
        ({"prompt": "{source}", "columns": RENAMED}, "--method"),
    ],
)
def test_what_has_no_effect_is_refused(
    model: Path, models: dict[str, Path], tmp_path: Path, settings: dict[str, Any], where: str
) -> None:
    data = table(tmp_path / "data.csv", "classification", 60)
    base = models["gpt2"] if "prompt" in settings else model
    with pytest.raises(UsageError) as refusal:
        finetune_file(base, data, tmp_path / "out", method=METHOD, stream=io.StringIO(), **settings)
    assert refusal.value.where == where and not (tmp_path / "out").exists()


def test_labels_are_compared_behind_a_prompt(models: dict[str, Path], tmp_path: Path) -> None:
    """The probabilities are those of the labels behind the prompt, divided by those behind texts
    without content; the network stays as it is."""
    data, out = table(tmp_path / "data.csv", "classification", 240), tmp_path / "out"
    line = ["finetune", str(models["gpt2"]), "--data", str(data), "--method", "prompted"]
    assert main([*line, "--prompt", "{text} says", "--out", str(out), "--dry-run"]) == 0
    finetuned(models["gpt2"], data, out, method="prompted", prompt="{text} says")
    predictor, texts = load(out), ["the cat sat", "a dog ran far"]
    encoded = predictor.encode([predictor.row(text, "") for text in texts])
    prompts, empty, names = encoded.way_back
    network = prepare(open_weights(models["gpt2"]).network)
    rows = [[*prompt, *name] for prompt in (*prompts, *empty) for name in names]
    scored = zip(prompt_scores(network, rows), rows, itertools.cycle(names))
    sums = [sum(value for value, _ in tokens[-len(name) :]) for tokens, _, name in scored]
    shares = softmax(np.reshape(sums, (-1, len(names))), 1)
    outputs = predictor.outputs(encoded) * predictor.task_type.options["temperature"]
    np.testing.assert_allclose(outputs, np.log(shares[:2] / shares[2:].mean(0)), atol=1e-4)
    assert np.abs(outputs - np.log(shares[:2])).max() > 0.1, "the control is not divided"
    assert np.allclose(maskwright.load(out).predict_proba(texts).sum(1), 1)
    folders = (open_weights(models["gpt2"]).path, out / "model")
    weights = [load_file(folder / "model.safetensors") for folder in folders]
    assert all(torch.equal(weights[1][name], value) for name, value in weights[0].items())


@pytest.mark.parametrize(
    ("base", "kind", "settings", "error", "where"),
    [
        ("gpt2", "classification", {}, UsageError, "--prompt"),
        ("gpt2", "regression", {"prompt": "{text} is"}, UsageError, "--method"),
        ("gpt2", "classification", {"prompt": "{first}"}, UsageError, "--prompt"),
        ("gpt2", "classification", {"prompt": "{text}", "epochs": 2}, UsageError, "--epochs"),
        ("t5", "classification", {"prompt": "{text} is"}, IncompatibleError, "network"),
    ],
)
def test_what_has_no_likelihood_behind_a_prompt_is_refused(
    models: dict[str, Path],
    tmp_path: Path,
    base: str,
    kind: str,
    settings: dict[str, Any],
    error: type[Exception],
    where: str,
) -> None:
    data = table(tmp_path / "data.csv", kind, 60)
    with pytest.raises(error) as refusal:
        finetuned(models[base], data, tmp_path / "out", method="prompted", **settings)
    assert refusal.value.where == where  # type: ignore[attr-defined]


def parts(folder: Path, kind: str) -> Path:
    """The three parts of a table, as files of a folder."""
    folder.mkdir()
    head, *lines = table(folder / "all.csv", kind, 180).read_text().splitlines()
    (folder / "all.csv").unlink()
    for number, name in enumerate(("train", "validation", "test")):
        rows = lines[60 * number : 60 * (number + 1)]
        (folder / f"{name}.csv").write_text("\n".join([head, *rows]) + "\n")
    return folder


def score_before(out: Path) -> float:
    """The default metric of the model before fine-tuning, in the table of a result."""
    (cells,) = (row for row in results_of(out)["table"]["rows"] if row[0] == AS_IT_IS)
    return float(cells[1].split()[0])


@pytest.mark.parametrize("task", [None, "embedding"])
def test_the_model_as_it_is_compares_its_own_vectors(
    model: Path, tmp_path: Path, task: str | None
) -> None:
    data, out = parts(tmp_path / "data", "similarity"), tmp_path / "out"
    finetuned(model, data, out, task=task, epochs=1, least_steps=1)
    with (data / "test.csv").open() as file:
        first, second, scores = zip(*list(csv.reader(file))[1:], strict=True)
    network, numbers = maskwright.load(model), np.array(scores, float)
    vectors = (network.embed([*texts], pooling="mean") for texts in (first, second))
    cosines = np.multiply(*vectors).sum(1)
    assert score_before(out) == pytest.approx(spearmanr(cosines, numbers)[0], abs=1e-3)
    # Negative control: the pairs of other rows.
    assert score_before(out) != pytest.approx(spearmanr(cosines[::-1], numbers)[0], abs=1e-3)


def test_the_model_as_it_is_answers_by_its_head(model: Path, tmp_path: Path) -> None:
    data, first, second = parts(tmp_path / "data", "classification"), tmp_path / "1", tmp_path / "2"
    finetuned(model, data, first, epochs=4, rate=1e-2)
    finetuned(first / "model", data, second, epochs=1, least_steps=1)
    results = results_of(first)
    assert score_before(second) == pytest.approx(results["seeds"][0]["accuracy"], abs=1e-3)
    assert AS_IT_IS not in [row[0] for row in results["table"]["rows"]]  # it had no such head


@pytest.mark.parametrize("several", [False, True])
def test_the_contrastive_loss_is_that_of_all_pairs(several: bool) -> None:
    sets = [{0}, {0, 1}, {1}, {2}, set()] if several else [{0}, {0}, {1}, {0}, {2}]
    vectors = functional.normalize(torch.randn(5, 4, generator=torch.manual_seed(0)), dim=1)
    expected = 0.0
    for one, labels in enumerate(sets):
        errors: dict[bool, list[float]] = {True: [], False: []}
        for another in {*range(5)} - {one}:
            union = labels | sets[another]
            share = len(labels & sets[another]) / len(union) if union else 1.0
            errors[share > 0].append((float(vectors[one] @ vectors[another]) - share) ** 2)
        expected += sum(float(np.mean(e)) for e in errors.values() if e) / 2

    def loss(labels: torch.Tensor) -> float:
        objective: Any = Contrast(torch.nn.Identity(), "labels")  # type: ignore[arg-type]
        objective.scores = lambda batch: vectors
        return float(objective(SimpleNamespace(labels=labels)).parts["labels"].total)

    flags = torch.tensor([[float(n in labels) for n in range(3)] for labels in sets])
    assert loss(flags if several else flags.argmax(1)) == pytest.approx(expected)
    assert loss(flags.argmax(1).roll(1)) != pytest.approx(expected), "the control: other labels"


@pytest.mark.parametrize(
    ("count", "batch", "size", "steps"),
    [(50, 32, 25, 26), (33, 32, 17, 26), (20, 32, 20, 25), (1, 32, 2, 25), (50, 1, 2, 75)],
)
def test_contrastive_batches_have_pairs(count: int, batch: int, size: int, steps: int) -> None:
    method, settings = Method("contrastive").fitted, Settings(batch=batch, least_steps=25)
    assert method is not None and method.least_steps == 25 < Method("full").least_steps
    assert method.steps(count, settings) == steps
    assert method.cost(count, settings) == count + STEP * size * steps


def test_contrastive_training_moves_the_body_and_fits_a_head(model: Path, tmp_path: Path) -> None:
    data, out = parts(tmp_path / "data", "classification"), tmp_path / "out"
    finetuned(model, data, out, method="contrastive", least_steps=40, rate=1e-2, batch=16)
    (seed,) = results_of(out)["seeds"]
    assert seed["accuracy"] > 0.7 and len(seed["loss"]) == 1
    finetuned(model, data, tmp_path / "frozen", method=METHOD)
    trained, frozen = load(out).model, load(tmp_path / "frozen").model
    query = "encoder.blocks.0.attention.query.weight"
    weights = [n.get_parameter(query) for n in (open_weights(model).network, trained, frozen)]
    assert not torch.equal(weights[0], weights[1])
    assert torch.equal(weights[0], weights[2]), "the control: the body of `embeddings` stays"
    (head,) = trained.config.heads
    assert head.transform is None and head.pooling == "mean"
    numbers = table(tmp_path / "numbers.csv", "regression", 60)
    with pytest.raises(UsageError) as refusal:
        finetuned(model, numbers, tmp_path / "no", method="contrastive")
    assert refusal.value.where == "--method" and not (tmp_path / "no").exists()
