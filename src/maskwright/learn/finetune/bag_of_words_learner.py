"""Fits a bag of words where other methods train a network, with the same results and files.

    model/ config.json               the vectorizers; says that it is not a Hugging Face model
           vocabulary.json           words and groups of characters, in the order of the features
           bag_of_words.safetensors  their inverse document frequencies, and the linear model

The strength of the regression is chosen on the validation part where a test part is evaluated, else
in folds of the training part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from maskwright.base.metrics.metrics import METRICS
from maskwright.base.report.document import duration
from maskwright.base.storage import commit
from maskwright.base.terminal import counted, decimals
from maskwright.learn.finetune.learner import BaseLearner, SeedResult
from maskwright.learn.finetune.method import Method
from maskwright.learn.finetune.tune import Settings, TrainingResult
from maskwright.learn.tasks.base.bag_of_words import BagOfWords, encode_words
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import TEMPERATURE, Encoded, TaskType
from maskwright.model.objectives.supervised import PROBLEM_TYPES
from maskwright.text.tables.rows import TRAIN, VALIDATION


@dataclass(frozen=True)
class BagOfWordsResult(TrainingResult):
    """A fit, which has a bag of words in place of a network."""

    bag: BagOfWords

    @property
    def num_trained(self) -> int:
        return int(self.bag.weights.size + self.bag.bias.size)

    def divided(self, temperature: float) -> Self:
        bag, share = self.bag, np.float32(1.0 / temperature)
        return replace(self, bag=replace(bag, weights=bag.weights * share, bias=bag.bias * share))


@dataclass(frozen=True)
class BagOfWordsLearner(BaseLearner):
    """Fits bags of words; the pretrained model in `path` is not used."""

    path: Path
    task_type: TaskType
    family: str | None = field(default=None, init=False)
    frame: Frame | None = field(default=None, init=False)
    base: str = field(default="", init=False)
    num_parameters: int = field(default=0, init=False)
    width: int = field(default=1, init=False)
    reads_more: bool = field(default=False, init=False)

    @property
    def hashes(self) -> dict[str, str]:
        return {"model": "", "head": ""}

    def head_factor(self, method: Method) -> float:
        return 1.0

    def encode(self, rows: Sequence[Any]) -> Encoded:
        return encode_words(rows)

    def learn(
        self,
        encoded_parts: Mapping[str, Encoded],
        method: Method,
        settings: Settings,
        eval_part: str,
        say: Callable[[str], None],
        *args: Any,
        announce: bool = False,
        **options: Any,
    ) -> SeedResult:
        """Fit to the training part and predict `eval_part`. Arguments that concern the training of
        a network have no effect; nothing is kept of an interrupted fit, which takes seconds."""
        task_type, begin = self.task_type, time.perf_counter()
        validation = encoded_parts.get(VALIDATION)
        measure = task_type.measure if task_type.measure in METRICS else task_type.measures[0]
        bag = BagOfWords.fit(
            encoded_parts[TRAIN].rows,
            0 if task_type.problem == "number" else len(task_type.labels),
            measure,
            () if validation is None or eval_part == VALIDATION else validation.rows,
        )
        seconds = time.perf_counter() - begin
        tuned, shown, one_sided = BagOfWordsResult(None, [], [], 1, seconds, bag), "", None
        if announce:
            num_features = counted(bag.weights.shape[1], "feature")
            say(f"model: {self.path} is not used\nmethod: {method.name}; {num_features}")
        if validation is not None:
            outputs = bag.scores(validation.rows)
            task_type = task_type.calibrate(validation, lambda _: outputs, final=True)
            temperature = task_type.options.get(TEMPERATURE, 1.0)
            tuned, outputs = tuned.divided(temperature), outputs / temperature
            answers = task_type.answers(validation, outputs)
            one_sided = task_type.report(validation, outputs, answers).one_sided
            value = task_type.metrics(validation.rows, answers).values[task_type.measure]
            shown = f" · validation {task_type.measure} {decimals(value)}"
            tuned = replace(tuned, figures=[value if math.isfinite(value) else -math.inf])
        say(f"fitted in {duration(seconds)}{shown}")
        encoded = encoded_parts[eval_part]
        outputs = tuned.bag.scores(encoded.rows)
        answers = task_type.answers(encoded, outputs)
        seed = settings.seed
        return SeedResult(seed, tuned, None, task_type, outputs, answers, one_sided=one_sided)

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
