"""English paragraphs out of documentation text in reStructuredText, Google or NumPy style.

Kept are runs of lines that read as prose once markup is taken off: whole sentences with the small
words that English has. Examples, signatures, tables, formulas, headings and lists of names are left
out, because a small model learns nothing from them but noise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

SMALL_WORDS = {
    *("a", "an", "and", "are", "as", "at", "be", "by", "can", "for", "from", "has", "have", "if"),
    *("in", "is", "it", "its", "may", "no", "not", "of", "on", "or", "should", "that", "the"),
    *("then", "there", "these", "they", "this", "to", "was", "we", "when", "where", "which"),
    *("will", "with", "you"),
}
MIN_WORDS = 6
LEAST_CHARACTERS = 24
# What a sentence ends with, or the mark of a literal or emphasis around its end.
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
    """The paragraphs of prose in `text`, each on one line, without markup.

    Args:
        text: a docstring with its indentation removed.
    """
    for piece in _pieces(text.expandtabs().split("\n")):
        if len(piece) < LEAST_CHARACTERS or piece[-1] not in LAST_CHARACTERS:
            continue
        clean = plain(piece)
        if reads_as_prose(clean):
            yield clean


def plain(text: str) -> str:
    """`text` on one line without the marks of reStructuredText and Markdown."""
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
    """Whether `text` is whole sentences of English with little code in them."""
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
    """Runs of lines that belong together. A new one begins at a blank line, a change of
    indentation, an item of a list, a field; examples, tables and headings belong to none."""
    piece: list[str] = []
    indent: int | None = None  # where the next line of the piece must begin; None: anywhere
    hidden: int | None = None  # lines deeper than this belong to a literal block or a directive
    example = False
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        bare = line.lstrip()
        depth, bare = len(line) - len(bare), bare.rstrip()
        example = example and bool(bare)
        if hidden is not None and bare and depth <= hidden:
            hidden = None
        if not bare or example or hidden is not None:
            yield from _closed(piece)
            continue
        directive = DIRECTIVE.match(bare) if bare.startswith("..") else None
        if directive:
            yield from _closed(piece)
            bare = directive[2] or ""
            if directive[1] not in PROSE_DIRECTIVES:
                hidden = depth
            elif not directive[1].startswith(("version", "deprec")) and bare:
                piece, indent = [bare], None
            continue
        if DOCTEST.match(bare):
            example = True
        if example or RULE.match(bare) or RULE.match(below) or _is_table(bare):
            yield from _closed(piece)
            continue
        mark = ITEM.match(bare) or (FIELD.match(bare) if ":" in bare else None)
        if mark or (piece and indent not in (None, depth)):
            yield from _closed(piece)
        if mark or not piece:
            piece, indent = [bare[mark.end() :] if mark else bare], None if mark else depth
        else:
            piece.append(bare)
            indent = depth
        if bare.endswith("::"):
            yield from _closed(piece)
            hidden = depth
    yield from _closed(piece)


def _is_table(line: str) -> bool:
    # Plain searches first: nearly no line of prose has any of these.
    likely = any(mark in line for mark in ("  ", "|", "--", "==", " : "))
    return likely and TABLE.search(line) is not None


def _closed(piece: list[str]) -> Iterator[str]:
    if piece:
        yield " ".join(piece)
        piece.clear()
