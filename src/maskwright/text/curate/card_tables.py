"""What a card says, as sentences and tables for a reader: the data card and the page show them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from maskwright.base.counted import counted
from maskwright.base.findings import Finding
from maskwright.base.report.tables import Table
from maskwright.base.report.wording import percent, size
from maskwright.base.terminal import shell_word
from maskwright.text.curate.engine.shards import UNREAD

Card = Mapping[str, Any]
FILES = 20  # of a list that a reader sees
ROWS = 20


def documents(count: int) -> str:
    return counted(count, "document")


def came(card: Card) -> str:
    read = card["read"]
    files = counted(len(read["files"]), "file")
    return f"{documents(read['documents'])} ({size(read['bytes'])}) in {files}"


def left(card: Card) -> str:
    """Documents, bytes, words, and tokens where they were counted."""
    found = card["left"]
    share = found["documents"] / max(1, card["read"]["documents"])
    parts = [f"{documents(found['documents'])} ({percent(share)})", size(found["bytes"])]
    parts.append(f"{found['words']:,} words")
    if "tokens" in found:
        parts.append(f"{found['tokens']:,} tokens")
    return ", ".join(parts)


def files(card: Card) -> Table:
    found = card["read"]["files"]
    more = len(found) - FILES
    return {
        "title": "Files",
        "head": ["file", "size", "SHA-256"],
        "rows": [[f["file"], size(f["bytes"]), f["sha256"]] for f in found[:FILES]],
        "note": f"And {more:,} more: card.json has all of them." if more > 0 else "",
    }


def reading(card: Card) -> list[str]:
    """How the files were read, and what was met, in sentences."""
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
    lines += [f"read with {setting(n, v)}" for n, v in read["reading"].items()]
    lines += [str(Finding.from_json(found)) for found in read["findings"]]
    for parent in card["parents"]:
        where, digest = parent["folder"], parent["fingerprint"]
        lines.append(f"{where} is itself a curated corpus: fingerprint {digest}")
    return lines


def setting(name: str, value: Any) -> str:
    """A setting as the recipe has it."""
    return f"{name} = {json.dumps(value, ensure_ascii=False)}"


def summary(step: Mapping[str, Any]) -> str:
    """What a step does, as the beginning of a sentence."""
    text = str(step["summary"])
    return text[:1].upper() + text[1:]


def limits_of(rule: str, step: Mapping[str, Any]) -> str:
    """What a rule allows, in words; empty where it is no range."""
    measure = step["measures"].get(rule, {})
    low, high = measure.get("low"), measure.get("high")
    parts = [f"at least {low:g}"] if low is not None else []
    parts += [f"at most {high:g}"] if high is not None else []
    return ", ".join(parts)


def rules(step: Mapping[str, Any]) -> Table:
    """Each rule of a step with what went by it, most first; the note names rules by which nothing
    went."""
    names = sorted(step["rules"], key=lambda r: (-step["rules"][r]["documents"], r))
    idle = [name for name in step["measures"] if name not in step["rules"]]
    rows = []
    for name in names:
        facts = step["rules"][name]
        most = list(facts["sources"].items())[:3]
        share = percent(facts["documents"] / max(1, step["documents_in"]))
        row = [name, limits_of(name, step) or "–", f"{facts['documents']:,}", share]
        row += [size(facts["bytes"]), ", ".join(f"{n or '–'} {c:,}" for n, c in most) or "–"]
        rows.append(row)
    notes = ["A document goes by the first rule that it breaks."] if len(names) > 1 else []
    notes += [f"Nothing went by {', '.join(idle)}."] if idle else []
    return {
        "title": f"{step['step']}: what went, by rule",
        "head": ["rule", "allowed", "documents", "share", "size", "most from"],
        "rows": rows,
        "note": " ".join(notes),
    }


def steps(card: Card) -> Table:
    rows = []
    for step in card["steps"]:
        removed = step["documents_in"] - step["documents_out"]
        rows.append(
            [
                step["step"],
                f"{step['documents_in']:,}",
                f"{removed:,}",
                percent(removed / max(1, step["documents_in"])),
                size(step["bytes_in"] - step["bytes_out"]),
                f"{sum(step['changes'].values()):,}",
            ]
        )
    return {
        "title": "Steps, in their order",
        "head": ["step", "came", "removed", "share", "fewer bytes", "changes"],
        "rows": rows,
        "note": "",
    }


def by_source(card: Card) -> Table:
    """For each source what came, what went and what is left."""
    removed: dict[str, int] = {}
    for step in card["steps"]:
        for facts in step["rules"].values():
            for name, count in facts["sources"].items():
                removed[name] = removed.get(name, 0) + count
    stays = card["left"]["sources"]
    names = sorted({*removed, *stays}, key=lambda n: (-removed.get(n, 0) - stays.get(n, 0), n))
    rows = []
    for name in names[:ROWS]:
        total = removed.get(name, 0) + stays.get(name, 0)
        share = percent(removed.get(name, 0) / max(1, total))
        kept = stays.get(name, 0)
        rows.append([name or "–", f"{total:,}", f"{removed.get(name, 0):,}", share, f"{kept:,}"])
    more = len(names) - ROWS
    return {
        "title": "Documents by source",
        "head": ["source", "came", "removed", "share", "left"],
        "rows": rows,
        "note": f"And {more:,} more sources: card.json." if more > 0 else "",
    }


def shares(title: str, counts: Mapping[str, int], head: str) -> Table:
    """Counts of documents by value, most first."""
    total = sum(counts.values())
    rows = [
        [name or "not given", f"{count:,}", percent(count / max(1, total))]
        for name, count in list(counts.items())[:ROWS]
    ]
    more = len(counts) - ROWS
    note = f"And {more:,} more: card.json." if more > 0 else ""
    return {"title": title, "head": [head, "documents", "share"], "rows": rows, "note": note}


def licences(card: Card) -> str:
    """A sentence where no licence is known of some documents or of all; else empty."""
    known = card["left"]["licences"]
    without = card["left"]["documents"] - sum(n for name, n in known.items() if name)
    if not any(known):
        return (
            "Unknown: no column licence or license came with the texts. Whoever passes the corpus "
            "on must know by other means that they may."
        )
    if without > 0:
        return f"Unknown for {documents(without)}."
    return ""


def contamination(card: Card) -> list[str] | None:
    """What steps with evaluation files found, for each file; None: no such step."""
    found = [s for s in card["steps"] if "evaluation" in s["settings"]]
    if not found:
        return None
    lines = []
    for step in found:
        removed = step["documents_in"] - step["documents_out"]
        lines.append(f"{documents(removed)} removed by {step['step']}")
        lines += [str(Finding.from_json(each)) for each in step["findings"]]
    return lines


def known_limits(card: Card) -> list[str]:
    """What the corpus was not looked at for, and what its figures do not say."""
    lines = list(card["not_done"])
    read = card["read"]
    if read["rejected"]:
        lines.append(f"{counted(read['rejected'], 'row')} not read")
    if read["unreadable"]:
        lines.append(f"{counted(len(read['unreadable']), 'file')} not read to the end")
    if "tokens" not in card["left"]:
        lines.append("tokens were not counted (--tokenizer FOLDER)")
    lines.append("sizes removed by a step are those of the texts as they came to it")
    lines.append("nobody looked at whether the texts are true, fair or allowed to be used")
    lines.append(
        "removed/, changed/, card.json and page.html hold pieces of texts as they were before "
        "later steps, personal details included: leave them out of what is passed on"
    )
    return lines


def command(card: Card) -> str:
    """The command that makes the corpus again, from within the folder of the first run."""
    words = ["maskwright", "curate", *card["read"]["paths"], "--recipe", "recipe.toml"]
    for name, value in card["read"]["reading"].items():
        plain = value if isinstance(value, str) else json.dumps(value)
        words += ["--read", f"{name}={plain}"]
    if card["tokenizer"]:
        words += ["--tokenizer", card["tokenizer"]]
    return " ".join(map(shell_word, [*words, "--out", "again"]))


def examples(found: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Examples as a page shows them, of a copy with the text kept for it."""
    return [
        {
            "id": str(each["id"]),
            "place": "" if each["place"] == each["id"] else str(each["place"]),
            "text": str(each["text"]),
            "value": value(each.get("value", "")),
            "survivor_text": str(each.get("survivor_text", "")),
        }
        for each in found
    ]


def value(found: Any) -> str:
    return f"{found:g}" if isinstance(found, float) else str(found)
