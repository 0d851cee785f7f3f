"""Read labelled texts without a table: one file for each in folders named after their classes, or
lines that begin with the label, in the format of fastText.

    reviews/train/pos/1.txt   reviews/train/neg/2.txt   reviews/test/pos/1.txt
    __label__pos What a film!

Texts in a folder `unsup` or `unlabelled`, and those next to the class folders, have no label and
are not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from maskwright.base.errors import DataError, UsageError
from maskwright.base.storage.strict_json import parse
from maskwright.text.corpus.files import Source
from maskwright.text.corpus.ledger import Ledger, line_in
from maskwright.text.corpus.lines import TextBlock

LABEL = "__label__"
MULTI_LABEL = re.compile(rf"^{LABEL}\S+[ \t]+{LABEL}", re.MULTILINE)
LABELS = re.compile(rf"({LABEL}\S*\s*)*")
UNLABELLED = ("unsup", "unlabelled", "unlabeled")


def in_folders(files: Sequence[Source], says_part: Callable[[str], bool]) -> list[Source]:
    """Return the texts in class folders; empty without two class folders next to each other, or if
    there are files of other formats.

    Args:
        says_part: returns whether a folder of a name holds a part.

    Raises:
        UsageError: a folder next to class folders may be a class or a part.
    """
    if any(source.format != "text" for source in files):
        return []
    text_folders = {source.path.parent for source in files}
    parent_folders = {folder for path in text_folders for folder in path.parents}
    leaves = {
        folder for folder in text_folders - parent_folders if folder.name.lower() not in UNLABELLED
    }
    folders = {folder for folder in leaves if not says_part(folder.name)}
    between_classes = {
        folder
        for folder in leaves - folders
        if any(folder_of_class.parent == folder.parent for folder_of_class in folders)
    }
    if ambiguous := sorted(folder for folder in between_classes if folder.name.isalpha()):
        raise UsageError(
            "a folder that may be a class or a part",
            where=ambiguous[0],
            found=f"texts in it, next to {min(folders).name}",
            wanted="folders of classes in those of parts, as train/pos",
            do="rename it, if it is a class; else move it out",
        )
    folders |= between_classes  # such as `blood-test`, which is not the name of a part
    parents = {folder.parent for folder in folders}
    folders_apart = len(parents) == 1 or all(says_part(folder.name) for folder in parents)
    if not folders_apart or len({folder.name for folder in folders}) < 2:
        return []
    return [source for source in files if source.path.parent in folders]


def whole_text(blocks: Iterable[TextBlock], path: Path) -> dict[str, str]:
    """Return a file in a class folder as a row.

    Raises:
        DataError: the file holds JSON.
    """
    text = "".join(block.text for block in blocks).strip("\n")
    if text.startswith("{") and _is_json(text):
        raise DataError(
            "a file of JSON in the place of a text",
            where=str(path),
            found=repr(text[:60]),
            wanted="a text",
            do="name such files .json, and take them out of the folders of their "
            "classes if they hold the labels",
        )
    return {"text": text, "label": path.parent.name}


def _is_json(text: str) -> bool:
    try:
        parse(text)
    except DataError:
        return False
    return True


def lines(
    blocks: Iterable[TextBlock], multi_label: bool, file: str, ledger: Ledger
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield (row, line number) of a fastText file; with `multi_label` labels are lists.

    Raises:
        DataError: a line without a label, or with too many, when the policy is strict.
    """
    for number, line in (numbered_line for block in blocks for numbered_line in block.lines()):
        if not line.strip():
            ledger.counts.blank += 1
            continue
        match = LABELS.match(line)
        end = match.end() if match else 0
        labels = [word.removeprefix(LABEL).rstrip(",") for word in line[:end].split()]
        if not all(labels) or not labels or (len(labels) > 1 and not multi_label):
            message = "a line with several labels" if all(labels) and labels else ""
            fault = DataError(
                message or "a line without a label",
                where=line_in(file, number),
                found=repr(line[:80]),
                wanted=f"{LABEL}NAME, then the text",
                do="correct the line, or take it out",
            )
            ledger.reject(fault, file=file, line=number)
            continue
        yield {"text": line[end:], "label": labels if multi_label else labels[0]}, number
