"""The embedded corpus: English prose from the documentation inside the installed Python packages.

It exists on every machine that can run Maskwright, so the first run needs no download: docstrings
of the standard library, torch, numpy and the other runtime dependencies, and the language reference
in `pydoc_data`. The sources are read as text; nothing is imported or redistributed. The corpus
depends on the installed versions, so `provenance` states them with a hash; results are comparable
only if the hash is equal. Files are ordered by name, so machines with the same versions see the
same text.

A document is the prose of consecutive docstrings of one file, a paragraph per line.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import platform
import re
import sysconfig
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from maskwright.base.errors import UsageError
from maskwright.text.corpus.reading import Document

# ------------------------------------------------------------------------------ installed packages
STANDARD = "stdlib"
# The standard library, then Maskwright's own runtime dependencies (scipy comes with scikit-learn).
USUAL = (
    *(STANDARD, "torch", "numpy", "sklearn", "scipy", "tokenizers", "rich", "tyro", "safetensors"),
)
DISTRIBUTIONS = {"sklearn": "scikit-learn"}
LICENCES = {
    STANDARD: "PSF-2.0",
    "torch": "BSD-3-Clause",
    "numpy": "BSD-3-Clause",
    "sklearn": "BSD-3-Clause",
    "scipy": "BSD-3-Clause",
    "tokenizers": "Apache-2.0",
    "safetensors": "Apache-2.0",
    "rich": "MIT",
    "tyro": "MIT",
}
# Folders to skip: tests and vendored copies are repetitive.
PASSED_OVER = {
    *("test", "tests", "testing", "idle_test", "__pycache__", "site-packages", "dist-packages"),
    *("_vendor", "vendored", "_vendored_packages", "externals", "include", "node_modules"),
}


@dataclass(frozen=True)
class PythonFile:
    """A source file: `name` is its path below the package's parent, with slashes."""

    package: str
    name: str
    path: Path

    @property
    def module(self) -> str:
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def text(self) -> str | None:
        """Return the source with LF line ends, decoded as it declares (PEP 263), or None if it
        cannot be read."""
        try:
            with tokenize.open(self.path) as file:
                return file.read()
        except (OSError, UnicodeDecodeError, SyntaxError):
            return None


def package_folders(packages: Sequence[str] | None = None) -> dict[str, Path]:
    """Return package -> folder for the given packages, or for the installed ones of `USUAL`.

    Raises:
        UsageError: a package in `packages` is not installed.
    """
    folders = {}
    for package in USUAL if packages is None else packages:
        folder = _folder(package)
        if folder is not None:
            folders[package] = folder
        elif packages is not None:
            raise UsageError(
                "the package is not installed as Python source",
                found=repr(package),
                wanted=f"an installed package, or {STANDARD!r}",
            )
    return folders


def python_files(packages: dict[str, Path]) -> Iterator[PythonFile]:
    """Yield the source files of `packages`, sorted by name within each package."""
    for package, folder in packages.items():
        root = folder if package == STANDARD else folder.parent
        names = []
        for directory, subfolders, entries in os.walk(folder):
            subfolders[:] = sorted(f for f in subfolders if f not in PASSED_OVER)
            names += [os.path.relpath(os.path.join(directory, e), root) for e in entries]
        for name in sorted(n.replace(os.sep, "/") for n in names if n.endswith(".py")):
            file_name = f"{STANDARD}/{name}" if package == STANDARD else name
            yield PythonFile(package, file_name, root / name)


def package_version(package: str) -> str:
    """Return the installed version of a package, or `unknown`."""
    if package == STANDARD:
        return platform.python_version()
    try:
        return importlib.metadata.version(DISTRIBUTIONS.get(package, package))
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _folder(package: str) -> Path | None:
    if package == STANDARD:
        folder = Path(sysconfig.get_paths()["stdlib"])
        return folder if (folder / "os.py").exists() else None
    try:
        # For a top-level name this does not import anything.
        spec = importlib.util.find_spec(package.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations)))
    return folder if folder.is_dir() else None


# ------------------------------------------------------------------------------ prose
SMALL_WORDS = {
    *("a", "an", "and", "are", "as", "at", "be", "by", "can", "for", "from", "has", "have", "if"),
    *("in", "is", "it", "its", "may", "no", "not", "of", "on", "or", "should", "that", "the"),
    *("then", "there", "these", "they", "this", "to", "was", "we", "when", "where", "which"),
    *("will", "with", "you"),
}
MIN_WORDS = 6
LEAST_PROSE_CHARACTERS = 24
# Characters that end a sentence, or close a literal or an emphasis around its end.
LAST_CHARACTERS = ".!?\"')]`*_"
# Directives whose body is prose; the body of any other is left out.
PROSE_DIRECTIVES = {
    *("note", "warning", "tip", "important", "seealso", "caution", "attention", "admonition"),
    *("versionadded", "versionchanged", "deprecated"),
}
DIRECTIVE = re.compile(r"\.\.\s+([\w:-]+)::(?:\s+(.*))?$|\.\.(?:\s|$)")
RULE = re.compile(r"""\s*[-=~^"'`*+#|:._][-=~^"'`*+#|:._\s]{2,}+$""")
DOCTEST = re.compile(r">>>|\.\.\.\s|In \[\d+\]|\$ |>>> ?$")
ITEM = re.compile(r"(?:[-*+•]|\(?\d{1,2}[.)]|\[\d+\]|#\.)\s+")
# `name (type): text`, `name: text`, `:param name: text`, `Returns: text`
FIELD = re.compile(
    r"(?:\*{0,2}[\w.`]+(?:\s*\([^()]*(?:\([^()]*\)[^()]*)*\))?:|:\w+[^:]*:)\s+(?=\S)"
)
TABLE = re.compile(r" {3,}\S| \| |--+ |==+ |^\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)* : ")

ROLE = re.compile(r":[\w:+-]+:`~?!?([^`<]*?)(?:\s*<[^`>]*>)?`")
TILDE_ROLE = re.compile(r":[\w:+-]+:`~[\w.]*?(\w+(?:\(\))?)`")
LITERAL = re.compile(r"``([^`]*)``|`([^`<]+?)(?:\s*<[^`>]*>)?`__?|`([^`]+)`")
EMPHASIS = re.compile(r"(?<![\w*])(\*{1,2})(\w[^*\n]*?)\1(?![\w*])")
REFERENCE = re.compile(r"\s?\[[\w#*]+\]_")
CODE = re.compile(r"""[][{}<>|\\=_@#$%^&*+~`/]|::|->|://|\w\.\w|\w\(""")
SENTENCE_END = re.compile(r"""[.!?]["')\]]?$""")
WORD = re.compile(r"[A-Za-z]+(?:['’-][A-Za-z]+)*")


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of prose in `text`, each on one line and without markup.

    Args:
        text: a docstring with its indentation removed.
    """
    for piece in _pieces(text.expandtabs().split("\n")):
        if len(piece) < LEAST_PROSE_CHARACTERS or piece[-1] not in LAST_CHARACTERS:
            continue
        clean = plain(piece)
        if reads_as_prose(clean):
            yield clean


def plain(text: str) -> str:
    """Return `text` on one line without reStructuredText and Markdown markup."""
    text = " ".join(text.split())
    if "`" in text:
        text = TILDE_ROLE.sub(r"\1", text)
        text = ROLE.sub(r"\1", text)
        text = LITERAL.sub(lambda m: m[1] or m[2] or m[3] or "", text)
    if "*" in text:
        text = EMPHASIS.sub(r"\2", text)
    if "]_" in text:
        text = REFERENCE.sub("", text)
    if "\\" in text:
        text = text.replace("\\ ", "").replace("\\*", "*")
    return text.strip()


def reads_as_prose(text: str) -> bool:
    """Whether `text` consists of whole English sentences with little code in them."""
    if not text or not (text[0].isupper() or text[0] in "\"'("):
        return False
    words = WORD.findall(text.lower())
    if len(words) < MIN_WORDS or not SENTENCE_END.search(text):
        return False
    letters = sum(map(len, words))
    return (
        letters + text.count(" ") >= 0.88 * len(text)
        and sum(map(SMALL_WORDS.__contains__, words)) >= 0.12 * len(words)
        and 2.8 <= letters / len(words) <= 8
        and len(CODE.findall(text)) <= len(words) // 10
        and not text.endswith("...")
    )


# ------------------------------------------------------------------------------ structure
def _pieces(lines: list[str]) -> Iterator[str]:
    """Yield paragraphs, joining their lines. A new one begins at a blank line, a change of
    indentation, a list item or a field; examples, tables and headings are left out."""
    run: list[str] = []
    indent: int | None = None  # where the next line of the piece must begin; None: anywhere
    block: int | None = None  # lines deeper than this belong to a literal block or a directive
    in_example = False
    for line, next_line in zip(lines, [*lines[1:], ""], strict=True):
        stripped = line.lstrip()
        column, stripped = len(line) - len(stripped), stripped.rstrip()
        in_example = in_example and bool(stripped)
        if block is not None and stripped and column <= block:
            block = None
        if not stripped or in_example or block is not None:
            yield from _flush(run)
            continue
        directive = DIRECTIVE.match(stripped) if stripped.startswith("..") else None
        if directive:
            yield from _flush(run)
            stripped = directive[2] or ""
            if directive[1] not in PROSE_DIRECTIVES:
                block = column
            elif not directive[1].startswith(("version", "deprec")) and stripped:
                run, indent = [stripped], None
            continue
        if DOCTEST.match(stripped):
            in_example = True
        if in_example or RULE.match(stripped) or RULE.match(next_line) or _is_table(stripped):
            yield from _flush(run)
            continue
        mark = ITEM.match(stripped) or (FIELD.match(stripped) if ":" in stripped else None)
        if mark or (run and indent not in (None, column)):
            yield from _flush(run)
        if mark or not run:
            run, indent = [stripped[mark.end() :] if mark else stripped], None if mark else column
        else:
            run.append(stripped)
            indent = column
        if stripped.endswith("::"):
            yield from _flush(run)
            block = column
    yield from _flush(run)


def _is_table(line: str) -> bool:
    # Plain searches first: nearly no line of prose has any of these.
    has_mark = any(mark in line for mark in ("  ", "|", "--", "==", " : "))
    return has_mark and TABLE.search(line) is not None


def _flush(piece: list[str]) -> Iterator[str]:
    if piece:
        yield " ".join(piece)
        piece.clear()


# ------------------------------------------------------------------------------ docstrings
SKIP = r"""(?:[^"'\#]++|\#[^\n]*+|"(?!"")(?:[^"\\\n]|\\.)*+"|'(?!'')(?:[^'\\\n]|\\.)*+')*+"""
DOUBLE = r'"""(?:[^"\\]++|\\.|"(?!""))*+"""'
SINGLE = r"'''(?:[^'\\]++|\\.|'(?!''))*+'''"
NEXT_TRIPLE = re.compile(f"{SKIP}({DOUBLE}|{SINGLE})", re.DOTALL)
PREFIX = re.compile(r"[A-Za-z]{0,2}\Z")
ADDED = re.compile(r"\badd_?(?:newdoc|docstr)\w*\([^)#]*\Z")
LOOK_BACK = 300


def literals(source: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of every triple-quoted string in `source`, without its prefix letters."""
    offset = 0
    while '"""' in source or "'''" in source:
        # `match` at an offset, never `search`: after a failure no later start must be tried.
        match = NEXT_TRIPLE.match(source, offset)
        if match is None:
            return
        yield match.span(1)
        offset = match.end()


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of the docstrings in `source`, without common indentation."""
    line, counted_to = 1, 0
    for start, end in literals(source):
        letters = PREFIX.search(source, max(0, start - 2), start)
        literal_start = start if letters is None else letters.start()
        prefix = source[literal_start:start].lower()
        if "b" in prefix or "f" in prefix or not _is_docstring(source, literal_start):
            continue
        body = source[start + 3 : end - 3]
        if "\\" in body and "r" not in prefix:
            body = _unescaped(source[start:end])
        line += source.count("\n", counted_to, start)
        counted_to = start
        text = inspect.cleandoc(body)
        if text:
            yield line, text


def _is_docstring(source: str, begin: int) -> bool:
    """Whether the string at `begin` is in the position of a docstring."""
    line_start = source.rfind("\n", 0, begin) + 1
    if source[line_start:begin].isspace() or line_start == begin:
        while line_start > 0:
            previous_start = source.rfind("\n", 0, line_start - 1) + 1
            text = source[previous_start : line_start - 1].strip()
            if text and not text.startswith("#"):
                return text.partition(" #")[0].rstrip().endswith(":") or bool(
                    ADDED.search(source, max(0, begin - LOOK_BACK), begin)
                )
            line_start = previous_start
        return True
    return bool(ADDED.search(source, max(0, begin - LOOK_BACK), begin))


def _unescaped(literal: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = ast.literal_eval(literal)
        except (SyntaxError, ValueError):
            return ""
    return value if isinstance(value, str) else ""


# ------------------------------------------------------------------------------ the corpus
LEAST_CHARACTERS = 200
# Short docstrings of one file are joined until they have this size.
GOOD_CHARACTERS = 400
TOPICS = "stdlib/pydoc_data/topics.py"
NOT_LETTERS = re.compile(r"[\W\d_]+")


def documents(
    packages: Sequence[str] | None = None, *, limit_bytes: int | None = None
) -> Iterator[Document]:
    """Yield the documents, in the order of packages and files.

    Args:
        packages: import names, `stdlib` for the standard library; None for the installed ones of
            `USUAL`.
        limit_bytes: stop at about this much text (UTF-8), with files sampled evenly from all
            packages in a fixed way; None for all files.

    Raises:
        UsageError: a requested package is not installed.
    """
    files = list(python_files(package_folders(packages)))
    paragraph_hashes: set[bytes] = set()
    if limit_bytes is None:
        for file in files:
            yield from _documents(file, paragraph_hashes)
        return
    position = {file.name: number for number, file in enumerate(files)}
    files.sort(key=lambda file: hashlib.sha256(file.name.encode()).digest())
    sampled: list[tuple[int, list[Document]]] = []
    size = 0
    for file in files:
        if size >= limit_bytes:
            break
        file_documents = list(_documents(file, paragraph_hashes))
        size += sum(len(document.text.encode()) for document in file_documents)
        sampled.append((position[file.name], file_documents))
    for _, file_documents in sorted(sampled, key=lambda item: item[0]):
        yield from file_documents


def provenance(
    packages: Sequence[str] | None = None,
    *,
    limit_bytes: int | None = None,
    read: Iterable[Document] | None = None,
) -> dict[str, object]:
    """Describe the corpus of this machine: package versions, licences, number and bytes of the
    documents, and the SHA-256 of their text in order.

    Args:
        packages, limit_bytes: as for `documents`.
        read: the documents if they have already been read; None to read them.
    """
    digest = hashlib.sha256()
    document_count = size = 0
    for document in documents(packages, limit_bytes=limit_bytes) if read is None else read:
        data = document.text.encode()
        digest.update(data + b"\n\n")
        document_count, size = document_count + 1, size + len(data)
    names = list(package_folders(packages))
    return {
        "packages": {name: package_version(name) for name in names},
        "licences": {name: LICENCES.get(name, "see the package") for name in names},
        "note": "documentation text read from the packages installed on this machine; "
        "it stays under their licences and is not redistributed",
        "documents": document_count,
        "bytes": size,
        "sha256": digest.hexdigest(),
    }


def _documents(file: PythonFile, paragraph_hashes: set[bytes]) -> Iterator[Document]:
    """Yield the documents of one file without the paragraphs in `paragraph_hashes`, and add new
    ones to it."""
    source = file.text()
    if source is None:
        return
    pending: list[str] = []
    first_line = 1
    texts: list[tuple[int, str]] = []
    for line, text in _topics(source) if file.name == TOPICS else docstrings(source):
        new_paragraphs = [p for p in paragraphs(text) if _is_new(p, paragraph_hashes)]
        if new_paragraphs and not pending:
            first_line = line
        pending += new_paragraphs
        if sum(map(len, pending)) >= GOOD_CHARACTERS:
            texts.append((first_line, "\n".join(pending)))
            pending = []
    last_text = "\n".join(pending)
    if len(last_text) >= LEAST_CHARACTERS:
        texts.append((first_line, last_text))
    elif last_text and texts:
        texts[-1] = (texts[-1][0], f"{texts[-1][1]}\n{last_text}")
    area = ".".join(file.module.split(".")[:2])
    notes = {"package": file.package, "module": file.module, "area": area}
    for line, text in texts:
        yield Document(text, file.package, f"{file.name}:{line}", notes)


def _is_new(paragraph: str, paragraph_hashes: set[bytes]) -> bool:
    """Whether no earlier paragraph has the same letters; adds its hash to `paragraph_hashes`."""
    letters = NOT_LETTERS.sub("", paragraph).lower()
    key = hashlib.blake2b(letters.encode(), digest_size=8).digest()
    if key in paragraph_hashes:
        return False
    paragraph_hashes.add(key)
    return True


def _topics(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of the language reference, the values of a dictionary literal."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for value in node.values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.lineno, value.value
