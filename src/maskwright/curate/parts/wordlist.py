"""Lists that the user gives: one entry a line, `#` begins a comment, blank lines do not count."""

from __future__ import annotations

from pathlib import Path

from maskwright.errors import DataError, UsageError

LARGEST = 64 << 20


def entries(path: str, setting: str) -> list[tuple[str, int]]:
    """The entries of a list with their lines, each once, in the order of the file.

    Args:
        setting: that names the file, for messages.

    Raises:
        UsageError: there is no such file.
        DataError: it is no text in UTF-8, too large for a list, or has no entries.
    """
    try:
        size = Path(path).stat().st_size
        data = Path(path).read_bytes() if size <= LARGEST else b""
    except OSError as error:
        raise UsageError(
            "the list cannot be read",
            where=setting,
            found=f"{path}: {error.strerror or error}",
            wanted="a text file with one entry a line",
            do=f"correct the path that `{setting}` names",
        ) from error
    if size > LARGEST:
        raise DataError(
            "the list is too large",
            where=path,
            found=f"{size:,} bytes",
            wanted=f"at most {LARGEST:,}",
            do="is this the list that is meant?",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            "the list is not UTF-8",
            where=f"{path}:{at}",
            found=f"byte 0x{data[error.start]:02x}",
            wanted="text in UTF-8",
            do="save it as UTF-8",
        ) from None
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        entry = _without_comment(line).strip()
        if entry:
            found.setdefault(entry, number)
    if not found:
        raise DataError(
            "the list has no entries",
            where=path,
            found="blank lines and comments",
            wanted="one entry a line",
            do=f"fill it, or leave `{setting}` out",
        )
    return list(found.items())


def _without_comment(line: str) -> str:
    """`#` is a comment at the beginning of a line, and behind a blank."""
    if line.lstrip().startswith("#"):
        return ""
    return line.split(" #")[0].split("\t#")[0]
