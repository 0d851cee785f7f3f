"""TF-IDF of words and character n-grams with a linear model, without a network: the baseline of all
other methods, saved as a result that predicts like theirs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwright.learn.finetune.method import Method, NetworklessMethod

if TYPE_CHECKING:
    from maskwright.learn.tasks.base.task_type import TaskType


class BagOfWordsMethod(NetworklessMethod):
    """Logistic or ridge regression on weights of words."""

    name = "bag-of-words"
    baseline = "words"
    long = ("head",)
    selection = (
        "The penalty was selected on validation rows, or, where they are few or evaluated, by "
        "cross-validation within the training part."
    )

    def learner(self, path: Path, task_type: TaskType, method: Method) -> Any:
        from maskwright.learn.finetune.bag_of_words_learner import BagOfWordsLearner

        return BagOfWordsLearner(path, task_type, method)


METHOD = BagOfWordsMethod()
