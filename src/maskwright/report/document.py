"""Pages and cards: filled from the templates beside this file, and written whole or not at all.

A page needs nothing but itself: no network, no font to fetch. It forbids them to itself, and its
only style sheet is named by hash, as the script is of the one page that has one. What a template
shows is escaped, and control characters in it are visible (`one_line`); only a finished picture
(`Markup`) goes in as it stands.
Markdown has no escaping of its own: there `md` and `code` do it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from maskwright.errors import UsageError
from maskwright.report import plain
from maskwright.storage import commit
from maskwright.storage.one_file import write_file

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

    made = Environment(
        loader=FileSystemLoader(folder),
        autoescape=lambda name: not (name or "").endswith(".md"),
        undefined=StrictUndefined,
        finalize=one_line,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    made.filters |= {"lines": lines, "md": md, "code": code, "json": _json}
    made.filters |= {"fact": plain.fact, "marked": plain.marked}
    made.tests["digest"] = plain.is_digest
    for name, file in (("style", "page.css"), ("script", "curation.js")):
        content = (folder / file).read_text(encoding="utf-8")
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        made.globals |= {name: Markup(content), f"{name}_hash": digest}
    return made


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
def require_new(*targets: Path) -> None:
    """Refuse to write over what is there, as `commit.require_new`.

    Raises:
        UsageError: naming the first that is there.
    """
    what, do = "the file is there already", "choose another --out"
    commit.require_new(*targets, error=UsageError, what=what, do=do)


def write_new(folder: Path, texts: Mapping[str, str]) -> None:
    """Put new files into `folder`, by their names: all or none. Of several processes that write the
    same, one does.

    Raises:
        UsageError: one of them is there already.
        OutputError, StorageError, StoppedError: they cannot be written.
    """
    *_, last = texts
    with commit.writing(folder / last):
        require_new(*(folder / name for name in texts))
        texts_as_bytes = {name: text.encode("utf-8", "replace") for name, text in texts.items()}
        commit.commit_files(folder, texts_as_bytes)


def write(target: Path, text: str) -> Path:
    """Put `text` into the file `target`, whole or not at all; returns `target`.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    return write_file(target, text.encode("utf-8", "replace"))
