"""Which words of a text speak for a label: the text is predicted once without each of its words.

The difference of the probabilities is the weight of the word (occlusion; Zeiler and Fergus 2014,
section 4, arXiv:1311.2901; for words Li et al. 2016, arXiv:1612.08220). It needs no gradients, so
it applies to every method, also to a bag of words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from maskwright.ask.predict.predictor import TaskPredictor
from maskwright.base.errors import UsageError, unknown
from maskwright.base.report import document

WORD = re.compile(r"\w+(?:['’\-]\w+)*")
COLOURS = {True: "31,119,180", False: "230,125,30"}  # for and against the label


class WordWeight(NamedTuple):
    """A word with the offsets of its characters, and what it adds to the probability."""

    word: str
    start: int
    end: int
    weight: float


@dataclass(frozen=True)
class Explanation:
    """The weight of each word of a text for the probability of a label. A notebook shows the text
    with words for the label in blue and words against it in orange."""

    text: str
    label: str
    probability: float
    words: tuple[WordWeight, ...]

    @property
    def ranked(self) -> list[WordWeight]:
        """The words by the size of their weights."""
        return sorted(self.words, key=lambda word: -abs(word.weight))

    def __repr__(self) -> str:
        shown = ", ".join(f"{word.word} {word.weight:+.2f}" for word in self.ranked[:5])
        return f"<{self.label} {self.probability:.2f}: {shown}>"

    def _repr_html_(self) -> str:
        most = max(0.02, *(abs(word.weight) for word in self.words))
        pieces, end = list[tuple[str, str, float]](), 0
        for word, start, stop, weight in self.words:
            colour = f"rgba({COLOURS[weight > 0]},{0.7 * abs(weight) / most:.2f})"
            pieces += [(self.text[end:start], "", 0.0), (word, colour, weight)]
            end = stop
        pieces.append((self.text[end:], "", 0.0))
        return document.render(
            "explanation.html", label=self.label, probability=self.probability, pieces=pieces
        )


def explain(predictor: TaskPredictor, text: str, label: str | None) -> Explanation:
    """As `LanguageModel.explain`."""
    predictor.require_probabilities("explain")
    labels = predictor.task_type.labels
    if label is not None and label not in labels:
        raise unknown("no such label", label, labels, where="label")
    spans = [match.span() for match in WORD.finditer(text)]
    if not spans:
        raise UsageError("the text has no words", where="explain", found=repr(text)[:80])
    without = [text[:start] + text[end:] for start, end in spans]
    # A text of one word would be empty without it: a space is a text.
    probabilities = predictor.predict_proba([text, *(rest or " " for rest in without)])
    column = int(probabilities[0].argmax()) if label is None else labels.index(label)
    probability = float(probabilities[0, column])
    weights = [probability - float(p) for p in probabilities[1:, column]]
    words = [
        WordWeight(text[start:end], start, end, weight)
        for (start, end), weight in zip(spans, weights, strict=True)
    ]
    return Explanation(text, labels[column], probability, tuple(words))
