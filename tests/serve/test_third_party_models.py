"""Models that transformers saved, with the parameters of its pipelines and of other servers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import maskwright
from maskwright.base.errors import MaskwrightError, UsageError
from maskwright.ship.serve.command import serve
from maskwright.ship.serve.errors import Limits
from maskwright.ship.serve.served_model import open_one
from serve.clients import TasksServer
from tokenizer.toy_tokenizers import trained

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.filterwarnings("ignore"),  # transformers warns of its own defaults
]
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 34,
    "initializer_range": 0.8,
}
LABELS = dict(enumerate(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))
TEXT = "kalo mine ta poche, ban der wes"
# name -> (class, kind and style of the tokenizer, further keys of the config)
MODELS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "tags": ("BertForTokenClassification", "wordpiece", "bert", {"id2label": LABELS}),
    "bytes": ("RobertaForTokenClassification", "byte-bpe", "roberta", {"id2label": LABELS}),
    "trimmed": ("RobertaForTokenClassification", "byte-bpe", "roberta", {"id2label": LABELS}),
    "masks": ("BertForMaskedLM", "wordpiece", "bert", {}),
    "answers": ("BertForQuestionAnswering", "wordpiece", "bert", {}),
    "score": ("BertForSequenceClassification", "wordpiece", "bert", {"num_labels": 1}),
}
TASKS = {
    "summarization": {"prefix": "kalo: ", "max_length": 9, "num_beams": 3, "min_length": 4},
    "translation_en_to_de": {"prefix": "mine ta: ", "max_length": 6, "num_beams": 1},
    "translation_en_to_fr": {"prefix": "ban: ", "max_length": 7, "num_beams": 2},
}


def t5(folder: Path) -> Path:
    """A model with settings for several tasks, as the published T5."""
    tokenizer = trained("unigram", "t5")
    tokenizer.save(folder)
    (folder / "MANIFEST.json").unlink()
    torch.manual_seed(1)
    config = transformers.T5Config(
        vocab_size=tokenizer.vocabulary_size,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        initializer_factor=3.0,
        decoder_start_token_id=tokenizer.pad,
        pad_token_id=tokenizer.pad,
        eos_token_id=tokenizer.end,
        task_specific_params=TASKS,
    )
    transformers.T5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def third_party(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TasksServer]:
    folder = tmp_path_factory.mktemp("third_party")
    folders = {"t5": t5(folder / "t5")}
    for name, (class_name, kind, style, keys) in MODELS.items():
        tokenizer = trained(kind, style)
        tokenizer.save(folder / name)
        (folder / name / "MANIFEST.json").unlink()
        torch.manual_seed(0)
        family = class_name.partition("For")[0]
        config = getattr(transformers, f"{family}Config")(
            vocab_size=tokenizer.vocabulary_size,
            pad_token_id=tokenizer.pad,
            **SIZES,
            **keys,
        )
        getattr(transformers, class_name)(config).save_pretrained(folder / name)
        folders[name] = folder / name
        if name == "trimmed":  # offsets as in the published RoBERTa
            path = folder / name / "tokenizer.json"
            ends = {"sep": ["</s>", tokenizer.end], "cls": ["<s>", tokenizer.begin]}
            processor = {"type": "RobertaProcessing", "trim_offsets": True, **ends}
            processor["add_prefix_space"] = False
            file = {**json.loads(path.read_text()), "post_processor": processor}
            path.write_text(json.dumps(file))
    running = serve(names=folders, port=0, precision="float32", background=True)
    assert running is not None
    with running as server:
        yield TasksServer(server.url, folders)


def ask(server: TasksServer, name: str, task: str, inputs: Any = TEXT, **parameters: Any) -> Any:
    body = {"inputs": inputs, "parameters": parameters}
    return server.post(f"/models/{name}/pipeline/{task}", body)


def assert_equal(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Equal dicts in order, with scores to 4 digits."""
    assert [{**row, "score": 0} for row in ours] == [{**row, "score": 0} for row in theirs]
    scores = [row["score"] for row in theirs]
    assert [row["score"] for row in ours] == pytest.approx(scores, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", ["tags", "bytes", "trimmed"])
def test_entities_are_those_of_the_pipeline(third_party: TasksServer, name: str) -> None:
    folder, answers = third_party.folders[name], []
    for strategy in ("none", "simple", "first", "average", "max"):
        pipeline = transformers.pipeline(
            "token-classification", str(folder), aggregation_strategy=strategy, device="cpu"
        )
        parameters = {"aggregation_strategy": strategy}
        answers.append(ask(third_party, name, "token-classification", **parameters))
        assert_equal(answers[-1], pipeline(TEXT))
        everything = ask(third_party, name, "token-classification", **parameters, ignore_labels=[])
        assert_equal(everything, pipeline(TEXT, ignore_labels=[]))
    assert len({str(answer) for answer in answers}) >= 4, "the control: strategies differ"


def test_masks_are_filled_from_targets(third_party: TasksServer) -> None:
    pipeline = transformers.pipeline("fill-mask", str(third_party.folders["masks"]), device="cpu")
    text, targets = "kalo [MASK] ta", ["mine", "ban", "kalomine"]
    ours = ask(third_party, "masks", "fill-mask", text, targets=targets)
    assert_equal(ours, pipeline(text, targets=targets))
    (best,) = ask(third_party, "masks", "fill-mask", text, targets=targets, top_k=1)
    assert best == ours[0]
    assert ask(third_party, "masks", "fill-mask", text)[0] != best, "the control"


def test_answers_keep_to_the_parameters(third_party: TasksServer) -> None:
    def answer(**parameters: Any) -> Any:
        question = {"question": "kalo", "context": f"{TEXT} {TEXT}"}
        return ask(third_party, "answers", "question-answering", question, **parameters)

    free, single = answer(top_k=20), answer(top_k=20, max_answer_len=1)
    assert all(" " not in row["answer"].strip(" ,") for row in single)
    assert any(" " in row["answer"] for row in free), "the control"
    assert all(row["answer"] for row in answer(top_k=20, handle_impossible_answer=False))
    impossible = answer(top_k=20, handle_impossible_answer=True)
    assert [row["answer"] for row in impossible].count("") == 1
    scores = [row["score"] for row in impossible]
    assert scores == sorted(scores, reverse=True)
    within = {row["answer"] for row in answer(top_k=20, align_to_words=False)}
    assert within - {row["answer"] for row in free}
    path = "/models/answers/pipeline/question-answering"
    windows, question = [], {"question": "kalo", "context": f"{TEXT} {TEXT}"}
    for parameters in ({}, {"doc_stride": 0}, {"doc_stride": 3}):
        parameters |= {"max_seq_len": 12} if parameters else {}
        body = {"inputs": question, "parameters": parameters}
        windows.append(int(third_party.ask("POST", path, body)[1]["x-windows"]))
    assert windows[0] < windows[1] < windows[2]


def test_texts_are_written_as_the_folder_says_of_the_task(
    third_party: TasksServer, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = third_party.folders["t5"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def theirs(task: str, **settings: Any) -> str:
        options = {**TASKS.get(task, {}), **settings}
        text = options.pop("prefix", "") + TEXT
        with torch.no_grad():
            ids = network.generate(tokenizer(text, return_tensors="pt").input_ids, **options)[0]
        return str(tokenizer.decode(ids, skip_special_tokens=True)).strip()

    (summary,) = ask(third_party, "t5", "summarization")
    assert summary == {"summary_text": theirs("summarization")}
    languages = {"src_lang": "en", "tgt_lang": "de"}
    (german,) = ask(third_party, "t5", "translation", **languages)
    assert german == {"translation_text": theirs("translation_en_to_de")}
    assert len({summary["summary_text"], german["translation_text"], theirs("")}) == 3, "control"
    changes = {"num_beams": 1, "max_length": 5}
    (short,) = ask(third_party, "t5", "summarization", generate_parameters=changes)
    assert short == {"summary_text": theirs("summarization", **changes)} != summary
    (generated,) = ask(third_party, "t5", "text2text-generation")
    assert generated == {"generated_text": theirs("", max_new_tokens=20)}
    # The same in this process.
    opened = third_party.opened("t5")
    assert opened.predict([TEXT], task="translation_en_to_de") == [german]
    for task in ("translation", "poetry"):  # two languages; no such task
        with pytest.raises(UsageError) as caught:
            maskwright.predict(opened, [TEXT], task=task)
        assert caught.value.where == "task" and caught.value.found == task
    for parameters, named in (
        ({}, "translation_en_to_fr"),
        ({**languages, "generate_parameters": {"top_k": 5}}, "top_k"),
        ({**languages, "generate_parameters": {"num_beams": 1000}}, "num_beams"),
    ):
        path = "/models/t5/pipeline/translation"
        status, _, refusal = third_party.ask(
            "POST", path, {"inputs": TEXT, "parameters": parameters}
        )
        assert status == 422 and named in refusal["error"], refusal


def test_the_beginning_of_a_text_is_cut(third_party: TasksServer) -> None:
    folder, text = third_party.folders["score"], f"{TEXT} " * 9
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    for texts in ([text], [TEXT, text]):
        for side in ("left", "right"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, truncation_side=side)
            inputs = tokenizer(*texts, truncation=True, max_length=34, return_tensors="pt")
            with torch.no_grad():
                (logit,) = network(**inputs).logits[0].tolist()
            body = {"inputs": texts if len(texts) == 2 else text, "raw_scores": True}
            body |= {"truncate": True, "truncation_direction": side}
            (answer,) = third_party.post("/score/predict", body)
            assert answer["score"] == pytest.approx(logit, abs=1e-4), (len(texts), side)
    whole = third_party.post("/score/predict", {"inputs": text, "raw_scores": True})
    assert abs(whole[0]["score"] - answer["score"]) > 1e-3, "the control: windows"
    left, right = (
        third_party.post("/masks/embed", {"inputs": text, "truncate": True, **direction})
        for direction in ({"truncation_direction": "Left"}, {})
    )
    assert np.abs(np.array(left) - right).max() > 1e-3


def test_a_model_without_a_tokenizer_is_refused_at_the_start(model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(model / "checkpoints/step-00000002", tmp_path / "model")
    assert open_one("m", folder, [], "auto").engine().abilities, "the control"
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(MaskwrightError) as caught:
        open_one("m", folder, [], "auto")
    assert "tokenizer" in str(caught.value.where) + str(caught.value.wanted)


def test_one_model_answers_to_any_name_and_to_many_texts(model: Path) -> None:
    """Also to more texts than the queue holds, one portion after the other."""
    limits = Limits(max_queue_tokens=512, max_batch_tokens=256)
    texts = [f"the cat sat on mat {number % 7}" for number in range(300)]
    running = serve(names={"only": model}, port=0, limits=limits, background=True)
    assert running is not None
    with running as started:
        server = TasksServer(started.url, {"only": model})
        body = {"model": "text-embedding-3-small", "input": texts}
        status, headers, answer = server.ask("POST", "/v1/embeddings", body)
        assert status == 200 and headers["x-served-model"] == answer["model"] == "only"
        assert len(headers["x-windows"].split(",")) == len(texts) == len(answer["data"])
        vectors = np.array([row["embedding"] for row in answer["data"]])
        assert np.allclose(vectors, server.opened("only").embed(texts), atol=1e-2)
        assert answer["usage"]["prompt_tokens"] > limits.max_queue_tokens
        too_many = {"model": "x", "input": ["a"] * 2049}
        assert server.ask("POST", "/v1/embeddings", too_many)[0] == 400
        # The control: a path names the model, and the own dialect is strict.
        assert server.ask("POST", "/nobody/embed", {"inputs": "a"})[0] == 404
        assert server.ask("POST", "/v1/predict", {"model": "nobody", "rows": ["a"]})[0] == 404
        # Another prompt is that text before each text.
        for prompt in ("the dog ", ""):
            answer = server.post("/embed", {"inputs": TEXT, "prompt": prompt})
            assert np.allclose(answer, server.opened("only").embed([prompt + TEXT]), atol=1e-2)
