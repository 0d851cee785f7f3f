"""The settings of text generation, declared here and nowhere else: `LanguageModel.generate` and
`stream`, `maskwright.generate`, the command and the server take these and pass them on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar

from maskwright.base.errors import ConfigError

TEMPERATURE = 0.8
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """Settings of text generation. Penalties change the logits of tokens that have occurred; then
    filters apply in the order temperature, top_k, top_p, typical_p.

    Attributes:
        tokens: the maximum number of new tokens.
        temperature: divides the logits; 0 is greedy decoding; without it 0.8.
        top_k: sample from this many most probable tokens; 0: from all.
        top_p: sample from the most probable tokens with this total probability (arXiv:1904.09751);
            1: from all.
        typical_p: sample from the tokens whose information content is closest to the expected one,
            with this total probability (locally typical sampling, arXiv:2202.00666); 1: from all.
        repetition_penalty: divides positive logits, and multiplies negative ones, of all tokens of
            the prompt (of an encoder-decoder only its output) and of the new text
            (arXiv:1909.05858, section 4.1); 1: none.
        frequency_penalty: is subtracted from the logit of a token for each of its occurrences in
            the new text.
        presence_penalty: is subtracted once from the logits of all tokens of the new text.
        seed: of the samples, which do not depend on the other prompts of a list.
        stop: strings that end the output; it is cut before them.
        num_beams: above 1, search the most probable text with this many beams instead of sampling.
    """

    tokens: int = 100
    temperature: float | None = None
    top_k: int = 0
    top_p: float = 1.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int = 0
    stop: Sequence[str] = ()
    num_beams: int = 1

    def __post_init__(self) -> None:
        temperature = self.sampling_temperature
        if not 0 <= temperature < float("inf"):
            raise _out_of_range("temperature", temperature, "0 or more")
        if self.top_k < 0:
            raise _out_of_range("top_k", self.top_k, "1 or more, or 0 for all of them")
        for name in ("top_p", "typical_p"):
            if not 0 < (share := getattr(self, name)) <= 1:
                raise _out_of_range(name, share, "more than 0, at most 1")
        if not 0 < self.repetition_penalty < float("inf"):
            raise _out_of_range("repetition_penalty", self.repetition_penalty, "more than 0")
        for name in ("frequency_penalty", "presence_penalty"):
            if not -float("inf") < (penalty := getattr(self, name)) < float("inf"):
                raise _out_of_range(name, penalty, "a finite number")

    @property
    def sampling_temperature(self) -> float:
        """`temperature`, or its default."""
        return TEMPERATURE if self.temperature is None else self.temperature

    @property
    def samples(self) -> bool:
        """Whether a setting is set that only sampling has."""
        return bool(self.temperature or self.top_k) or (self.top_p, self.typical_p) != (1.0, 1.0)

    @property
    def penalises(self) -> bool:
        """Whether tokens that have occurred are penalised."""
        penalties = self.repetition_penalty, self.frequency_penalty, self.presence_penalty
        return penalties != (1.0, 0.0, 0.0)


class GenerationKeywords(TypedDict, total=False):
    """The fields of `GenerationSettings` as keywords, for type checkers and editors."""

    tokens: int
    temperature: float | None
    top_k: int
    top_p: float
    typical_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    seed: int
    stop: Sequence[str]
    num_beams: int


def takes_generation_settings(function: Function) -> Function:
    """Decorator for a function that takes the fields of `GenerationSettings` as `**settings`:
    `help` and completion show each of them with its default."""
    signature = inspect.signature(function)
    *parameters, _ = signature.parameters.values()
    fields = inspect.signature(GenerationSettings).parameters.values()
    function.__signature__ = signature.replace(parameters=[*parameters, *fields])  # type: ignore[attr-defined]
    return function


def _out_of_range(name: str, value: object, valid_range: str) -> ConfigError:
    return ConfigError("a setting is out of range", where=name, found=value, wanted=valid_range)
