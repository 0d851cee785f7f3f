"""Byte-pair encoding with an end-of-word marker that is a symbol of its own.

Sennrich et al. 2016 (https://arxiv.org/abs/1508.07909): start from characters, merge the most
frequent adjacent pair, repeat. Here the marker `</w>` stands apart until a merge takes it, so `est`
is one symbol with and without it (the `tokenizers` library glues it to the last character from the
start). Equal counts go to the pair that sorts first, so the result depends on the counts alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from maskwright.tokenizer.training.merges import Merge, PairTable, Symbols

END = "</w>"


def train_bpe(
    words: Mapping[str, int],
    parts: Mapping[str, int] | None = None,
    *,
    merges: int,
    min_frequency: int = 2,
) -> list[Merge]:
    """Learn up to `merges` new tokens from distinct `words` and their counts.

    `parts` are counted too, but not closed by the marker: runs that do not reach the end of a word.

    Two merges may spell the same token (`a b`+`c`, `a`+`b c`); both are kept, since splitting a
    word needs them, and the token counts once.

    Returns:
        The merges in the order in which they have to be applied.
    """
    symbols = Symbols()
    rows = [((*word, END), words[word]) for word in sorted(words)]
    rows += [(tuple(part), parts[part]) for part in sorted(parts)] if parts else []
    table = PairTable(
        [[symbols.number(c) for c in row] for row, _ in rows], [count for _, count in rows]
    )
    strings = symbols.strings
    heap: list[tuple[int, str, str, int, int]] = []

    def push(left: int, right: int, count: int) -> None:
        heapq.heappush(heap, (-count, strings[left], strings[right], left, right))

    for (left, right), count in table.pairs.items():
        if count >= min_frequency:
            push(left, right, count)
    learned: list[Merge] = []
    known = len(strings)
    while heap and len(strings) - known < merges:
        negative, _, _, left, right = heapq.heappop(heap)
        count = table.pairs.get((left, right), 0)
        if count != -negative:
            # Only a fall goes unannounced, so an entry that is out of date stands too early.
            if min_frequency <= count < -negative:
                push(left, right, count)
            continue
        token = strings[left] + strings[right]
        learned.append(Merge(strings[left], strings[right], token, count))
        new = symbols.number(token)
        for a, b in table.merge(left, right, new):
            now = table.pairs.get((a, b), 0)
            if now >= min_frequency and new in (a, b):
                push(a, b, now)
    return learned
