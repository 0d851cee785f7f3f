"""How the rows fit a model and a score: lengths and words against what the model reads, and how
precise a score on the rows can be."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from maskwright.ask.doctor.check import Check, Subject, percent, severity, texts_of
from maskwright.ask.doctor.label_errors import FoldPredictions
from maskwright.base.errors import DataError, Finding
from maskwright.base.metrics.power import (
    correlation_half_width,
    half_width,
    smallest_difference,
)
from maskwright.base.terminal import counted
from maskwright.learn.finetune.cross_validation import divide
from maskwright.learn.tasks.base.encode import room
from maskwright.model.opening.folders import Model
from maskwright.text.tables.rows import TEST, TRAIN, VALIDATION, TaggedExample
from maskwright.text.tokenizer.unknown import OTHER_MODEL

LENGTH = 512  # tokens that fine-tuning reads by default, if the model has as many positions
TRUNCATED = 0.1
# English has 1.1 to 1.6 pieces per word in tokenizers of English, German 1.9 and more.
PIECES = 2.0
LONG_WORD = 12.0  # characters; longer on average are texts without blanks between words
WIDE = 0.1  # half-width of an interval from which a score says little
ASSUMED = 0.8  # accuracy or correlation, where no model has predicted the rows


def check_model_fit(subject: Subject, model: Model | None) -> Check:
    """Compare lengths and words with what the model reads."""
    name = "model"
    if model is None or model.tokenizer is None:
        return Check(name, "lengths in tokens and unknown characters need a MODEL")
    rows = subject.drawn().parts[TRAIN]
    texts = [read if len(read := texts_of(row)) <= 2 else (row.whole_text,) for row in rows]
    tokenizer, unknown = model.tokenizer.counting()
    length = room(model.config, LENGTH)
    per_row = len(texts[0])
    special = sum(tokenizer.frame_margins(per_row == 2))
    encoded = tokenizer.encode_batch([text for row in texts for text in row])
    pieces = np.array([len(ids) for ids in encoded]).reshape(len(texts), per_row).sum(1)
    words = [word for row in texts for text in row for word in text.split()]
    per_word = float(pieces.sum()) / max(1, len(words))
    truncated = float((pieces + special > length).mean())
    figures = {
        "length": length,
        "median_tokens": float(np.median(pieces)) + special,
        "longest_tokens": int(pieces.max()) + special,
        "truncated_share": round(truncated, 4),
        "tokens_per_word": round(per_word, 3),
        "unknown_share": round(unknown.share, 5),
    }
    findings = []
    if truncated:
        cut = float(np.maximum(pieces + special - length, 0).sum() / pieces.sum())
        finding = Finding(
            "truncated",
            f"{percent(truncated)} of the rows are longer than the {length} tokens that are read",
            f"{percent(cut)} of all tokens would be cut",
            "--long head-and-tail reads the end, too; a model with more positions reads all",
            severity(truncated, TRUNCATED),
        )
        findings.append(finding)
    if (finding_of_unknown := unknown.finding(OTHER_MODEL)) is not None:
        findings.append(replace(finding_of_unknown, severity="warning"))
    mean_word = sum(map(len, words)) / max(1, len(words))
    if per_word >= PIECES and mean_word < LONG_WORD:
        message = f"the tokenizer makes {per_word:.1f} pieces of a word"
        evidence = "it was probably learned from another language or kind of text"
        remedy = "a model for such texts reads more of each and often answers better"
        findings.append(Finding("many-pieces", message, evidence, remedy, "warning"))
    if isinstance(rows[0], TaggedExample) and tokenizer.normalise("A") == "a":
        message = "the tokenizer lower-cases: a cased model is often better at tagging"
        findings.append(Finding("lower-casing-tokenizer", message))
    summary = f"{percent(truncated)} of the rows longer than {length} tokens (median "
    summary += f"{figures['median_tokens']:.0f}); {per_word:.2f} tokens per word; "
    summary += f"{percent(unknown.share)} of the characters unknown"
    return Check(name, summary, figures, findings)


def check_score(subject: Subject, predicted: FoldPredictions | None) -> Check:
    """Compute how precise a score on the rows can be."""
    rows, described = _scored_rows(subject)
    is_number = not subject.names and isinstance(subject.rows[0].answer, float)
    if is_number:
        value, half = ASSUMED, correlation_half_width(ASSUMED, rows)
        summary = f"{described}: a correlation of {value:.2f} ± {half:.3f}"
        figures: dict[str, Any] = {"rows": rows, "correlation": value}
        figures["half_width"] = None if math.isnan(half) else half
    else:
        is_predicted = predicted is not None and predicted.labels.ndim == 1
        value = predicted.accuracy if is_predicted and predicted is not None else ASSUMED
        half, difference = half_width(value, rows), smallest_difference(value, rows)
        figures = {"rows": rows, "accuracy": round(value, 4), "half_width": round(half, 4)}
        figures["smallest_difference"] = round(difference, 4)
        source = "as out of fold" if is_predicted else "assumed"
        summary = f"{described}: an accuracy of {value:.2f} ({source}) is known to ± {half:.3f}; "
        summary += f"a paired test finds a difference of {difference:.3f} in 80 % of cases (if the "
        summary += f"models differ in {percent(max(value * (1 - value), difference))} of the rows)"
    if half <= WIDE:
        return Check("score", summary, figures)
    message = f"a score on {described} says little"
    evidence = f"its 95 % interval is {'unknown' if math.isnan(half) else f'± {half:.2f}'}"
    remedy = "label more rows to be scored"
    finding = Finding("few-scored-rows", message, evidence, remedy, "warning")
    return Check("score", summary, figures, [finding])


def _scored_rows(subject: Subject) -> tuple[int, str]:
    """Return the number of rows on which fine-tuning reports its score, and their description."""
    try:
        by_split = divide(subject.dataset).parts
    except DataError:  # too few rows for a part
        by_split = {TRAIN: subject.rows}
    split = next(name for name in (TEST, VALIDATION, TRAIN) if name in by_split)
    rows = counted(len(by_split[split]), "row")
    drawn = "" if split in subject.dataset.parts else ", drawn"
    described = f"all {rows}, out of fold" if split == TRAIN else f"{rows} of {split}{drawn}"
    return len(by_split[split]), described
