"""The card of a corpus: its values, and how they are shown.

All numbers are counts, which can be added over cards of the same recipe. Readers see them in the
terminal; in `card.md`, the data card; and on `page.html`, which shows what each step and rule
removed or changed, with examples.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.base.config import to_plain
from maskwright.base.errors import DataError, Finding
from maskwright.base.report import document
from maskwright.base.report.document import Table, percent, size
from maskwright.base.report.drawing.curves import histogram
from maskwright.base.report.drawing.svg import FlowStage, flow
from maskwright.base.storage.manifest import require_as_saved, verify
from maskwright.base.terminal import counted, shell_word
from maskwright.base.version import VERSION
from maskwright.text.corpus import saved
from maskwright.text.corpus.files import Paths, listed
from maskwright.text.corpus.reading import ReadingOptions
from maskwright.text.curate.engine.run import Pieces, folder_key
from maskwright.text.curate.engine.segment import (
    FACTS_FILE,
    SAMPLE,
    TEXT_FILE,
    least_examples,
    nearest_examples,
    range_text,
)
from maskwright.text.curate.engine.shards import MOST_SOURCES, UNREAD, read_facts, texts_of
from maskwright.text.curate.recipe import (
    CurationRecipe,
    defaults_of,
    setting_of,
    step_class,
    step_names,
    summary_of,
)
from maskwright.text.curate.step import Step

# ------------------------------------------------------------------------------ values
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
            if name not in recipe.steps and (sentence := step_class(name).UNLESS)
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
            if saved.is_curated(folder):
                summaries.setdefault(os.path.realpath(folder), saved.curation_summary(folder))
    return [
        {"folder": summary["folder"], "fingerprint": summary["fingerprint"]}
        for summary in summaries.values()
    ]


def _steps(names: Sequence[str], folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the totals of each step of a segment, with one shard's facts in memory at a time."""
    steps = [_step_facts(name, []) for name in names]
    for folder in folders:
        shard_steps = read_facts(folder / FACTS_FILE)["steps"]
        steps = [_step_facts(step["step"], [step, shard_steps[step["step"]]]) for step in steps]
    _show_survivors(steps, [folder / TEXT_FILE for folder in folders])
    return steps


def _show_survivors(steps: Sequence[Mapping[str, Any]], shards: Sequence[Path]) -> None:
    """Add the beginning of the document that is kept (`survivor_text`) to examples of copies."""
    examples = [e for step in steps for rule in step["rules"].values() for e in rule["examples"]]
    texts = texts_of(shards, {e["survivor"] for e in examples if "survivor" in e})
    for example in examples:
        if (text := texts.get(example.get("survivor", ""))) is not None:
            example["survivor_text"] = text if len(text) <= SHOWN else text[:SHOWN].rstrip() + "…"


def _step_facts(name: str, shard_facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
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
        evidence = [first_finding.evidence]
        if similar_findings:
            evidence.append(f"the same in {counted(len(similar_findings), 'other file')}")
        findings.append(replace(first_finding, evidence="; ".join(filter(None, evidence))))
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


# ------------------------------------------------------------------------------ for readers
Card = Mapping[str, Any]
FILES = 20  # most files in a table
ROWS = 20  # most sources, languages or licences in a table
MOST_IN_HEADER = 20  # languages and licences in the front matter of the data card
EXPANDED = 2  # rules of a step whose sections are unfolded on the page at first


# ------------------------------------------------------------------------------ the terminal
def terminal_lines(card: Card) -> list[str]:
    """Return lines that describe the result: what each step removed, by rule."""
    read, remaining = card["read"], card["left"]
    lines = [f"input: {read['documents']:,} documents, {size(read['bytes'])}"]
    for step in card["steps"]:
        rules = sorted(step["rules"].items(), key=lambda item: -item[1]["documents"])
        by_rule = ", ".join(f"{rule} {facts['documents']:,}" for rule, facts in rules[:4])
        changed = ", ".join(f"{rule} in {n:,}" for rule, n in list(step["changes"].items())[:4])
        removed = f"{removed_by(step):,} of {step['documents_in']:,} removed"
        phrases = [f"{removed} ({_share_removed(step)})", by_rule]
        phrases += [f"changed: {changed}"] if changed else []
        lines.append(f"  {step['step']}: {'; '.join(filter(None, phrases))}")
    return [*lines, f"output: {remaining['documents']:,} documents, {_amount(remaining)}"]


def removed_by(step: Mapping[str, Any]) -> int:
    """Return the number of documents that a step removed."""
    return int(step["documents_in"] - step["documents_out"])


def _share_removed(step: Mapping[str, Any]) -> str:
    return percent(removed_by(step) / max(1, step["documents_in"]))


# ------------------------------------------------------------------------------ tables and phrases
def _amount(remaining: Mapping[str, Any]) -> str:
    tokens = f", {remaining['tokens']:,} tokens" if "tokens" in remaining else ""
    return f"{size(remaining['bytes'])}, {remaining['words']:,} words{tokens}"


def file_table(card: Card) -> Table:
    files = card["read"]["files"]
    more = len(files) - FILES
    return {
        "title": "Files",
        "head": ["file", "size", "SHA-256"],
        "rows": [[f["file"], size(f["bytes"]), f["sha256"]] for f in files[:FILES]],
        "note": f"And {more:,} more: card.json has all of them." if more > 0 else "",
    }


def reading_lines(card: Card) -> list[str]:
    """Describe the rows, unreadable files, options, findings and parents, a sentence each."""
    read = card["read"]
    lines = [f"rows: {read['rows']:,}; blank, left out: {read['blank']:,}"]
    bad = f"rows that could not be read, left out: {read['rejected']:,}"
    lines.append(bad + (" (listed in unreadable.jsonl.gz)" if read["rejected"] else ""))
    for file in read["unreadable"]:
        end = "" if file["extent"] == UNREAD else f" to its end, {file['extent']}"
        lines.append(
            f"{file['file']} could not be read{end}: "
            + ", ".join(filter(None, (file["reason"], file["found"])))
        )
    lines += [f"read with {setting_line(n, v)}" for n, v in read["reading"].items()]
    lines += [str(Finding.from_json(finding)) for finding in read["findings"]]
    for parent in card["parents"]:
        where, digest = parent["folder"], parent["fingerprint"]
        lines.append(f"{where} is itself a curated corpus: fingerprint {digest}")
    return lines


def setting_line(name: str, value: Any) -> str:
    """Return a setting as written in a recipe."""
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def rule_table(step: Mapping[str, Any]) -> Table:
    """Return a table of the documents that each rule of a step removed, in descending order; its
    note names the rules that removed none."""
    names = sorted(step["rules"], key=lambda r: (-step["rules"][r]["documents"], r))
    unused = [name for name in step["measures"] if name not in step["rules"]]
    rows = []
    for name in names:
        facts, bounds = step["rules"][name], step["measures"].get(name, {})
        top_sources = list(facts["sources"].items())[:3]
        share = percent(facts["documents"] / max(1, step["documents_in"]))
        allowed = range_text(bounds.get("low"), bounds.get("high")) or "–"
        row = [name, allowed, f"{facts['documents']:,}", share, size(facts["bytes"])]
        rows.append([*row, ", ".join(f"{n or '–'} {c:,}" for n, c in top_sources) or "–"])
    notes = ["A document counts under the first rule that it breaks."] if len(names) > 1 else []
    notes += [f"Nothing was removed by {', '.join(unused)}."] if unused else []
    return {
        "title": f"{step['step']}: removed by rule",
        "head": ["rule", "allowed", "documents", "share", "size", "most from"],
        "rows": rows,
        "note": " ".join(notes),
    }


def overview_table(card: Card) -> Table:
    rows = []
    for step in card["steps"]:
        row = [step["step"], f"{step['documents_in']:,}", f"{removed_by(step):,}"]
        row += [_share_removed(step), size(step["bytes_in"] - step["bytes_out"])]
        rows.append([*row, f"{sum(step['changes'].values()):,}"])
    return {
        "title": "Steps, in their order",
        "head": ["step", "input", "removed", "share", "fewer bytes", "changes"],
        "rows": rows,
        "note": "",
    }


def source_table(card: Card) -> Table:
    """Return a table of the documents of each source: read, removed and remaining."""
    removed, remaining = Counter[str](), Counter[str](card["left"]["sources"])
    for step in card["steps"]:
        for facts in step["rules"].values():
            removed.update(facts["sources"])
    totals = removed + remaining
    names = sorted(totals, key=lambda name: (-totals[name], name))
    rows = []
    for name in names[:ROWS]:
        row = [name or "–", f"{totals[name]:,}", f"{removed[name]:,}"]
        rows.append([*row, percent(removed[name] / totals[name]), f"{remaining[name]:,}"])
    more = len(names) - ROWS
    return {
        "title": "Documents by source",
        "head": ["source", "input", "removed", "share", "output"],
        "rows": rows,
        "note": f"And {more:,} more sources: card.json." if more > 0 else "",
    }


def count_table(title: str, counts: Mapping[str, int], head: str) -> Table:
    """Return a table of `counts`, which are in descending order."""
    total = sum(counts.values())
    rows = [
        [name or "not given", f"{count:,}", percent(count / max(1, total))]
        for name, count in list(counts.items())[:ROWS]
    ]
    more = len(counts) - ROWS
    note = f"And {more:,} more: card.json." if more > 0 else ""
    return {"title": title, "head": [head, "documents", "share"], "rows": rows, "note": note}


def licence_note(card: Card) -> str:
    """Return a sentence if documents have no licence, or else ""."""
    by_licence = card["left"]["licences"]
    without = card["left"]["documents"] - sum(n for name, n in by_licence.items() if name)
    if not any(by_licence):
        return (
            "Unknown: no column licence or license came with the texts. Whoever passes the corpus "
            "on must know by other means that they may."
        )
    if without > 0:
        return f"Unknown for {counted(without, 'document')}."
    return ""


def limitations(card: Card) -> list[str]:
    """List what was not checked, and what the numbers do not show."""
    lines = list(card["not_done"])
    reading = card["read"]
    if reading["rejected"]:
        lines.append(f"{counted(reading['rejected'], 'row')} not read")
    if reading["unreadable"]:
        lines.append(f"{counted(len(reading['unreadable']), 'file')} not read to the end")
    if "tokens" not in card["left"]:
        lines.append("tokens were not counted (--tokenizer FOLDER)")
    lines.append("sizes removed by a step are those of the texts at the input of the step")
    lines.append("nobody looked at whether the texts are true, fair or allowed to be used")
    lines.append(
        "removed/, changed/, card.json and page.html hold pieces of texts as they were before "
        "later steps, personal details included: leave them out of what is passed on"
    )
    return lines


def repeat_command(card: Card) -> str:
    """Return the command that reproduces the corpus in the working directory of the first run."""
    words = ["maskwright", "curate", *card["read"]["paths"], "--recipe", "recipe.toml"]
    for name, value in card["read"]["reading"].items():
        plain = value if isinstance(value, str) else json.dumps(value)
        words += ["--read", f"{name}={plain}"]
    if card["tokenizer"]:
        words += ["--tokenizer", card["tokenizer"]]
    return " ".join(map(shell_word, [*words, "--out", "again"]))


def value_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _common(card: Card) -> dict[str, Any]:
    """Return what the data card and the page both show."""
    read, remaining = card["read"], card["left"]
    documents = counted(remaining["documents"], "document")
    files = counted(len(read["files"]), "file")
    share = percent(remaining["documents"] / max(1, read["documents"]))
    return {
        "came": f"{counted(read['documents'], 'document')} ({size(read['bytes'])}) in {files}",
        "left": f"{documents} ({share}), {_amount(remaining)}",
        "reading": reading_lines(card),
        "files": file_table(card),
        "overview": overview_table(card),
        "tables": [
            source_table(card),
            count_table("Documents by language", card["left"]["languages"], "language"),
            count_table("Documents by licence", card["left"]["licences"], "licence"),
        ],
        "licences": licence_note(card),
        "limits": limitations(card),
        "command": repeat_command(card),
    }


def _shown_facts(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the data card and the page both show of a step."""
    summary = str(step["summary"])
    return {
        "name": step["step"],
        "summary": summary[:1].upper() + summary[1:],
        "settings": [setting_line(name, value) for name, value in step["not_default"].items()],
        "findings": [Finding.from_json(finding) for finding in step["findings"]],
    }


# ------------------------------------------------------------------------------ the data card
def render_data_card(card: Card) -> str:
    """The data card in Markdown."""
    columns = {"language": card["left"]["languages"], "license": card["left"]["licences"]}
    named = {key: list(filter(None, counts))[:MOST_IN_HEADER] for key, counts in columns.items()}
    front_matter = {key: names for key, names in named.items() if names}
    return document.render(
        "data_card.md",
        **_common(card),
        front={"tags": ["curated corpus"], **front_matter},
        made_by=card["made_by"],
        steps=[
            {**_shown_facts(step), "changes": step["changes"], "rules": rule_table(step)}
            for step in card["steps"]
        ],
        tokenizer=card["tokenizer"]
        and f"{card['tokenizer']}, fingerprint {card['tokenizer_fingerprint'][:16]}",
    )


# ------------------------------------------------------------------------------ the page
def render_page(card: Card) -> str:
    """The page in HTML; it loads nothing from elsewhere."""
    return document.render(
        "curation.html",
        **_common(card),
        name=", ".join(Path(path).name for path in card["read"]["paths"]),
        kind="Curated corpus",
        tiles=_tiles(card),
        flow=flow("Documents and bytes through the steps", _stages(card)),
        verdict=f"{card['left']['documents']:,} of {card['read']['documents']:,} documents kept",
        steps=_by_effect(card),
    )


def _by_effect(card: Card) -> dict[str, Any]:
    """Return the numbered sections of steps that removed or changed something, and of others."""
    sections: dict[str, list[tuple[int, dict[str, Any]]]] = {"active": [], "idle": []}
    for number, step in enumerate(card["steps"], 1):
        effect = step["documents_in"] > step["documents_out"] or any(step["changes"].values())
        sections["active" if effect else "idle"].append((number, _step_section(step)))
    return {**sections, "total": len(card["steps"])}


def _tiles(card: Card) -> list[tuple[str, str]]:
    read, remaining = card["read"], card["left"]
    tiles = [
        (f"{remaining['documents']:,}", f"documents of {read['documents']:,}"),
        (size(remaining["bytes"]), f"of {size(read['bytes'])}"),
        (document.count(remaining["words"]), "words"),
    ]
    if "tokens" in remaining:
        tiles.append((document.count(remaining["tokens"]), "tokens"))
    removed = 1 - remaining["documents"] / max(1, read["documents"])
    return [*tiles, (percent(removed), "of the documents removed")]


def _stages(card: Card) -> list[FlowStage]:
    read, remaining = card["read"], card["left"]
    stages = [FlowStage("input", (read["documents"],) * 2, (read["bytes"],) * 2)]
    for step in card["steps"]:
        documents = step["documents_in"], step["documents_out"]
        stages.append(FlowStage(step["step"], documents, (step["bytes_in"], step["bytes_out"])))
    return [*stages, FlowStage("output", (remaining["documents"],) * 2, (remaining["bytes"],) * 2)]


def _step_section(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a step; its rules by the number of documents that they removed."""
    names = sorted(step["rules"], key=lambda r: (-step["rules"][r]["documents"], r))
    names += [name for name in step["measures"] if name not in step["rules"]]
    return {
        **_shown_facts(step),
        "table": rule_table(step),
        "kept": step["kept"],
        "rules": [_rule(step, name, number < EXPANDED) for number, name in enumerate(names)],
        "changes": [
            {
                "rule": rule,
                "count": counted(changes, "change"),
                "examples": step["change_examples"].get(rule, []),
            }
            for rule, changes in step["changes"].items()
        ],
    }


def _rule(step: Mapping[str, Any], name: str, unfolded: bool) -> dict[str, Any]:
    """Return the section of a rule: its effect, histogram, limits and examples."""
    facts = step["rules"].get(name, {"documents": 0, "examples": []})
    measure = step["measures"].get(name, {"sample": [], "border": [], "low": None, "high": None})
    values = [number for _, number in measure["sample"]]
    share = percent(facts["documents"] / max(1, step["documents_in"]))
    allowed = range_text(measure["low"], measure["high"])
    words = f"{counted(facts['documents'], 'document')} removed ({share})"
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
        "border": sorted(measure["border"], key=lambda e: (e["limit"], e["value"])),
        "removed": facts["examples"],
    }
