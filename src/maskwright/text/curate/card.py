"""The card of a corpus as plain values: what came in, what every step did, what is left.

Cards of the same recipe can be added up: all numbers are counts.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.base.config import to_plain
from maskwright.base.counted import counted
from maskwright.base.errors import DataError
from maskwright.base.findings import Finding
from maskwright.base.storage.manifest import require_as_saved, verify
from maskwright.base.version import VERSION
from maskwright.text.corpus import curated
from maskwright.text.corpus.files import Paths, listed
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate.engine.run import Pieces, folder_key
from maskwright.text.curate.engine.segment import (
    FACTS_FILE,
    MOST_SOURCES,
    SAMPLE,
    TEXT_FILE,
    least_examples,
    nearest_examples,
)
from maskwright.text.curate.engine.shards import read_facts
from maskwright.text.curate.engine.tables import texts_of
from maskwright.text.curate.recipe import (
    Recipe,
    defaults_of,
    setting_of,
    settings_of,
    step_names,
    summary_of,
)
from maskwright.text.curate.step import Step

FORMAT = 1
SHOWN = 200  # characters of the document that is kept for a copy
LICENCES = ("licence", "license")


def card_of(
    pieces: Pieces,
    recipe: Recipe,
    tokenizer: str = "",
    *,
    paths: Paths = (),
    reading: ReadingOptions | None = None,
) -> dict[str, Any]:
    """Everything about the corpus, examples included, as JSON holds it.

    Args:
        paths, reading: what was read, and how.

    Raises:
        DataError: a curated corpus among `paths` is damaged.
    """
    facts = pieces.facts
    values = {
        name: _counted(f["values"].get(name, {}) for f in facts)
        for name in ("source", "language", *LICENCES)
    }
    steps = [
        step
        | _about_step(step["step"], recipe.steps[step["step"]])
        | {"findings": [found.to_json() for found in pieces.found.get(step["step"], [])]}
        for names, folders in pieces.segments
        for step in _steps(names, folders)
    ]
    for step in steps:
        for rule, measure in step["measures"].items():
            measure["settings"] = {
                side: setting_of(recipe.steps[step["step"]], rule, side, measure[side])
                for side in ("low", "high")
            }
    return {
        "format": FORMAT,
        "made_by": f"maskwright {VERSION}",
        "read": {
            "paths": listed(paths),
            "reading": {} if reading is None else _not_default(reading),
            "files": [file for reading in pieces.reading for file in reading["files"]],
            **{
                name: sum(reading[name] for reading in pieces.reading)
                for name in ("rows", "documents", "blank", "rejected")
            },
            "bytes": steps[0]["bytes_in"],
            "unreadable": [file for reading in pieces.reading for file in reading["unreadable"]],
            "findings": [found.to_json() for found in reading_findings(pieces.reading)],
        },
        "parents": _parents(listed(paths)),
        "steps": steps,
        "left": {
            **{n: sum(f[n] for f in facts) for n in ("documents", "bytes", "words")},
            **({"tokens": sum(f["tokens"] for f in facts)} if tokenizer else {}),
            "sources": values["source"],
            "languages": values["language"],
            "licences": _counted(values[name] for name in LICENCES),
        },
        "not_done": [
            sentence
            for name in step_names()
            if name not in recipe.steps and (sentence := settings_of(name).UNLESS)
        ],
        "tokenizer": tokenizer or None,
        "tokenizer_fingerprint": folder_key(tokenizer) or None,
    }


def _about_step(name: str, step: Step) -> dict[str, Any]:
    settings = to_plain(step)
    usual = defaults_of(name)
    return {
        "summary": summary_of(name),
        "settings": settings,
        "not_default": {n: v for n, v in settings.items() if v != usual.get(n)},
    }


def _not_default(reading: ReadingOptions) -> dict[str, Any]:
    usual = to_plain(ReadingOptions(notes=("*",)))
    return {name: value for name, value in to_plain(reading).items() if value != usual[name]}


def _parents(paths: Sequence[str]) -> list[dict[str, Any]]:
    """The curated corpora that the paths are, or lie in."""
    found: dict[str, dict[str, Any]] = {}
    for path in map(Path, paths):
        for folder in (path, *path.parents[:2]):
            if curated.is_curated(folder):
                found.setdefault(os.path.realpath(folder), curated.summary(folder))
    return [
        {"folder": each["folder"], "fingerprint": each["fingerprint"]} for each in found.values()
    ]


def _steps(names: Sequence[str], folders: Sequence[Path]) -> list[dict[str, Any]]:
    """What the steps of a segment did; the facts of one shard are in memory at a time."""
    found = {name: _step(name, []) for name in names}
    for folder in folders:
        parts = read_facts(folder / FACTS_FILE)["steps"]
        found = {name: _step(name, [step, parts[name]]) for name, step in found.items()}
    _show_survivors(list(found.values()), [folder / TEXT_FILE for folder in folders])
    return list(found.values())


def _show_survivors(steps: Sequence[Mapping[str, Any]], shards: Sequence[Path]) -> None:
    """Beside examples of copies, the beginning of the document that is kept for each."""
    examples = [e for step in steps for rule in step["rules"].values() for e in rule["examples"]]
    texts = texts_of(shards, {e["survivor"] for e in examples if "survivor" in e})
    for each in examples:
        if (text := texts.get(each.get("survivor", ""))) is not None:
            each["survivor_text"] = text if len(text) <= SHOWN else text[:SHOWN].rstrip() + "…"


def _step(name: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What a step did to all shards."""
    step: dict[str, Any] = {"step": name}
    for count in ("documents_in", "bytes_in", "documents_out", "bytes_out"):
        step[count] = sum(part[count] for part in parts)
    step["changes"] = _counted(part["changes"] for part in parts)
    step["change_examples"] = {}
    for part in parts:
        for rule, examples in part["change_examples"].items():
            shown = step["change_examples"].get(rule, [])
            step["change_examples"][rule] = least_examples(shown + examples)
    step["kept"] = least_examples([example for part in parts for example in part["kept"]])
    rules: dict[str, dict[str, Any]] = {}
    measures: dict[str, dict[str, Any]] = {}
    for part in parts:
        for rule, facts in part["rules"].items():
            found = rules.setdefault(
                rule, {"documents": 0, "bytes": 0, "sources": {}, "examples": []}
            )
            found["documents"] += facts["documents"]
            found["bytes"] += facts["bytes"]
            found["sources"] = _counted([found["sources"], facts["sources"]])
            found["examples"] = least_examples(found["examples"] + facts["examples"])
        for rule, facts in part["measures"].items():
            found = measures.setdefault(rule, {**facts, "sample": [], "border": []})
            found["sample"] = sorted(found["sample"] + facts["sample"])[:SAMPLE]
            found["border"] = nearest_examples(found["border"] + facts["border"])
    return {**step, "rules": dict(sorted(rules.items())), "measures": measures}


def _counted(parts: Any) -> dict[str, int]:
    """Counts added up, the largest first."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0]))[:MOST_SOURCES])


def reading_findings(readings: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """What the reading of groups of files met: of one sort the first, and how many more."""
    by_name: dict[str, dict[Finding, None]] = {}
    for found in (Finding.from_json(f) for reading in readings for f in reading["findings"]):
        by_name.setdefault(found.name, {})[found] = None
    findings = []
    for first, *others in by_name.values():
        more = f"the same in {counted(len(others), 'other file')}" if others else ""
        findings.append(replace(first, evidence="; ".join(filter(None, (first.evidence, more)))))
    ignored = (reading["ignored"].findings for reading in readings if "ignored" in reading)
    return findings + [found for part in ignored for found in part]


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a curated corpus.

    Raises:
        DataError: it is damaged, or a file of the corpus is missing or has another size.
    """
    verify(folder, full=False, error=DataError)
    require_as_saved(folder / "card.json", error=DataError)
    return read_facts(folder / "card.json")
