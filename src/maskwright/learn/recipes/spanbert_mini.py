"""SpanBERT at mini size: spans of whole words, and their boundaries; cased."""

from __future__ import annotations

from dataclasses import replace

from maskwright.learn.recipes import bert_mini
from maskwright.learn.recipes.base.mini import VOCABULARY
from maskwright.learn.recipes.base.recipe import ObjectiveChoice, Recipe
from maskwright.text.tokenizer.training.train import TokenizerChoice


def recipe() -> Recipe:
    return replace(
        bert_mini.recipe(),
        name="spanbert-mini",
        note="SpanBERT at mini size: masked spans and their boundaries",
        tokenizer=TokenizerChoice(kind="wordpiece", vocabulary=VOCABULARY),
        objective=ObjectiveChoice(name="span-boundary", options={}),
    )
