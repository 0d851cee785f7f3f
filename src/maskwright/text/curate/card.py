"""The card of a corpus as plain values: what was read, what each step did, what remains.

All numbers are counts, which can be added over cards of the same recipe.
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
    SAMPLE,
    TEXT_FILE,
    least_examples,
    nearest_examples,
)
from maskwright.text.curate.engine.shards import MOST_SOURCES, read_facts
from maskwright.text.curate.engine.tables import texts_of
from maskwright.text.curate.recipe import (
    CurationRecipe,
    defaults_of,
    setting_of,
    settings_of,
    step_names,
    summary_of,
)
from maskwright.text.curate.step import Step

FORMAT = 1
SHOWN = 200  # characters shown of the document that is kept for a copy
LICENCES = ("licence", "license")


def card_of(
    pieces: Pieces,
    recipe: CurationRecipe,
    tokenizer: str = "",
    *,
    paths: Paths = (),
    reading: ReadingOptions | None = None,
) -> dict[str, Any]:
    """Return the card, including examples, as plain values for JSON.

    Args:
        tokenizer: the folder of the tokenizer that counted tokens, or "".
        paths, reading: the paths that were read, and the options.

    Raises:
        DataError: a curated corpus among `paths` is damaged.
    """
    facts, readings = pieces.facts, pieces.read.facts
    values = {
        name: _counted(f["values"].get(name, {}) for f in facts)
        for name in ("source", "language", *LICENCES)
    }
    steps = [
        step
        | _about_step(step["step"], recipe.steps[step["step"]])
        | {"findings": [finding.to_json() for finding in pieces.findings.get(step["step"], [])]}
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
            "files": [file for r in readings for file in r["files"]],
            **{
                name: sum(r[name] for r in readings)
                for name in ("rows", "documents", "blank", "rejected")
            },
            "bytes": steps[0]["bytes_in"],
            "unreadable": [file for r in readings for file in r["unreadable"]],
            "findings": [finding.to_json() for finding in reading_findings(readings)],
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
    defaults = defaults_of(name)
    return {
        "summary": summary_of(name),
        "settings": settings,
        "not_default": {n: v for n, v in settings.items() if v != defaults.get(n)},
    }


def _not_default(reading: ReadingOptions) -> dict[str, Any]:
    defaults = to_plain(ReadingOptions(notes=("*",)))
    return {name: value for name, value in to_plain(reading).items() if value != defaults[name]}


def _parents(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return the folder and fingerprint of each curated corpus that contains one of the paths."""
    summaries: dict[str, dict[str, Any]] = {}
    for path in map(Path, paths):
        for folder in (path, *path.parents[:2]):
            if curated.is_curated(folder):
                summaries.setdefault(os.path.realpath(folder), curated.summary(folder))
    return [
        {"folder": summary["folder"], "fingerprint": summary["fingerprint"]}
        for summary in summaries.values()
    ]


def _steps(names: Sequence[str], folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the totals of each step of a segment, with one shard's facts in memory at a time."""
    steps = [_step(name, []) for name in names]
    for folder in folders:
        shard_steps = read_facts(folder / FACTS_FILE)["steps"]
        steps = [_step(step["step"], [step, shard_steps[step["step"]]]) for step in steps]
    _show_survivors(steps, [folder / TEXT_FILE for folder in folders])
    return steps


def _show_survivors(steps: Sequence[Mapping[str, Any]], shards: Sequence[Path]) -> None:
    """Add the beginning of the document that is kept (`survivor_text`) to examples of copies."""
    examples = [e for step in steps for rule in step["rules"].values() for e in rule["examples"]]
    texts = texts_of(shards, {e["survivor"] for e in examples if "survivor" in e})
    for example in examples:
        if (text := texts.get(example.get("survivor", ""))) is not None:
            example["survivor_text"] = text if len(text) <= SHOWN else text[:SHOWN].rstrip() + "…"


def _step(name: str, shard_facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the totals of a step over all shards, as in `Record.steps`."""
    step: dict[str, Any] = {"step": name}
    for count in ("documents_in", "bytes_in", "documents_out", "bytes_out"):
        step[count] = sum(shard[count] for shard in shard_facts)
    step["changes"] = _counted(shard["changes"] for shard in shard_facts)
    step["change_examples"] = {}
    for shard in shard_facts:
        for rule, examples in shard["change_examples"].items():
            shown = step["change_examples"].get(rule, [])
            step["change_examples"][rule] = least_examples(shown + examples)
    step["kept"] = least_examples([example for shard in shard_facts for example in shard["kept"]])
    rules: dict[str, dict[str, Any]] = {}
    measures: dict[str, dict[str, Any]] = {}
    for shard in shard_facts:
        for rule, facts in shard["rules"].items():
            totals = rules.setdefault(
                rule, {"documents": 0, "bytes": 0, "sources": {}, "examples": []}
            )
            totals["documents"] += facts["documents"]
            totals["bytes"] += facts["bytes"]
            totals["sources"] = _counted([totals["sources"], facts["sources"]])
            totals["examples"] = least_examples(totals["examples"] + facts["examples"])
        for rule, facts in shard["measures"].items():
            totals = measures.setdefault(rule, {**facts, "sample": [], "border": []})
            totals["sample"] = sorted(totals["sample"] + facts["sample"])[:SAMPLE]
            totals["border"] = nearest_examples(totals["border"] + facts["border"])
    return {**step, "rules": dict(sorted(rules.items())), "measures": measures}


def _counted(counts: Any) -> dict[str, int]:
    """Return the sums of counts, the `MOST_SOURCES` largest in descending order."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items(), key=lambda item: (-item[1], item[0]))[:MOST_SOURCES])


def reading_findings(readings: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Return the first finding of each name from reading files, with the number of others."""
    by_name: dict[str, dict[Finding, None]] = {}
    for finding in (Finding.from_json(f) for reading in readings for f in reading["findings"]):
        by_name.setdefault(finding.name, {})[finding] = None
    findings = []
    for first_finding, *similar_findings in by_name.values():
        more = (
            f"the same in {counted(len(similar_findings), 'other file')}"
            if similar_findings
            else ""
        )
        findings.append(
            replace(first_finding, evidence="; ".join(filter(None, (first_finding.evidence, more))))
        )
    ignored = (reading["ignored"].findings for reading in readings if "ignored" in reading)
    return findings + [finding for group in ignored for finding in group]


def read_card(folder: Path) -> dict[str, Any]:
    """Read the card of a curated corpus.

    Raises:
        DataError: the card is damaged, or a file of the corpus is missing or has another size.
    """
    verify(folder, full=False, error=DataError)
    require_as_saved(folder / "card.json", error=DataError)
    return read_facts(folder / "card.json")
