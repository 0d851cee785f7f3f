"""Choices of how texts are encoded: the handling of long texts, and pooling. This module does not
import torch, so that invalid choices are reported quickly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from maskwright.base.errors import UsageError, near
from maskwright.model.nn.config import GlobalRule, TextPooling

# The part of a long text that is kept; or its division into pieces, whose scores are averaged or
# maximised ("pieces-…"), whose vectors are averaged or maximised before scoring ("vectors-…"), or
# whose vectors are read by further layers ("hierarchical"). "apart": each text of a pair is read by
# itself, cut to its head, and what is scored is how its vector differs from the other.
Long = Literal[
    "head",
    "tail",
    "head-and-tail",
    "pieces-mean",
    "pieces-max",
    "vectors-mean",
    "vectors-max",
    "hierarchical",
    "apart",
]
LONG: tuple[Long, ...] = get_args(Long)
# The handling of long texts in prediction: as in training (`Long`, by default the end is cut); in
# windows, if the model was trained with the default; or an error.
LongText = Literal["as_trained", "windows", "refuse"]
HIERARCHICAL, APART = "hierarchical", "apart"
# Poolings by their names for users: the state of [CLS] (for decoders, of the last token), or the
# mean or maximum of all states, or the last state, the maximum and the mean one after the other.
POOLINGS: dict[str, TextPooling] = {
    "cls": "place",
    "mean": "mean",
    "max": "max",
    "concat": "concat",
}
# Whether the head reads a learned mix of all layers.
LAYER_MIX = "layer_mix"

# Which tokens of a model with windows see all others and are seen by all.
GLOBAL_RULES: tuple[GlobalRule, ...] = get_args(GlobalRule)

# The poolings of sentence-transformers, in the order in which it concatenates them.
VECTOR_POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
# Names of further options of embeddings: prefixes of texts by name; the name of the prefix in use;
# number of its tokens that are not pooled; whether texts are lowercased; the similarity of vectors.
PROMPTS, NAME, SKIPPED, LOWER = "prompts", "default_prompt", "prompt_tokens", "lowercase"
COMPARED = "similarity"
# The template of an input behind which a model writes its answer, or finds a label most likely.
PROMPT, LABEL_PROMPT = "prompt", "label_prompt"
# The numbers of leading dimensions that are vectors by themselves if scaled to length 1 (Kusupati
# et al. 2022, arXiv:2205.13147), the largest first.
DIMENSIONS = "dimensions"
# Whether an answer to a question may begin or end within a word.
WITHIN = "within_words"
# Options of a single prediction. Answers to questions: the maximum numbers of tokens of an input
# and of its question, the number of tokens that two windows share, and whether "no answer" competes
# with the others by its probability. Tags: the strategy by which tokens become entities
# (base/aggregation.py) in place of the words of the text, and the labels that are left out then.
INPUT_LENGTH, QUESTION_LENGTH, OVERLAP = "input_length", "question_length", "overlap"
IMPOSSIBLE = "impossible"
AGGREGATION, IGNORED_LABELS = "aggregation", "ignored_labels"
# Option of a folder of another library: the options of each task that it has settings of, by name;
# "": of other tasks.
TASKS = "tasks"


def require_choice(value: str, choices: Iterable[str], where: str) -> None:
    """Check that `value` of the setting `where` is one of `choices`.

    Raises:
        UsageError: with similar choices.
    """
    choices = tuple(choices)
    if value not in choices:
        expected, remedy = near(str(value), choices), "choose one of these, or leave it out"
        raise UsageError(
            "no such choice", where=where, found=repr(value), wanted=expected, do=remedy
        )


def require_dimensions(dimensions: Iterable[int], low: int, high: int) -> None:
    """Check numbers of leading dimensions of a vector.

    Raises:
        UsageError: one of them is not between `low` and `high`.
    """
    for number in dimensions:
        if not low <= number <= high:
            raise UsageError(
                "the number of dimensions is not possible",
                where="dimensions",
                found=number,
                wanted=f"{low} to {high}" if low < high else f"{high}",
                do="train it for fewer dimensions: finetune --dimensions" if low == high else None,
            )
