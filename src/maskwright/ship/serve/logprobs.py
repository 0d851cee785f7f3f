"""Log-probabilities of the tokens of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from maskwright.model.inference.likelihood import TokenScore
from maskwright.model.inference.text_generation import PromptTokens
from maskwright.text.tokenizer.tokenizer import Tokenizer


@dataclass
class Logprobs:
    """Log-probabilities of a text, as lists with one element per token.

    Attributes:
        tokens: the texts of the tokens.
        logprobs: the log-probabilities in nats; None for the first token of a prompt.
        best: the likeliest tokens at each position: log-probabilities by token text, or None.
        offsets: the index of the first character of each token.
    """

    tokens: list[str] = field(default_factory=list)
    logprobs: list[float | None] = field(default_factory=list)
    best: list[dict[str, float] | None] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def add(
        self, token: str, logprob: float | None, best: dict[str, float] | None, offset: int
    ) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.best.append(best)
        self.offsets.append(offset)

    def extend(self, logprobs: Logprobs) -> None:
        """Append the tokens of another text."""
        self.tokens += logprobs.tokens
        self.logprobs += logprobs.logprobs
        self.best += logprobs.best
        self.offsets += logprobs.offsets


def of_prompt(tokenizer: Tokenizer, prompt: PromptTokens, scores: Sequence[TokenScore]) -> Logprobs:
    """Return the log-probabilities of a prompt; `scores` has those of all its ids but the first."""
    logprobs = Logprobs()
    text_scores = scores[len(scores) + 1 - len(prompt.text_ids) :]
    for nth, (token, offset) in enumerate(zip(prompt.text_ids, prompt.offsets, strict=True)):
        logprob, best = (
            (None, None) if nth == 0 else (text_scores[nth - 1][0], text_scores[nth - 1][1])
        )
        text = tokenizer.decode([token], False)
        logprobs.add(text, logprob, None if best is None else likeliest(tokenizer, best), offset)
    return logprobs


def likeliest(tokenizer: Tokenizer, tokens: Sequence[tuple[int, float]]) -> dict[str, float]:
    """Return log-probabilities by token text, of equal texts the first; `tokens` are pairs (token
    id, log-probability) in descending order."""
    logprobs: dict[str, float] = {}
    for token, logprob in tokens:
        logprobs.setdefault(tokenizer.decode([token], False), logprob)
    return logprobs
