"""Classes, numbers and answers that are written instead of chosen by a head."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

from labelled.tables import write_rows
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import ConfigError, DataError, IncompatibleError, UsageError
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import Encoded, task_for
from maskwright.learn.tasks.base.text_generation import TEMPLATES, Template
from maskwright.learn.tasks.label_as_text import nice, number_text, read_numbers
from maskwright.model.opening import folders
from maskwright.text.tables.rows import PairExample, TextExample
from maskwright.text.tokenizer.tokenizer import Tokenizer
from maskwright.text.tokenizer.unknown import UnknownText
from small_tasks import finetuned, results_of
from tinyrun import WORDS

PLAIN = [word for word in WORDS if word not in ("cat", "dog")]


def animals(path: Path, count: int, **labels: Any) -> Path:
    """A text with an animal in it, and what its name stands for."""
    draw, rows = np.random.default_rng(0), []
    for _ in range(count):
        words = draw.choice(PLAIN, draw.integers(3, 7)).tolist()
        animal = ("cat", "dog")[int(draw.integers(0, 2))]
        words.insert(int(draw.integers(0, len(words))), animal)
        rows.append({"text": " ".join(words), "label": labels[animal]})
    return write_rows(path, rows)


def tokenizer_of(folder: Path) -> Tokenizer:
    return Tokenizer.load(folders.model_folder(folder))


def test_classes_are_written(models: dict[str, Path], tmp_path: Path) -> None:
    data = animals(tmp_path / "data.jsonl", 240, cat="red hat", dog="tree")
    out, settings = tmp_path / "out", {"epochs": 8, "batch": 16, "rate": 1e-2}
    prompt = "animal: {text}"
    folder = finetuned(models["gpt2"], data, out, prompt=prompt, **settings)
    table = results_of(out)["table"]
    assert table["head"] == ["", "accuracy", "macro_f1", "matthews", "unread"]
    (cells,) = (row[1:] for row in table["rows"] if row[0] == "fine-tuned, seed 0")
    assert float(cells[0].split()[0]) > 0.9 and cells[3].startswith("0.0000")
    texts = [f"the {animal} sat on a {place}" for animal in ("cat", "dog") for place in WORDS[6:8]]
    answers = load(out).predict(texts)
    assert [answer["label"] for answer in answers] == ["red hat"] * 2 + ["tree"] * 2
    assert {answer["generated_text"] for answer in answers} == {"red hat", "tree"}
    figures = evaluate_file(out, data, stream=io.StringIO())
    assert figures["accuracy"].value > 0.9 and figures["unread"].value < 0.05
    # The names of the classes are the task's, not those of a head that is not there.
    assert "id2label" not in (folder / "config.json").read_text()
    assert prompt in (folder / "README.md").read_text()


def test_without_a_prompt_a_head_answers(models: dict[str, Path], tmp_path: Path) -> None:
    """The control: the same task and model, learned by a head."""
    data = animals(tmp_path / "data.jsonl", 60, cat="yes", dog="no")
    folder = finetuned(models["t5"], data, tmp_path / "out", epochs=1, batch=16)
    assert "id2label" in (folder / "config.json").read_text()
    assert "score" in load(tmp_path / "out").predict(["the cat"])[0]


def test_what_is_no_label_is_wrong_and_counted(models: dict[str, Path]) -> None:
    kind = task_for("classification", ("cat", "dog"), {"prompt": "{text}"})
    rows = [TextExample("a cat", label, "row") for label in (0, 1, 1, 0)]
    encoded = kind.encode(rows, Frame(tokenizer_of(models["t5"]), 32, False))
    texts = np.array(["cat", "dog", "Dog", "cat dog"], object)
    answers = kind.answers(encoded, texts)
    assert list(answers) == [0, 1, -1, -1]
    metrics = kind.metrics(rows, answers)
    assert metrics.values["accuracy"] == 0.5 and metrics.values["unread"] == 0.5
    # Each class is found once in two: F1 2/3. What is no label is no third class.
    assert metrics.values["macro_f1"] == pytest.approx(2 / 3)
    estimates = metrics.estimates()
    assert estimates["macro_f1"].value == pytest.approx(2 / 3) and estimates["unread"].value == 0.5
    assert estimates["macro_f1"].low <= 2 / 3 <= estimates["macro_f1"].high <= 1.0
    labels = [answer["label"] for answer in kind.as_pipeline(encoded, texts)]
    assert labels == ["cat", "dog", None, None]
    report = kind.report(encoded, texts, answers)
    assert {m.predicted for m in report.mistakes} == {"Dog", "cat dog"}
    assert report.confusion is not None and report.confusion.tolist() == [[1, 0], [0, 1]]


def test_labels_that_a_tokenizer_writes_alike() -> None:
    kind = task_for("classification", ("is", "is\x00"), {"prompt": "{text}"})
    one_word: Any = SimpleNamespace(
        counting=lambda: (one_word, UnknownText(None, str, frozenset())),
        encode_batch=lambda texts: [np.zeros(1, np.int64) for _ in texts],
        decode=lambda ids: "is",
    )
    with pytest.raises(IncompatibleError, match="tokenizer"):
        kind.encode([], Frame(one_word, 32, False))


def test_numbers_are_written(models: dict[str, Path], tmp_path: Path) -> None:
    data, out = animals(tmp_path / "data.jsonl", 300, cat=1.25, dog=3.5), tmp_path / "out"
    settings: dict[str, Any] = {"task": "regression", "epochs": 12, "batch": 8, "rate": 5e-3}
    finetuned(models["gpt2"], data, out, prompt="worth: {text}", **settings)
    rows = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    answers = load(out).predict([row["text"] for row in rows])
    scores = np.array([answer["score"] for answer in answers])
    # 2.25 / 25 is 0.09, so steps are of 0.1: 1.25 is written "1.2" (halves go to the even one).
    assert 1.2 in scores and (scores == scores.round(1)).all()
    # The epoch is chosen by the order of the numbers, so a dog may be 3.2 for all of them.
    near = np.abs(scores - [row["label"] for row in rows]) < 0.5
    assert near.mean() > 0.8  # one number for all is near for half of them
    figures = evaluate_file(out, data, stream=io.StringIO())
    assert figures["spearman"].value > 0.8 and figures["squared_error"].value < 0.4


def test_what_stands_for_a_number_is_that_of_the_validation_part(
    models: dict[str, Path], tmp_path: Path
) -> None:
    """Years, of which a model that has learned nothing yet writes none."""
    data, out = animals(tmp_path / "data.jsonl", 120, cat=2000.5, dog=2009.5), tmp_path / "out"
    settings: dict[str, Any] = {"task": "regression", "epochs": 1, "batch": 16, "rate": 1e-6}
    finetuned(models["gpt2"], data, out, prompt="{text}", **settings)
    results = results_of(out)
    (seed,) = results["seeds"]
    assert seed["unread"] == 1.0 and seed["squared_error"] < 30.0
    assert results["table"]["rows"][0][3].startswith(f"{seed['squared_error']:.4f}")


def test_only_numbers_that_stand_there_have_to_be_written() -> None:
    """From 0 to 5: none is negative, though what is read may lie a step outside."""
    texts: list[str] = []
    rows = [TextExample("a", value, "row") for value in (0.0, 2.5, 5.0)]
    data: Any = SimpleNamespace(parts={"train": rows})
    kind = task_for("regression", (), {"prompt": "{text}"}).of_data(data)
    tokenizer = SimpleNamespace(encode_batch=lambda batch: texts.extend(batch) or [])
    with pytest.raises(ValueError, match="zip"):  # none comes back
        kind._encoded(rows, SimpleNamespace(tokenizer=tokenizer))
    assert texts[0] == "0.0" and texts[-1] == "5.0" and len(texts) > 20


def test_numbers_that_a_tokenizer_cannot_write(models: dict[str, Path], tmp_path: Path) -> None:
    data = animals(tmp_path / "data.jsonl", 60, cat=1.25, dog=3.5)  # it has seen no digit
    with pytest.raises(IncompatibleError, match="tokenizer"):
        finetuned(models["t5"], data, tmp_path / "out", task="regression", prompt="{text}")


def test_the_steps_of_numbers() -> None:
    """STS-B's are 0.2 (Raffel et al. 2020, section 2.4)."""
    found = [nice(span / 25) for span in (5.0, 1.0, 2.25, 29.0, 100.0, 0.0)]
    assert found == [0.2, 0.05, 0.1, 2.0, 5.0, 1.0]


def test_what_is_no_number_is_the_usual_one_and_counted() -> None:
    settled = {"prompt": "{first} {second}", "step": 0.2, "low": -0.2, "high": 5.2, "usual": 2.0}
    kind = task_for("similarity", (), settled)
    rows = [PairExample("a", "b", value, "row") for value in (1.0, 2.0, 4.0)]
    answers = kind.answers(Encoded(rows, None), np.array(["1.0", "two", "99"], object))  # type: ignore[arg-type]
    assert answers[0] == 1.0 and np.isnan(np.asarray(answers)[1:]).all()
    figures = kind.metrics(rows, answers).values
    assert figures["squared_error"] == pytest.approx(4 / 3)
    assert figures["unread"] == pytest.approx(2 / 3)
    assert kind.measure == "spearman" and "unread" not in kind.shape.choosable


def test_answers_are_written(models: dict[str, Path], tmp_path: Path) -> None:
    rows, out = [], tmp_path / "out"
    data = animals(tmp_path / "animals.jsonl", 60, cat="cat", dog="dog")
    for line in data.read_text(encoding="utf-8").splitlines():
        context, animal = json.loads(line).values()
        answers = {"text": [animal], "answer_start": [context.index(animal)]}
        rows.append({"question": "who", "context": context, "answers": answers})
    data = write_rows(tmp_path / "data.jsonl", rows)
    finetuned(models["t5"], data, out, epochs=1, batch=16, rate=5e-3, prompt="squad")
    (answer,) = load(out).predict([("who", "the dog sat on a mat")])
    assert set(answer) == {"answer"}


@pytest.mark.parametrize(
    ("label", "prompt", "error"),
    [
        ("yes", "{source}", UsageError),
        ("yes", "mrpc", UsageError),
        ("yes", "{text} {first}", UsageError),
        ("yes", "yes", ConfigError),
        (["yes", "no"], "{text}", UsageError),  # several labels
    ],
)
def test_a_prompt_that_does_not_fit_the_task_is_refused(
    label: Any, prompt: str, error: type[Exception], models: dict[str, Path], tmp_path: Path
) -> None:
    data = animals(tmp_path / "data.jsonl", 60, cat=label, dog="no" if label == "yes" else ["no"])
    with pytest.raises(error) as refused:
        finetuned(models["t5"], data, tmp_path / "out", prompt=prompt)
    assert error is ConfigError or refused.value.where == "--prompt"  # type: ignore[attr-defined]


def test_of_two_texts_the_longer_is_cut(models: dict[str, Path]) -> None:
    """And never what the prompt puts around them."""
    tokenizer = tokenizer_of(models["t5"])
    prompt = {"prompt": "one {first} two {second} end"}
    kind = task_for("pair-classification", ("no", "yes"), prompt)
    rows = [PairExample("cat " * 40, dogs, 1, "row") for dogs in ("dog", "dog " * 40)]
    encoded = kind.encode(rows, Frame(tokenizer, 48, False))
    texts = [tokenizer.decode(ids) for ids in encoded.way_back.sources]
    assert all(len(ids) <= 48 for ids in encoded.way_back.sources) and encoded.findings
    for text in texts:
        assert text.startswith("one cat") and text.rstrip().endswith("end") and "dog" in text
    assert abs(texts[1].count("cat") - texts[1].count("dog")) <= 1


# ------------------------------------------------------------------------------ templates
def test_the_examples_of_the_paper() -> None:
    """Raffel et al. 2020, figure 1."""
    said = Template(TEMPLATES["english-to-german"]).fill({"source": "That is good."})
    assert said == "translate English to German: That is good."
    said = Template(TEMPLATES["cola"]).fill({"text": "The course is jumping well."})
    assert said == "cola sentence: The course is jumping well."
    pair = {"first": "The rhino grazed on the grass.", "second": "A rhino is grazing in a field."}
    said = Template(TEMPLATES["stsb"]).fill(pair | {"other": "3"})
    assert said == "stsb sentence1: " + " sentence2: ".join(pair.values())
    assert number_text(3.8) == "3.8"
    assert Template(TEMPLATES["squad"]).fields == ("question", "context")


def test_numbers_by_hand() -> None:
    texts = {2.57: "2.6", 2.5: "2.4", 2.49: "2.4", 0.0: "0.0", 5.0: "5.0", 2.7: "2.8"}
    assert {value: number_text(value) for value in texts} == texts
    assert number_text(-0.01) == "0.0" and number_text(7, 5) == "5" and number_text(8, 5) == "10"
    values = read_numbers(["2.6", " 3 ", "x", "2.6 or", "nan", "-1", "1e3", "٣"], 0, 5)
    assert values[:2].tolist() == [2.6, 3.0]
    assert np.isnan(values[2:]).all()
    assert read_numbers(["-1.5"]).tolist() == [-1.5]


@hypothesis.given(strategies.text(max_size=30), strategies.text(max_size=30))
def test_fields_are_text_and_nothing_more(first: str, second: str) -> None:
    template = Template("a: {x} b: {y} {{z}}")
    assert template.fill({"x": first, "y": second}) == f"a: {first} b: {second} {{z}}"


def test_braces_in_a_field_are_noticed_where_they_would_be_read() -> None:
    """The control: filling by `str.format` twice reads what stands in the field."""
    assert Template("a: {x}").fill({"x": "{y} {0}"}) == "a: {y} {0}"
    with pytest.raises((KeyError, IndexError)):
        "a: {x}".format(x="{y}").format(x=1)


@hypothesis.given(strategies.floats(0, 5))
@hypothesis.settings(max_examples=300)
def test_numbers_go_to_the_nearest_step(value: float) -> None:
    text = number_text(value)
    assert text in {f"{n / 5:.1f}" for n in range(26)}
    assert abs(float(text) - value) <= 0.1 + 1e-12
    assert read_numbers([text], 0, 5).tolist() == [float(text)]


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_template_fills_its_fields(name: str) -> None:
    template = Template(TEMPLATES[name])
    made = template.fill({field: f"<{field}>" for field in template.fields})
    assert all(f"<{field}>" in made for field in template.fields) and "{" not in made


@pytest.mark.parametrize(
    "bad", ["no hole", "a {", "a }", "{}", "{0}", "{x!r}", "{x:>3}", "{x.y}", "{x[0]}"]
)
def test_what_is_no_template_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError):
        Template(bad)


def test_a_field_that_is_missing_is_named() -> None:
    with pytest.raises(DataError) as refused:
        Template("{sentence}").fill({"sentense": "a"}, "train.jsonl:4")
    assert (refused.value.where, refused.value.wanted) == ("train.jsonl:4", '"sentence"')
