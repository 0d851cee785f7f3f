"""`page.html`: what each step and rule did to a corpus, with examples to look at and to judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maskwright.base.findings import Finding
from maskwright.base.report import document
from maskwright.base.report.drawing.histogram import histogram
from maskwright.base.report.drawing.svg import FlowStage, flow
from maskwright.base.report.wording import count, percent, size
from maskwright.text.curate import card_tables
from maskwright.text.curate.card_tables import Card, setting, value

OPEN = 2  # rules of a step that are unfolded


def page(card: Card) -> str:
    """The page as HTML that needs nothing but itself."""
    left = card["left"]
    return document.render(
        "curation.html",
        name="What went, and why",
        kind="Curated corpus",
        came=card_tables.came(card),
        left=card_tables.left(card),
        tiles=_tiles(card),
        flow=flow("Documents and bytes through the steps", _stages(card)),
        overview=card_tables.steps(card),
        steps=[_step(step) for step in card["steps"]],
        licences=card_tables.licences(card),
        tables=[
            card_tables.by_source(card),
            card_tables.shares("Documents by language", left["languages"], "language"),
            card_tables.shares("Documents by licence", left["licences"], "licence"),
        ],
        reading=card_tables.reading(card),
        files=card_tables.files(card),
        limits=card_tables.known_limits(card),
        command=card_tables.command(card),
    )


def _tiles(card: Card) -> list[tuple[str, str]]:
    read, left = card["read"], card["left"]
    tiles = [
        (f"{left['documents']:,}", f"documents of {read['documents']:,}"),
        (size(left["bytes"]), f"of {size(read['bytes'])}"),
        (count(left["words"]), "words"),
    ]
    if "tokens" in left:
        tiles.append((count(left["tokens"]), "tokens"))
    removed = 1 - left["documents"] / max(1, read["documents"])
    return [*tiles, (percent(removed), "of the documents removed")]


def _stages(card: Card) -> list[FlowStage]:
    read, left = card["read"], card["left"]
    stages = [FlowStage("read", (read["documents"],) * 2, (read["bytes"],) * 2)]
    for step in card["steps"]:
        documents = step["documents_in"], step["documents_out"]
        stages.append(FlowStage(step["step"], documents, (step["bytes_in"], step["bytes_out"])))
    return [*stages, FlowStage("left", (left["documents"],) * 2, (left["bytes"],) * 2)]


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    names = sorted(step["rules"], key=lambda r: (-step["rules"][r]["documents"], r))
    names += [name for name in step["measures"] if name not in step["rules"]]
    return {
        "name": step["step"],
        "summary": card_tables.summary(step),
        "settings": [setting(name, value) for name, value in step["not_default"].items()],
        "findings": [Finding.from_json(found) for found in step["findings"]],
        "table": card_tables.rules(step),
        "kept": card_tables.examples(step["kept"]),
        "rules": [_rule(step, name, place < OPEN) for place, name in enumerate(names)],
        "changes": [_change(step, rule) for rule in step["changes"]],
    }


def _rule(step: Mapping[str, Any], name: str, unfolded: bool) -> dict[str, Any]:
    facts = step["rules"].get(name, {"documents": 0, "examples": []})
    measure = step["measures"].get(name, {"sample": [], "border": [], "low": None, "high": None})
    values = [number for _, number in measure["sample"]]
    share = percent(facts["documents"] / max(1, step["documents_in"]))
    allowed = card_tables.limits_of(name, step)
    words = f"{card_tables.documents(facts['documents'])} removed ({share})"
    shown = [
        {**plain, "removed": each["removed"], "limit": each["limit"]}
        for each, plain in zip(
            measure["border"], card_tables.examples(measure["border"]), strict=True
        )
    ]
    title = f"Values of {name}" + (f"; allowed: {allowed}" if allowed else "")
    return {
        "name": name,
        "words": f"{allowed}; {words}" if allowed else words,
        "open": unfolded and facts["documents"] > 0,
        "histogram": histogram(title, values, measure["low"], measure["high"]),
        "whole": all(float(number).is_integer() for number in values),
        "limits": [
            {"side": side, "at": measure[side], "setting": measure["settings"][side]}
            for side in ("low", "high")
            if measure[side] is not None
        ],
        "border": sorted(shown, key=lambda e: (e["limit"], float(e["value"]))),
        "removed": card_tables.examples(facts["examples"]),
    }


def _change(step: Mapping[str, Any], rule: str) -> dict[str, Any]:
    examples = step["change_examples"].get(rule, [])
    shown = [
        {"id": str(e["id"]), "value": value(e["value"]), "before": e["before"], "after": e["after"]}
        for e in examples
    ]
    return {"rule": rule, "count": f"{step['changes'][rule]:,} changes", "examples": shown}
