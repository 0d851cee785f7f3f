"""Standard input as a file, of the kind that its beginning tells."""

from __future__ import annotations

import codecs
import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from maskwright.corpus.growing import Growing, growing
from maskwright.errors import DataError, MaskwrightError
from maskwright.labelled.formats.options import AS_IT_COMES, HowRead
from maskwright.predict.rows import table_settings
from maskwright.storage.strict_json import parse

HEAD = 1 << 16


@contextlib.contextmanager
def stdin_file(
    stream: BinaryIO, read: HowRead = AS_IT_COMES, *, complete: bool = False
) -> Iterator[Path]:
    """What a pipe brings, as a file for as long as it is needed: a table where `read` says
    something of one, JSON Lines where it begins with a brace, JSON where it begins as an array of
    objects or is an array, else lines of text.

    Args:
        whole: the file is complete from the start; else it grows while it is read, so that the rows
            that have come can be answered before the pipe ends.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "standard-input"
        file.touch()
        head = _head(Growing(file, stream))
        path = file.with_suffix(".csv" if table_settings(read) else _ending(head))
        file.rename(path)
        try:
            with growing(path, stream) as pipe:
                while complete and pipe.more():
                    pass
                yield path
        except MaskwrightError as error:
            if error.where is not None:
                error.where = error.where.replace(str(path), "standard input")
                error.args = (error.render(),)
            raise


def _head(pipe: Growing) -> bytes:
    """What tells the kind: the first line that is not blank; of what may be an array more."""
    head = b""
    while len(head) < HEAD and (data := pipe.more()):
        head += data
        start = head.removeprefix(codecs.BOM_UTF8).lstrip()
        if b"\n" in start and not start.startswith(b"["):
            break
    return head


def _ending(head: bytes) -> str:
    """What the name of a file that begins so would end with."""
    head = head.removeprefix(codecs.BOM_UTF8)
    if head.lstrip()[:1] == b"{":
        return ".jsonl"
    if re.match(rb"\s*\[\s*\{", head):
        return ".json"
    if head.lstrip()[:1] == b"[" and len(head) < HEAD:
        with contextlib.suppress(DataError, UnicodeDecodeError):
            parse(head.decode("utf-8"))
            return ".json"
    return ".txt"
