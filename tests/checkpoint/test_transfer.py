"""Weights carried to a model with other heads: what is taken, what is new, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from checkpoint.small import model_of, small
from maskwright.base.errors import IncompatibleError
from maskwright.model.checkpoint.matching import transfer
from maskwright.model.families.base.family import family

BERT = family("bert")


def test_F28_new_parts_are_named_and_the_rest_is_taken() -> None:
    source = model_of(small(BERT, "BertForPreTraining"))
    config = small(BERT, "BertForSequenceClassification")
    made = transfer(source, config, torch.Generator().manual_seed(0))
    ours, theirs = dict(made.model.named_parameters()), dict(source.named_parameters())
    assert made.new == ("heads.classifier.weight", "heads.classifier.bias")
    assert set(made.unused) == {n for n in theirs if n.startswith(("vocabulary_head.", "heads."))}
    assert set(made.copied) | set(made.new) == set(ours)
    assert all(torch.equal(ours[name], theirs[name]) for name in made.copied)
    assert "pooler.weight" in made.copied
    total = made.model.num_parameters()
    share = (total - 3 * 24 - 3) / total
    assert made.render() == (
        f"loaded {share:.1%}, new: heads.classifier, "
        "left: heads.pair, vocabulary_head, vocabulary_head.norm, vocabulary_head.transform"
    )


def test_the_source_is_not_shared() -> None:
    source = model_of(small(BERT, "BertForMaskedLM"))
    made = transfer(source, source.config)
    with torch.no_grad():
        source.tokens.weight.zero_()
    assert made.model.tokens.weight.abs().sum() > 0
    assert made.new == made.unused == ()
    assert made.render() == "loaded 100.0%, new: nothing, left: nothing"


@pytest.mark.parametrize(
    ("key", "size"),
    [
        *(("hidden_size", 28), ("num_hidden_layers", 2), ("num_hidden_layers", 4)),
        *(("vocab_size", 62), ("max_position_embeddings", 33)),
    ],
)
def test_F28_another_body_is_refused(key: str, size: int) -> None:
    source = model_of(small(BERT, "BertForMaskedLM"))
    with pytest.raises(IncompatibleError):
        transfer(source, small(BERT, "BertForTokenClassification", **{key: size}))


def test_a_head_of_another_size_is_new() -> None:
    source = model_of(small(BERT, "BertForTokenClassification"))
    head = replace(source.config.heads[0], labels=7)
    made = transfer(source, replace(source.config, heads=(head,)))
    assert made.new == ("heads.classifier.weight", "heads.classifier.bias") == made.unused
