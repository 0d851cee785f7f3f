"""Whether the text gives its label away: by the name of the label, or by one sign that decides it.

A sign is a word or a punctuation mark, the first or last one of a text, or how a text is written
(in capitals, without any, with a blank at its end). For each class the sign is chosen whose
precision and recall are both high. The smaller of both, corrected for chance so that it is 0 at the
share of the class and 1 for a sign that decides, says how well the sign alone would do. The mean
over the rows of nine public data sets is 0.02 to 0.65, the highest for languages, which have
characters of their own; from 0.9 on a sign is more likely an accident of how the file was made.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.ask.doctor.check import Check, Subject, percent, shown_text
from maskwright.base.errors import Finding
from maskwright.learn.tasks.base.bag_of_words import targets
from maskwright.text.tables.rows import TRAIN, PairExample, TextExample

DECIDES = 0.9
# Of one broad class among few the best sign reached 0.56; of many narrow classes one often has a
# word of its own.
FEW_CLASSES = 10
LEAST = 10  # rows with a sign
# The name of its class is in 22 % of the texts of CLINC150, where 74 % of such names are right, and
# in 4 % of AG News (34 %).
NAMED, NAMED_RIGHT = 0.25, 0.8
REMEDY = "take it out of the text if it will not be there when the label is unknown"
TOKEN = re.compile(r"\w+|[^\w\s]")


def signs_of(text: str) -> list[str]:
    """Return the signs of a text: tokens in lower case, the first and the last one with its place,
    and how the text is written."""
    tokens = TOKEN.findall(text.lower())
    written = {
        "<in capitals>": text.isupper(),
        "<without capitals>": text.islower(),
        "<begins with a capital>": text[:1].isupper(),
        "<ends with a blank>": text != text.rstrip(),
    }
    return [
        *tokens,
        *(f"<begins with> {token}" for token in tokens[:1]),
        *(f"<ends with> {token}" for token in tokens[-1:]),
        *(name for name, is_so in written.items() if is_so),
    ]


def check_leakage(subject: Subject) -> Check:
    """Look for signs in the text that decide the label almost alone."""
    rows = subject.drawn().parts[TRAIN]
    if not subject.names or not isinstance(rows[0], TextExample | PairExample):
        return Check("leakage", f"does not apply to {subject.dataset.task.name}")
    labels = targets(rows, len(subject.names))
    indicators = labels if labels.ndim == 2 else np.eye(len(subject.names))[labels]
    texts = [shown_text(row) for row in rows]
    decides, signs = _deciding_signs(texts, indicators)
    sizes = indicators.sum(0)
    weights = sizes / sizes.sum()
    overall, best = float(decides @ weights), int(np.where(sizes >= LEAST, decides, 0).argmax())
    label_named, right = _named(texts, indicators, subject.names)
    figures = {
        "one_sign_decides": round(overall, 3),
        "best_sign": signs[best],
        "best_sign_decides": round(float(decides[best]), 3),
        "label_name_in_text": round(label_named, 3),
    }
    findings = []
    if label_named >= NAMED and right >= NAMED_RIGHT:
        message = f"the name of the label stands in {percent(label_named)} of the texts"
        evidence = f"and {percent(right)} of the names are right"
        findings.append(Finding("label-in-text", message, evidence, REMEDY, "warning"))
    is_one = len(sizes) <= FEW_CLASSES and decides[best] >= DECIDES
    if overall >= DECIDES or is_one:
        message = f"{signs[best]!r} alone tells whether the label is {subject.names[best]!r}"
        evidence = f"precision and recall, corrected for chance, are at least {decides[best]:.2f}"
        findings.append(Finding("sign-decides-label", message, evidence, REMEDY, "warning"))
    summary = f"the best single sign of each class tells the label by {overall:.2f} (0: by chance, "
    summary += f"1: surely); {percent(label_named)} of the texts have the name of their label"
    return Check("leakage", summary, figures, findings)


def _deciding_signs(
    texts: Sequence[str], indicators: NDArray[Any]
) -> tuple[NDArray[np.float64], list[str]]:
    """Return for each class (C,) the smaller of precision and recall, corrected for chance, of its
    best sign or absence of a sign, and that sign; 0 and "" if no sign is in enough texts."""
    from sklearn.feature_extraction.text import CountVectorizer

    least = min(LEAST, max(1, len(texts) // 10))
    vectorizer = CountVectorizer(analyzer=signs_of, binary=True, min_df=least)
    try:
        present = vectorizer.fit_transform(texts)  # (N, S)
    except ValueError:  # no sign is in `least` texts
        return np.zeros(indicators.shape[1]), [""] * indicators.shape[1]
    names = vectorizer.get_feature_names_out()
    sizes = indicators.sum(0)  # (C,)
    with_both = present.T @ indicators  # (S, C)
    with_sign = np.asarray(present.sum(0)).reshape(-1, 1)
    without = len(texts) - with_sign
    counts = np.maximum(sizes, 1)
    present_decides = np.minimum(with_both / with_sign, with_both / counts)
    sizes_without = sizes - with_both
    absent_decides = np.minimum(sizes_without / np.maximum(without, 1), sizes_without / counts)
    decides = np.concatenate([present_decides, absent_decides])  # (2 S, C)
    chosen, best = decides.argmax(0), decides.max(0)
    shares = sizes / len(texts)
    best = np.maximum(best - shares, 0) / np.maximum(1 - shares, 1e-9)
    absent, number = np.divmod(chosen, len(names))
    return best, [
        f"no {names[n]}" if is_absent else str(names[n])
        for is_absent, n in zip(absent, number, strict=True)
    ]


def _named(
    texts: Sequence[str], indicators: NDArray[Any], names: Sequence[str]
) -> tuple[float, float]:
    """Return the share of texts in which the name of a label of theirs stands, and the share of
    names in texts that are right."""
    spelled = [" ".join(TOKEN.findall(name.lower().replace("_", " "))) for name in names]
    is_name = np.array([any(c.isalpha() for c in name) and len(name) > 1 for name in spelled])
    joined = [f" {' '.join(TOKEN.findall(text.lower()))} " for text in texts]
    stands = np.array([[f" {name} " in text for name in spelled] for text in joined]) & is_name
    right = stands & (indicators > 0)
    return float(right.any(1).mean()), float(right.sum() / max(1, stands.sum()))
