"""Texts for texts: from a table to a model that writes, by two stacks and by one."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import transformers

from labelled.tables import write_rows
from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict.file import predict_file
from maskwright.ask.predict.predictor import load
from maskwright.base import catalogue
from maskwright.base.errors import (
    ConfigError,
    IncompatibleError,
    MaskwrightError,
    UsageError,
)
from maskwright.learn.finetune.method import Method
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import Encoded, task_for
from maskwright.model.checkpoint import pretrained
from maskwright.model.inference.beam import finished
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.opening import folders
from maskwright.text.tables.layout import Columns, Dataset, Task
from maskwright.text.tables.rows import RewriteExample
from maskwright.text.tokenizer.tokenizer import Tokenizer
from small_tasks import finetuned, results_of
from tinyrun import WORDS

PLAIN = [word for word in WORDS if word not in ("cat", "dog")]
SAYS = {"cat": "a red hat", "dog": "the old tree"}


def table(path: Path, count: int = 220) -> Path:
    """What an animal somewhere in the text says."""
    draw, rows = np.random.default_rng(0), []
    for _ in range(count):
        words = draw.choice(PLAIN, draw.integers(3, 7)).tolist()
        animal = ("cat", "dog")[int(draw.integers(0, 2))]
        words.insert(int(draw.integers(0, len(words))), animal)
        rows.append({"document": " ".join(words), "summary": SAYS[animal]})
    return write_rows(path, rows)


COLUMNS = {"source": ["document"], "target": ["summary"]}
CLASSES = {"text": ["document"], "label": ["summary"]}
KIND = task_for("sequence-to-sequence")
TWO_ROWS = [RewriteExample("the cat", "a red hat", ""), RewriteExample("dog", "tree", "")]


@pytest.mark.parametrize(("name", "epochs"), [("t5", 14), ("gpt2", 8)])
def test_it_learns_what_to_write(
    models: dict[str, Path], tmp_path: Path, name: str, epochs: int
) -> None:
    data, out = table(tmp_path / "data.jsonl"), tmp_path / "out"
    settings: dict[str, Any] = {"epochs": epochs, "batch": 16, "rate": 1e-2, "columns": COLUMNS}
    finetuned(models[name], data, out, prompt="animal: {source}", **settings)
    (tuned, *scores), (_, *copied), *others = results_of(out)["table"]["rows"]
    assert tuned == "fine-tuned, seed 0" and float(scores[5].split()[0]) > 0.8
    # Negative control: what needs no training does not know it.
    assert float(copied[5].split()[0]) == 0.0 and len(others) == 2
    card = (out / "model" / "README.md").read_text()
    assert 'pipeline_tag: "summarization"' in card and "fine-tuned from `run`" in card
    written = json.loads((out / "model" / "generation_config.json").read_text())
    settled = json.loads((out / "task.json").read_text())["settled"]
    assert written["num_beams"] == settled["beams"] in (1, 4)
    assert written["max_new_tokens"] == settled["longest"]
    predictor = load(out)
    texts = [f"the {animal} sat on a {place}" for animal in SAYS for place in ("mat", "rug", "hat")]
    answers = predictor.predict(texts)
    assert all(set(answer) == {"summary_text"} for answer in answers)
    assert [predictor.predict([text])[0] for text in texts] == answers
    some, stream = table(tmp_path / "some.jsonl", 20), io.StringIO()
    assert predict_file(out, some, stream) == 20
    first = json.loads(stream.getvalue().splitlines()[0])
    assert set(first) == {"document", "summary", "prediction"}


def test_an_answer_without_an_end_is_that_of_the_reference_library(
    models: dict[str, Path], tmp_path: Path
) -> None:
    """A model that has learned next to nothing writes until it may not write on."""
    data, out = table(tmp_path / "data.jsonl", 60), tmp_path / "out"
    finetuned(models["bart"], data, out, columns=COLUMNS, epochs=1, least_steps=1, rate=1e-4)
    texts, longest = ["the cat sat on a mat", "a dog ran"], 0
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(out / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(out / "model")
    for text, answer in zip(texts, load(out).predict(texts), strict=True):
        (ids,) = theirs.generate(
            **tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        )
        longest = max(longest, len(ids))
        assert answer["summary_text"] == tokenizer.decode(ids, skip_special_tokens=True).strip()
    assert longest > theirs.generation_config.max_new_tokens  # the control: no end was written


@pytest.mark.parametrize(
    ("name", "method"),
    [*(("bart", method) for method in catalogue.names("adapters")), ("gpt2", "lora")],
)
def test_every_method_trains_it(
    models: dict[str, Path], tmp_path: Path, name: str, method: str
) -> None:
    data, out = table(tmp_path / "data.jsonl", 20), tmp_path / "out"
    settings: dict[str, Any] = {"method": method, "epochs": 1, "least_steps": 2, "length": 32}
    with pytest.raises(UsageError) if Method(method).head_alone else nullcontext() as refused:
        finetuned(models[name], data, out, columns=COLUMNS, **settings)
        (answer,) = load(out).predict(["the cat sat"])
        assert set(answer) == {"summary_text"}
    assert refused is None or refused.value.where == "--method"


@pytest.mark.parametrize(
    ("source", "target", "key"),
    [
        ("document", "summary", "summary_text"),
        ("translation.en", "translation.de", "translation_text"),
        ("en", "de", "translation_text"),
        ("text", "translation", "translation_text"),
        ("source", "target", "generated_text"),
    ],
)
def test_answers_are_called_what_pipelines_call_them(source: str, target: str, key: str) -> None:
    columns = Columns("sequence", {"source": (source,), "target": (target,)}, {}, {})
    data = Dataset(Task("sequence-to-sequence", "it is said", columns), {})
    assert KIND.of_data(data).options == {"key": key}


def asked(
    name: str, models: dict[str, Path], length: int, rows: list[RewriteExample], kind: Any = KIND
) -> Any:
    """The rows as the model of this name reads them, and its tokenizer."""
    tokenizer = Tokenizer.load(models[name] / "tokenizer")
    return kind.encode(rows, Frame(tokenizer, length, False, continues=name == "gpt2")), tokenizer


def test_what_a_decoder_alone_is_asked(models: dict[str, Path]) -> None:
    """Source, end, target: every token of the target and the end are wanted, each of the one
    before it, and nothing else is."""
    encoded, tokenizer = asked("gpt2", models, 64, TWO_ROWS)
    batch, which = encoded.examples.batch(np.arange(2), Collation(0, True))
    flat, end = batch.tokens.reshape(-1).tolist(), tokenizer.end
    targets = batch.targets.tolist()
    for place, target in zip(batch.index.tolist(), targets, strict=True):
        assert target == end or flat[place + 1] == target
    ids = [[*tokenizer.encode(row.target), end] for row in TWO_ROWS]
    assert sorted(targets) == sorted(chain.from_iterable(ids)) and len(which) == len(targets)


def test_what_two_stacks_are_asked(models: dict[str, Path]) -> None:
    encoded, tokenizer = asked("t5", models, 64, TWO_ROWS)
    batch, _ = encoded.examples.batch(np.array([1, 0]), Collation(0, True, decoder_start=0))
    wanted = [[*tokenizer.encode(TWO_ROWS[n].target), tokenizer.end] for n in (1, 0)]
    assert batch.targets.tolist() == list(chain.from_iterable(wanted))
    read = batch.decoder_tokens.reshape(-1)[batch.index].tolist()
    assert read == list(chain.from_iterable([0, *ids[:-1]] for ids in wanted))
    # Each target sees its own source: they share the number of a document in their row.
    numbers = batch.decoder_documents[batch.decoder_documents > 0].tolist()
    assert numbers == [1] * len(wanted[0]) + [2] * len(wanted[1])


@pytest.mark.parametrize(
    ("lengths", "numbers"), [((100, 90), (0, 1)), ((32, 32), (0,)), ((32, 32), (0, 1))]
)
def test_targets_that_are_longer_than_their_sources_or_fill_their_rows(
    lengths: tuple[int, int], numbers: tuple[int, ...]
) -> None:
    """A row without padding has no documents: every place of the decoder is asked for."""
    targets = framed([[7 + n] * length for n, length in enumerate(lengths)])
    examples = EncodedExamples(framed([[5], [6]]), np.zeros(2, np.int64), targets=targets)
    batch, _ = examples.batch(np.array(numbers), Collation(0, True, decoder_start=0))
    assert batch.targets is not None and batch.decoder_tokens is not None
    assert len(batch.targets) == sum(lengths[n] for n in numbers) <= batch.decoder_tokens.numel()


def test_how_long_answers_are_is_not_learned_from_what_is_asked(models: dict[str, Path]) -> None:
    """With `longest` settled, answers to rows with long targets and without any are the same."""
    kind, collation = KIND.with_options({"longest": 3}), Collation(0, True, decoder_start=0)
    loaded = pretrained.load(folders.model_folder(models["t5"]))
    answers = set()
    for target in ("", "a red hat and a tall old tree", "a red"):
        rows = [RewriteExample("the cat sat", target, "")]
        encoded, tokenizer = asked("t5", models, 64, rows, kind)
        objective = kind.objective(loaded.model, Frame(tokenizer, 64, False))
        answers.add(finished(kind.steps(objective, encoded, collation))[0])
    assert len(answers) == 1
    # Negative control: nothing settled, what is asked does tell.
    rows = [RewriteExample("the cat", target, "") for target in ("", "a a")]
    sizes = [asked("t5", models, 64, [row])[0].way_back.longest for row in rows]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("name", ["t5", "gpt2"])
def test_a_long_source_is_cut_inside_its_prompt(models: dict[str, Path], name: str) -> None:
    kind = KIND.with_options({"prompt": "the {source} old tree"})
    rows = [RewriteExample(" ".join(PLAIN * 4), "a", ""), RewriteExample("big", "a", "")]
    encoded, tokenizer = asked(name, models, 24, rows, kind)
    for ids in encoded.way_back.sources or encoded.way_back.prompts:
        assert tokenizer.decode(ids).strip().endswith("old tree"), tokenizer.decode(ids)
        assert len(ids) <= 24
    assert "50.0% of 2 rows" in str(encoded.findings)
    signs = [RewriteExample("\U0001f9d9\U0001f40d" * 20, "a", "")]  # tokens of bytes
    encoded, _ = asked(name, models, 24, signs, kind)
    assert len((encoded.way_back.sources or encoded.way_back.prompts)[0]) <= 24
    # Where all signs are one unknown token, it fits.
    names = {"gpt2": "truncated", "t5": "unknown-characters"}
    assert [finding.name for finding in encoded.findings] == [names[name]]
    with pytest.raises(ConfigError, match="--prompt"):
        asked(name, models, 24, rows, KIND.with_options({"prompt": "{source} " + "tree " * 40}))


@pytest.mark.parametrize(("name", "keeps"), [("t5", False), ("gpt2", True)])
def test_signs_that_can_never_be_written_are_told_before_training(
    models: dict[str, Path], name: str, keeps: bool
) -> None:
    broken = [RewriteExample("a cat", text, "") for text in ("a red\nhat", "the  old\ttree")]
    names = [finding.name for finding in asked(name, models, 24, broken)[0].findings]
    assert ("signs-not-kept" in names) is not keeps
    read = [RewriteExample("a\nb", "a red hat", "")]
    assert asked(name, models, 24, read)[0].findings == (), "what is read counts not"


def test_who_has_no_end_cannot_learn_to_stop(models: dict[str, Path]) -> None:
    tokenizer = Tokenizer.load(models["gpt2"] / "tokenizer")
    tokenizer.end = tokenizer.separator = None
    with pytest.raises(IncompatibleError, match="tokenizer"):
        KIND.encode(TWO_ROWS, Frame(tokenizer, 32, False))


def test_what_is_cut_is_said(models: dict[str, Path]) -> None:
    long = " ".join(PLAIN * 10)
    for name in ("t5", "gpt2"):
        encoded, _ = asked(name, models, 32, [RewriteExample(long, long, "")])
        findings = str(encoded.findings)
        assert "texts read: 100.0%" in findings and "texts written: 100.0%" in findings
        assert encoded.examples.texts.lengths.max() <= 32


def test_references_count_as_well() -> None:
    row = RewriteExample("a", "the cat", "", ("the cat", "a dog"))
    assert KIND.metrics([row], ["a dog"]).values["exact_match"] == 1.0
    assert KIND.metrics([replace(row, others=())], ["a dog"]).values["exact_match"] == 0.0
    metrics = KIND.metrics([row] * 20, ["a dog"] * 20)
    estimates = {name: estimate.value for name, estimate in metrics.estimates().items()}
    assert {name: estimates[name] for name in metrics.values} == pytest.approx(metrics.values)


@pytest.mark.parametrize(
    ("name", "settings", "error", "where"),
    [
        ("t5", {"prompt": "summarize: {text}"}, UsageError, "--prompt"),
        ("t5", {"prompt": "summary"}, ConfigError, "None"),
        ("t5", {"method": "probe"}, UsageError, "--method"),
        ("t5", {"columns": CLASSES, "prompt": "{source}"}, UsageError, "--prompt"),
        ("gpt2", {"head_rate": 3.0}, UsageError, "--head-rate"),  # there is no head
        ("bert", {}, IncompatibleError, "step-"),
    ],
)
def test_refusals(
    name: str,
    settings: dict[str, Any],
    error: type[MaskwrightError],
    where: str,
    models: dict[str, Path],
    model: Path,
    tmp_path: Path,
) -> None:
    data, base = table(tmp_path / "data.jsonl", 60), {**models, "bert": model}[name]
    with pytest.raises(error) as refused:
        finetuned(base, data, tmp_path / "out", **{"columns": COLUMNS, **settings})
    assert where in str(refused.value.where)
    assert not (tmp_path / "out" / "model").exists()


def test_a_translation_is_evaluated_in_the_direction_that_was_learned(
    models: dict[str, Path], tmp_path: Path
) -> None:
    texts = [{"en": f"the cat {word}", "de": f"a red {word}"} for word in PLAIN * 3]
    data = write_rows(tmp_path / "data.jsonl", [{"translation": pair} for pair in texts])
    columns = {"source": ["translation.de"], "target": ["translation.en"]}
    finetuned(models["t5"], data, tmp_path / "out", columns=columns, epochs=1)
    evaluate_file(tmp_path / "out", data, stream=(stream := io.StringIO()))
    assert "'translation.de' as source" in stream.getvalue()


@pytest.mark.parametrize(("four", "one", "beams"), [(1, 0, 4), (0, 1, 1), (1, 1, 4)])
def test_how_many_beams_is_chosen_on_validation_data(four: bool, one: bool, beams: int) -> None:
    rows = [RewriteExample("a cat", "the old tree", ""), RewriteExample("a dog", "a red hat", "")]
    encoded = Encoded(rows, None, way_back=SimpleNamespace(longest=3))  # type: ignore[arg-type]
    right, wrong = np.array([row.target for row in rows]), np.array(["the old tree"] * 2)
    outputs = {4: right if four else wrong, 1: right if one else wrong}
    chosen = KIND.calibrate(encoded, lambda way: outputs[way.options["beams"]], final=True)
    assert chosen.options["beams"] == beams
