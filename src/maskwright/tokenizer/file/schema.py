"""What may stand in a `tokenizer.json`, as tables: one row per type, one check per field.

The library that runs these files trusts them: a wrong length panics, a hostile pattern takes
forever, a replacement can grow text without bound. So every field of every step is named here, with
the values it may have; anything else is refused before the library sees it. A regular expression is
data that runs, so only known ones are taken.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from maskwright.errors import TokenizerError, near, shorten
from maskwright.tokenizer.file.pipeline import GPT2_DIGITS, MARKS, end_of_word

Check = Callable[[Any, str], None]

LONGEST_STRING = 64  # characters of a setting such as `##` or a replacement
MOST_STEPS = 16
DEEPEST = 3
LONGEST_REPLACEMENT = 128  # bytes; the longest of Unicode's own compatibility forms has 33
MOST_GROWTH = 64  # how much longer replacements may make a text

CASES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
KNOWN_PATTERNS = {
    end_of_word(MARKS),
    end_of_word(MARKS + r"\p{N}"),
    GPT2_DIGITS,
    GPT2_DIGITS.replace(r"?\p{N}|", r"?\p{N}+|"),  # GPT-2
    " {2,}",  # SentencePiece
    r"\s+",
    rf"{CASES}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",  # GPT-4, Llama 3
    rf"{CASES}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",  # Qwen
}


def refuse(what: str, where: str, found: object, wanted: object = None) -> TokenizerError:
    """The refusal of something in a tokenizer file."""
    return TokenizerError(
        what,
        where=where,
        found=repr(found)[:200],
        wanted=wanted,
        do="use a tokenizer.json from a source you trust, or train one with maskwright",
    )


# ------------------------------------------------------------------------------ checks of one value
def a_bool(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        raise refuse("not true or false", where, value)


def a_text(value: Any, where: str) -> None:
    """A short text, valid Unicode, not empty."""
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_STRING or broken(value):
        raise refuse("not a short text", where, value, f"1 to {LONGEST_STRING} characters")


def any_text(value: Any, where: str) -> None:
    """A short text that may be empty."""
    if value != "":
        a_text(value, where)


def broken(text: str) -> bool:
    """Whether a text cannot be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def one_of(*values: Any) -> Check:
    """Exactly one of `values`."""

    def check(value: Any, where: str) -> None:
        if not any(value == v and type(value) is type(v) for v in values):
            raise refuse("not one of the choices", where, value, ", ".join(map(repr, values)))

    return check


def number(smallest: int, largest: int) -> Check:
    """A whole number within bounds."""

    def check(value: Any, where: str) -> None:
        if type(value) is not int or not smallest <= value <= largest:
            raise refuse("a number out of range", where, value, f"{smallest} to {largest}")

    return check


def optional(inner: Check) -> Check:
    """Null, or what `inner` takes."""

    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

    return check


def a_character(value: Any, where: str) -> None:
    a_text(value, where)
    if len(value) != 1:
        raise refuse("not one character", where, value)


def a_pattern(value: Any, where: str) -> None:
    """`{"String": text}`, or `{"Regex": one of the known ones}`."""
    if not isinstance(value, dict) or len(value) != 1:
        raise refuse("not a pattern", where, value)
    ((kind, text),) = value.items()
    a_kind = one_of("String", "Regex")
    a_kind(kind, where)
    if kind == "String":
        a_text(text, where)
    elif not isinstance(text, str) or text not in KNOWN_PATTERNS:
        raise refuse(
            "a regular expression that is not on the list of known ones",
            where,
            text,
            "the patterns of GPT-2, GPT-4, Llama 3, Qwen, SentencePiece or maskwright",
        )


def a_charsmap(value: Any, where: str) -> None:
    """SentencePiece's compiled normalisation: a trie, then its replacements, each closed by NUL."""
    try:
        table = base64.b64decode(value[: 2 << 20], validate=True)
        size = int.from_bytes(table[:4], "little")
        replacements = table[4 + size :]
        replacements.decode()
    except (TypeError, ValueError):
        raise refuse("not a normalisation table", where, value) from None
    if size % 4 or not 0 < size < len(table) - 4 or not replacements.endswith(b"\0"):
        raise refuse("a normalisation table with wrong lengths", where, value)
    longest = max(map(len, replacements.split(b"\0")))
    if longest > LONGEST_REPLACEMENT:
        raise refuse("a normalisation table that lets a text grow too much", where, longest)


BEHAVIORS = one_of("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
SCHEMES = one_of("always", "first", "never")

# type -> (fields that must stand there, fields that may)
Row = tuple[dict[str, Check], dict[str, Check]]
BYTE_LEVEL: Row = ({}, {"add_prefix_space": a_bool, "trim_offsets": a_bool, "use_regex": a_bool})
METASPACE: Row = (
    {"replacement": a_character},
    {
        "prepend_scheme": SCHEMES,
        "split": a_bool,
        "add_prefix_space": a_bool,
        "str_rep": a_character,
    },
)
REPLACE: Row = ({"pattern": a_pattern, "content": any_text}, {})
NONE: Row = ({}, {})

NORMALIZERS: dict[str, Row] = {
    "BertNormalizer": (
        {"clean_text": a_bool, "handle_chinese_chars": a_bool, "lowercase": a_bool},
        {"strip_accents": optional(a_bool)},
    ),
    "Lowercase": NONE,
    "NFC": NONE,
    "NFD": NONE,
    "NFKC": NONE,
    "NFKD": NONE,
    "Nmt": NONE,
    "Precompiled": ({"precompiled_charsmap": a_charsmap}, {}),
    "Prepend": ({"prepend": a_text}, {}),
    "Replace": REPLACE,
    "Strip": ({"strip_left": a_bool, "strip_right": a_bool}, {}),
    "StripAccents": NONE,
}
PRE_TOKENIZERS: dict[str, Row] = {
    "BertPreTokenizer": NONE,
    "ByteLevel": BYTE_LEVEL,
    "Digits": ({"individual_digits": a_bool}, {}),
    "Metaspace": METASPACE,
    "Punctuation": ({}, {"behavior": BEHAVIORS}),
    "Split": ({"pattern": a_pattern, "behavior": BEHAVIORS}, {"invert": one_of(False)}),
    "Whitespace": NONE,
    "WhitespaceSplit": NONE,
}
DECODERS: dict[str, Row] = {
    "BPEDecoder": ({"suffix": a_text}, {}),
    "ByteFallback": NONE,
    "ByteLevel": BYTE_LEVEL,
    "Fuse": NONE,
    "Metaspace": METASPACE,
    "Replace": REPLACE,
    "Strip": ({"content": a_character, "start": number(0, 8), "stop": number(0, 8)}, {}),
    "WordPiece": ({"prefix": a_text, "cleanup": a_bool}, {}),
}
STEPS = {
    "normalizer": (NORMALIZERS, "normalizers"),
    "pre_tokenizer": (PRE_TOKENIZERS, "pretokenizers"),
    "decoder": (DECODERS, "decoders"),
}


# ------------------------------------------------------------------------------ checks of a table
def fields(plain: Any, where: str, must: Mapping[str, Check], may: Mapping[str, Check]) -> None:
    """Every field known and fitting, none missing."""
    if not isinstance(plain, dict):
        raise refuse("not a table", where, plain)
    for name in must:
        if name not in plain:
            raise refuse("a field is missing", f"{where}.{name}", sorted(plain))
    for name, value in plain.items():
        check = must.get(name) or may.get(name)
        if check is None:
            known = near(name, [*must, *may])
            raise refuse("an unknown field", f"{where}.{shorten(name, 64)}", name, known)
        check(value, f"{where}.{name}")


def steps(part: str, plain: Any, where: str = "", depth: int = 0) -> list[dict[str, Any]]:
    """Check the steps of `normalizer`, `pre_tokenizer` or `decoder`; returns them flat."""
    where = where or part
    table, inner = STEPS[part]
    if plain is None:
        return []
    if not isinstance(plain, dict) or not isinstance(plain.get("type"), str):
        raise refuse("not a step", where, plain)
    kind = plain["type"]
    flat: list[dict[str, Any]] = []
    if kind == "Sequence":
        listed = plain.get(inner)
        if set(plain) != {"type", inner} or not isinstance(listed, list) or depth >= DEEPEST:
            raise refuse("not a sequence of steps", where, sorted(plain))
        for index, step in enumerate(listed[: MOST_STEPS + 1]):
            flat += steps(part, step, f"{where}.{index}", depth + 1)
    elif kind in table:
        fields({k: v for k, v in plain.items() if k != "type"}, where, *table[kind])
        flat = [plain]
    else:
        raise refuse("a step of an unknown type", where, kind, near(kind, table))
    if len(flat) > MOST_STEPS:
        raise refuse("too many steps", where, len(flat), f"at most {MOST_STEPS}")
    growth = 1.0
    for step in flat:
        growth *= _growth(step)
    if growth > MOST_GROWTH:
        raise refuse("replacements that let a text grow too much", where, f"{growth:g} times")
    return flat


def _growth(step: dict[str, Any]) -> float:
    if step["type"] != "Replace":
        return 1.0
    pattern = step["pattern"].get("String", "x")
    return max(1.0, float(len(step["content"])) / len(pattern))
