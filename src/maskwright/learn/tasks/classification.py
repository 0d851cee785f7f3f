"""What a whole text, or two, is: one class, several, or a number.

{"label": "good", "score": 0.93}    {"labels": […], "scores": […]}    {"score": 3.2}

Regression targets are standardised for training: a head initialised near zero would not reach years
from 1990 to 2019. Afterwards mean and deviation are folded into the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from maskwright.base.errors import DataError, Finding, UsageError
from maskwright.base.metrics import calibration, metrics
from maskwright.base.report.document import figure
from maskwright.base.terminal import rounded
from maskwright.learn.tasks.base.bag_of_words import baselines, targets
from maskwright.learn.tasks.base.choices import APART
from maskwright.learn.tasks.base.encode import (
    KEEPS,
    Frame,
    Keep,
    encode,
    encode_windows,
    examples_of,
    pool,
)
from maskwright.learn.tasks.base.task_type import (
    ALL_PROBABILITIES,
    LEAST_PROBABILITY,
    LOGIT,
    SECOND,
    TEMPERATURE,
    THRESHOLDS,
    TOP,
    TWO_TEXTS,
    UNTOLD,
    Answers,
    Encoded,
    Extent,
    Mistake,
    Outputs,
    ReadOutputs,
    Scores,
    TaskMetrics,
    TaskReport,
    TaskType,
    alike,
    classes_table,
    metrics_of_arrays,
    text,
)
from maskwright.model.opening import special_tokens
from maskwright.text.tables.labelled_texts import PAIR, TEXT
from maskwright.text.tables.layout import Dataset, Shape
from maskwright.text.tables.rows import Example, PairExample, TextExample

if TYPE_CHECKING:
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Objective

CLASS = ("accuracy", "macro_f1", "matthews")
NUMBER = ("spearman", "pearson", "squared_error")
SHAPES = (
    Shape(name="classification", layout=TEXT, label="classes", metrics=CLASS),
    Shape(
        name="multi-label",
        layout=TEXT,
        label="several",
        metrics=("micro_f1", "macro_f1", "accuracy"),
    ),
    Shape(name="regression", layout=TEXT, label="number", metrics=NUMBER),
    Shape(name="pair-classification", layout=PAIR, label="classes", metrics=CLASS),
    Shape(name="similarity", layout=PAIR, label="number", metrics=NUMBER),
)
# Heads compute in float32, whose relative precision is about 1e-7.
FINEST = 1e-5


class Classification(TaskType):
    """Predicts one class, several classes or a number for a text or a pair, depending on `task`."""

    head = "sequence"
    ranks = True
    pipeline = "text-classification"
    scores_rows = True

    @property
    def thresholds(self) -> NDArray[np.float64]:
        """The probability (L,) from which each of several labels is an answer."""
        usual = [self.options.get(LEAST_PROBABILITY, 0.5)] * len(self.labels)
        chosen = usual if LEAST_PROBABILITY in self.options else self.options.get(THRESHOLDS, usual)
        return np.asarray(chosen, np.float64)

    @property
    def decoding(self) -> dict[str, Any]:
        values: dict[str, Any] = {name: bool(self.options.get(name)) for name in (LOGIT, UNTOLD)}
        return values | ({THRESHOLDS: self.thresholds.tolist()} if self.problem == "multi" else {})

    # ------------------------------------------------------------------------ encoding
    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        has_pairs = any(isinstance(row, PairExample) for row in rows)
        if has_pairs and frame.long not in ("head", APART):
            raise UsageError(
                "of two texts the longer one loses its end",
                where="--long",
                found=frame.long,
                wanted=f"head, or {APART} with --method embeddings",
            )
        texts = [(r.first, r.second) if isinstance(r, PairExample) else (r.text,) for r in rows]
        if frame.long == APART:
            return self._apart(rows, texts, frame)
        if frame.in_windows or frame.long not in KEEPS:
            return self._divided(rows, texts, frame)
        keep: Keep = "tail" if frame.keeps_end else frame.long
        examples, cuts, cut = encode(texts, self._targets(rows), frame, keep)
        extent = Extent.of(examples.texts.lengths, np.arange(len(rows)), cut=cut)
        return Encoded(rows, examples, cuts.findings(frame.length), extent=extent)

    def _apart(
        self, rows: Sequence[Any], texts: Sequence[tuple[str, ...]], frame: Frame
    ) -> Encoded:
        """Encode the two texts of each row as pieces of it."""
        single_texts = [(text,) for row_texts in texts for text in row_texts]
        if len(single_texts) != 2 * len(rows):
            raise UsageError(
                "a text without another",
                where="--long",
                found=APART,
                wanted="two texts in each row",
                do="leave --long out",
            )
        counts, numbers = np.full(len(rows), 2), np.arange(len(single_texts))
        examples, cuts, cut = encode(single_texts, self._targets(rows), frame, pieces=counts)
        extent = Extent.of(examples.texts.lengths, numbers, numbers // 2, cut)
        return Encoded(rows, examples, cuts.findings(frame.length, "texts"), extent=extent)

    def _divided(
        self, rows: Sequence[Any], texts: Sequence[tuple[str, ...]], frame: Frame
    ) -> Encoded:
        """Encode texts in windows, whose scores are averaged, or in pieces: as examples of their
        own, or together."""
        pieces, owners = encode_windows(texts, frame)
        counts = np.bincount(owners, minlength=len(rows))
        cut = np.bincount(owners, [piece.cut for piece in pieces], len(rows)).astype(np.int64)
        findings: tuple[Finding, ...] = ()
        if not frame.in_windows and (num_divided := int((counts > 1).sum())):
            message = f"{num_divided:,} of {len(rows):,} read in pieces, {len(pieces):,} in all"
            findings = (Finding("read-in-pieces", message),)
        pooling = "mean" if frame.in_windows else frame.long.removeprefix("pieces-")
        labels = self._targets(rows)
        if pooling in ("mean", "max"):
            examples = examples_of(pieces, labels[owners], frame)
            way_back = owners, pooling
        else:
            examples, way_back = examples_of(pieces, labels, frame, pieces=counts), None
        extent = Extent.of(np.array([max(1, len(piece)) for piece in pieces]), owners, cut=cut)
        return Encoded(rows, examples, findings, way_back, extent)

    def of_value(self, value: Any, where: str) -> Any:
        untold = bool(self.options.get(UNTOLD))
        if isinstance(value, Mapping) and (
            (untold and value.keys() >= TWO_TEXTS)
            or (len(self.roles) > 1 and value.keys() == TWO_TEXTS)
        ):
            value = (value["text"], value[SECOND])
        if untold and isinstance(value, list | tuple) and len(value) == 2:
            first_text, second_text = map(text, value, ("text", SECOND), (where, where))
            return PairExample(first_text, second_text, self._none, where)
        return super().of_value(value, where)

    def example(self, values: Sequence[Any], where: str) -> Example:
        texts = [text(value, role, where) for value, role in zip(values, self.roles, strict=True)]
        if len(texts) > 1:
            return PairExample(texts[0], texts[1], self._none, where)
        return TextExample(texts[0], self._none, where)

    @property
    def _none(self) -> tuple[int, ...] | int:
        """What stands for the label of a text without one."""
        return () if self.problem == "multi" else 0

    # ------------------------------------------------------------------------ head
    def objective(self, model: Transformer, frame: Frame, rows: Encoded | None = None) -> Objective:
        """Regression is trained on standardised targets. A new head of several labels starts with
        their frequencies, as hundreds of steps would only learn that most labels are rare (Lin et
        al. 2017, arXiv:1708.02002, section 4.1)."""
        from maskwright.model.objectives.modules.supervised import Standardised, Supervised

        objective = super().objective(model, frame)
        assert isinstance(objective, Supervised)
        if rows is None:
            return objective
        if self.problem == "multi":
            objective.start_at(self._targets(rows.rows).mean(0))
        if self.problem != "number":
            return objective
        targets = self._truth(rows.rows)
        # A mean cannot be folded into a head without bias.
        centre = float(targets.mean()) if model.config.heads[0].bias else 0.0
        spread = float(np.sqrt(np.square(targets - centre).mean()))
        spread = spread if spread > 0 else 1.0
        if spread < FINEST * abs(centre):
            raise DataError(
                "numbers too close together for their size",
                where=rows.rows[0].where,
                found=f"{figure(centre)} ± {spread:.3g}",
                wanted=f"a deviation above {FINEST:g} of their mean",
                do="take a common number from all, such as the least",
            )
        vocabulary = special_tokens.vocabulary(frame.words)
        return Standardised(model, objective.options, vocabulary, centre, spread)

    # ------------------------------------------------------------------------ decoding
    def merged(self, encoded: Encoded, outputs: Outputs) -> Outputs:
        """Return the scores of whole texts, pooled from those of their pieces or windows."""
        if encoded.way_back is None:
            return outputs
        owners, pooling = encoded.way_back
        return pool(outputs, owners, pooling).astype(np.float32)

    def answers(self, encoded: Encoded, outputs: Scores) -> NDArray[Any]:
        outputs = self.merged(encoded, outputs)
        if self.problem == "single":
            return outputs.argmax(1)
        if self.problem == "multi":
            return (scipy.special.expit(outputs.astype(np.float64)) >= self.thresholds).astype(
                np.int64
            )
        return self._values(outputs)

    def calibrate(self, encoded: Encoded, read: ReadOutputs, *, final: bool = False) -> Self:
        """Choose a temperature at the end, and a threshold for each of several labels."""
        if len(encoded.rows) < calibration.LEAST_ROWS or self.problem == "number":
            return self
        scores, truth = self.merged(encoded, read(self)), self._truth(encoded.rows)
        values: dict[str, Any] = {}
        if final:
            values[TEMPERATURE] = calibration.fit_temperature(scores, truth)
        if self.problem == "multi":
            shares = scipy.special.expit(scores.astype(np.float64) / values.get(TEMPERATURE, 1.0))
            thresholds = calibration.select_thresholds(shares, truth, self.measure)
            values[THRESHOLDS] = thresholds.tolist()
        return self.with_options(values)

    def as_pipeline(self, encoded: Encoded, outputs: Scores) -> Iterator[Any]:
        if self.problem == "number":
            outputs = self.merged(encoded, outputs)
            yield from ({"score": rounded(n)} for n in self._values(outputs))
            return
        least, top = self.options.get(LEAST_PROBABILITY, 0.0), self.options.get(TOP)
        for row in self._shares(encoded, outputs):
            shares = [round(share, 6) for share in row.tolist()]
            if top is not None:
                order = np.argsort(-row, kind="stable")[:top].tolist()
                yield [{"label": self.labels[i], "score": shares[i]} for i in order]
                continue
            best = int(row.argmax())
            label = self.labels[best] if row[best] >= least else None
            answer: dict[str, Any] = {"label": label, "score": shares[best]}
            if self.problem == "multi":
                chosen = np.flatnonzero(row >= self.thresholds).tolist()
                answer = {
                    "labels": [self.labels[i] for i in chosen],
                    "scores": [shares[i] for i in chosen],
                }
            if self.options.get(ALL_PROBABILITIES):
                answer["probabilities"] = dict(zip(self.labels, shares, strict=True))
            yield answer

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        if self.problem == "number":
            return {"score": float}
        if self.problem == "multi" and not ranked:
            return {"labels": [self.labels], "scores": [float]}
        return {"label": self.labels, "score": float}

    def scores(self, encoded: Encoded, outputs: Outputs, *, raw: bool = False) -> Scores:
        if raw:
            return self.merged(encoded, outputs)
        if self.problem == "number":
            return np.asarray(self._values(self.merged(encoded, outputs))[:, None], np.float32)
        return np.asarray(self._shares(encoded, outputs), np.float32)

    # ------------------------------------------------------------------------ evaluation
    def metrics(self, rows: Sequence[Any], answers: Answers) -> TaskMetrics:
        return metrics_of_arrays(self.measures, self._truth(rows), answers)

    def report(self, encoded: Encoded, outputs: Scores, answers: Answers) -> TaskReport:
        truth, predicted = self._truth(encoded.rows), np.asarray(answers)
        classes = confusion = reliability = None
        name: Callable[[Any], str]
        if self.problem == "number":
            quantity, name = "off by", lambda number: figure(float(number))
            weights = np.abs(predicted - truth)
            one_sided = alike(truth, answers, "{:.4g}".format)
        elif self.problem == "multi":
            quantity, name = "labels wrong", self._names
            weights = (predicted != truth).sum(1)
            one_sided = alike(truth, answers, name)
            shares = self._shares(encoded, outputs)
            reliability = calibration.Reliability(shares.ravel(), truth.ravel() > 0, answers=False)
            classes = [
                metrics.per_class(truth[:, i], predicted[:, i], ("", label))[1]
                for i, label in enumerate(self.labels)
            ]
        else:
            quantity, name = "confidence", self.labels.__getitem__
            shares = self._shares(encoded, outputs).max(1)
            weights = np.where(predicted != truth, shares, 0.0)
            reliability = calibration.Reliability(shares, predicted == truth)
            one_sided = alike(truth, answers, name)
            classes = metrics.per_class(truth, predicted, self.labels)
            confusion = metrics.confusion(truth, predicted, len(self.labels))
        mistakes = []
        for n in np.argsort(-weights, kind="stable")[: np.count_nonzero(weights > 0)]:
            row, label, answer = encoded.rows[n], name(truth[n]), name(predicted[n])
            mistakes.append(Mistake(row.where, row.whole_text, label, answer, float(weights[n])))
        note = "Rows are those of the class in the file."
        table = None if classes is None else classes_table(classes, note)
        return TaskReport(mistakes, quantity, None, table, confusion, one_sided, reliability)

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        return list(baselines(data, eval_part, self.measure))

    def _values(self, outputs: Scores) -> NDArray[Any]:
        """Return the predicted numbers (N,) of a regression."""
        scores: NDArray[Any] = outputs[:, 0]
        return scipy.special.expit(scores.astype(np.float64)) if self.options.get(LOGIT) else scores

    def _names(self, chosen: NDArray[np.int64]) -> str:
        return ", ".join(self.labels[i] for i in np.flatnonzero(chosen)) or "none"

    def _shares(self, encoded: Encoded, outputs: Scores) -> NDArray[np.float64]:
        """Return the probability (N, L) of each label; independent ones for several classes."""
        logits = self.merged(encoded, outputs).astype(np.float64)
        return np.asarray(
            scipy.special.expit(logits)
            if self.problem == "multi"
            else scipy.special.softmax(logits, 1)
        )

    def _targets(self, rows: Sequence[Any]) -> NDArray[np.int64] | NDArray[np.float32]:
        truth = self._truth(rows)
        if self.problem == "single":
            return truth
        return truth.reshape(len(rows), max(1, len(self.labels))).astype(np.float32)

    def _truth(self, rows: Sequence[Any]) -> NDArray[Any]:
        """Return classes (N,) or zeros and ones (N, L), int64, or numbers (N,) float64."""
        if self.problem == "multi":
            return targets(rows, len(self.labels))
        return np.array(
            [row.label for row in rows], np.int64 if self.problem == "single" else np.float64
        )


TYPE = Classification
