"""Standard input as a file, of the kind that its beginning tells."""

from __future__ import annotations

import codecs
import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from maskwright.errors import DataError, MaskwrightError
from maskwright.finetune.rows_to_answer import table_settings
from maskwright.strict_json import parse
from maskwright.tasks.how_read import AS_IT_COMES, HowRead

HEAD = 1 << 16


@contextlib.contextmanager
def piped(stream: BinaryIO, read: HowRead = AS_IT_COMES) -> Iterator[Path]:
    """What a pipe brings, as a file for as long as it is needed: a table where `read` says
    something of one, JSON Lines where it begins with a brace, JSON where it begins as an array of
    objects or is an array, else lines of text."""
    with tempfile.TemporaryDirectory() as folder:
        head = stream.read(HEAD)
        path = Path(folder) / f"standard-input{'.csv' if table_settings(read) else _ending(head)}"
        with path.open("wb") as file:
            file.write(head)
            shutil.copyfileobj(stream, file)
        try:
            yield path
        except MaskwrightError as error:
            if error.where is not None:
                error.where = error.where.replace(str(path), "standard input")
                error.args = (error.render(),)
            raise


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
