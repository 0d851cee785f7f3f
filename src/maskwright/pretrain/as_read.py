"""Whether a text is still what an earlier pass over it read.

A run reads its text several times: to divide it, for the tokenizer, for each store. If a file
changed between two passes, a held-out part could be of another text than the training part, and the
tokenizer would cut text that it was not trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from maskwright.corpus.files import Source, find
from maskwright.errors import IncompatibleError, MaskwrightError
from maskwright.recipes.parts.corpus import Corpus
from maskwright.storage.manifest import hash_file

QUICKLY = 256 << 20  # bytes that are hashed to tell what changed, where nothing hangs on it
LISTED = 5


class Passes:
    """The files of one text as its passes met them, and the hashes of what they read."""

    def __init__(self) -> None:
        self.hashes: dict[str, str] = {}
        self._met: dict[str, tuple[int, int]] | None = None
        self._paths: dict[str, Path] = {}

    def begin(self, sources: Iterable[Source]) -> None:
        """Start a pass that finds these files.

        Raises:
            IncompatibleError: they are not those of the first pass.
        """
        self._paths = {source.shown: source.path for source in sources}
        met = {name: _state(path) for name, path in self._paths.items()}
        if self._met is not None:
            changed = [
                name for name in {**self._met, **met} if self._met.get(name) != met.get(name)
            ]
            self._refuse([name for name in changed if not self._same(name)])
        self._met = met

    def end(self, hashes: Mapping[str, str]) -> None:
        """End a pass that read files with these hashes.

        Raises:
            IncompatibleError: an earlier pass read another of that name.
        """
        self._refuse([n for n, digest in hashes.items() if self.hashes.get(n, digest) != digest])
        self.hashes |= hashes

    def complete(self) -> dict[str, str]:
        """The hashes of all files, including those that no pass read to the end.

        Raises:
            IncompatibleError: one has changed since it was met.
        """
        for name in self._paths.keys() - self.hashes.keys():
            self.hashes[name] = hash_file(self._paths[name])
        now = {name: _state(path) for name, path in self._paths.items()}
        self._refuse(
            [
                n
                for n in now
                if self._met is not None and self._met.get(n) != now[n] and not self._same(n)
            ]
        )
        return dict(self.hashes)

    def _same(self, name: str) -> bool:
        """Whether a file that was written to is nevertheless the one that was read."""
        path = self._paths.get(name)
        known = self.hashes.get(name)
        return path is not None and known is not None and hash_file(path) == known

    @staticmethod
    def _refuse(changed: list[str]) -> None:
        if changed:
            raise changed_meanwhile(changed, "start the same command again")


def changed_meanwhile(names: list[str], do: str) -> IncompatibleError:
    """The refusal of files that changed between two passes."""
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
                continue  # not there, or nothing in it: told above
            changes += [f"{s.shown} was added" for s in found if s.shown not in read]
    return changes


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns
