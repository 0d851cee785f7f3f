"""A folder with an adapter alone is opened on its base, or what is missing is named."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from maskwright.ask.evaluate.labelled_rows import evaluate_file
from maskwright.ask.predict.file import write_predictions
from maskwright.ask.predict.predictor import load
from maskwright.base.errors import CheckpointError, IncompatibleError, MaskwrightError, UsageError
from maskwright.model.checkpoint import pretrained
from maskwright.model.opening.open import merge_adapter, open_adapter
from maskwright.text.tokenizer.training.train import TokenizerChoice, train
from predict.test_foreign_heads import SIZES

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
peft = pytest.importorskip("peft", reason="the extra `hf` is not installed")
pytestmark = pytest.mark.interop

TEXTS = ["the cat sat on the mat", "a dog ran"]
HEADS = {
    "SEQ_CLS": ("BertForSequenceClassification", ["bert.pooler", "classifier"]),
    "TOKEN_CLS": ("BertForTokenClassification", ["classifier"]),
    "QUESTION_ANS": ("BertForQuestionAnswering", ["qa_outputs"]),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT that fills masks, with a tokenizer."""
    folder = tmp_path_factory.mktemp("base") / "base"
    train(TEXTS * 20, TokenizerChoice(kind="wordpiece", vocabulary=60)).save(folder)
    (folder / "MANIFEST.json").unlink()
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=60, **SIZES)
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    return folder


def adapted(base: Path, out: Path, task: str, **settings: Any) -> Any:
    """An adapter of `peft` on the base, with random values, saved in `out`; and its model."""
    name, heads = HEADS[task]
    torch.manual_seed(1)
    network = getattr(transformers, name).from_pretrained(
        base, **({} if task == "QUESTION_ANS" else {"num_labels": 3})
    )
    usual = {"task_type": task, "r": 4, "target_modules": ["query", "value"]}
    usual |= {"modules_to_save": heads, "init_lora_weights": False}
    config = peft.LoraConfig(**{**usual, **settings})
    model = peft.get_peft_model(network, config).eval()
    model.save_pretrained(out)
    return model


@pytest.mark.parametrize("task", HEADS)
def test_answers_are_those_of_peft(task: str, base: Path, tmp_path: Path) -> None:
    model = adapted(base, tmp_path / "a", task)
    loaded = open_adapter(tmp_path / "a").loaded
    assert loaded.tokenizer is not None
    ids = loaded.tokenizer.frame(loaded.tokenizer.encode(TEXTS[0]))[0]
    with torch.no_grad():
        theirs = model(input_ids=torch.tensor([ids]))
        states = loaded.model.encode(torch.tensor([ids]))
        (head,) = loaded.config.heads
        ours = loaded.model.head(head.name, states[:, 0] if head.pools else states)
    wanted = (
        torch.stack([theirs.start_logits, theirs.end_logits], -1)
        if task == "QUESTION_ANS"
        else theirs.logits
    )
    torch.testing.assert_close(ours.view_as(wanted), wanted, atol=1e-5, rtol=1e-5)
    # The control: the base's own weights without the adapter are another model.
    plain = pretrained.load(base).model.encode(torch.tensor([ids]))
    assert not torch.allclose(plain, states, atol=1e-2)


def test_predict_and_evaluate(base: Path, tmp_path: Path) -> None:
    model = adapted(base, tmp_path / "a", "SEQ_CLS")
    found = load(tmp_path / "a")
    assert any(each.name == "adapter-on-base" for each in found.findings)
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    with torch.no_grad():
        logits = [model(**tokenizer(text, return_tensors="pt")).logits[0] for text in TEXTS]
    for answer, scores in zip(found.predict(TEXTS), logits, strict=True):
        assert answer["label"] == f"LABEL_{int(scores.argmax())}"
        assert answer["score"] == pytest.approx(float(scores.softmax(0).max()), abs=1e-5)
    source, data = tmp_path / "new.txt", tmp_path / "rows.csv"
    source.write_text("\n".join(TEXTS) + "\n")
    assert write_predictions(tmp_path / "a", source, tmp_path / "out.jsonl") == 2
    answers = found.predict(TEXTS)
    rows = [f"{text},{answer['label']}" for text, answer in zip(TEXTS, answers, strict=True)]
    data.write_text("text,label\n" + "\n".join(rows * 3) + "\n")
    assert evaluate_file(tmp_path / "a", data, stream=io.StringIO())["accuracy"].value == 1.0
    merged = merge_adapter(tmp_path / "a", tmp_path / "merged")
    assert load(merged).predict(TEXTS)[0]["score"] == pytest.approx(answers[0]["score"], abs=1e-5)


def test_another_tokenizer_beside_the_adapter_is_reported(base: Path, tmp_path: Path) -> None:
    adapted(base, folder := tmp_path / "a", "SEQ_CLS")
    shutil.copy(base / "tokenizer.json", folder)
    assert "other-tokenizer" not in {finding.name for finding in load(folder).findings}
    train(TEXTS * 20, TokenizerChoice(kind="wordpiece", vocabulary=50)).save(tmp_path / "b")
    shutil.copy(tmp_path / "b" / "tokenizer.json", folder)
    assert "other-tokenizer" in {finding.name for finding in load(folder).findings}
    (folder / "tokenizer.json").write_text("")
    assert "other-tokenizer" in {finding.name for finding in load(folder).findings}


def test_where_the_base_lies(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapted(base, tmp_path / "x" / "a", "TOKEN_CLS")
    settings = tmp_path / "x" / "a" / "adapter_config.json"

    def named(place: str) -> None:
        said = json.loads(settings.read_text())
        settings.write_text(json.dumps({**said, "base_model_name_or_path": place}))

    folder = tmp_path / "x" / "a"
    shutil.copytree(base, tmp_path / "x" / "base")
    monkeypatch.chdir(tmp_path)
    named("../base")  # seen from the adapter
    assert open_adapter(folder).base == (tmp_path / "x" / "base").resolve()
    named("base")  # seen from here
    monkeypatch.chdir(tmp_path / "x")
    assert open_adapter(folder).base == (tmp_path / "x" / "base").resolve()
    shutil.copytree(base, folder / "base")
    with pytest.raises(UsageError, match="two folders"):
        open_adapter(folder)
    for away in ("google-bert/bert-base-uncased", "../gone", "", None, "a" * 300, "a/" * 5000):
        named(away)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="--base FOLDER"):
            open_adapter(folder)
        assert open_adapter(folder, base).base == base
    with pytest.raises(UsageError, match="--base"):
        load(base, base=base)


def test_an_adapter_whose_products_overflow_is_refused(base: Path, tmp_path: Path) -> None:
    """Each of its values is finite; the weights that it is folded into would not be."""
    adapted(base, tmp_path / "a", "SEQ_CLS")
    settings = tmp_path / "a" / "adapter_config.json"
    plain = json.loads(settings.read_text())
    open_adapter(tmp_path / "a")  # the control
    settings.write_text(json.dumps({**plain, "lora_alpha": 1e300}))
    with pytest.raises(CheckpointError, match="not finite"):
        open_adapter(tmp_path / "a")


def test_what_is_not_opened_is_named(base: Path, tmp_path: Path) -> None:
    adapted(base, tmp_path / "half", "SEQ_CLS", modules_to_save=["classifier"])
    with pytest.raises(IncompatibleError, match=r"adapter_model\.safetensors"):
        open_adapter(tmp_path / "half")
    with pytest.raises(IncompatibleError, match="merge_adapter"):
        pretrained.load(tmp_path / "half")
    settings = tmp_path / "half" / "adapter_config.json"
    said = json.loads(settings.read_text())
    for kind in ("PREFIX_TUNING", "PROMPT_TUNING", "ADALORA", None, 3):
        settings.write_text(json.dumps({**said, "peft_type": kind}))
        with pytest.raises(MaskwrightError, match=r"adapter_config\.json"):
            open_adapter(tmp_path / "half")
    # SharedEncoder, each in a folder of its own; and one that lies among the files of a model.
    for name in ("one", "two"):
        adapted(base, tmp_path / "several" / name, "TOKEN_CLS")
    with pytest.raises(IncompatibleError, match=r"several adapters[\s\S]*one, two"):
        load(tmp_path / "several")
    both = tmp_path / "both"
    shutil.copytree(base, both)
    shutil.copy(settings, both)
    with pytest.raises(IncompatibleError, match="both"):
        pretrained.load(both)
