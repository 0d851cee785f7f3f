"""Words that say of which sort a number behind them is: `Tel.:`, `passport no.`, `电话：`.

Most numbers have another word before them, so the word there alone decides whether the pattern of
all phrases is asked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

REACH = 48  # characters before a number
NUMBER = r"(?:no|nr|num|number|nummer|num[eé]ro|n[º°]|номер|号码?|號碼?|番号|번호)"
BETWEEN = " \t\n\r.:：#№-"
APART = ' \t\n/|,;()[]<>"'


class Cues:
    """Phrases before a number.

    Args:
        phrases: patterns of phrases of words with blanks between them, regardless of case.
        links: patterns of words that may stand between a phrase and the number, besides those for
            `number`.
        letters: phrases of scripts without spaces between words.
        short: abbreviations that are words, too: only with a colon or a word for number behind.
    """

    def __init__(
        self,
        phrases: Sequence[str],
        letters: Sequence[str] = (),
        links: Sequence[str] = (),
        short: Sequence[str] = (),
    ) -> None:
        lasts = {phrase.rsplit(" ", 1)[-1] for phrase in phrases}
        self._last = re.compile("|".join([*lasts, *links, *short, NUMBER]), re.IGNORECASE)
        phrases = [*phrases, *(rf"{word}(?=\s?(?:[:#]|{NUMBER}(?!\w)))" for word in short)]
        self._letters = (*letters, "号", "号码", "號", "號碼", "番号", "번호")
        between = "[" + re.escape(BETWEEN) + "]{0,3}"
        link = rf"(?:(?:{'|'.join([*links, NUMBER])}){between}){{0,2}}"
        words = rf"(?<!\w)(?:{'|'.join(phrases)})(?!\w)"
        apart = f"|{'|'.join(letters)}" if letters else ""
        self._whole = re.compile(rf"(?:{words}{apart}){between}{link}\Z", re.IGNORECASE)

    def before(self, text: str, position: int) -> bool:
        """Whether one of the phrases stands before `position`."""
        piece = text[max(0, position - REACH) : position].rstrip(BETWEEN)
        last_word = piece[max(map(piece.rfind, APART)) + 1 :]
        if not (self._last.fullmatch(last_word) or piece.endswith(self._letters)):
            return False
        return bool(self._whole.search(text, max(0, position - REACH), position))
