"""Fits a bag of words where other methods train a network, with the same results and files.

    model/ config.json               the vectorizers; says that it is not a Hugging Face model
           vocabulary.json           words and groups of characters, in the order of the features
           bag_of_words.safetensors  their inverse document frequencies, and the linear model

The strength of the regression is chosen on the validation part where a test part is evaluated, else
in folds of the training part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from maskwright.base.metrics.metrics import METRICS
from maskwright.base.storage import commit
from maskwright.base.terminal import counted
from maskwright.learn.finetune.learner import BaseLearner, SeedResult
from maskwright.learn.finetune.tune import Settings, TrainingResult
from maskwright.learn.tasks.base.bag_of_words import BagOfWords, encode_words
from maskwright.learn.tasks.base.task_type import Encoded, Outputs
from maskwright.model.objectives.supervised import PROBLEM_TYPES
from maskwright.text.tables.rows import TRAIN, VALIDATION


@dataclass(frozen=True)
class BagOfWordsResult(TrainingResult):
    """A fit, which has a bag of words in place of a network."""

    bag: BagOfWords

    @property
    def num_trained(self) -> int:
        return int(self.bag.weights.size + self.bag.bias.size)

    def read(self, encoded: Encoded) -> Outputs:
        """Return the scores of encoded rows."""
        return self.bag.scores(encoded.rows)

    def divided(self, temperature: float) -> Self:
        bag, share = self.bag, np.float32(1.0 / temperature)
        return replace(self, bag=replace(bag, weights=bag.weights * share, bias=bag.bias * share))


class BagOfWordsLearner(BaseLearner):
    """Fits bags of words; the pretrained model in `path` is not used."""

    def encode(self, rows: Sequence[Any]) -> Encoded:
        return encode_words(rows)

    def learn(
        self,
        encoded_parts: Mapping[str, Encoded],
        settings: Settings,
        eval_part: str,
        say: Callable[[str], None],
        *args: Any,
        announce: bool = False,
        **kwargs: Any,
    ) -> SeedResult:
        """Fit to the training part and predict `eval_part`. Arguments that concern the training of
        a network have no effect; nothing is kept of an interrupted fit, which takes seconds."""
        task_type, begin = self.task_type, time.perf_counter()
        validation = encoded_parts.get(VALIDATION)
        bag = BagOfWords.fit(
            encoded_parts[TRAIN].rows,
            0 if task_type.problem == "number" else len(task_type.labels),
            task_type.measure if task_type.measure in METRICS else task_type.measures[0],
            () if validation is None or eval_part == VALIDATION else validation.rows,
        )
        tuned = BagOfWordsResult(None, [], [], 1, time.perf_counter() - begin, bag)
        if announce:
            num_features = counted(bag.weights.shape[1], "feature")
            say(f"model: {self.path} is not used\nmethod: {self.method.name}; {num_features}")
        tuned = self._validate_fit(tuned, encoded_parts, tuned.read, say)
        return self._predict(
            tuned, None, settings.seed, encoded_parts, eval_part, lambda tuned, _: tuned.read
        )

    def save(self, result: SeedResult, folder: Path, readme: str, more: Mapping[str, str]) -> None:
        assert isinstance(result.tuned, BagOfWordsResult)
        labels = {str(number): label for number, label in enumerate(self.task_type.labels)}
        about = {"problem_type": PROBLEM_TYPES[self.task_type.problem], "id2label": labels}
        content = result.tuned.bag.files(about)
        content |= {name: text.encode() for name, text in {**more, "README.md": readme}.items()}

        def write(staging: commit.Staging) -> None:
            for name, data in content.items():
                staging.write_bytes(name, data)

        num_bytes = sum(map(len, content.values()))
        commit.commit(folder, write, about={"kind": "bag of words"}, expected_bytes=num_bytes)
