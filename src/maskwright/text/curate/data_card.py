"""`card.md`: the data card, with which a person can answer for a corpus."""

from __future__ import annotations

from typing import Any

from maskwright.base.findings import Finding
from maskwright.base.report import document
from maskwright.text.curate import card_tables
from maskwright.text.curate.card_tables import Card, setting

# Codes of languages and names of licences in the head of the card.
HEADED = 20


def data_card(card: Card) -> str:
    """The card as Markdown."""
    left = card["left"]
    return document.render(
        "data_card.md",
        front=_front(card),
        made_by=card["made_by"],
        came=card_tables.came(card),
        left=card_tables.left(card),
        reading=card_tables.reading(card),
        files=card_tables.files(card),
        overview=card_tables.steps(card),
        steps=[_step_table(step) for step in card["steps"]],
        tables=[
            card_tables.by_source(card),
            card_tables.shares("Documents by language", left["languages"], "language"),
            card_tables.shares("Documents by licence", left["licences"], "licence"),
        ],
        tokenizer=_tokenizer(card),
        licences=card_tables.licences(card),
        contamination=card_tables.contamination(card),
        limits=card_tables.known_limits(card),
        command=card_tables.command(card),
    )


def _front(card: Card) -> dict[str, Any]:
    left = card["left"]
    front: dict[str, Any] = {"tags": ["curated corpus"]}
    for name, counts in (("language", left["languages"]), ("license", left["licences"])):
        if known := [value for value in counts if value][:HEADED]:
            front[name] = known
    return front


def _step_table(step: Any) -> dict[str, Any]:
    return {
        "name": step["step"],
        "summary": card_tables.summary(step),
        "settings": [setting(name, value) for name, value in step["not_default"].items()],
        "findings": [str(Finding.from_json(found)) for found in step["findings"]],
        "changes": step["changes"],
        "rules": card_tables.rules(step),
    }


def _tokenizer(card: Card) -> str:
    if not card["tokenizer"]:
        return ""
    return f"{card['tokenizer']}, fingerprint {card['tokenizer_fingerprint'][:16]}"
