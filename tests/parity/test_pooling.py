"""A ModernBERT whose config says that texts are read as a mean: as transformers does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from checkpoint.small import SMALL
from maskwright.model.checkpoint import pretrained
from maskwright.model.inference.encoded import Collation, EncodedExamples, framed
from maskwright.model.inference.scores import scores
from maskwright.model.objectives.base.objective import Vocabulary
from maskwright.model.objectives.modules.supervised import Supervised
from maskwright.model.objectives.supervised import Options

transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
pytestmark = pytest.mark.interop

TEXTS = [[7, 8, 9, 10, 11], [12, 13], [20, 21, 22, 23, 24, 25, 26, 27, 28], [30]]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_scores_are_theirs_both_ways(pooling: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    keys = {**SMALL["modernbert"], "classifier_pooling": pooling, "pad_token_id": 0}
    config = transformers.ModernBertConfig(**keys)
    theirs = transformers.ModernBertForSequenceClassification(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    theirs.save_pretrained(tmp_path / "theirs")

    loaded = pretrained.load(tmp_path / "theirs")
    assert loaded.config.heads[0].pooling == {"cls": "place", "mean": "mean"}[pooling]
    words = Vocabulary(size=61, mask=1, special=(0, 1))
    given = EncodedExamples(framed(TEXTS), np.zeros(len(TEXTS), np.int64))
    objective = Supervised(loaded.model, Options(), words).eval()
    ours = torch.from_numpy(scores(objective, given, Collation(pad=0, last=False)))
    pretrained.save(loaded.model, None, tmp_path / "ours", loaded.about)
    kind = transformers.ModernBertForSequenceClassification
    for model in (theirs, kind.from_pretrained(tmp_path / "ours").eval()):
        with torch.no_grad():
            wanted = torch.cat([model(torch.tensor([text])).logits for text in TEXTS])
        assert (ours - wanted).abs().max() < 1e-5 * wanted.abs().max()
        other = torch.cat([model(torch.tensor([text[:1]])).logits for text in TEXTS])
        assert (ours - other).abs().max() > 1e-2 * wanted.abs().max(), "the control"
