"""A page that needs nothing but itself.

No script, no network, no font to fetch: the page forbids them to itself, and its only style sheet
is named by hash.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from maskwright.errors import UsageError
from maskwright.report.svg import escape
from maskwright.storage import refusal


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


def write(target: Path, text: str) -> Path:
    """Put `text` into the file `target`, whole or not at all; returns `target`.

    Raises:
        OutputError, StorageError, StoppedError: it cannot be written.
    """
    data = text.encode("utf-8", "replace")
    staged = target.with_name(f".tmp-{target.name}")
    try:
        with staged.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(target)
    except OSError as error:
        staged.unlink(missing_ok=True)
        raise refusal(error, target, needed=len(data)) from error
    return target
