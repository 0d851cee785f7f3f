"""The label that a decoder finds most likely behind a prompt; its weights stay as they are, and
nothing is learned but what examples in the prompt show (`learn/tasks/label_likelihood.py`)."""

from __future__ import annotations

from maskwright.learn.finetune.method import FitInput, NetworkMethod
from maskwright.learn.tasks.base.choices import LABEL_PROMPT


class PromptedDecoder(NetworkMethod):
    """Labels by their likelihood behind a prompt."""

    name = "prompted"
    chosen_by = LABEL_PROMPT
    heads = (None,)
    problems = ("single",)
    long = ("head",)
    selection = "Nothing was fitted."

    def fit(self, fit_input: FitInput) -> list[float]:
        fit_input.model.eval()
        return []


METHOD = PromptedDecoder()
