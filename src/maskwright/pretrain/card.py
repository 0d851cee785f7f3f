"""The card of a pretrained model: README.md beside its weights, filled from the recipe alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from maskwright.checkpoint import layout
from maskwright.checkpoint.conventions import Conventions
from maskwright.checkpoint.layout import About
from maskwright.errors import IncompatibleError
from maskwright.nn.config import TransformerConfig
from maskwright.pretrain.objective_of import conventions_of
from maskwright.recipes.parts.recipe import Recipe
from maskwright.report import opened
from maskwright.tokenizer.tokenizer import Tokenizer

HERE = "."  # the folder of the card


def about(recipe: Recipe, config: TransformerConfig, tokenizer: Tokenizer, known: About) -> About:
    """What is `known` of the recipe's model, with how it is asked and its card."""
    conventions = conventions_of(recipe, len(config.stacks))
    known = replace(known, conventions=conventions)
    written = layout.documents(layout.of_config(config, known.family), tokenizer, known, {})
    text = written["config.json"]
    assert isinstance(text, bytes)
    return replace(known, readme=_card(recipe, config, json.loads(text), tokenizer, conventions))


def _card(
    recipe: Recipe,
    config: TransformerConfig,
    saved: Mapping[str, Any],
    tokenizer: Tokenizer,
    conventions: Conventions,
) -> str:
    """The card as text; `saved` is the config.json beside it."""
    asked, warning = _asked(config, tokenizer, conventions), opened.misread(saved)
    front = {
        "library_name": "maskwright" if warning else "transformers",
        **({"pipeline_tag": asked[0]} if asked else {}),
        "tags": ["maskwright", recipe.objective.name],
    }
    head = "".join(f"{key}: {json.dumps(value)}\n" for key, value in front.items())
    said = f": {recipe.note}" if recipe.note else ""
    lines = [
        f"---\n{head}---",
        f"# {recipe.name}",
        f"A language model, trained with the objective {recipe.objective.name}{said}. The run's "
        "recipe.toml has every setting, its report.html the figures.",
        *([f"**Warning.** {warning}"] if warning else []),
        "## Use\n\nFrom within this folder:",
        _block(opened.code(saved, HERE)),
    ]
    if asked:
        lines.append(_block(f"from maskwright import api\n\n{asked[1]}"))
    return "\n\n".join(lines) + "\n"


def _block(code: str) -> str:
    return f"```python\n{code}\n```"


def _asked(
    config: TransformerConfig, tokenizer: Tokenizer, conventions: Conventions
) -> tuple[str, str] | None:
    """What hubs call the way in which the model is asked, and a line that does it; None where it
    is asked in none."""
    if config.vocabulary_head is None:
        return None
    text, writes = _known(tokenizer), config.decoder is not None and conventions.decoder_trained
    spans = len(config.stacks) == 2 and writes and bool(tokenizer.sentinels)
    if config.encoder is not None and tokenizer.mask is not None and not spans:
        sign = tokenizer.tokens([tokenizer.mask])[0]
        return "fill-mask", f"api.fill_mask({HERE!r}, {f'{text} {sign}'.strip()!r})"
    if not writes:
        return None
    if spans:
        sign = tokenizer.vocabulary[tokenizer.sentinels[0]]
        return "fill-mask", f"api.fill_mask({HERE!r}, {f'{text} {sign}'.strip()!r})"
    name = "text-generation" if config.encoder is None else "text2text-generation"
    return name, f"api.generate_text({HERE!r}, {text!r}, tokens=20)"


def _known(tokenizer: Tokenizer) -> str:
    """A few words that the tokenizer knows."""
    try:
        tokenizer.encode("It is")
        return "It is"
    except IncompatibleError:
        ordinary = (i for i in range(tokenizer.vocabulary_size) if i not in tokenizer.special_ids)
        return next((text for i in ordinary if (text := tokenizer.decode([i])).strip()), "")
