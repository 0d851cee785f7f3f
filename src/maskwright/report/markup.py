"""Plain values as HTML: facts, tables, what a model wrote. Everything is escaped here."""

from __future__ import annotations

import difflib
import html
import re
from collections.abc import Iterable, Sequence

from maskwright.report.svg import escape
from maskwright.report.wording import count

LONG = 12  # more entries than this are folded
DEEP = 6  # deeper nesting is shown as text
COMPARED = 3000  # longer texts are shown without marks
ALIKE = 0.3  # a text less like its prompt than this (0 to 1) stands for itself
_PIECES = re.compile(r"\w+|\s+|[^\w\s]")


def lines(text: str) -> str:
    """Several lines as they stand; control characters other than tab and newline are shown."""
    return html.escape(
        "".join(
            c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape", "replace").decode()
            for c in text
        )
    )


def block(text: str) -> str:
    """`lines` in a box, in letters of equal width."""
    return f"<pre>{lines(text)}</pre>"


def facts(value: object, depth: int = 0) -> str:
    """Nested tables and lists as definition lists."""
    if isinstance(value, dict) and value and depth < DEEP:
        rows = "".join(
            f"<dt>{escape(str(k).replace('_', ' '))}</dt><dd>{facts(v, depth + 1)}</dd>"
            for k, v in value.items()
        )
        return _folded(f"<dl>{rows}</dl>", len(value), depth)
    if isinstance(value, list) and value and depth < DEEP:
        if all(not isinstance(v, dict | list) for v in value):
            return _folded(", ".join(_scalar(v) for v in value), len(value), depth)
        items = "".join(f"<li>{facts(v, depth + 1)}</li>" for v in value)
        return _folded(f"<ul>{items}</ul>", len(value), depth)
    return _scalar(value)


def _scalar(value: object) -> str:
    if value is None or value in ({}, []):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        said = f"{value:,}" if abs(value) < 10**15 else count(float(value))
        return escape(said)
    if isinstance(value, float):
        return escape(f"{value:.6g}")
    text = str(value)
    if re.fullmatch(r"[0-9a-f]{40,128}", text):
        return f'<code title="{text}">{text[:16]}…</code>'
    return escape(text)


def _folded(inner: str, entries: int, depth: int) -> str:
    if depth == 0 or entries <= LONG:
        return inner
    return f"<details><summary>{entries} entries</summary>{inner}</details>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain texts; the first row after the head is the model's own."""
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def marked(prompt: str, written: str) -> str:
    """`written`, with what the model added to or changed in `prompt` marked.

    A continuation repeats the prompt and goes on; a filled mask repeats it but for the masks. A
    text that does not repeat its prompt is all the model's, and nothing in it needs a mark.
    """
    if prompt and written.startswith(prompt):
        return _mark(written, [(len(prompt), len(written))])
    if len(prompt) + len(written) > COMPARED:
        return lines(written)
    before, after = _PIECES.findall(prompt), _PIECES.findall(written)
    matcher = difflib.SequenceMatcher(
        None, [p.lower() for p in before], [p.lower() for p in after], autojunk=False
    )
    if matcher.ratio() < ALIKE:
        return lines(written)
    ends = [0]
    for piece in after:
        ends.append(ends[-1] + len(piece))
    return _mark(
        written,
        [
            (ends[start], ends[stop])
            for kind, _, _, start, stop in matcher.get_opcodes()
            if kind in ("insert", "replace")
        ],
    )


def _mark(text: str, spans: list[tuple[int, int]]) -> str:
    parts, done = [], 0
    for start, stop in spans:
        start += len(text[start:stop]) - len(text[start:stop].lstrip())
        parts.append(lines(text[done:start]))
        if start < stop:
            parts.append(f"<mark>{lines(text[start:stop])}</mark>")
        done = stop
    return "".join(parts) + lines(text[done:])
