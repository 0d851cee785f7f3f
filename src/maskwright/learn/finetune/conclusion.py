"""What is concluded from a result: a verdict against the baselines, how often the test part was
used, and what would help.

Whoever compares many results on one test part and keeps the best one reports the largest of many
estimates. So each result records a hash of the rows that it was evaluated on, and results beside it
are read for the same hash. Nothing is written to the data: the count holds for one folder of
results, which is where one chooses among them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from maskwright.base.errors import DataError, Finding, MaskwrightError
from maskwright.base.metrics.paired import Rival, Verdict, verdict
from maskwright.base.storage.strict_json import parse_object
from maskwright.base.terminal import counted
from maskwright.learn.finetune.recipe import values_of
from maskwright.learn.finetune.tune import TrainingResult
from maskwright.learn.tasks.base.choices import LABEL_PROMPT
from maskwright.learn.tasks.base.task_type import Answers, Encoded, TaskMetrics, TaskType
from maskwright.text.tables.rows import TaggedExample

AS_IT_IS = "before fine-tuning"  # name of the pretrained model itself among the baselines
# Baselines that give the same answer to every row, and how sentences call a baseline.
CONSTANT = ("majority", "mean", "never answers")
SPOKEN = {
    "words": "a bag of words",
    "majority": "the most frequent answer",
    "chance": "answers drawn at random",
    "pixels": "a logistic regression of pixels",
    "mean": "the mean of the training part",
    "never answers": "never answering",
    AS_IT_IS: "the model before fine-tuning",
}
# Files of results that name the test rows: of fine-tunings, evaluations and label curves.
RESULT_FILES = ("results.json", "evaluation.json", "curve.json")
LARGEST = 8 << 20  # bytes of such a file
TRUNCATED = 0.3  # share of training texts of which a part is not read
PIECES = 1.7  # tokens for a word, from which tags suffer
FALLING = 0.9  # a loss below this share of the epoch's before is still falling
FEW_ROWS = 200


def spoken(baseline: str) -> str:
    """Return how a sentence calls a baseline."""
    return SPOKEN.get(baseline, baseline)


def judge(
    measure: str, compared: Mapping[str, TaskMetrics], unit: tuple[str, str] = ("row", "rows")
) -> Verdict:
    """Judge a model by the metric `measure`; `compared` has its metrics and then those of the
    baselines by name, on the same rows."""
    (_, model), *baselines = ((name, m.figures[measure]) for name, m in compared.items())
    rivals = []
    for name, figure in baselines:
        # Equal predictions have no correlation; they count as one of 0 (`gain_over`).
        value = figure.value if math.isfinite(figure.value) else 0.0
        is_constant = name in (*CONSTANT, "chance")
        rivals.append(Rival(spoken(name), value, model.gain_over(figure), is_constant))
    return verdict(measure, model.value, rivals, model.rows, unit)


# ------------------------------------------------------------------------------ constant answers
def constants(baselines: Sequence[tuple[str, Answers]]) -> dict[str, Any]:
    """Return the answer of each baseline that gives every row the same one, as a JSON value."""
    return {
        name: np.asarray(answers[0]).tolist() for name, answers in baselines if name in CONSTANT
    }


def constant_baselines(
    results: Mapping[str, Any], rows: Sequence[Any]
) -> list[tuple[str, Answers]]:
    """Return the baselines that `results.json` records, as answers to other rows."""
    recorded = results.get("constants")
    baselines: list[tuple[str, Answers]] = []
    for name, answer in recorded.items() if isinstance(recorded, dict) else ():
        if isinstance(rows[0], TaggedExample):  # an answer has a tag for each word
            baselines.append((name, [answer[:1] * len(row.tokens) for row in rows]))
        else:
            baselines.append((name, np.array([answer] * len(rows))))
    return baselines


def read_results(file: Path) -> dict[str, Any]:
    """Return the content of a file of results; {} if it cannot be read, as of other programs."""
    with contextlib.suppress(OSError, MaskwrightError):
        if file.is_file() and file.stat().st_size <= LARGEST:
            return parse_object(file.read_bytes(), file, error=DataError, largest=LARGEST)
    return {}


# ------------------------------------------------------------------------------ uses of a test part
def record_test(rows: Sequence[Any], labels: Sequence[str], part: str) -> dict[str, Any]:
    """Return what a result records of the rows that it was evaluated on: their part, number and
    hash, which does not depend on their order or file."""
    texts = [json.dumps(values_of(row)).encode() for row in rows]
    digests = sorted(hashlib.sha256(text).digest() for text in texts)
    digest = hashlib.sha256(json.dumps(list(labels)).encode() + b"".join(digests))
    return {"part": part, "rows": len(rows), "sha256": digest.hexdigest()}


def uses_of(test: Mapping[str, Any], result: Path, *but: Path) -> list[str]:
    """Return the names of the results beside the folder `result` that used the same test rows.

    Args:
        but: folders of results that do not count, such as that of the evaluated model.
    """
    excluded = {path.resolve() for path in (result, *but)}
    names = []
    for folder in sorted(result.resolve().parent.glob("*/")):
        recorded = (read_results(folder / name).get("test") for name in RESULT_FILES)
        if folder.resolve() not in excluded and any(
            isinstance(entry, dict) and entry.get("sha256") == test["sha256"] for entry in recorded
        ):
            names.append(folder.name)
    return names


def used_before(names: Sequence[str], result: Path) -> list[Finding]:
    """Return a finding if a test part was used by the results `names` beside `result`."""
    by = f"by {counted(len(names), 'other result')} in {result.resolve().parent.name}/"
    remedy = "choose among results on validation data: the best of many on one test part is "
    remedy += "better there than on other rows"
    finding = Finding("test-part-used-before", f"this test part was used {by}", remedy=remedy)
    return [finding] if names else []


# ------------------------------------------------------------------------------ what would help
def advice(
    task_type: TaskType,
    train: Encoded,
    trainings: Sequence[TrainingResult],
    one_sided: Finding | None,
    judged: Verdict,
    *,
    reads_more: bool,
    lower_cases: bool = False,
    is_selected: bool = False,
    is_fitted: bool = False,
    passes: int = 1,
    as_it_is: str = "",
) -> list[str]:
    """Return at most two sentences on what would help.

    Args:
        trainings: of all seeds; of one seed's equal answers `one_sided` warns.
        reads_more: whether the model has positions for longer texts.
        lower_cases: whether the tokenizer does not tell capitals from small letters.
        is_selected: whether the method was selected among all.
        is_fitted: whether the method is a fitted one, such as embeddings.
        passes: over the rows in each epoch.
        as_it_is: the command that predicts with the model before fine-tuning; "": not said.
    """
    sentences, rival = list[str](), judged.rival if judged.state == "no better" else ""
    if rival == SPOKEN[AS_IT_IS]:
        alternative = "" if is_selected or is_fitted else ", or try --method embeddings"
        command = f": {as_it_is}" if as_it_is else ""
        sentences.append(f"Use the model as it is{alternative}{command or '.'}")
    elif rival == SPOKEN["words"] and task_type.head and not is_selected:
        sentences.append("Use --method bag-of-words, which costs less.")
    extent, num_rows = train.extent, len(train.rows)
    cut_share = 0.0 if extent is None else float((extent.cut > 0).mean())
    if cut_share >= TRUNCATED:
        remedies = ["a larger --length"] if reads_more else []
        is_single = task_type.head == "sequence" and len(task_type.roles) == 1
        remedies += ["--long head-and-tail or pieces-mean"] if is_single else []
        remedy = f": try {', or '.join(remedies)}" if remedies else ", as the model reads no more"
        sentences.append(f"{cut_share:.0%} of the training texts are cut{remedy}.")
    if trainings and all(
        training.epoch == len(training.losses) > 1
        and training.losses[-1] < FALLING * training.losses[-2]
        for training in trainings
    ):
        epochs, (before, after) = 2 * len(trainings[0].losses), trainings[0].losses[-2:]
        best = ", which was the best one" if all(t.figures for t in trainings) else ""
        sentences.append(
            f"The training loss was still falling in the last epoch ({before:.3g} to {after:.3g})"
            f"{best}: try --epochs {epochs * passes}."  # where they are named, each is one pass
        )
    if task_type.head == "token" and extent is not None:
        words = sum(len(row.tokens) for row in train.rows)
        pieces = float(extent.tokens.sum() - 2 * num_rows) / max(1, words)
        if pieces >= PIECES:
            sentences.append(
                f"The tokenizer splits a word into {pieces:.1f} pieces on average: a model with a "
                "vocabulary for this language and case tags better."
            )
        elif lower_cases:
            sentences.append(
                "The tokenizer lower-cases all words: a cased model can tell names by capitals."
            )
    if judged.state != "good" and task_type.chosen_by == LABEL_PROMPT:
        sentences.append("Try another --prompt, examples in it, or --method full.")
    elif judged.state != "good":
        if one_sided is not None:
            settings = "another --method" if is_fitted else "more --epochs, another --rate"
            sentences.append(f"All rows get the same answer: try {settings} or more rows.")
        if num_rows < FEW_ROWS:
            # A tenth of the rows each may become the validation and test parts of the curve.
            sizes = "".join(f"{size}," for size in (50, 100) if size < 0.8 * num_rows)
            curve = f" (--curve {sizes}all shows how much)" if sizes else ""
            sentences.append(f"{num_rows} training rows are few: more labels help most{curve}.")
    return sentences[:2]
