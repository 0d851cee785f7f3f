"""The label that a decoder finds most likely behind a prompt; its weights stay as they are, and
nothing is learned but what examples in the prompt show (`learn/tasks/label_likelihood.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from maskwright.base.errors import UsageError
from maskwright.learn.finetune.methods.base.fitted import FitInput, FittedMethod
from maskwright.learn.tasks.base.choices import LABEL_PROMPT, Long

if TYPE_CHECKING:
    from maskwright.learn.finetune.tune import TrainingResult
    from maskwright.learn.tasks.base.task_type import TaskType


class PromptedDecoder(FittedMethod):
    """Labels by their likelihood behind a prompt."""

    name = "prompted"
    prompt_option = LABEL_PROMPT
    selection = "Nothing was fitted."

    def require(self, task_type: TaskType, long: Long = "head") -> None:
        if task_type.chosen_by != LABEL_PROMPT or long != "head":
            raise UsageError(
                "the method does not support this task, or this handling of long texts",
                where="--method",
                found=f"{self.name}, the task {task_type.task} and --long {long}",
                wanted="one class for a text or a pair, and --long head",
                do="choose another --method",
            )

    def fit(self, fit_input: FitInput) -> TrainingResult:
        from maskwright.learn.finetune.tune import TrainingResult

        return TrainingResult(fit_input.model.eval(), [], [], 1, 0.0)


METHOD = PromptedDecoder()
