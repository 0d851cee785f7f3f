"""Which signs of a text a tokenizer cannot give back: a model can never write them with it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from maskwright.findings import Finding
from maskwright.tokenizer.tokenizer import Tokenizer

SIGNS = {
    "line breaks": re.compile(r"[\n\r\u0085\u2028\u2029]"),
    "tabs": re.compile(r"\t"),
    "several blanks in a row": re.compile(r"[ \u00a0]{2,}"),
}
CAPITALS = "capitals"
REMEDY = (
    "a model with a byte-level BPE keeps them (GPT-2, BART); or put signs in their place that the "
    "tokenizer knows, in the data and in the answers"
)


def lost_signs(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, int]:
    """How many of `texts` have signs that are not there any more in what the tokenizer makes of
    their tokens, by what they are; signs at the edges of a text do not count.

    Only texts that have such signs are looked at, so it costs nothing where there are none.
    """
    found: dict[str, int] = {}
    for text in (text.strip() for text in texts):
        has = {name: len(sign.findall(text)) for name, sign in SIGNS.items() if sign.search(text)}
        capital = any(c.isupper() for c in text)
        folded = capital and not any(c.isupper() for c in tokenizer.normalise(text))
        # An unknown token keeps its place, or the blanks on its sides would count as one run.
        back = tokenizer.decode(tokenizer.encode(text), skip_special=False) if has else ""
        lost = [name for name, count in has.items() if len(SIGNS[name].findall(back)) < count]
        for name in (*lost, *([CAPITALS] if folded else [])):
            found[name] = found.get(name, 0) + 1
    return found


def lost_finding(tokenizer: Tokenizer, texts: Sequence[str]) -> Finding | None:
    """What of `texts` could never be written; None where all could."""
    found = lost_signs(tokenizer, texts)
    if not found:
        return None
    lost = ", ".join(f"{name} in {count:,} of {len(texts):,}" for name, count in found.items())
    return Finding(
        "signs-not-kept",
        f"texts written: the tokenizer does not keep {lost}, so no answer has them",
        remedy=REMEDY,
    )
