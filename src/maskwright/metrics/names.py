"""The names of the metrics of each task type, the usual one first; torch and numpy are not needed
to know them."""

from __future__ import annotations

from collections.abc import Mapping

from maskwright.errors import UsageError, near

# Of questions with and without an answer, both alike.
BALANCED_F1 = "balanced_f1"
METRICS_OF: Mapping[str, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews"),
    "pair-classification": ("accuracy", "macro_f1", "matthews"),
    "multiple-choice": ("accuracy",),
    "multi-label": ("micro_f1", "macro_f1", "accuracy"),
    "regression": ("spearman", "pearson", "squared_error"),
    "similarity": ("spearman", "pearson", "squared_error"),
    "tagging": ("entity_f1", "accuracy"),
    "question-answering": ("f1", "exact"),
    "sequence-to-sequence": ("chrf", "bleu", "rouge_1", "rouge_2", "rouge_l", "exact_match"),
    "embedding": ("spearman", "pearson"),
    "matching": ("first_is_right", "mrr"),
}


def selectable(task: str) -> tuple[str, ...]:
    """The metrics of `task` by which an epoch can be selected: the higher, the better."""
    more = (BALANCED_F1,) if task == "question-answering" else ()
    return (*(name for name in METRICS_OF[task] if "error" not in name), *more)


def require_selectable(metric: str, task: str | None = None) -> None:
    """Refuse a metric by which no epoch of `task` can be selected; None: of no task.

    Raises:
        UsageError: with the near names.
    """
    tasks = METRICS_OF if task is None else (task,)
    known = dict.fromkeys(name for each in tasks for name in selectable(each))
    if metric not in known:
        raise UsageError(
            "no such metric to select by",
            where="--measure",
            found=metric,
            wanted=near(metric, known),
            do=f"choose one of: {', '.join(known)}",
        )
