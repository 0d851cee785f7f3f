"""Rows written by hand, and objectives around tiny models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from maskwright.model.batch import Batch
from maskwright.model.nn.config import Head, TransformerConfig
from maskwright.model.nn.initialise import build
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.objectives.base.spec import member_of
from maskwright.text.store.rows import Rows
from toys import CLS, PAD, SEP, VOCABULARY, bert


def rows_of(*lines: list[int]) -> Rows:
    """One row per line; a CLS opens a document, ids below 5 are special, every token is a word."""
    tokens = np.array(lines, dtype=np.int64)
    documents = np.cumsum(tokens == CLS, axis=1).astype(np.int32)
    documents[tokens == PAD] = 0
    starts = np.maximum.accumulate(np.where(tokens == CLS, np.arange(tokens.shape[1]), 0), axis=1)
    return Rows(
        tokens=tokens,
        positions=np.arange(tokens.shape[1]) - starts,
        documents=documents,
        special=tokens < 5,
        starts_word=tokens >= 5,
        ids=np.arange(len(tokens)),
    )


def framed(count: int, length: int, seed: int = 0) -> Rows:
    """Rows of one document each, random ordinary tokens between CLS and SEP."""
    generator = np.random.default_rng(seed)
    tokens = generator.integers(5, VOCABULARY.size, (count, length))
    tokens[:, 0], tokens[:, -1] = CLS, SEP
    return rows_of(*tokens.tolist())


def discriminator(**changes: Any) -> Transformer:
    config = replace(
        bert().config,
        vocabulary_head=None,
        heads=(Head(name="discriminator", kind="token", labels=1),),
        **changes,
    )
    return of(config)


def of(config: TransformerConfig, seed: int = 0, deviation: float = 0.02) -> Transformer:
    return build(config, torch.Generator().manual_seed(seed), deviation=deviation)


def make(name: str, model: Transformer, networks: Any = None, **options: Any) -> Objective:
    member = member_of(name)
    torch.manual_seed(0)
    return member.build(model, member.options(**options), VOCABULARY, **(networks or {}))


def epochs(rows: Rows, epoch: int = 0) -> np.ndarray:
    return np.full(len(rows), epoch, dtype=np.int64)


def corrupted(made: Objective, rows: Rows, epoch: int = 0) -> Batch:
    return made.corrupt(rows, epochs(rows, epoch), 0)
