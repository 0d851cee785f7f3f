"""A file that is read whole, whatever its ending: SQuAD's JSON, the columns of CoNLL."""

from __future__ import annotations

from pathlib import Path

from maskwright.corpus.compressed import expand
from maskwright.corpus.files import COMPRESSIONS, RegularFile, Source, shown
from maskwright.corpus.reading import Reading
from maskwright.errors import DataError


def whole_text(path: Path | str) -> tuple[str, str]:
    """(text, name for messages) of one UTF-8 file, also `.gz` or `.zst`.

    Raises:
        UsageError: no such file.  DataError: damaged, or not UTF-8.
    """
    path = Path(path)
    name = shown(path)
    source = Source(path, name, ".txt", COMPRESSIONS.get(path.suffix.lower()))
    with RegularFile(source) as opened:
        data = b"".join(expand(opened.chunks(), source.compression, name, Reading()))
    try:
        return data.decode("utf-8-sig"), name
    except UnicodeDecodeError as bad:
        raise DataError(
            "not UTF-8",
            where=f"{name}, byte {bad.start}",
            found=f"0x{data[bad.start]:02x}",
            do="save the file as UTF-8",
        ) from bad
