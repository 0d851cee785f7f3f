"""Pages and cards: rendered from the templates in this folder and written atomically.

A page loads nothing: its content security policy allows only its own style sheet, and the script of
the one page that has one, both by hash. Values in templates are escaped and their control
characters made visible (`one_line`); only finished pictures (`Markup`) are inserted as they are.
Markdown has no automatic escaping: its templates use `md` and `code`.
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

COMPARED = 3000  # characters; longer texts are not compared with their prompts
ALIKE = 0.3  # similarity (0 to 1) below which a text does not repeat its prompt
_PIECES = re.compile(r"\w+|\s+|[^\w\s]")


def fact(value: object) -> str:
    """Format a single value for people."""
    if value is None or value in ({}, []):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) < 10**15 else count(float(value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def with_sentences(value: Any) -> Any:
    """Replace each finding in JSON form within nested plain values by its sentence."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and isinstance(value.get("what"), str):
            with contextlib.suppress(TypeError, ValueError):
                return str(Finding.from_json(value))
        return {name: with_sentences(nested) for name, nested in value.items()}
    return [with_sentences(nested) for nested in value] if isinstance(value, list) else value


def is_digest(value: object) -> bool:
    """Return whether a value is a hash in hex, of which a few digits are shown."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{40,128}", value) is not None


def marked(written: str, prompt: str) -> list[tuple[str, bool]]:
    """Split `written` into pieces, each with whether the model added or changed it.

    A continuation repeats the prompt first; a filled mask repeats all but the masks. In a text that
    does not repeat its prompt nothing is marked.
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
    """Split `text` at the ends of `spans`, without the white space at their beginning."""
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
    """Render an .html or .md file of `templates/`; a missing value is an error."""
    return _environment(TEMPLATES).get_template(template).render(**values)


@functools.cache
def _environment(folder: Path) -> Environment:
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


# ------------------------------------------------------------------------------ escaping
def visible(text: str, keep: str = "") -> str:
    """Replace unprintable characters, except those in `keep`, by escapes such as `\\x1b`."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape", "replace").decode()
        for c in text
    )


def one_line(value: object) -> object:
    """Return a value of a template as one line with visible control characters."""
    return value if isinstance(value, Markup) else visible(str(value))


def lines(text: str) -> Markup:
    """Escape a text of several lines; control characters but tab and newline are visible."""
    return Markup(escape(visible(text, "\n\t")))


def md(value: object) -> str:
    """Escape a text for a line or cell of Markdown."""
    return _MARKDOWN.sub(r"\\\g<0>", visible(str(value)))


def code(value: object) -> str:
    """Format a text as inline code of Markdown, with enough backticks."""
    text = visible(str(value))
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    room = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{room}{text}{room}{fence}"


def _json(value: object) -> Markup:
    """Format a value of the YAML header of a card as ASCII JSON."""
    return Markup(json.dumps(value))


# ------------------------------------------------------------------------------ files
def require_new(*targets: Path, do: str = "choose another --out") -> None:
    """Refuse to overwrite files, as `commit.require_new`.

    Raises:
        UsageError: naming the first that exists.
    """
    commit.require_new(*targets, error=UsageError, message="the file is there already", do=do)


def write_new(folder: Path, texts: Mapping[str, str]) -> None:
    """Write new files into `folder`, all or none; of concurrent processes only one succeeds.

    Raises:
        UsageError: a file exists.
        OutputError, StorageError, StoppedError: a file cannot be written.
    """
    *_, last_name = texts
    with commit.writing(folder / last_name):
        require_new(*(folder / name for name in texts))
        texts_as_bytes = {name: text.encode("utf-8", "replace") for name, text in texts.items()}
        commit.commit_files(folder, texts_as_bytes)


def write(target: Path, text: str) -> Path:
    """Write `text` to the file `target` atomically; returns `target`.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    return write_file(target, text.encode("utf-8", "replace"))
