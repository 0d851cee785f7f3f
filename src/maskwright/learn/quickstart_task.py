"""Labelled texts that need no download: the type of an exception, from its message.

The labels are honest, because the authors of the installed packages gave them: in
`raise ValueError("…")` the message is the text and the class is the label. AssertionError is left
out, since its messages are mostly absent or mechanical. The eight most frequent types make the
classes. Related messages stand in one file, so `split` keeps a file together.

Majority and bag-of-words baselines belong beside every score on this task.
"""

from __future__ import annotations

import ast
import hashlib
import re
import warnings
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from maskwright.base.errors import DataError
from maskwright.text.corpus import embedded

MARKER = "quickstart.json"  # a file in the run of the quickstart
PACKAGES = (embedded.STANDARD, "torch", "numpy")
CLASSES = 8
LEFT_OUT = {"AssertionError"}
HOLE = "something"
MIN_WORDS = 3

RAISE = re.compile(r"^[ \t]*raise[ \t]+([A-Z]\w*)[ \t]*\(", re.MULTILINE)
# What matters for finding the closing bracket; strings and comments count as one thing.
TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+"""|'
    r"'''(?:[^'\\]|\\.|'(?!''))*+'''|"
    r'"(?:[^"\\\n]|\\.)*+"|'
    r"'(?:[^'\\\n]|\\.)*+'|#[^\n]*+|([(\[{])|([)\]}])",
    re.DOTALL,
)
LONGEST_STATEMENT = 4000
PERCENT = re.compile(r"%(?:\(\w+\))?[-#0 +]*[\d*]*(?:\.[\d*]+)?[srdifgxXeEcoau]")
BRACES = re.compile(r"\{[^{}]*\}")
WORD = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text with its class.

    Attributes:
        text: a message, with `something` in place of values that the program inserts.
        label: the name of the exception.
        group: the file of the message; all texts of a group are in the same part.
    """

    text: str
    label: str
    group: str


def exception_messages(packages: Sequence[str] = PACKAGES) -> list[LabelledText]:
    """Return messages with their exceptions, in the order of files, without near-duplicates.

    Args:
        packages: import names, `stdlib` for the standard library; by default three that are always
            installed with Maskwright and have fairly balanced classes.

    Raises:
        UsageError: a requested package is not installed.
        DataError: the packages have too few messages for a task.
    """
    by_key: dict[str, list[LabelledText]] = defaultdict(list)
    for file in embedded.python_files(embedded.package_folders(packages)):
        source = file.text()
        for label, text in _raised(source) if source and "raise " in source else ():
            if label not in LEFT_OUT and label not in text:
                by_key[_key(text)].append(LabelledText(text, label, file.name))
    unique = []
    for duplicates in by_key.values():
        # A message with several types gets the most frequent one, in alphabetical order if tied.
        counts = Counter(example.label for example in duplicates)
        label = min(counts, key=lambda name: (-counts[name], name))
        unique.append(next(example for example in duplicates if example.label == label))
    frequent = Counter(example.label for example in unique)
    classes = sorted(frequent, key=lambda name: (-frequent[name], name))[:CLASSES]
    if len(classes) < 2:
        raise DataError(
            "too few exception messages for a task",
            where=", ".join(embedded.package_folders(packages)),
            found=f"{len(unique)} messages of {len(classes)} types",
            wanted="at least 2 types",
        )
    return [example for example in unique if example.label in classes]


def split(
    messages: Sequence[LabelledText], test_share: float = 0.2
) -> tuple[list[LabelledText], list[LabelledText]]:
    """Divide into a training and a test part by group: all texts of a file are in the same part."""
    parts: tuple[list[LabelledText], list[LabelledText]] = [], []
    for message in messages:
        digest = hashlib.sha256(message.group.encode()).digest()
        parts[int.from_bytes(digest[:7], "big") / (1 << 56) < test_share].append(message)
    return parts


# ------------------------------------------------------------------------------ out of the source
def _raised(source: str) -> Iterator[tuple[str, str]]:
    """Yield (exception, message) of the raise statements in `source` outside of strings."""
    strings = list(embedded.literals(source))
    starts = [start for start, _ in strings]
    for match in RAISE.finditer(source):
        before = bisect_right(starts, match.start()) - 1
        if before >= 0 and match.start() < strings[before][1]:
            continue
        end = _closing(source, match.end() - 1)
        if end is None:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call = ast.parse(source[match.start(1) : end], mode="eval").body
        except SyntaxError:
            continue
        if not isinstance(call, ast.Call) or not call.args:
            continue
        text = " ".join(_message(call.args[0]).split())
        words = [w for w in WORD.findall(text) if w != HOLE]
        if len(words) >= MIN_WORDS:
            yield match[1], text


def _closing(source: str, opening: int) -> int | None:
    """Return the end of the bracketed expression that opens at `opening`; None if not found."""
    depth = 0
    for token in TOKEN.finditer(source, opening, opening + LONGEST_STATEMENT):
        depth += bool(token[1]) - bool(token[2])
        if depth == 0:
            return token.end()
    return None


def _message(node: ast.expr) -> str:
    """Return the text of a message expression, with `something` for values known at run time."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else HOLE
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_message, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _message(node.left) + _message(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return PERCENT.sub(HOLE, _message(node.left)).replace("%%", "%")
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            return BRACES.sub(HOLE, _message(node.func.value))
        if isinstance(node.func, ast.Name) and node.func.id in ("_", "gettext") and node.args:
            return _message(node.args[0])
    return HOLE


def _key(text: str) -> str:
    """Return a key that is equal for messages that differ only in values, case or punctuation."""
    words = [w for w in WORD.findall(text.lower()) if w != HOLE]
    return " ".join(words)
