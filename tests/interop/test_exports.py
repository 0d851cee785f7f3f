"""Exports as optimum, sentence-transformers, transformers.js and llama.cpp open them, at their
defaults.

    MASKWRIGHT_OPTIMUM=PYTHON        an interpreter that has optimum-onnx and sentence-transformers,
                                     and optimum-intel for the target openvino
    MASKWRIGHT_LLAMA=PYTHON          an interpreter that has xllamacpp
    MASKWRIGHT_NODE_MODULES=FOLDER   a folder with @huggingface/transformers

Numbers are compared with transformers (within 1e-4; 8 bits by the cosine of all scores).
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.layout import About
from maskwright.model.opening.open import open_merged
from maskwright.ship.export import int8
from maskwright.ship.export.run import export_model

pytestmark = [pytest.mark.interop, pytest.mark.proof, pytest.mark.timeout(900)]
HERE = Path(__file__).parent
PIPELINES = {
    "masked": "fill-mask",
    "classification": "text-classification",
    "tagging": "token-classification",
    "question-answering": "question-answering",
    "matching": "feature-extraction",
    "gpt2": "text-generation",
    "t5": "text2text-generation",
    "bart": "text2text-generation",
}
SEEDS = {"gpt2": 4, "t5": 4, "bart": 5}  # of models that do not repeat one token for ever
TEXT = "the cat sat on the mat"


@pytest.fixture(scope="module")
def folders(
    model: Path,
    models: dict[str, Path],
    small_task: Callable[..., Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """For each kind of model NAME-pt, which transformers reads, and its export NAME."""
    root = tmp_path_factory.mktemp("exports")
    sources = {"masked": model}
    sources |= {name: small_task(name) for name in PIPELINES.keys() - {"masked", *models}}
    for name, source in models.items():  # two steps teach no model to write more than one token
        opened = open_merged(source)
        generator = torch.Generator().manual_seed(SEEDS[name])
        with torch.no_grad():
            for weight in opened.network.parameters():
                weight += 0.3 * torch.randn(weight.shape, generator=generator)
        sources[name] = root / f"{name}-random"
        about = About(family=name, conventions=opened.conventions)
        pretrained.save(opened.network, opened.words, sources[name], about)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "SMALLEST", 200)
        for name, source in sources.items():
            shutil.copytree(open_merged(source).path, root / f"{name}-pt")
            settings = {"int8": True, "max_loss": 100.0}
            export_model(source, root / name, options=settings, stream=io.StringIO())
    openvino = root / "matching-openvino"
    export_model(sources["matching"], openvino, to="openvino", stream=io.StringIO())
    return root


def test_optimum_and_sentence_transformers(folders: Path) -> None:
    python = os.environ.get("MASKWRIGHT_OPTIMUM")
    if python is None:
        pytest.skip("MASKWRIGHT_OPTIMUM names no interpreter with optimum-onnx")
    ran = subprocess.run(
        [python, str(HERE / "export_readers.py"), str(folders)], stdout=subprocess.PIPE, check=True
    )
    figures = {(name, reader): x for name, reader, x in map(json.loads, ran.stdout.splitlines())}
    assert {name for name, _ in figures} == set(PIPELINES)
    for (name, reader), figure in figures.items():
        if "written" in reader:
            assert figure == 1.0, (name, reader)
        elif reader.endswith("q8"):
            assert 0.99 < figure < 0.9999999, (name, reader)
        elif reader != "control":  # OpenVINO takes bfloat16 where there are units for it
            assert figure <= (5e-3 if "openvino" in reader else 1e-4), (name, reader)
        else:
            assert figure > 1e-2, (name, reader)


def test_transformers_js(folders: Path) -> None:
    modules = os.environ.get("MASKWRIGHT_NODE_MODULES")
    if modules is None or shutil.which("node") is None:
        pytest.skip("MASKWRIGHT_NODE_MODULES names no folder with @huggingface/transformers")
    named = [f"{name}={task}" for name, task in PIPELINES.items()]
    ran = subprocess.run(
        ["node", str(HERE / "export_readers.mjs"), str(folders), *named],
        stdout=subprocess.PIPE,
        env={**os.environ, "NODE_PATH": modules},
        check=True,
    )
    answers = {(name, dtype): x for name, dtype, x in map(json.loads, ran.stdout.splitlines())}
    assert len(answers) == 2 * len(PIPELINES)
    for name, task in PIPELINES.items():
        wanted, found = expected(folders / f"{name}-pt", task), answers[name, "default"]
        if task.endswith("generation"):
            assert found[0]["generated_text"] == wanted and len(set(wanted)) > 4, name
            continue
        figures, small = numbers(found), numbers(answers[name, "q8"])
        np.testing.assert_allclose(figures, wanted, atol=1e-4, err_msg=name)
        if len(wanted) > 1:
            assert np.abs(figures - np.roll(wanted, 1)).max() > 1e-4, "the control"
        assert 0 < np.abs(small - wanted).max() < 0.1, name


def test_llama_cpp(folders: Path, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    python = os.environ.get("MASKWRIGHT_LLAMA")
    if python is None:
        pytest.skip("MASKWRIGHT_LLAMA names no interpreter with xllamacpp")

    def read(kind: str, name: str) -> Any:
        export_model(folders / f"{name}-pt", tmp_path / name, to="gguf", stream=io.StringIO())
        command = [python, str(HERE / "llama_reader.py"), kind, str(tmp_path / name / "model.gguf")]
        ran = subprocess.run([*command, TEXT], capture_output=True, check=True, timeout=100)
        return json.loads(ran.stdout)

    (vector,) = read("embed", "matching")
    wanted = expected(folders / "matching-pt", "feature-extraction")
    np.testing.assert_allclose(vector, wanted, atol=2e-3)
    assert np.abs(vector - np.roll(wanted, 1)).max() > 0.1, "the control"
    assert TEXT + read("write", "gpt2") == expected(folders / "gpt2-pt", "text-generation")


def numbers(answer: Any) -> Any:
    """The scores of an answer of transformers.js, by label or place; a vector as it is."""
    if isinstance(answer, dict):
        return np.array([answer["score"]])
    if isinstance(answer[0], list):
        return np.array(answer[0])
    order = sorted(answer, key=lambda row: str(row.get("label", row.get("token", ""))))
    return np.array([row["score"] for row in order])


def expected(source: Path, task: str) -> Any:
    """What transformers answers: scores in the order of `numbers`, or the text."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    encoded = tokenizer(TEXT, return_tensors="pt")
    writing = {"max_new_tokens": 12, "do_sample": False}
    if task == "feature-extraction":
        states = transformers.AutoModel.from_pretrained(source)(**encoded)[0].mean(1)
        return torch.nn.functional.normalize(states)[0].detach().numpy()
    if task.endswith("generation"):
        kind = "CausalLM" if task == "text-generation" else "Seq2SeqLM"
        network = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(source)
        ids = network.generate(**encoded, **writing)[0]
        return tokenizer.decode(ids, skip_special_tokens=True)
    if task == "question-answering":
        pair = tokenizer("who sat", TEXT, return_tensors="pt")
        network = transformers.AutoModelForQuestionAnswering.from_pretrained(source)
        outputs = network(**pair)
        special = torch.isin(pair["input_ids"][0], torch.tensor(tokenizer.all_special_ids))
        context = pair["token_type_ids"][0].bool() & ~special
        context[0] = True
        ends = [
            torch.where(context, scores[0], -10_000.0).softmax(0)
            for scores in (outputs.start_logits, outputs.end_logits)
        ]
        spans = (ends[0][:, None] * ends[1][None]).triu()[1:, 1:]
        return np.array([float(spans.max().detach())])
    kind = {"fill-mask": "MaskedLM", "text-classification": "SequenceClassification"}
    kind["token-classification"] = "TokenClassification"
    network = getattr(transformers, f"AutoModelFor{kind[task]}").from_pretrained(source)
    if task == "fill-mask":
        encoded = tokenizer(TEXT.replace("sat", tokenizer.mask_token), return_tensors="pt")
        place = encoded["input_ids"][0].tolist().index(tokenizer.mask_token_id)
        best = network(**encoded).logits[0, place].softmax(0).topk(5)
        rows = sorted(
            zip(best.indices.tolist(), best.values.tolist(), strict=True),
            key=lambda row: str(row[0]),
        )
        return np.array([score for _, score in rows])
    scores = network(**encoded).logits[0].softmax(-1).detach()
    if task == "token-classification":
        return scores[1:-1].max(-1).values.numpy()
    order = sorted(range(len(scores)), key=lambda label: network.config.id2label[label])
    return scores[order].numpy()
