"""Tags, answers and choices: from a file to a model that answers, and each figure by hand."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from labelled.tables import write_rows
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict.file import predict_file
from maskwright.ask.predict.predictor import load
from maskwright.base import catalogue
from maskwright.base.errors import DataError, UsageError
from maskwright.learn.finetune.learner import Learner, learning_rate_factors
from maskwright.learn.finetune.method import Method
from maskwright.learn.tasks import embeddings, question_answering
from maskwright.learn.tasks.base.encode import frame_of
from maskwright.learn.tasks.base.span_search import AnswerCandidate, Prediction
from maskwright.learn.tasks.base.task_type import Encoded, TaskReport, TaskType, task_for
from maskwright.model.checkpoint import pretrained
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.nn import initialise
from maskwright.model.objectives.base.corruption import Sequences
from maskwright.model.objectives.modules.supervised import Contrast
from maskwright.model.opening import folders
from maskwright.text.tables.rows import (
    MatchExample,
    PairExample,
    QuestionExample,
    TaggedExample,
    TextExample,
)
from small_tasks import finetuned, results_of
from tinyrun import WORDS


def test_two_kinds_for_one_task_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    another = ModuleType("another.tags")
    another.SERVES = {"tagging": type(task_for("tagging"))}  # type: ignore[attr-defined]
    names, load = catalogue.names, catalogue.load
    monkeypatch.setattr(catalogue, "names", lambda room: [*names(room), "another"])
    monkeypatch.setattr(
        catalogue, "load", lambda room, name: another if name == "another" else load(room, name)
    )
    with pytest.raises(UsageError) as refused:
        task_for("tagging")
    assert "tasks.tagging" in refused.value.wanted and "another.tags" in refused.value.wanted
    assert task_for("classification").task == "classification"  # the control: only what it serves


PLAIN = [word for word in WORDS if word not in ("cat", "dog")]


def rows(task: str, count: int = 240) -> list[dict[str, Any]]:
    """Animals are to be found: they are tagged, asked for, or the right one of three choices."""
    draw = np.random.default_rng(0)
    found = []
    for _ in range(count):
        words = draw.choice(PLAIN, draw.integers(3, 9)).tolist()
        place = int(draw.integers(0, len(words)))
        animal = ("cat", "dog")[int(draw.integers(0, 2))]
        words.insert(place, animal)
        context = " ".join(words)
        if task == "tagging":
            tags = [f"B-{animal}" if word == animal else "O" for word in words]
            found.append({"tokens": words, "tags": tags})
        elif task == "question-answering":
            begin = len(" ".join(words[:place])) + (place > 0)
            found.append(
                {
                    "question": "the red",
                    "context": context,
                    "answers": {"text": [animal], "answer_start": [begin]},
                }
            )
        else:
            choices = draw.choice(PLAIN, 2, replace=False).tolist()
            right = int(draw.integers(0, 3))
            choices.insert(right, animal)
            found.append({"question": context, "choices": choices, "label": right})
    return found


def table(path: Path, task: str, count: int = 240) -> Path:
    return write_rows(path, rows(task, count))


def column(answers: list[dict[str, Any]], name: str) -> list[Any]:
    return [answer[name] for answer in answers]


@pytest.fixture(scope="module")
def learned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The result of a task, which is trained when it is first asked for; its data lie beside."""
    folder, epochs = tmp_path_factory.mktemp("learned"), {"multiple-choice": 6}

    def give(task: str) -> Path:
        data, out = folder / f"{task}.jsonl", folder / task
        if not out.exists():
            table(data, task)
            finetuned(model, data, out, batch=16, rate=1e-2, epochs=epochs.get(task, 4))
        return out

    return give


def test_tags(learned: Callable[[str], Path]) -> None:
    out = learned("tagging")
    predictor, results = load(out), results_of(out)
    assert "each word's commonest" in [row[0] for row in results["table"]["rows"]]
    assert results["measure"] == "entity_f1" and results["seeds"][0]["entity_f1"] > 0.95
    text = "the big  dog sat."
    ((entity,),) = predictor.predict([text])
    assert entity["entity_group"] == "dog" and entity["word"] == "dog"
    assert text[entity["start"] : entity["end"]] == "dog" and 0.5 < entity["score"] <= 1
    assert predictor.predict([["a", "cat"]])[0][0]["entity_group"] == "cat"
    stream = io.StringIO()
    assert predict_file(out, out.with_suffix(".jsonl"), stream) == 240
    first = json.loads(stream.getvalue().splitlines()[0])
    assert column(first["prediction"], "entity_group") == [t[2:] for t in first["tags"] if t != "O"]
    with pytest.raises(DataError, match="example 1"):
        predictor.predict(["   "])


def test_the_reference_library_tags_alike(learned: Callable[[str], Path]) -> None:
    transformers = pytest.importorskip("transformers")
    path = learned("tagging") / "model"
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    text = "one big red dog ran and saw a cat"
    with torch.no_grad():
        shares = theirs.eval()(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
    words = text.split()
    assert len(words) + 2 == len(shares), "each word is one token"
    names = [theirs.config.id2label[i] for i in shares.argmax(-1).tolist()][1:-1]
    (ours,) = load(learned("tagging")).predict([text])
    tags = {(w, n[2:]) for w, n in zip(words, names, strict=True) if n != "O"}
    assert {(e["word"], e["entity_group"]) for e in ours} == tags


def test_answers(learned: Callable[[str], Path]) -> None:
    out = learned("question-answering")
    predictor, results = load(out), results_of(out)
    assert "nearest sentence" in [row[0] for row in results["table"]["rows"]]
    assert results["measure"] == "f1" and results["seeds"][0]["exact"] > 0.9
    context = "the big  dog sat on a red hat"
    (answer,) = predictor.predict([{"question": "the red", "context": context}])
    assert answer["answer"] == "dog" == context[answer["start"] : answer["end"]]
    assert 0 < answer["score"] <= 1
    assert predictor.predict([("the red", context)]) == [answer]
    (best,) = predictor.predict([("the red", context)], top=3)
    assert best[0] == answer and len(best) == 3
    assert column(best, "answer") == [context[a["start"] : a["end"]] for a in best]
    assert column(best, "score") == sorted(column(best, "score"), reverse=True)
    assert predict_file(out, out.with_suffix(".jsonl"), io.StringIO()) == 240
    with pytest.raises(DataError, match="example 1") as refused:
        predictor.predict(["only a question"])
    assert refused.value.found == "1 value"
    with pytest.raises(DataError) as refused:
        predictor.predict([{"context": "a text", "ask": "what"}])
    assert str(refused.value.found).endswith("context, ask")
    # Neighbours do not change answers.
    questions = [(row["question"], row["context"]) for row in rows("question-answering", 40)]
    whole = predictor.predict(questions)
    for size in (1, 7, 32):
        parts = [a for i in range(0, 40, size) for a in predictor.predict(questions[i : i + size])]
        assert column(parts, "answer") == column(whole, "answer")
        assert column(parts, "score") == pytest.approx(column(whole, "score"), abs=2e-6)


@pytest.mark.parametrize("length", [24, 32, 64, 384])
def test_answers_lie_whole_in_some_window(model: Path, length: int) -> None:
    """However long the question and however short the windows."""
    checkpoint = pretrained.load(folders.model_folder(model))
    assert checkpoint.tokenizer is not None
    frame = frame_of(checkpoint.config, checkpoint.tokenizer, length, "head")
    answer, question = "the cat sat", " ".join(["the"] * 70)
    contexts = ["dog " * n + answer + " mat" * 80 for n in range(70)]
    examples = [
        QuestionExample(question, context, ((answer, 4 * n),), f"row {n}")
        for n, context in enumerate(contexts)
    ]
    counts = task_for("question-answering").encode(examples, frame).way_back.counts
    assert counts.answerable == 70 and counts.lost == 0
    assert counts.windows > 70 or length == 384


def test_questions_without_an_answer(model: Path, tmp_path: Path) -> None:
    questions, out = rows("question-answering"), tmp_path / "out"
    for row in questions[::2]:
        row["context"] = " ".join(w for w in row["context"].split() if w in PLAIN)
        row["answers"] = {"text": [], "answer_start": []}
    path = write_rows(tmp_path / "data.jsonl", questions)
    finetuned(model, path, out, epochs=4, batch=16, rate=1e-2)
    settled = json.loads((out / "task.json").read_text())["settled"]
    assert abs(settled["threshold"]) < 1e3 and settled["measure"] == "balanced_f1"
    results = results_of(out)
    never = next(row for row in results["table"]["rows"] if row[0] == "never answers")
    cells = dict(zip(results["table"]["head"], never, strict=True))
    assert cells["has_answer_f1"].startswith("0.0000") and cells["balanced_f1"].startswith("0.0000")
    assert cells["no_answer_exact"].startswith("1.0000")
    assert results["seeds"][0]["balanced_f1"] > 0.8 < results["seeds"][0]["has_answer_f1"]
    assert "one-sided-answers" not in {finding["name"] for finding in results["findings"]}
    unseen = [{**row, "context": f"{row['context']} then"} for row in questions]
    path = write_rows(tmp_path / "unseen.jsonl", unseen)
    figures = evaluate_file(out, path, stream=(stream := io.StringIO()))
    assert {"no_answer_f1", "has_answer_exact"} < {*figures} and "warning" not in stream.getvalue()
    pairs = [("the red", "the big hat sat"), ("the red", "the big cat sat")]
    empty, cat = load(out).predict(pairs)
    assert empty["answer"] == "" and empty["start"] == empty["end"] == 0
    assert cat["answer"] == "cat"
    first, second = load(out).predict(pairs, top=50)
    assert first[0] == empty and second[0] == cat
    assert column(second, "answer").count("") == 1, "no answer is one of them"


def test_choices(learned: Callable[[str], Path]) -> None:
    out = learned("multiple-choice")
    predictor, results = load(out), results_of(out)
    assert results["measure"] == "accuracy" and results["seeds"][0]["accuracy"] > 0.9
    examples = rows("multiple-choice", 30)
    pairs = [(row["question"], row["choices"]) for row in examples]
    answers = predictor.predict(pairs)
    assert all(
        a["choice"] == r["choices"][a["label"]] for a, r in zip(answers, examples, strict=True)
    )
    assert sum(a["label"] == r["label"] for a, r in zip(answers, examples, strict=True)) >= 27
    ranked = predictor.predict(pairs, top=9)
    assert [choices[0] for choices in ranked] == answers
    assert [len(choices) for choices in ranked] == [len(r["choices"]) for r in examples]
    assert all(sum(column(r, "score")) == pytest.approx(1, abs=1e-5) for r in ranked)
    assert predict_file(out, out.with_suffix(".jsonl"), io.StringIO()) == 240
    with pytest.raises(DataError, match="example 1"):
        predictor.predict([("a", ["one"])])
    # By the columns of a table with one for each choice, of which the last may be empty.
    by_column = replace(predictor, columns={"question": ("q",), "choices": tuple("abcd")})
    named = [
        {"q": r["question"], **dict(zip("abcd", [*r["choices"], ""], strict=True))}
        for r in examples
    ]
    assert by_column.predict(named) == answers
    by_role = [{"question": r["question"], "choices": r["choices"]} for r in examples]
    assert by_column.predict(by_role) == predictor.predict(by_role) == answers
    more = [(q, [*choices, "one", "red"][: n % 3 + 2]) for n, (q, choices) in enumerate(pairs)]
    together, alone = predictor.predict(more), [predictor.predict([pair])[0] for pair in more]
    assert column(together, "label") == column(alone, "label")
    assert column(together, "score") == pytest.approx(column(alone, "score"), abs=2e-6)


def test_choices_about_a_text(model: Path, tmp_path: Path) -> None:
    """Which animal is asked about stands in the text alone."""
    shared = {"question": "which one", "options": ["a cat", "a dog"]}
    lines = [
        {"article": row["question"], "answer": "AB"["dog" in row["question"]], **shared}
        for row in rows("multiple-choice")
    ]
    data, out = write_rows(tmp_path / "race.jsonl", lines), tmp_path / "out"
    finetuned(model, data, out, batch=16, rate=1e-2, epochs=1)
    predictor = load(out)
    asked = [{**lines[0], "article": f"the {animal} sat"} for animal in ("cat", "dog", "cat")]
    cat, dog, again = predictor.predict(asked, top=2)
    assert cat == again and column(cat, "score") != pytest.approx(column(dog, "score"), abs=1e-5)
    assert predictor.predict([{**lines[0], "article": "a \ud800"}], on_bad="skip") == [None]
    assert predict_file(out, data, io.StringIO()) == len(lines)


@pytest.mark.parametrize("ends", [False, True])
def test_places_of_a_batch(ends: bool) -> None:
    """What is asked stands where its text stands, whatever shares the row."""
    draw = np.random.default_rng(0)
    texts = [draw.integers(5, 99, draw.integers(2, 30)).tolist() for _ in range(40)]
    places = [
        np.sort(draw.choice(len(t), draw.integers(1, len(t) + 1), replace=False)) for t in texts
    ]
    counts, flat = np.array([len(p) for p in places]), np.concatenate(places)
    labels = np.stack([np.zeros(40, int), counts - 1], 1) if ends else np.arange(len(flat))
    examples = EncodedExamples(framed(texts), labels, places=Sequences(flat, counts))
    assert len(examples) == 40 and examples.num_scores == len(flat)
    numbers = np.array([3, 17, 0, 39, 8, 21, 22])
    batch, which = examples.batch(numbers, Collation(pad=0, last=False))
    assert batch.index is not None and batch.targets is not None
    owner = np.repeat(np.arange(40), counts)
    tokens = [texts[owner[w]][flat[w]] for w in which]
    assert batch.tokens.view(-1)[batch.index].tolist() == tokens
    assert sorted(which) == sorted(np.flatnonzero(np.isin(owner, numbers)))
    if not ends:
        assert batch.targets.tolist() == which.tolist()
        return
    assert batch.labels is not None
    for (first, last), text in zip(batch.labels.tolist(), np.unique(batch.targets), strict=True):
        mine = np.flatnonzero(batch.targets.numpy() == text)
        assert (first, last) == (mine[0], mine[-1])


@pytest.mark.parametrize(
    ("labels", "marked"),
    [("O B I", 1), ("O B I E S", 1), ("O B-X I-X", 1), ("O I", 0), ("B C", 0), ("NOUN VERB", 0)],
)
def test_tags_mark_entities_where_they_begin_and_end_them(labels: str, marked: bool) -> None:
    assert ("entity_f1" in task_for("tagging", tuple(labels.split())).measures) == marked


def test_answers_are_scored_by_hand() -> None:
    kind = task_for("question-answering")
    examples = [
        QuestionExample("q", "the red hat", answers, "") for answers in ((("red hat", 4),), ())
    ]
    metrics = kind.metrics(examples[:1], ["the hat"])
    assert metrics.values == pytest.approx({"f1": 2 / 3, "exact": 0.0})
    both = {"f1": 5 / 6, "exact": 0.5, "balanced_f1": 0.8}
    both |= {"has_answer_f1": 2 / 3, "has_answer_exact": 0.0}
    both |= {"no_answer_f1": 1.0, "no_answer_exact": 1.0}
    metrics = kind.metrics(examples, ["the hat", ""])
    assert metrics.values == pytest.approx(both)
    estimates = {name: estimate.value for name, estimate in metrics.estimates().items()}
    assert estimates == pytest.approx(both)
    balanced = kind.with_options({"measure": "balanced_f1"}).metrics(examples[1:], [""])
    assert balanced.values["balanced_f1"] == 1.0, "of one sort, that sort's"


def report(kind: TaskType, rows: list[Any], answers: Any) -> TaskReport:
    """What is shown of these answers, which no model gave."""
    empty = EncodedExamples(framed([]), np.zeros(0, np.int64))
    scores = np.ones((len(rows), max(1, len(kind.labels))), np.float32)
    return kind.report(Encoded(rows, empty), scores, answers)


QUESTIONS = [QuestionExample("q", "a hat", (("hat", 2),), "")] + [
    QuestionExample("q", "a hat", (), "")
] * 3
TEXTS = [TextExample("a", 0, ""), TextExample("b", 1, ""), TextExample("c", 0, "")]
SENTENCE = [TaggedExample(("a", "b"), (0, 1), "")]


@pytest.mark.parametrize(
    ("kind", "rows", "answers", "told"),
    [
        (task_for("question-answering"), QUESTIONS, [""] * 4, True),
        (task_for("question-answering"), QUESTIONS, ["hat"] * 4, True),
        (task_for("question-answering"), QUESTIONS, ["hat", "", "", "hat"], False),
        (task_for("question-answering"), QUESTIONS[1:], [""] * 3, False),
        (task_for("classification", ("good", "bad")), TEXTS, np.zeros(3, np.int64), True),
        (task_for("classification", ("good", "bad")), TEXTS, np.array([0, 1, 1]), False),
        (task_for("classification", ("good", "bad")), TEXTS[::2], np.zeros(2, np.int64), False),
        (task_for("tagging", ("B-X", "O")), SENTENCE, [["O", "O"]], True),
        (task_for("tagging", ("B-X", "O")), SENTENCE, [["O", "B-X"]], False),
    ],
)
def test_answers_that_are_all_the_same_are_told(
    kind: TaskType, rows: list[Any], answers: Any, told: bool
) -> None:
    """A constant that is right is none."""
    warning = report(kind, rows, answers).one_sided
    assert (warning is not None and warning.name == "one-sided-answers") is told


def test_windows_with_an_answer_are_shown_as_often_as_those_without() -> None:
    """Where they are fewer; the control: where they are not, each is shown once."""
    places = Sequences(np.tile(np.arange(2), 7), np.full(7, 2))
    ends = np.array([[1, 1], [0, 0], [0, 0], [0, 0], [0, 1], [0, 0], [-1, -1]])
    few = EncodedExamples(framed([[1, 2]] * 7), ends, places=places)
    assert sorted(few.training_indices.tolist()) == [0, 0, 1, 2, 3, 4, 4, 5]
    ends[1:4] = 1
    assert replace(few, labels=ends).training_indices.tolist() == [0, 1, 2, 3, 4, 5]


def test_never_to_answer_can_be_the_best() -> None:
    """Where nothing said is right, the threshold that is chosen says nothing."""

    class Stub(question_answering.QuestionAnswering):
        def _predictions(self, encoded: Encoded, outputs: Any) -> list[Prediction]:
            return found

    asked = [QuestionExample("q", "a b c", (), ""), QuestionExample("q", "a b c", (("c", 4),), "")]
    found = [Prediction((AnswerCandidate("a", 0, 1.0, 0.5),), 0.0) for n in range(2)]
    empty = EncodedExamples(framed([[1], [1]]), np.zeros(2, np.int64))
    encoded = Encoded(asked, empty, way_back=SimpleNamespace(counts=SimpleNamespace(longest=0)))
    kind = Stub("question-answering").calibrate(encoded, lambda _: np.zeros((0, 2), np.float32))
    assert json.loads(json.dumps(kind.options)) == kind.options
    told = kind.answers(encoded, np.zeros((0, 2), np.float32))
    assert abs(kind.options["threshold"]) < 10, "a number that a reader understands"
    assert told == ["", ""]
    outside, apart = question_answering._finite, np.array([1.0, 2.0, np.inf])
    assert outside(np.inf, apart) == 2.0 and 0.9 < outside(-np.inf, apart) < 1.0
    assert outside(1.5, apart) == 1.5 and outside(-np.inf, apart[2:]) is None
    # Where answers of the validation part are longer than is usual, so may be those that are told.
    asked = [asked[1]] * 2
    encoded = Encoded(asked, empty, way_back=SimpleNamespace(counts=SimpleNamespace(longest=36)))
    kind = question_answering.QuestionAnswering("question-answering")
    longer = kind.calibrate(encoded, lambda _: np.zeros((0, 2), np.float32))
    assert longer.longest_answer == 36 and kind.longest_answer == 30
    # The control: with nothing chosen, it answers.
    assert Stub("question-answering").threshold == np.inf


def test_a_head_learns_faster_than_what_was_pretrained(model: Path) -> None:
    learner = Learner.of(model, task_for("tagging", ("A", "B", "C")), Method("full"))
    made = initialise.build(learner.config, torch.Generator().manual_seed(0))

    def factors(method: Method) -> dict[bool, set[float]]:
        pace = learning_rate_factors(method, made, 100)
        given = {n: 1.0 for n, _ in made.named_parameters()} if pace is None else pace(0)
        return {
            top: {f for n, f in given.items() if n.startswith("heads.") is top}
            for top in (True, False)
        }

    assert factors(Method("full")) == {True: {10.0}, False: {1.0}}
    assert factors(Method("last-1", head_rate=3.0)) == {True: {3.0}, False: {1.0}}
    assert factors(Method("full", head_rate=1.0)) == {True: {1.0}, False: {1.0}}
    assert learning_rate_factors(Method("full", head_rate=1.0), made, 100) is None
    for few in ("probe", "lora"):  # a rate for few parameters is the head's already
        assert factors(Method(few)) == {True: {1.0}, False: {1.0}}


def test_a_head_is_trained_on_only_where_it_is_for_these_labels(
    model: Path, tmp_path: Path
) -> None:
    animals = [(f"a {word} {animal}", animal) for word in PLAIN[:20] for animal in ("cat", "dog")]

    def learn(labels: dict[str, Any], start: Path, out: str, task: str | None = None) -> str:
        stream, rows = io.StringIO(), [{"text": text, "label": labels[a]} for text, a in animals]
        data = write_rows(tmp_path / f"{out}.jsonl", rows)
        settings: dict[str, Any] = {"epochs": 1, "least_steps": 0, "batch": 16, "task": task}
        finetuned(start, data, tmp_path / out, **settings, stream=stream)
        return stream.getvalue()

    names, first = {"cat": "meow", "dog": "woof"}, tmp_path / "first" / "model"
    assert "new: heads.classifier" in learn(names, model, "first")
    assert "new: nothing" in learn(names, first, "again")
    assert results_of(tmp_path / "first")["head_rate"] == 10.0
    assert results_of(tmp_path / "again")["head_rate"] == 1.0
    assert "new: heads.classifier" in learn({"cat": "purr", "dog": "bark"}, first, "other")
    years = {"cat": 1990.0, "dog": 2010.0}
    learn(years, model, "years", "regression")
    again = learn(years, tmp_path / "years" / "model", "years-again", "regression")
    assert "new: heads.classifier" in again
    for out in ("years", "years-again"):  # the unit of the first is not that of the second's head
        assert results_of(tmp_path / out)["seeds"][0]["loss"][0] < 3.0


def test_the_usual_rate_grows_as_models_get_narrower() -> None:
    rate = Method("full").rate
    assert rate(1024) == rate(768) == 5e-5
    assert (rate(384), rate(256)) == pytest.approx((2e-4, 4.5e-4))
    assert Method("last-0").positions == 0 and Method("last-0").rate(768) == 1e-3, "as a probe"
    assert rate(64) == Method("lora").rate(768) == 1e-3, "but not without end"


def pairs(task: str, count: int = 240) -> list[dict[str, Any]]:
    """Texts are alike if the same animal is in them."""
    draw, rows = np.random.default_rng(0), list[dict[str, Any]]()
    for _ in range(count):
        both = [("cat", "dog")[i] for i in draw.integers(0, 2, 2)]
        if task == "matching":
            both = [str(draw.choice(WORDS))] * 2
        first, second = (" ".join([*draw.choice(PLAIN, 3), animal]) for animal in both)
        score = 4.5 * (both[0] == both[1]) + float(draw.random()) / 4
        rows.append({"sentence1": first, "sentence2": second, "score": score})
    if task == "matching":
        return [{"anchor": row["sentence1"], "positive": row["sentence2"]} for row in rows]
    return rows


@pytest.mark.parametrize("task", ["embedding", "matching"])
def test_vectors(task: str, model: Path, tmp_path: Path) -> None:
    data, out = write_rows(tmp_path / "data.jsonl", pairs(task)), tmp_path / "out"
    chosen = None if task == "matching" else task
    finetuned(model, data, out, task=chosen, epochs=6, batch=16, rate=1e-2)
    results, predictor = results_of(out), load(out)
    if task == "embedding":
        assert results["seeds"][0]["spearman"] > 0.6, "half of the rows differ by noise alone"
        near, far = predictor.predict([("a cat", "one cat"), ("a cat", "one dog")])
        assert near["score"] > far["score"] + 0.2
    else:
        assert results["measure"] == "first_is_right" and results["seeds"][0]["mrr"] > 0.2
    answers = predictor.predict(["a cat", {"text": "a dog"}])
    cat, dog = (np.array(answer["vector"]) for answer in answers)
    assert cat @ cat == pytest.approx(1.0, abs=1e-4) and len(cat) == predictor.model.config.width
    (both,) = predictor.predict([("a cat", "a dog")])
    assert both["score"] == pytest.approx(cat @ dog, abs=1e-4)
    with pytest.raises(DataError, match="beside pairs"):
        predictor.predict(["a cat", ("a cat", "a dog")])
    texts, lines = tmp_path / "texts.txt", tmp_path / "texts.csv"
    texts.write_text("a cat\na dog\n")
    lines.write_text("note,n\na cat,1\na dog,2\n")
    for source, columns in ((texts, None), (lines, {"text": ["note"]})):
        stream = io.StringIO()
        assert predict_file(out, source, stream, columns=columns) == 2
        vectors = [json.loads(line)["prediction"] for line in stream.getvalue().splitlines()]
        assert vectors == answers
    modules = json.loads((out / "model" / "modules.json").read_text())
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    assert kinds == ["Transformer", "Pooling", "Normalize"]
    with pytest.raises(UsageError, match="--method"):
        finetuned(model, data, tmp_path / "odd", task=chosen, method="probe")


@pytest.mark.parametrize(
    ("given", "cosines"),
    [([-1.0, 0.0, 1.0], [-1, 0, 1]), ([0.8, 0.9, 1.0], [0.8, 0.9, 1]), ([0, 2.5, 5], [0, 0.5, 1])],
)
def test_what_is_given_becomes_a_cosine(
    given: list[float], cosines: list[float], model: Path
) -> None:
    """The scale is that of all data, not of the rows that are drawn of them."""
    examples = [PairExample("a cat", "a dog", label, "here") for label in given]
    data: Any = SimpleNamespace(parts={"train": examples})
    kind = task_for("embedding").of_data(data)
    frame = Learner.of(model, kind, Method("full")).frame
    for part, wanted in ((examples, cosines), (examples[1:], cosines[1:])):
        np.testing.assert_allclose(kind.encode(part, frame).examples.labels, wanted, atol=1e-6)
    data.parts["train"] = examples[:1] * 3
    with pytest.raises(DataError, match="train"):
        kind.of_data(data)


def test_ranks_by_hand() -> None:
    kind = task_for("matching")
    rows = [MatchExample(*pair, "") for pair in ("ab", "cd", "ef")]
    values = kind.metrics(rows[:2], np.array([1.0, 2.0])).values
    assert values == {"first_is_right": 0.5, "mrr": 0.75}
    near = np.array([[0.5, 0.5, 0.1], [0.9, 0.2, 0.1], [0.0, 0.0, 1.0]])
    ranks = embeddings._ranks(lambda some: near[some], rows)
    assert ranks.tolist() == [1.5, 2.0, 1.0], "ties count half"


def test_a_word_without_a_token_has_the_commonest_tag(model: Path, tmp_path: Path) -> None:
    """Parts of speech have no tag for what is outside, and a joiner alone has no token."""
    lines, out = [], tmp_path / "out"
    for n, row in enumerate(rows("tagging", 80)):
        tags = ["NOUN" if tag != "O" else "VERB" for tag in row["tags"]]
        more = ["\u200d"] if n % 4 == 0 else []
        lines.append({"tokens": row["tokens"] + more, "tags": tags + ["VERB"] * len(more)})
    finetuned(model, write_rows(tmp_path / "pos.jsonl", lines), out, epochs=1, batch=16, rate=1e-2)
    assert json.loads((out / "task.json").read_text())["settled"] == {"missing": "VERB"}
    (answer,) = load(out).predict([["the", "\u200d"]])
    assert answer[1]["entity"] == "VERB"


def test_which_windows_teach() -> None:
    texts, zeros = framed([[1, 2], [1, 2, 3], [1]]), np.zeros(3, np.int64)
    tagged = Sequences(np.array([0, 1, 2]), np.array([0, 3, 0]))
    assert EncodedExamples(texts, zeros, places=tagged).training_indices.tolist() == [1]
    ends = np.array([[-1, -1], [0, 2], [-1, 0]])
    places = Sequences(np.array([0, 0, 1, 2, 0]), np.array([1, 3, 1]))
    assert EncodedExamples(texts, ends, places=places).training_indices.tolist() == [1, 2]
    assert EncodedExamples(texts, zeros).training_indices.tolist() == [0, 1, 2]


EMPTY = EncodedExamples(framed([]), np.zeros(0, np.int64))


def ranks_of(rows: list[MatchExample], *outputs: np.ndarray) -> list[float]:
    """The rank of each row's answer; one of `outputs` for each column of texts."""
    ranks: list[float] = (
        task_for("matching").answers(Encoded(rows, EMPTY), np.concatenate(outputs, axis=1)).tolist()
    )
    return ranks


def contrast_loss(scores: torch.Tensor, labels: torch.Tensor) -> float:
    aim: Any = Contrast(torch.nn.Identity(), "ranking")  # type: ignore[arg-type]
    aim.scores = lambda batch: scores
    return float(aim(SimpleNamespace(labels=labels)).parts["ranking"].total)


def test_what_nearly_belongs_is_a_rival_to_all() -> None:
    """The loss with negatives, worked out one question at a time."""
    draw = torch.manual_seed(0)
    vectors = functional.normalize(torch.randn(3, 3, 4, generator=draw), dim=2)  # rows, texts, D
    vectors[2, 2] = vectors[0, 1]  # the negative of the last is the answer of the first
    codes = torch.tensor([[0.0, 3.0], [1.0, 4.0], [2.0, 0.0]])
    labels = torch.cat([torch.arange(3.0)[:, None], codes], dim=1)
    total = contrast_loss(vectors.reshape(3, -1), labels)
    wanted = 0.0
    for row in range(3):
        rivals = [
            (other, place)
            for other in range(3)
            for place in (1, 2)
            if (other, place) == (row, 1) or codes[other, place - 1] != codes[row, 0]
        ]
        near = torch.stack([20 * vectors[row, 0] @ vectors[rival] for rival in rivals])
        wanted -= float(near.log_softmax(0)[rivals.index((row, 1))])
    assert total == pytest.approx(wanted, rel=1e-5)
    without = contrast_loss(vectors[:, :2].reshape(3, -1), labels[:, :2])
    assert without < total - 0.1, "the control"


def test_triples(model: Path, tmp_path: Path) -> None:
    rows = [
        {**row, "negative_2": f"a {WORDS[n % 9]}", "negative_1": f"the {WORDS[n % 7]}"}
        for n, row in enumerate(pairs("matching", 90))
    ]
    data, out, stream = write_rows(tmp_path / "data.jsonl", rows), tmp_path / "out", io.StringIO()
    finetuned(model, data, out, epochs=1, batch=8, stream=stream)
    assert "'negative_1', 'negative_2' as negative" in stream.getvalue()
    assert 0.0 < results_of(out)["seeds"][0]["mrr"] < 1.0
    assert len(load(out).predict([("a cat", "one cat")])) == 1
    assert {*evaluate_file(out, data, stream=stream)} == {"first_is_right", "mrr"}
    del rows[5]["negative_2"]
    write_rows(data, rows)
    with pytest.raises(DataError, match=r"line 6(.|\n)*negative_2"):
        finetuned(model, data, tmp_path / "no")


def test_ranks_among_negatives_by_hand() -> None:
    """Another question's negative comes before the answer where it is nearer."""
    rows = [MatchExample("q1", "x", "", ("u",)), MatchExample("q2", "y", "", ("x",))]
    x, y, u = np.eye(3, dtype=np.float32)
    outputs = np.stack([0.5 * x + u, y]), np.stack([x, y]), np.stack([u, x])
    assert ranks_of(rows, *outputs) == [2.0, 1.0]


def test_several_answers_to_one_question_are_all_right() -> None:
    x, y, z = np.eye(3, dtype=np.float32)
    anchors, positives = np.stack([x + y, x + y, x]), np.stack([x, y, z])
    for second, wanted in (("q", [1.0, 1.0, 2.5]), ("p", [1.5, 1.5, 2.5])):  # "p": the control
        rows = [MatchExample(a, p, "") for a, p in zip(["q", second, "r"], "xyz", strict=True)]
        assert ranks_of(rows, anchors, positives) == wanted
    scores = torch.from_numpy(np.concatenate([anchors, positives], axis=1))

    def loss(anchors: list[float]) -> float:
        return contrast_loss(scores, torch.tensor([anchors, [0.0, 1.0, 2.0]]).T)

    assert loss([0.0, 0.0, 1.0]) < loss([0.0, 1.0, 2.0]) - 0.1


def test_ranks_by_portions_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    given = [MatchExample(f"q{draw.integers(9)}", f"p{draw.integers(12)}", "") for _ in range(40)]
    near = draw.integers(0, 5, (40, 40)).astype(np.float32)
    # Equal candidates are equally near.
    near = near[:, [[row.positive for row in given].index(row.positive) for row in given]]
    whole = embeddings._ranks(lambda some: near[some], given)
    monkeypatch.setattr(embeddings, "AT_ONCE", 7)
    assert embeddings._ranks(lambda some: near[some], given).tolist() == whole.tolist()
    for number, row in enumerate(given):  # by hand, one question at a time
        right = {other.positive for other in given if other.anchor == row.anchor}
        scores = {other.positive: near[number, n] for n, other in enumerate(given)}
        own, rivals = scores[row.positive], [s for p, s in scores.items() if p not in right]
        wanted = 1 + sum(s > own for s in rivals) + sum(s == own for s in rivals) / 2
        assert whole[number] == wanted


# ------------------------------------------------------------------------------ reports
LABELS = ("cat", "dog", "eel")
ROWS = [
    TextExample("<b>purrs</b>", 0, "a/pets.csv, line 2"),
    TextExample("barks", 1, "a/pets.csv, line 3"),
    TextExample("meows", 0, "a/pets.csv, line 4"),
    TextExample("growls", 1, "a/pets.csv, line 5"),
]
TOLD = np.array([[0, 3, 0], [0, 9, 0], [2, 0, 0], [5, 0, 0]], np.float32)  # two are wrong


def report_of(kind: TaskType, rows: list[object], outputs: np.ndarray) -> TaskReport:
    examples = EncodedExamples(framed([[1]] * len(rows)), np.zeros(len(rows), np.int64))
    encoded = Encoded(rows, examples)
    return kind.report(encoded, outputs, kind.answers(encoded, outputs))


def test_classes_by_hand() -> None:
    report = report_of(task_for("classification", LABELS), [*ROWS], TOLD)
    assert report.classes is not None
    assert report.classes["rows"] == [
        ["cat", "0.500", "0.500", "0.500", "2"],
        ["dog", "0.500", "0.500", "0.500", "2"],
        ["eel", "–", "–", "–", "0"],
    ]
    assert report.confusion is not None
    assert report.confusion.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_mistakes_the_surest_first() -> None:
    kind = task_for("classification", LABELS)
    found = report_of(kind, [*ROWS], TOLD).mistakes
    assert [(m.text, m.label, m.predicted) for m in found] == [
        ("growls", "dog", "cat"),
        ("<b>purrs</b>", "cat", "dog"),
    ]
    assert found[0].weight == pytest.approx(np.e**5 / (np.e**5 + 2))
    right = np.array([[9, 0, 0], [0, 9, 0], [9, 0, 0], [0, 9, 0]], np.float32)
    assert report_of(kind, [*ROWS], right).mistakes == []
