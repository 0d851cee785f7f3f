"""Long unbroken runs of text, cut before the library's byte-level trainer sees them.

The library takes time in the square of a word's length, and its words are unbroken runs: of letters
(DNA, a script without spaces), of blanks, of marks. No token may be longer than `LONGEST_TOKEN`, so
nothing is learned from a longer run that its parts would not show. Ordinary text passes as it is,
for the price of one look at every few hundred characters; only where a whole block of them is
unbroken are long stretches looked for, and cut into words as the pipeline does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import tokenizers

from maskwright.tokenizer.file.check import LONGEST_TOKEN

LONGEST_RUN = LONGEST_TOKEN - 1  # characters; with the space before it as long as a token may be
BLOCK = LONGEST_RUN // 2  # characters; a longer run than the longest fills at least one block
# Python counts four control characters among the blanks, the library among the marks.
BLANK, OTHER = r"[^\S\x1c-\x1f]", r"[\S\x1c-\x1f]"
UNBROKEN = re.compile(f"{BLANK}{{{BLOCK}}}|{OTHER}{{{BLOCK}}}")
# Looked for from its first character only; else each of a thousand would begin a look of its own.
STRETCH = re.compile(
    f"(?<!{BLANK}){BLANK}{{{LONGEST_RUN + 1},}}|(?<!{OTHER}){OTHER}{{{LONGEST_RUN + 1},}}"
)


def cut_runs(
    texts: Iterable[str], pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer
) -> Iterator[str]:
    """`texts`, cut within the words of `pre_tokenizer` that are longer than `LONGEST_RUN`."""
    for text in texts:
        start = 0
        if any(UNBROKEN.match(text, block) for block in range(0, len(text), BLOCK)):
            for place in _cuts(text, pre_tokenizer):
                yield text[start:place]
                start = place
        yield text[start:]


def _cuts(text: str, pre_tokenizer: tokenizers.pre_tokenizers.PreTokenizer) -> Iterator[int]:
    """The rising places in `text` where a word is to be cut."""
    for stretch in STRETCH.finditer(text):
        for _, (begin, end) in pre_tokenizer.pre_tokenize_str(stretch[0]):
            for place in range(begin + LONGEST_RUN, end, LONGEST_RUN):
                yield stretch.start() + place
