"""Our folders as people use them: `model(**tokenizer(text))` and `pipeline`, for every class."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from maskwright.api import fill_mask
from maskwright.ask.predict.predictor import load
from maskwright.model.checkpoint import pretrained
from maskwright.model.families.base.family import family

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
used = pytest.importorskip("parity.used")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::UserWarning:transformers.*"),
]
TOLERANCE = 1e-5


@pytest.mark.parametrize(("name", "architecture"), used.CLASSES)
def test_the_tokenizers_own_output(name: str, architecture: str, tmp_path: Path) -> None:
    folder = used.folder_of(family(name), architecture, tmp_path / "m")
    assert used.apart(folder, architecture, used.their_outputs(folder, architecture)) < TOLERANCE
    task = used.task_of(architecture)
    answer = used.their_answers(folder, task)
    if task == "fill-mask":
        tokenizer = pretrained.load(folder).tokenizer
        assert tokenizer is not None and tokenizer.mask is not None
        (sign,) = tokenizer.tokens([tokenizer.mask])
        (hole,) = fill_mask(folder, f"{used.ONE} {sign}", top=1)
        assert hole.candidates[0].id == answer
    elif task in ("text-classification", "token-classification"):
        ours = load(folder).predict([used.ONE])[0]
        firsts = (ours, answer[0]) if task == "text-classification" else (ours[0], answer[0])
        assert firsts[0]["score"] == pytest.approx(firsts[1]["score"], abs=1e-4)


@pytest.mark.parametrize("name", sorted({name for name, _ in used.CLASSES}))
def test_segments_are_given_to_models_that_have_them(name: str, tmp_path: Path) -> None:
    """Whatever the tokenizer's style, of those whose ids the family can have."""
    style = "roberta" if name in ("roberta", "bart", "longformer", "led") else "bert"
    architecture = next(iter(family(name).architectures))
    folder = used.folder_of(family(name), architecture, tmp_path / "m", style)
    given = transformers.AutoTokenizer.from_pretrained(folder)(used.ONE)
    assert ("token_type_ids" in given) == (name in ("bert", "albert", "electra", "big_bird"))


def test_segments_that_a_model_has_not_would_change_its_answers(tmp_path: Path) -> None:
    """GPT-2 adds the vectors of tokens 0 and 1: what the rule keeps away is noticed here."""
    folder = used.folder_of(family("gpt2"), "GPT2Model", tmp_path / "m", "bert")
    assert used.apart(folder, "GPT2Model", used.their_outputs(folder, "GPT2Model")) < TOLERANCE
    settings = folder / "tokenizer_config.json"
    said = json.loads(settings.read_text())
    names = ["input_ids", "token_type_ids", "attention_mask"]
    settings.write_text(json.dumps({**said, "model_input_names": names}))
    (folder / "MANIFEST.json").unlink()
    outputs = used.their_outputs(folder, "GPT2Model")
    assert used.apart(folder, "GPT2Model", outputs) > 100 * TOLERANCE
