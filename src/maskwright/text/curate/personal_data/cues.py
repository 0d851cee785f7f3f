"""Words that indicate the kind of a following number: `Tel.:`, `passport no.`, `电话：`.

Most numbers follow another word, so the last word is checked before the pattern of all phrases.
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
        phrases: patterns of phrases of words separated by blanks, regardless of case.
        letters: phrases of scripts without spaces between words.
        links: patterns of words between a phrase and the number, besides those for "number".
        short: abbreviations that are also words: only before a colon or a word for "number".
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
        """Whether one of the phrases precedes `position`."""
        piece = text[max(0, position - REACH) : position].rstrip(BETWEEN)
        last_word = piece[max(map(piece.rfind, APART)) + 1 :]
        if not (self._last.fullmatch(last_word) or piece.endswith(self._letters)):
            return False
        return bool(self._whole.search(text, max(0, position - REACH), position))
