"""Zero-shot classification by a model of natural-language inference (Yin et al. 2019,
arXiv:1909.00161): each label becomes a hypothesis about the text.

    one label of several    softmax over the labels of the logit of entailment
    any number of labels    for each label the softmax of entailment and contradiction
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import IncompatibleError, UsageError
from maskwright.learn.tasks.base.encode import Frame
from maskwright.learn.tasks.base.task_type import UNTOLD, Encoded, Extent, Outputs, TaskType
from maskwright.learn.tasks.classification import Classification

HYPOTHESIS = "This example is {}."
ENTAILMENT, CONTRADICTION = "entail", "contradict"


def hypotheses(labels: Sequence[str], template: str = HYPOTHESIS) -> list[str]:
    """Return a hypothesis for each label, which replaces {} in the template; raises a `UsageError`
    if it has none."""
    if "{}" not in template:
        message = "the template has no place for a label"
        raise UsageError(message, where="--hypothesis", found=repr(template), wanted=HYPOTHESIS)
    return [template.replace("{}", label) for label in labels]


@dataclass(frozen=True)
class ZeroShotTask(Classification):
    """Any labels for single texts, from a model that was trained to classify pairs (`pairs`)."""

    pairs: TaskType | None = None
    template: str = HYPOTHESIS

    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        assert self.pairs is not None
        statements = hypotheses(self.labels, self.template)
        pairs = [self.pairs.of_value((r.text, s), r.where) for r in rows for s in statements]
        encoded = self.pairs._encoded(pairs, frame)
        assert encoded.extent is not None
        tokens, windows, cut = (
            column.reshape(len(rows), len(statements)) for column in vars(encoded.extent).values()
        )
        extent = Extent(tokens.sum(1), windows.max(1), cut.max(1))
        return Encoded(rows, encoded.examples, encoded.findings, encoded, extent)

    def merged(self, encoded: Encoded, outputs: Outputs) -> Outputs:
        """Return a logit (N, L) of each label."""
        assert self.pairs is not None
        logits = self.pairs.merged(encoded.way_back, outputs)
        by_label = logits.reshape(len(encoded.rows), len(self.labels), -1)
        return label_logits(by_label, self.pairs.labels, several=self.problem == "multi")


def zero_shot_task(
    pairs: TaskType, labels: Sequence[str], template: str = HYPOTHESIS, *, several: bool = False
) -> ZeroShotTask:
    """Return the task type that gives each text one of `labels`, or with `several` any number.

    Raises:
        UsageError: the template has no {}; a label is blank or occurs twice; there is none.
        IncompatibleError: the model's task is no inference.
    """
    hypotheses(labels, template)  # raises its errors before a text is read
    if not labels or not all(map(str.strip, labels)) or len(set(labels)) < len(labels):
        raise UsageError(
            "the labels are not different words or phrases",
            where="--labels",
            found=repr(list(labels)),
            wanted="at least one, each once",
        )
    if len(pairs.roles) != 2 and not pairs.options.get(UNTOLD):
        raise _no_inference(pairs.labels)
    # Likewise if the classes of the pairs have no entailment.
    label_logits(np.zeros((1, len(labels), len(pairs.labels))), pairs.labels, several=several)
    task = "multi-label" if several else "classification"
    return ZeroShotTask(task, tuple(labels), {}, pairs, template)


def label_logits(
    logits: NDArray[Any], names: Sequence[str], *, several: bool
) -> NDArray[np.float32]:
    """Return a logit (N, L) of each label, for the softmax over labels; with `several`, for the
    logistic function of each.

    Args:
        logits: (N, L, C) of the pairs of text and hypothesis.
        names: of the C classes: the one that begins with "entail" is entailment.

    Raises:
        IncompatibleError: there is none, or with `several` no class of contradiction.
    """
    entailments, contradictions = (
        [number for number, name in enumerate(names) if name.lower().startswith(word)]
        for word in (ENTAILMENT, CONTRADICTION)
    )
    if len(entailments) == 1 and not contradictions and len(names) == 2:
        contradictions = [1 - entailments[0]]
    if len(entailments) != 1 or (several and len(contradictions) != 1):
        raise _no_inference(names)
    entailed = logits[..., entailments[0]]
    return np.asarray(entailed - logits[..., contradictions[0]] if several else entailed)


def _no_inference(names: Sequence[str]) -> IncompatibleError:
    return IncompatibleError(
        "the model does not tell whether one text follows from another",
        where="--labels",
        found=f"the classes {', '.join(names)}" if names else "a model without classes",
        wanted=f"a model of two texts with a class that begins with {ENTAILMENT} (with several "
        f"labels also one that begins with {CONTRADICTION})",
    )
