"""SpanBERT at mini size: spans of whole words, and their boundaries; cased."""

from __future__ import annotations

from dataclasses import replace

from maskwright.recipes import bert_mini
from maskwright.recipes.parts.mini import VOCABULARY
from maskwright.recipes.parts.recipe import ObjectiveChoice, Recipe
from maskwright.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    return replace(
        bert_mini.recipe(),
        name="spanbert-mini",
        note="SpanBERT at mini size: masked spans and their boundaries",
        tokenizer=TokenizerChoice(kind="wordpiece", vocabulary=VOCABULARY),
        objective=ObjectiveChoice(name="span-boundary", options={}),
    )
