"""The embedded corpus: English prose from the documentation inside the installed Python packages.

It is there on every machine that can run Maskwright, so the first run needs no download: docstrings
of the standard library, torch, numpy and the other runtime dependencies, and the language reference
in `pydoc_data`. The sources are read as text; nothing is imported, nothing is redistributed. What
lies on a machine depends on the versions installed, so `provenance` says the versions and a hash,
and results are comparable only where the hash is the same.

A document is the prose of consecutive docstrings of one file, a paragraph per line.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence

from maskwright.corpus import installed
from maskwright.corpus.docstrings import docstrings
from maskwright.corpus.document import Document
from maskwright.corpus.installed import PythonFile
from maskwright.corpus.prose import paragraphs

LEAST_CHARACTERS = 200
# Short docstrings of neighbours are put together up to this size.
GOOD_CHARACTERS = 400
TOPICS = "stdlib/pydoc_data/topics.py"
NOT_LETTERS = re.compile(r"[\W\d_]+")


def documents(
    packages: Sequence[str] | None = None, *, limit_bytes: int | None = None
) -> Iterator[Document]:
    """The documents, in the order of packages and files.

    Args:
        packages: import names, `stdlib` for the standard library; by default the ones of
            `installed.USUAL` that are there.
        limit_bytes: stop at about this much text (UTF-8). The files are then drawn evenly over all
            packages, always the same ones.

    Raises:
        UsageError: a package asked for is not installed.
    """
    files = list(installed.files(installed.present(packages)))
    seen: set[bytes] = set()
    if limit_bytes is None:
        for file in files:
            yield from _documents(file, seen)
        return
    place = {file.name: number for number, file in enumerate(files)}
    files.sort(key=lambda file: hashlib.sha256(file.name.encode()).digest())
    taken: list[tuple[int, list[Document]]] = []
    size = 0
    for file in files:
        if size >= limit_bytes:
            break
        found = list(_documents(file, seen))
        size += sum(len(document.text.encode()) for document in found)
        taken.append((place[file.name], found))
    for _, found in sorted(taken, key=lambda item: item[0]):
        yield from found


def provenance(
    packages: Sequence[str] | None = None,
    *,
    limit_bytes: int | None = None,
    read: Iterable[Document] | None = None,
) -> dict[str, object]:
    """What the corpus is on this machine: versions, licences, number and bytes of documents, and
    the SHA-256 of their text in order.

    Args:
        packages: as for `documents`.
        limit_bytes: as for `documents`.
        read: the documents, where they have been read already; else they are read again.
    """
    digest = hashlib.sha256()
    number = size = 0
    for document in documents(packages, limit_bytes=limit_bytes) if read is None else read:
        data = document.text.encode()
        digest.update(data + b"\n\n")
        number, size = number + 1, size + len(data)
    names = list(installed.present(packages))
    return {
        "packages": {name: installed.version(name) for name in names},
        "licences": {name: installed.LICENCES.get(name, "see the package") for name in names},
        "note": "documentation text read from the packages installed on this machine; "
        "it stays under their licences and is not redistributed",
        "documents": number,
        "bytes": size,
        "sha256": digest.hexdigest(),
    }


def _documents(file: PythonFile, seen: set[bytes]) -> Iterator[Document]:
    """The documents of one file; paragraphs in `seen` are left out, new ones added to it."""
    source = file.text()
    if source is None:
        return
    held: list[str] = []
    first = 1
    found: list[tuple[int, str]] = []
    for line, text in _topics(source) if file.name == TOPICS else docstrings(source):
        fresh = [p for p in paragraphs(text) if _is_new(p, seen)]
        if fresh and not held:
            first = line
        held += fresh
        if sum(map(len, held)) >= GOOD_CHARACTERS:
            found.append((first, "\n".join(held)))
            held = []
    rest = "\n".join(held)
    if len(rest) >= LEAST_CHARACTERS:
        found.append((first, rest))
    elif rest and found:
        found[-1] = (found[-1][0], f"{found[-1][1]}\n{rest}")
    area = ".".join(file.module.split(".")[:2])
    notes = {"package": file.package, "module": file.module, "area": area}
    for line, text in found:
        yield Document(text, file.package, f"{file.name}:{line}", notes)


def _is_new(paragraph: str, seen: set[bytes]) -> bool:
    """Whether no paragraph with the same letters came before."""
    letters = NOT_LETTERS.sub("", paragraph).lower()
    key = hashlib.blake2b(letters.encode(), digest_size=8).digest()
    if key in seen:
        return False
    seen.add(key)
    return True


def _topics(source: str) -> Iterator[tuple[int, str]]:
    """The texts of the language reference: the values of one dictionary literal."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for value in node.values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.lineno, value.value
