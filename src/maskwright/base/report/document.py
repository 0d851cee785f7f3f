"""Pages and cards: filled from the templates beside this file, and written whole or not at all.

A page needs nothing but itself: no network, no font to fetch. It forbids them to itself, and its
only style sheet is named by hash, as the script is of the one page that has one. What a template
shows is escaped, and control characters in it are visible (`one_line`); only a finished picture
(`Markup`) goes in as it stands.
Markdown has no escaping of its own: there `md` and `code` do it.
"""

from __future__ import annotations

import base64
import contextlib
import difflib
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from maskwright.base.errors import UsageError
from maskwright.base.findings import Finding
from maskwright.base.report.wording import count
from maskwright.base.storage import commit
from maskwright.base.storage.files import write_file

COMPARED = 3000  # longer texts are shown without marks
ALIKE = 0.3  # a text less like its prompt than this (0 to 1) stands for itself
_PIECES = re.compile(r"\w+|\s+|[^\w\s]")


def fact(value: object) -> str:
    """A single value as a person reads it."""
    if value is None or value in ({}, []):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else count(float(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def with_sentences(value: Any) -> Any:
    """Nested plain values, with a sentence in the place of each finding in its JSON form."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("what"), str):
            with contextlib.suppress(TypeError, ValueError):
                return str(Finding.from_json(value))
        return {name: with_sentences(nested) for name, nested in value.items()}
    return [with_sentences(nested) for nested in value] if isinstance(value, list) else value


def is_digest(value: object) -> bool:
    """Whether it is a long hexadecimal number, of which a few digits are enough to see."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{40,128}", value) is not None


def marked(written: str, prompt: str) -> list[tuple[str, bool]]:
    """`written` in pieces, each with whether the model added it to or changed it in `prompt`.

    A continuation repeats the prompt and goes on; a filled mask repeats it but for the masks. A
    text that does not repeat its prompt is all the model's, and nothing in it needs a mark.
    """
    if prompt and written.startswith(prompt):
        return _split(written, [(len(prompt), len(written))])
    if len(prompt) + len(written) > COMPARED:
        return [(written, False)]
    before, after = _PIECES.findall(prompt), _PIECES.findall(written)
    matcher = difflib.SequenceMatcher(
        None, [p.lower() for p in before], [p.lower() for p in after], autojunk=False
    )
    if matcher.ratio() < ALIKE:
        return [(written, False)]
    ends = [0]
    for piece in after:
        ends.append(ends[-1] + len(piece))
    changed = (opcode for opcode in matcher.get_opcodes() if opcode[0] in ("insert", "replace"))
    return _split(written, [(ends[start], ends[stop]) for _, _, _, start, stop in changed])


def _split(text: str, spans: list[tuple[int, int]]) -> list[tuple[str, bool]]:
    """`text` cut at the ends of `spans`, which leave out the blanks they begin with."""
    pieces, done = [], 0
    for start, stop in spans:
        start += len(text[start:stop]) - len(text[start:stop].lstrip())
        pieces += [(text[done:start], False), (text[start:stop], True)]
        done = stop
    return [(piece, new) for piece, new in [*pieces, (text[done:], False)] if piece]


if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).with_name("templates")
_MARKDOWN = re.compile(r"[\\`<\[|]")


def render(template: str, **values: Any) -> str:
    """The `template`, an .html or .md file of `templates/`, filled with `values`; a value that the
    template asks for and does not get is an error."""
    return _environment(TEMPLATES).get_template(template).render(**values)


@functools.cache
def _environment(folder: Path) -> Environment:
    # Only what writes a page pays for the import.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=lambda name: not (name or "").endswith(".md"),
        undefined=StrictUndefined,
        finalize=one_line,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.filters |= {"lines": lines, "md": md, "code": code, "json": _json}
    environment.filters |= {"fact": fact, "marked": marked}
    environment.tests["digest"] = is_digest
    for name, file in (("style", "page.css"), ("script", "curation.js")):
        content = (folder / file).read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        environment.globals |= {name: Markup(content), f"{name}_hash": digest}
    return environment


# ------------------------------------------------------------------------------ what is shown how
def visible(text: str, keep: str = "") -> str:
    """`text` with escapes such as `\\x1b` for what does not print, but for the characters in
    `keep`."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape", "replace").decode()
        for c in text
    )


def one_line(value: object) -> object:
    """What a template shows of a value that it names: one line, control characters visible."""
    return value if isinstance(value, Markup) else visible(str(value))


def lines(text: str) -> Markup:
    """Several lines as they stand; control characters other than tab and newline are visible."""
    return Markup(escape(visible(text, "\n\t")))


def md(value: object) -> str:
    """A text in a line or a cell of Markdown: no tag, link, code or end of the cell."""
    return _MARKDOWN.sub(r"\\\g<0>", visible(str(value)))


def code(value: object) -> str:
    """A text as code within a line of Markdown, between more backticks than it has in a row."""
    text = visible(str(value))
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    room = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{room}{text}{room}{fence}"


def _json(value: object) -> Markup:
    """A value of the head of a card, which is YAML whose values are JSON; all of it is ASCII."""
    return Markup(json.dumps(value))


# ------------------------------------------------------------------------------ files
def require_new(*targets: Path, do: str = "choose another --out") -> None:
    """Refuse to write over what is there, as `commit.require_new`.

    Raises:
        UsageError: naming the first that is there.
    """
    commit.require_new(*targets, error=UsageError, message="the file is there already", do=do)


def write_new(folder: Path, texts: Mapping[str, str]) -> None:
    """Put new files into `folder`, by their names: all or none. Of several processes that write the
    same, one does.

    Raises:
        UsageError: one of them is there already.
        OutputError, StorageError, StoppedError: they cannot be written.
    """
    *_, last_name = texts
    with commit.writing(folder / last_name):
        require_new(*(folder / name for name in texts))
        texts_as_bytes = {name: text.encode("utf-8", "replace") for name, text in texts.items()}
        commit.commit_files(folder, texts_as_bytes)


def write(target: Path, text: str) -> Path:
    """Put `text` into the file `target`, whole or not at all; returns `target`.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    return write_file(target, text.encode("utf-8", "replace"))
