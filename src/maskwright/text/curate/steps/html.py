"""Convert HTML that was left in text to plain text.

Block tags end a line, inline tags are removed, scripts, styles and comments are removed with their
content, character references are decoded. A text counts as HTML by its tags: pairs of an opening
and a closing one, void ones such as `<br>`, or blocks that begin a line. Only tags and attributes
of HTML are recognised, so `a < b`, `a<b and c>d`, `<unk>`, `List<String>` and `<name@example.org>`
are text; so are anything in backquotes, and `<i>` without an end tag.

A text that mentions tags (`begins with <ul> and`, or the word "tag") is about HTML, and counts as
HTML only if tags also give it its structure: blocks that begin and end lines, attributes, comments.

In other texts only character references that nobody writes on purpose (`&nbsp;`, `&#39;`) are
decoded, but not `&lt;`, `&gt;` and `&amp;`, which may be the subject.

Each pattern stops at the next `<` or `&`, so that the time is linear in the length of the text.
"""

from __future__ import annotations

import html
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from maskwright.text.curate.step import Change, CurationBatch, Outcome, Step

SUMMARY = "markup left in text becomes plain text: tags, scripts, comments, character references"
# Elements that are removed with their content.
DROPPED = ("script", "style", "noscript", "template", "svg", "iframe")
VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track")
)
CELLS = frozenset(("td", "th"))
# Elements that begin and end a line.
BLOCKS = {
    *("address", "article", "aside", "blockquote", "body", "br", "button", "caption", "center"),
    *("dd", "details", "dialog", "div", "dl", "dt", "fieldset", "figcaption", "figure"),
    *("footer", "form", "frame", "frameset", "h1", "h2", "h3", "h4", "h5", "h6", "head"),
    *("header", "hr", "html", "legend", "li", "main", "menu", "nav", "ol", "optgroup"),
    *("option", "p", "pre", "section", "select", "summary", "table", "tbody", "td", "textarea"),
    *("tfoot", "th", "thead", "title", "tr", "ul"),
}
INLINE = {
    *("a", "abbr", "acronym", "audio", "b", "bdi", "bdo", "big", "canvas", "cite", "code"),
    *("data", "datalist", "del", "dfn", "em", "font", "i", "img", "input", "ins", "kbd"),
    *("label", "map", "mark", "meter", "object", "output", "param", "picture", "progress", "q"),
    *("rp", "rt", "ruby", "s", "samp", "small", "source", "span", "strike", "strong", "sub"),
    *("sup", "time", "tt", "u", "var", "video", "wbr", "area", "base", "col", "colgroup"),
    *("embed", "link", "meta", "track"),
}
# Names that other notations have too, such as `<s>`: they are not evidence of HTML.
AMBIGUOUS = frozenset(("s", "data", "input", "output", "source", "link", "base", "title", "time"))
NAMES = "|".join(sorted(BLOCKS | INLINE | set(DROPPED), key=len, reverse=True))
# Names with a hyphen are custom elements, which have an end tag.
OWN = r"[a-z][a-z0-9_.]*-[a-z0-9_.-]*"
# Attributes begin with one that has a value, or are words that HTML has as attributes; all of
# `<b and c>` is text. Where quotation marks have no pair, the tag ends at the next bracket.
BARE = (
    r"allowfullscreen|async|autofocus|autoplay|checked|controls|default|defer|disabled|hidden|"
    r"ismap|loop|multiple|muted|nofollow|noshade|novalidate|nowrap|open|playsinline|readonly|"
    r"required|reversed|selected|[a-z]+-[\w-]+"
)
TAG = re.compile(
    rf"""<(?P<close>/?)(?P<name>{NAMES}|{OWN})(?=[\s/>])
    (?:\s*/?>|(?P<attributes>(?:\s+(?:{BARE})(?=[\s/>]))*+(?:\s*/?>|[\s/]+[\w:@.*-]+\s*=
    (?:(?:[^<>"']|"[^"<]*"|'[^'<]*')*+>|[^<>]*>))))""",
    re.IGNORECASE | re.VERBOSE,
)
# The context of a tag that is mentioned. In HTML, words follow a tag directly.
BEFORE = " \t\n\"'“‘(["
BEHIND = re.compile(r"[ \t]+[a-z.…]|\s*\Z|[.,;:!?)\]=\"'”’—–-]")
PUNCTUATION = tuple(".,;:!?)]")
SUBJECT = re.compile(r"\b(?:tags?|elements?|html\d?|markup)\b", re.IGNORECASE)
OPENING = re.compile(
    r"<!--|<!\[CDATA\[|<!doctype\b[^<>]*>|<\?xml\b[^<>]*>|" + TAG.pattern, TAG.flags
)
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
# What texts about HTML write on purpose.
SUBJECTS = frozenset(("&lt;", "&gt;", "&amp;", "&#60;", "&#62;", "&#38;"))
# To lower case for A to Z only, which keeps the length.
LOWER_ASCII = {ord(c): c.lower() for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
LINE_BEGIN = "\n>"
LINE_BEHIND = re.compile(r"[ \t]*(?:[\r\n<]|\Z)")


@dataclass(frozen=True, kw_only=True)
class Settings(Step):
    CHANGES_TEXT: ClassVar[bool] = True

    min_tags: int = 2
    """Fewest tags of a text that counts as HTML; a pair counts as two."""
    references: bool = True
    """Whether character references (`&nbsp;`) become characters."""

    def check(self) -> None:
        self.check_counts("min_tags")

    def apply(self, batch: CurationBatch, opened: Any, gathered: Any = None) -> Outcome:
        texts, changes = list(batch.texts), []
        for index, text in enumerate(batch.texts):
            counts = {"tags": 0, "elements": 0, "references": 0}
            markup = "<" in text and self._is_markup(text)
            if markup:
                text = _plain(text, counts)
            if self.references and "&" in text:
                text = _decode(text, markup, counts)
            if text != batch.texts[index]:
                texts[index] = text
                changes += [Change(index, rule, n) for rule, n in counts.items() if n]
        return Outcome(texts=texts if changes else None, changes=changes)

    def _is_markup(self, text: str) -> bool:
        """Whether a text counts as HTML: it has `min_tags` tags, and structure (one strong sign,
        which counts 2, or two weak ones) or nothing that shows that it is about HTML."""
        tags, structure = 0, 0
        mentions = False
        open_tags: Counter[str] = Counter()
        for match in _outside_code(OPENING, text):
            name, begin = (match["name"] or "").lower(), match.start()
            if "-" in name:  # custom elements are no evidence
                continue
            unambiguous = name not in AMBIGUOUS
            block = unambiguous and name in BLOCKS - VOID
            if not name:  # a comment or a declaration
                tags, structure = tags + 1, structure + 2
            elif match["close"]:
                if open_tags[name] > 0:
                    open_tags[name] -= 1
                    tags += 2 if unambiguous else 0
                mentions |= block and text.startswith(PUNCTUATION, match.end())
                if name in DROPPED:
                    structure += 2
                elif block and _line_behind(text, match.end()):
                    structure += 1
            else:
                open_tags[name] += name not in VOID
                begins_line = block and _line_before(text, begin)
                tags += unambiguous and (name in VOID or begins_line)
                is_mentioned = _is_mentioned(text, match)
                mentions |= is_mentioned
                if unambiguous and match["attributes"]:
                    structure += 2
                elif begins_line and not is_mentioned:
                    structure += 1
            if tags >= self.min_tags and structure >= 2:
                return True
        mentions = mentions or SUBJECT.search(TAG.sub("", text)) is not None
        return tags >= self.min_tags and not mentions


def _is_mentioned(text: str, match: re.Match[str]) -> bool:
    """Whether an opening tag is used as a word of a sentence."""
    begin, end = match.span()
    if match["attributes"] or (begin and text[begin - 1] not in BEFORE):
        return False
    if match["name"].lower() in VOID:  # ` <br> ` is used so
        return text.startswith(PUNCTUATION, end)
    return BEHIND.match(text, end) is not None


def _outside_code(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches that do not begin in backquotes."""
    spans = [m.span() for m in CODE.finditer(text)] if "`" in text else []
    number = 0
    for match in pattern.finditer(text):
        while number < len(spans) and spans[number][1] <= match.start():
            number += 1
        if number == len(spans) or match.start() < spans[number][0]:
            yield match


def _plain(text: str, counts: dict[str, int]) -> str:
    """Remove the tags of a text, adding the numbers of tags and elements to `counts`."""
    # A noncharacter that the text does not have stands for a line end made by a tag.
    line_mark = next(c for c in map(chr, range(0xFDD0, 0xFDF0)) if c not in text)
    pieces: list[str] = []
    position = 0
    lower = ""
    link_end = -1
    unclosed: set[str] = set()
    matches = list(_outside_code(OPENING, text))
    literal_tags = _without_end(text, matches)
    for match in matches:
        begin, end = match.span()
        name = (match["name"] or "").lower()
        if begin < position or begin in literal_tags:
            continue  # inside an element that vanished, or text
        pieces.append(text[position:begin])
        opening = match[0].lower()
        end_tag = {"<!--": "-->", "<![cdata[": "]]>"}.get(opening, "")
        if name in DROPPED and not match["close"]:
            end_tag = f"</{name}"
        if end_tag and end_tag not in unclosed:
            lower = lower or text.translate(LOWER_ASCII)
            close_end = lower.find(end_tag, end)
            if close_end < 0:
                unclosed.add(end_tag)  # its tag alone goes
            elif opening == "<![cdata[":
                pieces.append(text[end:close_end])
                counts["tags"] += 1
                position = close_end + len(end_tag)
                continue
            else:
                close_end += len(end_tag)
                if name:
                    bracket = lower.find(">", close_end)
                    close_end = bracket + 1 if bracket >= 0 else close_end
                counts["elements"] += 1
                on_own_line = _line_behind(text, close_end) and _line_before(text, begin)
                pieces.append(line_mark if on_own_line else "")
                position = close_end
                continue
        counts["tags"] += 1
        if name in CELLS and match["close"]:
            pieces.append("\t")
        elif (name in BLOCKS and name not in CELLS) or not name:
            pieces.append(line_mark)
        elif name == "a" and begin == link_end and not match["close"]:
            pieces.append(" ")  # links of a menu, which are parted by their looks
        link_end = end if name == "a" else -1
        position = end
    pieces.append(text[position:])
    return _join("".join(pieces).split(line_mark))


def _without_end(text: str, matches: Sequence[re.Match[str]]) -> set[int]:
    """Return the positions of tags that are text as they lack an end tag: `<file-name>`,
    `vector<i>`, and blocks that are mentioned in a sentence."""
    begins: set[int] = set()
    ends: Counter[str] = Counter()
    for match in reversed(matches):
        name = (match["name"] or "").lower()
        if match["close"]:
            ends[name] += 1
        elif ends[name]:
            ends[name] -= 1
        elif (
            "-" in name
            or (name in INLINE - VOID and not match["attributes"])
            or (
                name in BLOCKS
                and not _line_before(text, match.start())
                and _is_mentioned(text, match)
            )
        ):
            begins.add(match.start())
    return begins


def _line_before(text: str, begin: int) -> bool:
    return begin == 0 or text[begin - 1] in LINE_BEGIN


def _line_behind(text: str, end: int) -> bool:
    return LINE_BEHIND.match(text, end) is not None


def _join(pieces: list[str]) -> str:
    """Join pieces with line ends, or with a blank line where the text had one."""
    joined: list[str] = []
    blank = False
    for piece in pieces:
        core = piece.strip()
        if not core:
            blank |= piece.count("\n") > 1
            continue
        begin = piece.index(core[0])
        blank |= piece[:begin].count("\n") > 1
        if joined:
            joined.append("\n\n" if blank else "\n")
        joined.append(core)
        blank = piece[begin + len(core) :].count("\n") > 1
    lines = "".join(joined).split("\n")
    return "\n".join(line.rstrip(" \t") for line in lines)


def _decode(text: str, markup: bool, counts: dict[str, int]) -> str:
    """Decode the character references of a text, adding their number to `counts`."""

    def character(match: re.Match[str]) -> str:
        if not markup and match[0].lower() in SUBJECTS:
            return match[0]
        decoded = html.unescape(match[0])
        if decoded == match[0]:
            return decoded
        counts["references"] += 1
        return " " if decoded == "\u00a0" else decoded

    if not markup and "`" in text:
        spans = [m.span() for m in CODE.finditer(text)]
        edges = [0, *itertools.chain.from_iterable(spans), len(text)]
        pieces = [text[begin:end] for begin, end in itertools.pairwise(edges)]
        pieces[0::2] = [REFERENCE.sub(character, piece) for piece in pieces[0::2]]
        return "".join(pieces)
    return REFERENCE.sub(character, text)
