"""How likely the tokens of a text were, a column for each thing that is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from maskwright.ask.predict.texts import PromptTokens
from maskwright.model.inference.likelihood import TokenScore
from maskwright.text.tokenizer.tokenizer import Tokenizer


@dataclass
class Logprobs:
    """Of each token of a text:

    Attributes:
        tokens: how it is written.
        own: its log-probability in nats; None of the first, before which nothing stands.
        best: those of the likeliest tokens in its place, by how they are written.
        places: the character at which it begins.
    """

    tokens: list[str] = field(default_factory=list)
    own: list[float | None] = field(default_factory=list)
    best: list[dict[str, float] | None] = field(default_factory=list)
    places: list[int] = field(default_factory=list)

    def add(self, token: str, log: float | None, best: dict[str, float] | None, place: int) -> None:
        """One token more."""
        self.tokens.append(token)
        self.own.append(log)
        self.best.append(best)
        self.places.append(place)

    def extend(self, other: Logprobs) -> None:
        """The tokens of another, too."""
        self.tokens += other.tokens
        self.own += other.own
        self.best += other.best
        self.places += other.places


def of_prompt(tokenizer: Tokenizer, prompt: PromptTokens, scores: Sequence[TokenScore]) -> Logprobs:
    """Those of the text of a prompt; `scores` are of all that the network read after its first
    id."""
    found = Logprobs()
    own = scores[len(scores) + 1 - len(prompt.text_ids) :]
    for nth, (token, place) in enumerate(zip(prompt.text_ids, prompt.offsets, strict=True)):
        log, best = (None, None) if nth == 0 else (own[nth - 1][0], own[nth - 1][1])
        written = tokenizer.decode([token], False)
        found.add(written, log, None if best is None else likeliest(tokenizer, best), place)
    return found


def likeliest(tokenizer: Tokenizer, tokens: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Tokens by how they are written, the best first; of those that look alike the best."""
    found: dict[str, float] = {}
    for token, log in tokens:
        found.setdefault(tokenizer.decode([token], False), log)
    return found
