"""Texts for texts: from a table to a model that writes, by two stacks and by one."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import transformers

from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict.file import predict_file
from maskwright.ask.predict.predictor import load
from maskwright.base import catalogue
from maskwright.base.errors import ConfigError, IncompatibleError, UsageError
from maskwright.learn.finetune.command import finetune_file
from maskwright.learn.finetune.method import Method
from maskwright.learn.pretrain import run
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import Encoded, task_for
from maskwright.model.checkpoint import pretrained
from maskwright.model.inference.beam import finished
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.opening import folders, special_tokens
from maskwright.text.tables.layout import Columns, Dataset, Task
from maskwright.text.tables.rows import RewriteExample
from maskwright.text.tokenizer.tokenizer import Tokenizer
from small_tasks import finetuned
from tinyrun import WORDS, recipe, text_file

PLAIN = [word for word in WORDS if word not in ("cat", "dog")]
SAYS = {"cat": "a red hat", "dog": "the old tree"}


def table(path: Path, count: int = 300, names: tuple[str, str] = ("document", "summary")) -> Path:
    """What an animal somewhere in the text says."""
    draw, lines = np.random.default_rng(0), []
    for _ in range(count):
        words = draw.choice(PLAIN, draw.integers(3, 7)).tolist()
        animal = ("cat", "dog")[int(draw.integers(0, 2))]
        words.insert(int(draw.integers(0, len(words))), animal)
        lines.append(json.dumps(dict(zip(names, (" ".join(words), SAYS[animal]), strict=True))))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


COLUMNS = {"source": ["document"], "target": ["summary"]}


@pytest.mark.parametrize("name", ["t5", "bart", "gpt2"])
def test_it_learns_what_to_write(models: dict[str, Path], tmp_path: Path, name: str) -> None:
    said, data = io.StringIO(), table(tmp_path / "data.jsonl")
    finetuned(
        models[name],
        data,
        tmp_path / "out",
        columns=COLUMNS,
        epochs=24,
        batch=16,
        rate=5e-3,
        prompt="animal: {source}",
        stream=said,
    )
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    told = {row[0]: row[1:] for row in found["table"]["rows"]}
    assert float(told["fine-tuned, seed 0"][5].split()[0]) > 0.8, said.getvalue()
    _, (_, *copied), *others = found["table"]["rows"]
    # Negative control: what needs no training does not know it.
    assert float(copied[5].split()[0]) == 0.0 and len(others) == 2
    card = (tmp_path / "out" / "model" / "README.md").read_text()
    assert 'pipeline_tag: "summarization"' in card and "fine-tuned from `run`" in card
    written = json.loads((tmp_path / "out" / "model" / "generation_config.json").read_text())
    settled = json.loads((tmp_path / "out" / "task.json").read_text())["settled"]
    assert written["num_beams"] == settled["beams"] in (1, 4)
    assert written["max_new_tokens"] == settled["longest"]
    model = load(tmp_path / "out")
    texts = [f"the {animal} sat on a {place}" for animal in SAYS for place in ("mat", "rug", "hat")]
    one = model.predict(texts)
    assert all(set(answer) == {"summary_text"} for answer in one)
    assert [model.predict([text])[0] for text in texts] == one
    rows = io.StringIO()
    assert predict_file(tmp_path / "out", data, rows) == 300
    first = json.loads(rows.getvalue().splitlines()[0])
    assert set(first) == {"document", "summary", "prediction"}


def test_an_answer_without_an_end_is_that_of_the_reference_library(
    models: dict[str, Path], tmp_path: Path
) -> None:
    """A model that has learned next to nothing writes until it may not write on."""
    data, out = table(tmp_path / "data.jsonl", 60), tmp_path / "out"
    finetuned(models["bart"], data, out, columns=COLUMNS, epochs=1, least_steps=1, rate=1e-4)
    texts = ["the cat sat on a mat", "a dog ran"]
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(out / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(out / "model")
    longest = 0
    for text, said in zip(texts, load(out).predict(texts), strict=True):
        ids = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
        written = theirs.generate(**ids)
        longest = max(longest, written.shape[1])
        assert (
            said["summary_text"] == tokenizer.decode(written[0], skip_special_tokens=True).strip()
        )
    assert longest > theirs.generation_config.max_new_tokens  # the control: no end was written


def test_there_is_no_head_to_learn_faster(models: dict[str, Path], tmp_path: Path) -> None:
    data = table(tmp_path / "data.jsonl", 60)
    with pytest.raises(UsageError, match="--head-rate"):
        finetune_file(
            models["gpt2"],
            data,
            tmp_path / "out",
            columns=COLUMNS,
            head_rate=3.0,
            stream=io.StringIO(),
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["bart", "gpt2"])
@pytest.mark.parametrize("method", catalogue.names("adapters"))
def test_every_method_trains_it(
    models: dict[str, Path], tmp_path: Path, name: str, method: str
) -> None:
    data = table(tmp_path / "data.jsonl", 60)
    train = partial(
        finetune_file,
        models[name],
        data,
        tmp_path / "out",
        columns=COLUMNS,
        seeds=1,
        epochs=1,
        least_steps=2,
        method=method,
        length=32,
        stream=io.StringIO(),
    )
    if Method(method).head_alone:
        with pytest.raises(UsageError, match="--method"):
            train()
        return
    train()
    (answer,) = load(tmp_path / "out").predict(["the cat sat"])
    assert set(answer) == {"summary_text"}


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        (("document", "summary"), "summary_text"),
        (("translation.en", "translation.de"), "translation_text"),
        (("en", "de"), "translation_text"),
        (("text", "translation"), "translation_text"),
        (("source", "target"), "generated_text"),
    ],
)
def test_answers_are_called_what_pipelines_call_them(columns: tuple[str, str], key: str) -> None:
    roles = {"source": (columns[0],), "target": (columns[1],)}
    task = Task("sequence-to-sequence", "it is said", Columns("sequence", roles, {}, {}))
    made = task_for("sequence-to-sequence").of_data(Dataset(task, {}))
    assert made.options == {"key": key}


def asked(name: str, models: dict[str, Path], length: int, rows: list[RewriteExample]) -> Any:
    tokenizer = Tokenizer.load(models[name] / "tokenizer")
    frame = Frame(tokenizer, length, False, continues=name == "gpt2")
    return task_for("sequence-to-sequence").encode(rows, frame), tokenizer


def test_what_a_decoder_alone_is_asked(models: dict[str, Path]) -> None:
    """Source, end, target: every token of the target and the end are wanted, each of the one
    before it, and nothing else is."""
    rows = [RewriteExample("the cat", "a red hat", ""), RewriteExample("dog", "tree", "")]
    given, tokenizer = asked("gpt2", models, 64, rows)
    batch, which = given.examples.batch(np.arange(2), Collation(0, True))
    flat, end = batch.tokens.reshape(-1).tolist(), tokenizer.end
    found = []
    for place, target in zip(batch.index.tolist(), batch.targets.tolist(), strict=True):
        found.append(target)
        following = flat[place + 1] if target != end else target
        assert following == target
    ids = [[*tokenizer.encode(row.target), end] for row in rows]
    assert sorted(found) == sorted(chain.from_iterable(ids))
    assert len(which) == len(found)


def test_what_two_stacks_are_asked(models: dict[str, Path]) -> None:
    rows = [RewriteExample("the cat", "a red hat", ""), RewriteExample("dog", "tree", "")]
    given, tokenizer = asked("t5", models, 64, rows)
    batch, _ = given.examples.batch(np.array([1, 0]), Collation(0, True, decoder_start=0))
    wanted = [[*tokenizer.encode(rows[n].target), tokenizer.end] for n in (1, 0)]
    assert batch.targets.tolist() == list(chain.from_iterable(wanted))
    read = batch.decoder_tokens.reshape(-1)[batch.index].tolist()
    assert read == list(chain.from_iterable([0, *ids[:-1]] for ids in wanted))
    # Each target sees its own source: they share the number of a document in their row.
    numbers = batch.decoder_documents[batch.decoder_documents > 0].tolist()
    assert numbers == [1] * len(wanted[0]) + [2] * len(wanted[1])


def test_targets_that_are_longer_than_their_sources_have_room(models: dict[str, Path]) -> None:
    sources, targets = framed([[5], [6]]), framed([[7] * 100, [8] * 90])
    examples = EncodedExamples(sources, np.zeros(2, np.int64), targets=targets)
    batch, _ = examples.batch(np.arange(2), Collation(0, True, decoder_start=0))
    assert batch.targets is not None and len(batch.targets) == 190


def test_targets_that_fill_their_rows(models: dict[str, Path]) -> None:
    """A row without padding has no documents: every place of the decoder is asked for."""
    examples = EncodedExamples(
        framed([[5], [6]]), np.zeros(2, np.int64), targets=framed([[7] * 32] * 2)
    )
    for numbers in ([0], [0, 1]):
        batch, _ = examples.batch(np.array(numbers), Collation(0, True, decoder_start=0))
        assert batch.targets is not None and len(batch.targets) == 32 * len(numbers)
        assert batch.decoder_tokens is not None and batch.decoder_tokens.numel() >= 32


def test_how_long_answers_are_is_not_learned_from_what_is_asked(models: dict[str, Path]) -> None:
    """With `longest` settled, answers to rows with long targets and without any are the same."""
    tokenizer = Tokenizer.load(models["t5"] / "tokenizer")
    frame = Frame(tokenizer, 64, False)
    kind = task_for("sequence-to-sequence", (), {"longest": 3})
    loaded = pretrained.load(folders.model_folder(models["t5"]))
    objective = kind.objective(loaded.model, special_tokens.vocabulary(tokenizer))
    told = [
        finished(
            kind.steps(
                objective,
                kind.encode([RewriteExample("the cat sat", target, "")], frame),
                Collation(0, True, decoder_start=0),
            )
        )[0]
        for target in ("", "a red hat and a tall old tree", "a red")
    ]
    assert len(set(told)) == 1
    # Negative control: nothing settled, what is asked does tell.
    free = task_for("sequence-to-sequence")
    sizes = [
        free.encode([RewriteExample("the cat", target, "")], frame).way_back.longest
        for target in ("", "a a")
    ]
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize("name", ["t5", "gpt2"])
def test_a_long_source_is_cut_inside_its_prompt(models: dict[str, Path], name: str) -> None:
    tokenizer = Tokenizer.load(models[name] / "tokenizer")
    frame = Frame(tokenizer, 24, False, continues=name == "gpt2")
    kind = task_for("sequence-to-sequence", (), {"prompt": "the {source} old tree"})
    rows = [RewriteExample(" ".join(PLAIN * 4), "a", ""), RewriteExample("big", "a", "")]
    asked = kind.encode(rows, frame)
    way = asked.way_back
    for ids in way.sources or way.prompts:
        assert tokenizer.decode(ids).strip().endswith("old tree"), tokenizer.decode(ids)
        assert len(ids) <= 24
    assert "50.0% of 2 rows" in str(asked.findings)
    signs = kind.encode(
        [RewriteExample("\U0001f9d9\U0001f40d" * 20, "a", "")], frame
    )  # tokens of bytes
    assert len((signs.way_back.sources or signs.way_back.prompts)[0]) <= 24
    # Where all signs are one unknown token, it fits.
    assert [each.name for each in signs.findings] == [
        "truncated" if name == "gpt2" else "unknown-characters"
    ]
    with pytest.raises(ConfigError, match="--prompt"):
        task_for("sequence-to-sequence", (), {"prompt": "{source} " + "tree " * 40}).encode(
            rows, frame
        )


@pytest.mark.parametrize(("name", "keeps"), [("t5", False), ("gpt2", True)])
def test_signs_that_can_never_be_written_are_told_before_training(
    models: dict[str, Path], name: str, keeps: bool
) -> None:
    frame = Frame(Tokenizer.load(models[name] / "tokenizer"), 24, False, continues=name == "gpt2")
    kind = task_for("sequence-to-sequence")
    broken = [
        RewriteExample("the cat", "a red\nhat", ""),
        RewriteExample("the dog", "the  old\ttree", ""),
    ]
    names = [finding.name for finding in kind.encode(broken, frame).findings]
    assert ("signs-not-kept" in names) is not keeps
    read = kind.encode([RewriteExample("a\nb", "a red hat", "")], frame)
    assert read.findings == (), "what is read counts not"


def test_who_has_no_end_cannot_learn_to_stop(models: dict[str, Path]) -> None:
    tokenizer = Tokenizer.load(models["gpt2"] / "tokenizer")
    tokenizer.end = tokenizer.separator = None
    with pytest.raises(IncompatibleError, match="tokenizer"):
        task_for("sequence-to-sequence").encode(
            [RewriteExample("a", "b", "")], Frame(tokenizer, 32, False)
        )


def test_what_is_cut_is_said(models: dict[str, Path]) -> None:
    long = " ".join(PLAIN * 10)
    for name in ("t5", "gpt2"):
        given, _ = asked(name, models, 32, [RewriteExample(long, long, "")])
        found = str(given.findings)
        assert "texts read: 100.0%" in found and "texts written: 100.0%" in found
        assert given.examples.texts.lengths.max() <= 32


def test_references_count_as_well(tmp_path: Path) -> None:
    kind = task_for("sequence-to-sequence")
    rows = [RewriteExample("a", "the cat", "", ("the cat", "a dog"))]
    assert kind.metrics(rows, ["a dog"]).values["exact_match"] == 1.0
    assert kind.metrics([replace(rows[0], others=())], ["a dog"]).values["exact_match"] == 0.0
    estimated = kind.metrics(rows * 20, ["a dog"] * 20).estimates()
    for name, value in kind.metrics(rows * 20, ["a dog"] * 20).values.items():
        assert estimated[name].value == pytest.approx(value)


def test_refusals(models: dict[str, Path], tmp_path: Path) -> None:
    data = table(tmp_path / "data.jsonl", 60)

    def learn(model: Path, **options: Any) -> None:
        finetune_file(
            model, data, tmp_path / "out", columns=COLUMNS, stream=io.StringIO(), **options
        )

    with pytest.raises(UsageError, match=r"--prompt(.|\n)*source"):
        learn(models["t5"], prompt="summarize: {text}")
    with pytest.raises(ConfigError, match="template"):
        learn(models["t5"], prompt="summary")
    with pytest.raises(UsageError, match="--method"):
        learn(models["t5"], method="probe")
    with pytest.raises(UsageError, match="--prompt"):
        finetune_file(
            models["t5"],
            data,
            tmp_path / "out",
            prompt="{source}",
            columns={"text": ["document"], "label": ["summary"]},
            stream=io.StringIO(),
        )
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    run.pretrain(recipe(text_file(encoder), steps=2), encoder / "run", stream=io.StringIO())
    with pytest.raises(IncompatibleError, match="cannot write"):
        learn(encoder / "run")


def test_a_translation_is_evaluated_in_the_direction_that_was_learned(
    models: dict[str, Path], tmp_path: Path
) -> None:
    lines = [
        json.dumps({"translation": {"en": f"the cat {word}", "de": f"a red {word}"}}) + "\n"
        for word in PLAIN * 8
    ]
    (tmp_path / "data.jsonl").write_text("".join(lines), encoding="utf-8")
    columns = {"source": ["translation.de"], "target": ["translation.en"]}
    finetuned(models["t5"], tmp_path / "data.jsonl", tmp_path / "out", columns=columns, epochs=1)
    said = io.StringIO()
    evaluate_file(tmp_path / "out", tmp_path / "data.jsonl", stream=said)
    assert "'translation.de' as source" in said.getvalue()


def test_how_many_beams_is_chosen_on_validation_data() -> None:
    kind = task_for("sequence-to-sequence")
    rows = [RewriteExample("a cat", "the old tree", ""), RewriteExample("a dog", "a red hat", "")]
    encoded = Encoded(rows, None, way_back=SimpleNamespace(longest=3))  # type: ignore[arg-type]
    right, wrong = [row.target for row in rows], ["the old tree"] * 2
    for beams, written in (
        (4, {4: right, 1: wrong}),
        (1, {4: wrong, 1: right}),
        (4, {4: right, 1: right}),
    ):
        outputs = {number: np.array(texts) for number, texts in written.items()}
        chosen = kind.calibrate(
            encoded, lambda way, told=outputs: told[way.options["beams"]], final=True
        )
        assert chosen.options["beams"] == beams
