"""A page that needs nothing but itself.

No script, no network, no font to fetch: the page forbids them to itself, and its only style sheet
is named by hash.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from maskwright.errors import UsageError
from maskwright.report.svg import escape
from maskwright.storage.commit import writing
from maskwright.storage.one_file import write_file


def document(name: str, kind: str, head: str, sections: Iterable[tuple[str, str]]) -> str:
    """The whole page.

    Args:
        name: what it is about, a plain text.
        kind: what that is, in two words.
        head, sections: HTML, everything from outside escaped; a section is (heading, body), and
            one without a body is left out.
    """
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    content = "".join(
        f"<section><h2>{heading}</h2>{body}</section>" for heading, body in sections if body
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(name)} · Maskwright</title><style>{style}</style></head><body><main>"
        f"<header><h1><small>{escape(kind)}</small>{escape(name)}</h1>{head}</header>{content}"
        "<footer>This page is one file: it has no scripts and loads nothing.</footer>"
        "</main></body></html>\n"
    )


def require_new(target: Path) -> None:
    """Refuse to write over what is there.

    Raises:
        UsageError: naming it.
    """
    if os.path.lexists(target):
        raise UsageError("the file is there already", where=target, do="choose another --out")


def write_new(folder: Path, texts: Mapping[str, str]) -> None:
    """Put new files into `folder`, by their names; of several processes that write the same, one
    does.

    Raises:
        UsageError: one of them is there already.
        OutputError, StorageError, StoppedError: they cannot be written.
    """
    *_, last = texts
    with writing(folder / last):
        for name in texts:
            require_new(folder / name)
        for name, text in texts.items():
            write(folder / name, text)


def write(target: Path, text: str) -> Path:
    """Put `text` into the file `target`, whole or not at all; returns `target`.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    return write_file(target, text.encode("utf-8", "replace"))
