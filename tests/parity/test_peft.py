"""Adapter folders in the hands of `peft` itself: the scores are ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from checkpoint.small import model_of, small
from maskwright.base import catalogue
from maskwright.model.adapters.base import folder
from maskwright.model.adapters.base.adapter import attach
from maskwright.model.checkpoint import pretrained
from maskwright.model.families.base.family import family

transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")

KINDS = {
    "bert": "BertForSequenceClassification",
    "roberta": "RobertaForSequenceClassification",
    "albert": "AlbertForSequenceClassification",
    "electra": "ElectraForSequenceClassification",
    "distilbert": "DistilBertForSequenceClassification",
    "modernbert": "ModernBertForSequenceClassification",
    "longformer": "LongformerForSequenceClassification",
    "big_bird": "BigBirdForSequenceClassification",
    "gpt2": "GPT2LMHeadModel",
    "openai-gpt": "OpenAIGPTLMHeadModel",
    "llama": "LlamaForCausalLM",
    "t5": "T5ForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "led": "LEDForConditionalGeneration",
}


def test_every_family_is_here() -> None:
    others = {"vit", "static-vectors", "elmo", "ulmfit"}  # which peft does not know
    assert set(KINDS) == set(catalogue.names("families")) - others


EVERYWHERE = ("query", "key", "value", "output", "up", "down")


@pytest.mark.parametrize(
    ("method", "options"),
    [("lora", {}), ("lora", {"rank": 2, "targets": EVERYWHERE}), ("ia3", {})],
    ids=["lora", "lora-everywhere", "ia3"],
)
@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_peft_computes_what_we_do(
    name: str, method: str, options: dict[str, Any], tmp_path: Path
) -> None:
    model = model_of(small(family(name), KINDS[name])).eval()
    heads = [head.name for head in model.config.heads] + ["pooler"] * model.config.pooler
    pretrained.save(model, None, tmp_path / "base")
    settings = catalogue.load("adapters", method).SETTINGS(**options)
    adapter = attach(settings, model, torch.Generator().manual_seed(0), heads=heads)
    torch.manual_seed(1)
    for parameter in adapter.trainable().values():
        parameter.add_(0.1 * torch.randn_like(parameter))
    folder.save(adapter, tmp_path / "adapter", base=str(tmp_path / "base"))
    base = getattr(transformers, KINDS[name]).from_pretrained(tmp_path / "base").eval()
    tokens, written = torch.randint(5, 55, (2, 9)), torch.randint(5, 55, (2, 7))
    given = {"input_ids": tokens}
    if name == "led":
        given["global_attention_mask"] = (torch.arange(9) == 0).long().expand(2, -1)
        base.config.pad_token_id = 60
    if len(model.config.stacks) == 2:
        given["decoder_input_ids"] = written
        ours = model.logits(model.decode(written, memory=model.encode(tokens)))
    elif model.encoder is None:
        ours = model.logits(model.decode(tokens))
    else:
        ours = model.head(heads[0], model.encode(tokens)[:, 0])
    plain = base(**given).logits
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()(**given).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(ours, plain, rtol=1e-3, atol=1e-3), "the adapter must be felt"
