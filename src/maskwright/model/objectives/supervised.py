"""Labels: what a text, a token, a span or a choice is, learned by the model's own head.

Fine-tuning is an objective like the others, so the one loop trains it too. What the head is decides
what is learned; a batch holds any number of texts to a row, one document each:

    head        pooled (R,)       index (N,)         targets (N,)     labels
    sequence    where each text                                       (R,) the class of each
                is read
      in pieces where each piece                      the text each   (R,) the class of each text
                is read                               belongs to
    choice      likewise, choices                                     (Q,) which of its choices
                in order                                              answers each question
      of many   likewise                              the question    likewise
      or few                                          each belongs to
    token                         places that have   their classes
                                  one
    span                          places where an    which text each  (R, 2) where in `index` the
                                  answer may begin   belongs to,      answer of each text begins
                                  or end             0 … R - 1        and ends; -1: not known

With `problem` "multi" the labels of a sequence head are (R, L) zeros and ones, with "number"
(R, L) numbers; classes may also be (R, L) probabilities, of a teacher. Where a text is read: at its
first token by an encoder, at its last by a decoder, which alone has seen all of it, or over all its
tokens, as its head's `pooling` says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from maskwright.model.nn.config import ChunkPooling
from maskwright.model.objectives.base.spec import Spec

SPEC = Spec(rows="labelled")
Problem = Literal["single", "multi", "number"]
# As a config.json says them.
PROBLEM_TYPES: dict[Problem, str] = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "number": "regression",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """`problem` is the kind of labels of a sequence head; `pieces` pools the vectors of a text's
    pieces.

    Attributes:
        class_weights: factor on the loss of each class; of several labels on the loss of rows that
            have the label. None: 1.
        label_smoothing: share of a target that is distributed evenly over all classes (Szegedy et
            al. 2016, arXiv:1512.00567, section 7).
        temperature: of labels that are the probabilities of a teacher, by which scores are divided
            (Hinton et al. 2015, arXiv:1503.02531, section 2).
    """

    problem: Problem = "single"
    pieces: ChunkPooling = "mean"
    class_weights: tuple[float, ...] | None = None
    label_smoothing: float = 0.0
    temperature: float = 1.0
