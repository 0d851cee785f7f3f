"""The card of a pretrained model: the README.md next to its weights, made from the recipe alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from maskwright.base.config import to_plain
from maskwright.base.errors import IncompatibleError
from maskwright.base.report import document, opened
from maskwright.learn.recipes.base.recipe import Recipe
from maskwright.model.checkpoint import layout
from maskwright.model.checkpoint.conventions import Conventions
from maskwright.model.checkpoint.layout import About
from maskwright.model.nn.config import TransformerConfig
from maskwright.model.objectives.base.spec import Spec
from maskwright.model.opening import of_recipe
from maskwright.text.tokenizer.tokenizer import Tokenizer

HERE = "."  # the folder of the card


def about(recipe: Recipe, config: TransformerConfig, tokenizer: Tokenizer, model: About) -> About:
    """Return `model` with the conventions and the card (README) of the recipe's model."""
    conventions = conventions_of(recipe, len(config.stacks))
    model = replace(model, conventions=conventions)
    model_files = layout.documents(layout.of_config(config, model.family), tokenizer, model, {})
    text = model_files["config.json"]
    assert isinstance(text, bytes)
    return replace(model, readme=_card(recipe, config, json.loads(text), tokenizer, conventions))


def conventions_of(recipe: Recipe, stacks: int) -> Conventions:
    """Return the conventions of the recipe's model, which has one or two `stacks`."""
    member, options = recipe.objective.member, recipe.objective.options
    rows, corpus = to_plain(recipe.rows), to_plain(recipe.corpus)
    return of_recipe.conventions_of(member, to_plain(options), rows, corpus, stacks)


def _card(
    recipe: Recipe,
    config: TransformerConfig,
    saved: Mapping[str, Any],
    tokenizer: Tokenizer,
    conventions: Conventions,
) -> str:
    """Return the text of the card; `saved` is the content of the model's config.json."""
    usage, warning = (
        ask_of(recipe.objective.spec, config, tokenizer, conventions),
        opened.misread(saved),
    )
    front = {
        "library_name": "maskwright" if warning else "transformers",
        **({"pipeline_tag": usage.tag} if usage else {}),
        "tags": ["maskwright", recipe.objective.name],
    }
    return document.render(
        "pretrained.md",
        front=front,
        name=recipe.name,
        objective=recipe.objective.name,
        note=recipe.note,
        warning=warning,
        loads=opened.code(saved, HERE).splitlines(),
        ask=usage.line if usage else "",
    )


@dataclass(frozen=True)
class Usage:
    """An example of use of a model.

    Attributes:
        tag: the name that hubs have for it.
        verb: the command, `fill-mask` or `generate`.
        prompt: an input in words that the tokenizer knows.
    """

    tag: str
    verb: str
    prompt: str

    @property
    def line(self) -> str:
        """The call in Python, from within the model's folder."""
        if self.verb == "fill-mask":
            return f"api.fill_mask({HERE!r}, {self.prompt!r})"
        return f"api.generate_text({HERE!r}, {self.prompt!r}, tokens=20)"


def ask_of(
    spec: Spec, config: TransformerConfig, tokenizer: Tokenizer, conventions: Conventions
) -> Usage | None:
    """Return an example of use; None if the model can neither fill masks nor generate text."""
    if config.vocabulary_head is None:
        return None
    prompt = _known_words(tokenizer)
    generates = config.decoder is not None and conventions.decoder_trained
    fills_spans = len(config.stacks) == 2 and generates and bool(tokenizer.sentinels)
    fills_spans &= tokenizer.mask is None or spec.usual_for == "sentinels"
    if config.encoder is not None and tokenizer.mask is not None and not fills_spans:
        gap_token = tokenizer.tokens([tokenizer.mask])[0]
        return Usage("fill-mask", "fill-mask", f"{prompt} {gap_token}".strip())
    if not generates:
        return None
    if fills_spans:
        gap_token = tokenizer.vocabulary[tokenizer.sentinels[0]]
        return Usage("fill-mask", "fill-mask", f"{prompt} {gap_token}".strip())
    tag = "text-generation" if config.encoder is None else "text2text-generation"
    return Usage(tag, "generate", prompt)


def _known_words(tokenizer: Tokenizer) -> str:
    """Return a few words that the tokenizer can encode; "" if there are none."""
    try:
        tokenizer.encode("It is")
        return "It is"
    except IncompatibleError:
        ordinary = (i for i in range(tokenizer.vocabulary_size) if i not in tokenizer.special_ids)
        return next((text for i in ordinary if (text := tokenizer.decode([i])).strip()), "")
