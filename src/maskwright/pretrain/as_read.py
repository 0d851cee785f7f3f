"""Whether a text is still what an earlier pass over it read.

A run reads its text once, and again if it was stopped before its stores were made. If a file
changed between the two, a held-out part could be of another text than the training part, and the
tokenizer would cut text that it was not trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from maskwright.corpus.files import find
from maskwright.errors import IncompatibleError, MaskwrightError
from maskwright.recipes.parts.corpus import Corpus
from maskwright.storage.manifest import hash_file

QUICKLY = 256 << 20  # bytes that are hashed to tell what changed, where nothing hangs on it
LISTED = 5


def changed_meanwhile(names: list[str], do: str) -> IncompatibleError:
    """The refusal of files that changed between two readings."""
    return IncompatibleError(
        "the text changed while the run was prepared",
        where=", ".join(names[:LISTED]) + ", …" * (len(names) > LISTED),
        wanted="files that stay as they are until the tokens are made",
        do=do,
    )


def differences(
    corpus: Corpus, paths: Iterable[Path], read: Mapping[str, str], *, quickly: bool = False
) -> list[str]:
    """How the text differs from what was `read` (SHA-256 by file), a few words for each file.

    Args:
        paths: the files and folders of the text.
        quickly: do not hash more than a little.
    """
    changes = []
    sizes = 0
    for name, digest in read.items():
        path = Path(name)
        if not path.is_file():
            changes.append(f"{name} is not there")
            continue
        sizes += path.stat().st_size
        if not (quickly and sizes > QUICKLY) and hash_file(path) != digest:
            changes.append(f"{name} has changed")
    if corpus.limit_bytes is None and read:
        for path in paths:
            try:
                found = find([path])[0]
            except MaskwrightError:
                continue  # missing or empty: reported above
            changes += [f"{s.shown} was added" for s in found if s.shown not in read]
    return changes
