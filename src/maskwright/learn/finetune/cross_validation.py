"""Cross-validation of a fine-tuning: every row is predicted by a model that has not seen it.

Parts that came as files, or are named by a column, always stay as they are. What is drawn from the
rows where parts are missing depends on their number (`divide`):

    fewer than 1,000 rows, no parts    nothing is drawn: all rows are divided into 5 folds, and a
                                       model trained on four of them predicts the fifth. The score,
                                       its interval, the baselines and the verdict come from these
                                       out-of-fold predictions, and the model that is saved is
                                       trained on all rows, with the same settings.
    fewer than 200 rows, a test part   no validation part: it would have fewer than 20 rows
    otherwise                          a tenth for validation, a tenth for the test part

Nothing is selected in a cross-validation: the number of epochs is fixed. A repetition has its own
folds and seed. Folds are stratified and keep groups and duplicates together (`splits.fold_rows`).
Tasks of whole texts and of tags are cross-validated; the others are divided at any size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maskwright.base.errors import Finding, UsageError
from maskwright.base.terminal import counted
from maskwright.learn.finetune.conclusion import CONSTANT
from maskwright.learn.finetune.finished_seeds import FinishedSeeds, FoldOutputs
from maskwright.learn.finetune.learner import SELECTABLE, BaseLearner, SeedResult
from maskwright.learn.finetune.tune import Settings, TrainingResult
from maskwright.learn.tasks.base.bag_of_words import OUT_OF_FOLD
from maskwright.learn.tasks.base.task_type import (
    TEMPERATURE,
    Answers,
    Encoded,
    Outputs,
    TaskType,
    task_for,
)
from maskwright.text.tables import splits
from maskwright.text.tables.layout import Dataset
from maskwright.text.tables.rows import ALL, TEST, TRAIN, VALIDATION

FOLDS = 5
# With fewer rows a test part of a tenth would have fewer than 100, whose 95 % interval of an
# accuracy is wider than ±0.08 or so; and a second training costs little.
DIVIDED_FROM = 1_000
# Shares of the rows for validation and test where they are drawn.
DIVISION = splits.SplitOptions(validation=0.1, test=0.1)
# Below this number of rows a method that takes seconds is repeated, as the folds decide much.
REPEATED_BELOW, REPETITIONS = 100, 3


def divide(data: Dataset, folds: int | None = None) -> Dataset:
    """Return `data` with the parts of a fine-tuning, drawn as the module says; only with the part
    "train" if it is to be cross-validated.

    Args:
        folds: the number of folds; 0: the parts are drawn at any size; None: by the number of rows.

    Raises:
        UsageError: `folds` where parts came as files, or for a task that is not cross-validated.
        DataError: too few rows for a part.
    """
    source = ALL if ALL in data.parts else TRAIN
    has_parts = set(data.parts) - {source}
    # The model's outputs for rows of several folds can be joined.
    is_foldable = task_for(data.task.name).head in ("sequence", "token")
    if folds and (has_parts or not is_foldable):
        raise UsageError(
            "these rows cannot be cross-validated",
            where="--folds",
            found=f"{data.task.name}, in the parts {', '.join(data.parts)}",
            wanted="rows without parts, for a task of whole texts or of tags",
            do="leave it out",
        )
    rows = data.parts[source]
    is_large = folds is None and len(rows) >= DIVIDED_FROM
    lacks_validation = has_parts == {TEST} and len(rows) * DIVISION.validation < SELECTABLE
    if folds == 0 or not is_foldable or is_large or (has_parts and not lacks_validation):
        return splits.split_dataset(data, DIVISION)
    groups = {TRAIN if part == source else part: names for part, names in data.groups.items()}
    parts = {TRAIN: rows, **{part: data.parts[part] for part in has_parts}}
    return replace(data, parts=parts, groups=groups)


def is_cross_validated(data: Dataset) -> bool:
    """Whether the divided `data` has no part to evaluate on."""
    return not {VALIDATION, TEST} & set(data.parts)


@dataclass(frozen=True)
class OutOfFold:
    """The out-of-fold predictions of a cross-validation.

    Attributes:
        data: the dataset with the part `OUT_OF_FOLD`: its rows fold by fold, as the first
            repetition divides them. Rows with the only example of a class are not among them.
        encoded: the encoded rows of this part.
        results: the answers of each repetition to these rows, and the outputs of the first.
        baselines: the answers of the baselines in each repetition, on the same folds.
        num_folds: the number of folds of the first repetition.
        task_type: with the options that all out-of-fold outputs choose, for the model of all rows.
    """

    data: Dataset
    encoded: Encoded
    results: list[SeedResult]
    baselines: list[list[tuple[str, Answers]]]
    num_folds: int
    task_type: TaskType

    def of_model(self, trained: SeedResult) -> list[SeedResult]:
        """Return the results of all repetitions, the first with the model trained on all rows,
        whose scores are divided by the temperature of the out-of-fold outputs."""
        tuned = trained.tuned.divided(self.task_type.options.get(TEMPERATURE, 1.0))
        result, *repetitions = (replace(r, task_type=self.task_type) for r in self.results)
        return [replace(result, tuned=tuned, adapter=trained.adapter), *repetitions]

    def findings(self) -> list[Finding]:
        """Return the finding on rows that are in no fold."""
        left_out = len(self.data.parts[TRAIN]) - len(self.data.parts[OUT_OF_FOLD])
        rows = counted(left_out, "row")
        message = f"{rows} with the only example of a class: trained on, and not scored"
        finding = Finding("class-with-one-row", message, remedy="add rows of these classes")
        return [finding] if left_out else []


@dataclass(frozen=True)
class Folding:
    """The folds of one repetition, as indices of the training rows of `data`."""

    data: Dataset
    folds: list[list[int]]
    seed: int

    def hold_out(self, *held_out: int) -> Dataset:
        """Return the rows of some folds as the part "test", and all others as "train"."""
        rows, groups = self.data.parts[TRAIN], self.data.groups.get(TRAIN)
        test = [i for fold in held_out for i in self.folds[fold]]
        left_out = {*test}
        train = [i for i in range(len(rows)) if i not in left_out]
        parts = {TRAIN: [rows[i] for i in train], TEST: [rows[i] for i in test]}
        train_groups = {} if groups is None else {TRAIN: [groups[i] for i in train]}
        return replace(self.data, parts=parts, groups=train_groups)


def fold(data: Dataset, num_folds: int, seeds: Sequence[int]) -> list[Folding]:
    """Divide the training rows of `data` into folds, once for each seed.

    Raises:
        DataError: there are fewer rows than folds.
    """
    return [Folding(data, splits.fold_rows(data, num_folds, seed), seed) for seed in seeds]


def cross_validate(
    learner: BaseLearner,
    foldings: Sequence[Folding],
    settings: Settings,
    learn: Callable[..., SeedResult],
    finished_seeds: FinishedSeeds,
) -> OutOfFold:
    """Predict every row of the folds by a model that has not seen it, once for each repetition.

    Args:
        learn: `Learner.learn` of the learner with its method.
        finished_seeds: saves the outputs for each fold; saved ones are not computed again.
    """

    def outputs_of(folding: Folding, number: int) -> FoldOutputs:
        name = f"seed-{folding.seed}-fold-{number + 1}"
        if (outputs := finished_seeds.restore_outputs(name)) is None:
            rows, of_fold = folding.hold_out(number), replace(settings, seed=folding.seed)
            outputs = fold_outputs(learner, rows, name, of_fold, learn)
            finished_seeds.keep_outputs(name, outputs)
        return outputs

    trained = [[outputs_of(f, number) for number in range(len(f.folds))] for f in foldings]
    return join_folds(learner, foldings, trained)


def join_folds(
    learner: BaseLearner,
    foldings: Sequence[Folding],
    trained: Sequence[Sequence[FoldOutputs]],
    of_saved: Sequence[FoldOutputs] | None = None,
) -> OutOfFold:
    """Join the outputs for each fold of each repetition. Options that outputs choose, such as a
    threshold, are chosen for a fold by the outputs for the other folds.

    Args:
        of_saved: the outputs for each fold of the first repetition that choose the options of the
            saved model; None: those in `trained`.
    """
    task_type, order = learner.task_type, list[int]()
    results, baselines = list[SeedResult](), list[dict[str, Answers]]()
    for folding, fold_results in zip(foldings, trained, strict=True):
        parts = [folding.hold_out(number) for number in range(len(folding.folds))]
        held_out = [i for rows in folding.folds for i in rows]
        order = order or held_out
        position = {row: n for n, row in enumerate(held_out)}
        restored = [position[row] for row in order]
        answers, outputs, by_name = list[Any](), list[Outputs](), dict[str, list[Any]]()
        for number, part in enumerate(parts):
            of_fold = _calibrated_fold(learner, parts, fold_results, number)
            answers.extend(of_fold[0])
            outputs.append(of_fold[1])
            for name, baseline_answers in task_type.baselines(part, TEST):
                by_name.setdefault(name, []).extend(baseline_answers)
        baselines.append({name: _joined(by_row, restored) for name, by_row in by_name.items()})
        losses = np.mean([result.losses for result in fold_results], axis=0).tolist()
        seconds = sum(result.seconds for result in fold_results)
        training = TrainingResult(None, [], losses, max(1, len(losses)), seconds)
        joined = np.empty(0) if results else np.concatenate(outputs), _joined(answers, restored)
        results.append(SeedResult(folding.seed, training, None, task_type, *joined))
    data = foldings[0].data
    rows = [data.parts[TRAIN][i] for i in order]
    data = replace(data, parts={**data.parts, OUT_OF_FOLD: rows})
    encoded = learner.encode(rows)
    # A constant that is fitted to the other folds misses its own: its class is rarer in it.
    constants = {
        n: answers for n, answers in task_type.baselines(data, OUT_OF_FOLD) if n in CONSTANT
    }
    raw_outputs = np.concatenate([result.outputs for result in of_saved or trained[0]])
    return OutOfFold(
        data,
        encoded,
        results,
        [[*{**by_name, **constants}.items()] for by_name in baselines],
        len(foldings[0].folds),
        task_type.calibrate(encoded, lambda _: raw_outputs, final=True),
    )


def fold_outputs(
    learner: BaseLearner,
    part: Dataset,
    name: str,
    settings: Settings,
    learn: Callable[..., SeedResult],
) -> FoldOutputs:
    """Train on the part "train" and return the outputs for the part "test"."""
    encoded = {part_name: learner.encode(rows) for part_name, rows in part.parts.items()}
    result = learn(encoded, settings=settings, eval_part=TEST, name=name.replace("-", " "))
    return FoldOutputs(result.outputs, result.tuned.losses, result.tuned.seconds)


def _calibrated_fold(
    learner: BaseLearner, parts: Sequence[Dataset], trained: Sequence[FoldOutputs], number: int
) -> tuple[Answers, Outputs]:
    """Return answers and outputs for a fold, with the options that the outputs for the other folds
    choose."""
    task_type, other_folds = learner.task_type, [n for n in range(len(parts)) if n != number]
    rows = [row for n in other_folds for row in parts[n].parts[TEST]]
    outputs = np.concatenate([trained[n].outputs for n in other_folds])
    encoded = learner.encode(rows)
    calibrated = task_type.calibrate(encoded, lambda _: outputs, final=True)
    encoded = learner.encode(parts[number].parts[TEST])
    divided = trained[number].outputs / calibrated.options.get(TEMPERATURE, 1.0)
    return calibrated.answers(encoded, divided), divided


def _joined(answers: Sequence[Any], order: Sequence[int]) -> Answers:
    """Return the answers to all rows in another order: an array, or a list of tags by row."""
    in_order = [answers[i] for i in order]
    return in_order if isinstance(answers[0], list) else np.array(in_order)
