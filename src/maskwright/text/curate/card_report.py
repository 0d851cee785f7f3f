"""The card of a corpus for readers: in the terminal; as `card.md`, the data card; and as
`page.html`, which shows what each step and rule removed or changed, with examples.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from maskwright.base.counted import counted
from maskwright.base.findings import Finding
from maskwright.base.report import document, wording
from maskwright.base.report.drawing.histogram import histogram
from maskwright.base.report.drawing.svg import FlowStage, flow
from maskwright.base.report.tables import Table
from maskwright.base.report.wording import percent, size
from maskwright.base.terminal import shell_word
from maskwright.text.curate.engine.segment import range_text
from maskwright.text.curate.engine.shards import UNREAD

Card = Mapping[str, Any]
FILES = 20  # most files in a table
ROWS = 20  # most sources, languages or licences in a table
HEADED = 20  # most languages and licences in the front matter of the data card
OPEN = 2  # rules of a step that are expanded on the page


# ------------------------------------------------------------------------------ the terminal
def terminal_lines(card: Card) -> list[str]:
    """Return lines that describe the result: what each step removed, by rule."""
    read, remaining = card["read"], card["left"]
    lines = [f"read: {read['documents']:,} documents, {size(read['bytes'])}"]
    for step in card["steps"]:
        rules = sorted(step["rules"].items(), key=lambda item: -item[1]["documents"])
        by_rule = ", ".join(f"{rule} {facts['documents']:,}" for rule, facts in rules[:4])
        changed = ", ".join(f"{rule} in {n:,}" for rule, n in list(step["changes"].items())[:4])
        removed = f"{removed_by(step):,} of {step['documents_in']:,} removed"
        phrases = [f"{removed} ({_share_removed(step)})", by_rule]
        phrases += [f"changed: {changed}"] if changed else []
        lines.append(f"  {step['step']}: {'; '.join(filter(None, phrases))}")
    tokens = f", {remaining['tokens']:,} tokens" if "tokens" in remaining else ""
    lines.append(
        f"left: {remaining['documents']:,} documents, {size(remaining['bytes'])}, "
        f"{remaining['words']:,} words{tokens}"
    )
    return lines


def removed_by(step: Mapping[str, Any]) -> int:
    """Return the number of documents that a step removed."""
    return int(step["documents_in"] - step["documents_out"])


def _share_removed(step: Mapping[str, Any]) -> str:
    return percent(removed_by(step) / max(1, step["documents_in"]))


# ------------------------------------------------------------------------------ tables and phrases
def input_summary(card: Card) -> str:
    read = card["read"]
    files = counted(len(read["files"]), "file")
    return f"{counted(read['documents'], 'document')} ({size(read['bytes'])}) in {files}"


def result_summary(card: Card) -> str:
    """Return the remaining documents, bytes, words and, if counted, tokens, as a phrase."""
    remaining = card["left"]
    share = remaining["documents"] / max(1, card["read"]["documents"])
    phrases = [
        f"{counted(remaining['documents'], 'document')} ({percent(share)})",
        size(remaining["bytes"]),
    ]
    phrases.append(f"{remaining['words']:,} words")
    if "tokens" in remaining:
        phrases.append(f"{remaining['tokens']:,} tokens")
    return ", ".join(phrases)


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
    notes = ["A document goes by the first rule that it breaks."] if len(names) > 1 else []
    notes += [f"Nothing went by {', '.join(unused)}."] if unused else []
    return {
        "title": f"{step['step']}: what went, by rule",
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
        "head": ["step", "came", "removed", "share", "fewer bytes", "changes"],
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
        "head": ["source", "came", "removed", "share", "left"],
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


def contamination_lines(card: Card) -> list[str] | None:
    """Describe the results of steps with evaluation files; None if there is no such step."""
    evaluating_steps = [s for s in card["steps"] if "evaluation" in s["settings"]]
    if not evaluating_steps:
        return None
    lines = []
    for step in evaluating_steps:
        lines.append(f"{counted(removed_by(step), 'document')} removed by {step['step']}")
        lines += [str(Finding.from_json(finding)) for finding in step["findings"]]
    return lines


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
    lines.append("sizes removed by a step are those of the texts as they came to it")
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


def shown_examples(examples: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Convert examples for the page; those of copies include the text of the kept document."""
    return [
        {
            "id": str(example["id"]),
            "place": "" if example["place"] == example["id"] else str(example["place"]),
            "text": str(example["text"]),
            "value": value_text(example.get("value", "")),
            "survivor_text": str(example.get("survivor_text", "")),
        }
        for example in examples
    ]


def value_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _common(card: Card) -> dict[str, Any]:
    """Return what the data card and the page both show."""
    return {
        "came": input_summary(card),
        "left": result_summary(card),
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


def _about_step(step: Mapping[str, Any]) -> dict[str, Any]:
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
    return document.render(
        "data_card.md",
        **_common(card),
        front=_front(card),
        made_by=card["made_by"],
        steps=[
            {**_about_step(step), "changes": step["changes"], "rules": rule_table(step)}
            for step in card["steps"]
        ],
        tokenizer=_tokenizer(card),
        contamination=contamination_lines(card),
    )


def _front(card: Card) -> dict[str, Any]:
    remaining = card["left"]
    front: dict[str, Any] = {"tags": ["curated corpus"]}
    for name, counts in (("language", remaining["languages"]), ("license", remaining["licences"])):
        if names := [value for value in counts if value][:HEADED]:
            front[name] = names
    return front


def _tokenizer(card: Card) -> str:
    if not card["tokenizer"]:
        return ""
    return f"{card['tokenizer']}, fingerprint {card['tokenizer_fingerprint'][:16]}"


# ------------------------------------------------------------------------------ the page
def render_page(card: Card) -> str:
    """The page in HTML; it loads nothing from elsewhere."""
    return document.render(
        "curation.html",
        **_common(card),
        name="What went, and why",
        kind="Curated corpus",
        tiles=_tiles(card),
        flow=flow("Documents and bytes through the steps", _stages(card)),
        steps=[_step(step) for step in card["steps"]],
    )


def _tiles(card: Card) -> list[tuple[str, str]]:
    read, remaining = card["read"], card["left"]
    tiles = [
        (f"{remaining['documents']:,}", f"documents of {read['documents']:,}"),
        (size(remaining["bytes"]), f"of {size(read['bytes'])}"),
        (wording.count(remaining["words"]), "words"),
    ]
    if "tokens" in remaining:
        tiles.append((wording.count(remaining["tokens"]), "tokens"))
    removed = 1 - remaining["documents"] / max(1, read["documents"])
    return [*tiles, (percent(removed), "of the documents removed")]


def _stages(card: Card) -> list[FlowStage]:
    read, remaining = card["read"], card["left"]
    stages = [FlowStage("read", (read["documents"],) * 2, (read["bytes"],) * 2)]
    for step in card["steps"]:
        documents = step["documents_in"], step["documents_out"]
        stages.append(FlowStage(step["step"], documents, (step["bytes_in"], step["bytes_out"])))
    return [*stages, FlowStage("left", (remaining["documents"],) * 2, (remaining["bytes"],) * 2)]


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    names = sorted(step["rules"], key=lambda r: (-step["rules"][r]["documents"], r))
    names += [name for name in step["measures"] if name not in step["rules"]]
    return {
        **_about_step(step),
        "table": rule_table(step),
        "kept": shown_examples(step["kept"]),
        "rules": [_rule(step, name, number < OPEN) for number, name in enumerate(names)],
        "changes": [_change(step, rule) for rule in step["changes"]],
    }


def _rule(step: Mapping[str, Any], name: str, unfolded: bool) -> dict[str, Any]:
    """Return the section of a rule: its effect, histogram, limits and examples."""
    facts = step["rules"].get(name, {"documents": 0, "examples": []})
    measure = step["measures"].get(name, {"sample": [], "border": [], "low": None, "high": None})
    values = [number for _, number in measure["sample"]]
    share = percent(facts["documents"] / max(1, step["documents_in"]))
    allowed = range_text(measure["low"], measure["high"])
    words = f"{counted(facts['documents'], 'document')} removed ({share})"
    shown = [
        {**plain, "removed": example["removed"], "limit": example["limit"]}
        for example, plain in zip(measure["border"], shown_examples(measure["border"]), strict=True)
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
        "removed": shown_examples(facts["examples"]),
    }


def _change(step: Mapping[str, Any], rule: str) -> dict[str, Any]:
    examples = step["change_examples"].get(rule, [])
    shown = [
        {
            "id": str(e["id"]),
            "value": value_text(e["value"]),
            "before": e["before"],
            "after": e["after"],
        }
        for e in examples
    ]
    return {"rule": rule, "count": f"{step['changes'][rule]:,} changes", "examples": shown}
