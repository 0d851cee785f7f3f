"""Shapes by arithmetic are the shapes of the modules, on every axis."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from maskwright.model.checkpoint import layout
from maskwright.model.nn.config import Head, Norm, Tokens, TransformerConfig, VocabularyHead
from maskwright.model.nn.transformer import Transformer, layers_over
from nn.points import POINTS, VOCABULARY, WIDTH


def built(config: TransformerConfig) -> layout.Shapes:
    with torch.device("meta"):
        model = Transformer(config)
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("name", POINTS)
def test_every_point(name: str) -> None:
    head = Head(name="own", kind="sequence", labels=2, over=layers_over(POINTS[name]))
    for config in (POINTS[name], replace(POINTS[name], heads=(head,))):
        sizes = built(config)
        assert layout.parameter_shapes(config) == sizes
        assert layout.num_parameters(config) == sum(map(math.prod, sizes.values()))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("norm", [None, Norm(), Norm(bias=False), Norm(kind="rms")])
@pytest.mark.parametrize("transform", [None, "gelu"])
@pytest.mark.parametrize("token_width", [8, WIDTH])
def test_every_vocabulary_head(
    tied: bool, norm: Norm | None, transform: str | None, token_width: int
) -> None:
    if tied and transform is None and token_width != WIDTH:
        return  # refused: the hidden states are wider than the rows of the table
    head = VocabularyHead(transform=transform, norm=norm, tied=tied, bias=True)
    tokens = Tokens(vocabulary=VOCABULARY, width=token_width)
    config = replace(POINTS["post-norm encoder"], tokens=tokens, vocabulary_head=head)
    assert layout.parameter_shapes(config) == built(config)
