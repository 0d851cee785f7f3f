"""The interface of task types: encoding of rows, head, predictions, metrics and baselines.

    rows of labelled/  --encode-->  Examples  --a model-->  scores  --answers-->  figures, answers

Every module of `tasks/` is one task type: `SHAPES` are the tasks that it declares, with the layout
of their data, and `TYPE` is its class; `SERVES` has its classes for tasks of other modules, by
name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base import catalogue
from maskwright.base.errors import DataError, Finding, UsageError
from maskwright.base.metrics import row_metrics
from maskwright.base.metrics.calibration import Reliability
from maskwright.base.metrics.intervals import Estimate, OfSums
from maskwright.base.metrics.metrics import ClassFigures
from maskwright.base.report.document import Table, figure
from maskwright.base.terminal import counted
from maskwright.learn.tasks.base.choices import APART
from maskwright.learn.tasks.base.encode import Frame
from maskwright.model.inference.encoded import Collation, EncodedExamples
from maskwright.model.objectives.supervised import Options, Problem
from maskwright.model.opening import special_tokens
from maskwright.text.tables.cell_values import is_empty, text_in, text_of
from maskwright.text.tables.layout import Dataset, Label, Shape
from maskwright.text.tables.rows import Row, value_of
from maskwright.text.tables.shapes import TASKS, shape_of
from maskwright.text.tokenizer.unknown import OTHER_MODEL

if TYPE_CHECKING:
    from maskwright.model.inference.beam import Steps
    from maskwright.model.nn.config import ChunkPooling
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Objective

# Options for a folder whose task is unknown: it accepts one text or two (UNTOLD); its single score
# is a logit, not a number (LOGIT).
UNTOLD, LOGIT = "untold", "logit"
# What validation data chose: by what the scores of the head were divided, and the probability from
# which each of several labels is an answer. How a prediction is asked for: the probability below
# which a row gets no label, whether it lists the probabilities of all labels, and the number of
# answers for each row, if the type `ranks`.
TEMPERATURE, THRESHOLDS = "temperature", "thresholds"
LEAST_PROBABILITY, ALL_PROBABILITIES, TOP = "least_probability", "all_probabilities", "top"
ONE_SIDED = "one-sided-answers"
SECOND = "text_pair"
TWO_TEXTS = {"text", SECOND}  # keys of a text pair for `pipeline`
PROBLEMS: dict[Label, Problem] = {"classes": "single", "several": "multi", "number": "number"}

Scores = NDArray[np.float32]
Outputs = NDArray[Any]  # scores, or texts
Answers = Sequence[Any] | NDArray[Any]  # one for each row
ReadOutputs = Callable[["TaskType"], Outputs]  # computes them with the options of a task type


@dataclass(frozen=True)
class Extent:
    """The amount of each row that a model reads, (N,) int64 each.

    Attributes:
        tokens: number of ids read of the row, special tokens included, summed over windows.
        windows: number of windows in which its longest text is read.
        cut: number of tokens of its texts that are not read.
    """

    tokens: NDArray[np.int64]
    windows: NDArray[np.int64]
    cut: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        lengths: NDArray[np.int64],
        texts: NDArray[np.int64],
        rows: NDArray[np.int64] | None = None,
        cut: NDArray[np.int64] | None = None,
    ) -> Extent:
        """Compute the extent of rows that are read in windows.

        Args:
            lengths, texts: (W,) number of ids, and text index (ascending), of each window.
            rows: (S,) row index (ascending) of each text; None: each text is a row.
            cut: (S,) number of tokens cut from each text; None: none.
        """
        count = int(texts[-1]) + 1 if len(texts) else 0
        rows = np.arange(count) if rows is None else rows
        total = int(rows[-1]) + 1 if len(rows) else 0
        tokens, lost, windows = (np.zeros(total, np.int64) for _ in range(3))
        np.add.at(tokens, rows[texts], lengths)
        np.maximum.at(windows, rows, np.bincount(texts, minlength=count))
        if cut is not None:
            np.add.at(lost, rows, cut)
        return cls(tokens, windows, lost)

    @classmethod
    def whole(cls, examples: EncodedExamples, count: int) -> Extent:
        """The extent of `count` rows that are read whole in one window."""
        mean_length = -(-int(examples.texts.lengths.sum()) // max(1, count))
        return cls(np.full(count, mean_length), np.ones(count, np.int64), np.zeros(count, np.int64))


@dataclass(frozen=True)
class Encoded:
    """Encoded rows of a task.

    Attributes:
        rows: the examples; in prediction their labels are empty.
        findings: warnings of truncation or of characters unknown to the tokenizer.
        way_back: whatever the task type needs to turn scores into answers.
        extent: how much of each row is read.
    """

    rows: Sequence[Any]
    examples: EncodedExamples
    findings: tuple[Finding, ...] = ()
    way_back: Any = None
    extent: Extent | None = None


@dataclass(frozen=True)
class TaskMetrics:
    """The metrics of predictions, by name, each with the rows that it is computed from."""

    figures: Mapping[str, row_metrics.RowMetric]

    @classmethod
    def mean(cls, repetitions: Sequence[TaskMetrics]) -> TaskMetrics:
        """The mean metrics of several predictions of the same rows."""
        if len(repetitions) == 1:
            return repetitions[0]
        by_name = {n: [m.figures[n] for m in repetitions] for n in repetitions[0].figures}
        return cls({name: row_metrics.RepeatedMetric(figures) for name, figures in by_name.items()})

    @property
    def values(self) -> dict[str, float]:
        """The value of each metric; NaN where it is not defined."""
        return {name: figure.value for name, figure in self.figures.items()}

    def estimates(self) -> dict[str, Estimate]:
        """Return the metrics with 95 % intervals, which takes longer."""
        return {name: figure.estimate() for name, figure in self.figures.items()}


@dataclass(frozen=True)
class Mistake:
    """A row with a wrong prediction: its location in a file, text, label, prediction and error (see
    `TaskReport.quantity`)."""

    where: str
    text: str
    label: str
    predicted: str
    weight: float


@dataclass(frozen=True)
class TaskReport:
    """What is shown of predictions beside their metrics.

    Attributes:
        mistakes: the rows with wrong predictions, the worst first.
        quantity: name of the quantity in `Mistake.weight`.
        num_judged: number of leading rows in which mistakes were looked for; None: all.
        classes: precision, recall and F1 by class; None if there are no classes.
        confusion: (L, L) counts of true label by predicted label, if the task has one of each.
        one_sided: a warning that the answers to all rows are the same and not all of them correct,
            which a good metric may hide.
        reliability: the probabilities of the predictions, if they have any.
    """

    mistakes: Sequence[Mistake] = ()
    quantity: str = "confidence"
    num_judged: int | None = None
    classes: Table | None = None
    confusion: NDArray[np.int64] | None = None
    one_sided: Finding | None = None
    reliability: Reliability | None = None


@dataclass(frozen=True)
class TaskType(ABC):
    """A task: how rows are encoded, trained on, decoded into answers and evaluated.

    Attributes:
        head: the kind of head that is trained, or None.
        writes: whether the model predicts tokens, of which its answers consist.
        chosen_by: the option that selects the type where several serve a task; "": it needs none.
        ranks: whether `as_pipeline` can return several answers for each row.
        scores_rows: whether `scores` returns the scores of labels of whole rows, or a number.
        by_row: whether rows are learned from independently of each other.
        counts_places: whether answers hold character offsets into the text as given.
        optional_roles: optional input roles.
        alone: the role of a single text, where the task is trained on two texts but predicts for
            one.
        longest: default maximum number of tokens of a text.
        reads_images: whether its rows are images, and no texts.
        task: the name of a shape.
        labels: names of the classes in order, where there are classes.
        options: what the user or the validation data chose, JSON values by name.
    """

    head: ClassVar[Literal["sequence", "token", "span", "choice"] | None]
    writes: ClassVar[bool] = False
    chosen_by: ClassVar[str] = ""
    ranks: ClassVar[bool] = False
    scores_rows: ClassVar[bool] = False
    by_row: ClassVar[bool] = True
    counts_places: ClassVar[bool] = False
    optional_roles: ClassVar[tuple[str, ...]] = ()
    alone: ClassVar[str] = ""
    longest: ClassVar[int] = 512
    reads_images: ClassVar[bool] = False

    task: str
    labels: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """The layout of the data and the metrics of the task."""
        return shape_of(self.task)

    @property
    def roles(self) -> tuple[str, ...]:
        """The input roles of a row: all roles of its layout but the predicted one."""
        return self.shape.layout.input_roles

    @property
    def problem(self) -> Problem:
        """The kind of the labels of whole texts: one class, several classes or a number."""
        return PROBLEMS.get(self.shape.label, "single") if self.head == "sequence" else "single"

    @property
    @abstractmethod
    def pipeline(self) -> str:
        """The pipeline tag of the task on the Hugging Face hub."""

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the metrics, the default first."""
        return self.shape.metrics

    @property
    def measure(self) -> str:
        """The metric that selects epoch and seed: "measure" of `options`, or the default."""
        return str(self.options.get("measure", self.measures[0]))

    @property
    def decoding(self) -> dict[str, Any]:
        """The settings besides head, problem and labels that turn scores into answers: JSON values
        by name, for programs that compute the answers elsewhere."""
        return {}

    def with_options(self, values: Mapping[str, Any]) -> Self:
        """The task type with these options set."""
        return replace(self, options={**self.options, **values})

    def of_data(self, data: Dataset) -> Self:
        """The task type with the options that follow from column names or labels of `data`."""
        return self

    # ------------------------------------------------------------------------ encoding
    def encode(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        """Encode rows as ids with special tokens.

        Raises:
            DataError: a row cannot be encoded, or is too long if `frame` forbids truncation.
            IncompatibleError: the model reads images and the task has texts, or the reverse.
        """
        if self.reads_images:
            return self._encoded(rows, frame)
        counting, unknown = frame.tokenizer.counting()
        encoded = self._encoded(rows, replace(frame, words=counting))
        if encoded.extent is None:  # a task type that does not compute it
            encoded = replace(encoded, extent=Extent.whole(encoded.examples, len(rows)))
        assert encoded.extent is not None
        if frame.refuses:
            _require_whole(encoded.rows, encoded.extent, frame, writes=self.writes)
        examples = encoded.examples
        if frame.unread is not None and examples.places is None and len(rows):
            examples = examples.without_end(frame.unread)
        findings = (*encoded.findings, *unknown.findings(OTHER_MODEL))
        return replace(encoded, examples=examples, findings=findings)

    @abstractmethod
    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        """`encode` without the checks of `frame` and of unknown characters."""

    @abstractmethod
    def example(self, values: Sequence[Any], where: str) -> Any:
        """Return an example without a label from the values of the `roles`.

        Raises:
            DataError: a value has another type.
        """

    def of_value(self, value: Any, where: str) -> Any:
        """Return an example without a label from a Python value: a text, a tuple of the `roles`,
        or a mapping by role.

        Raises:
            DataError: the value is something else.
        """
        if isinstance(value, Mapping) and set(self.roles) <= set(value):
            value = tuple(value[role] for role in self.roles)
        values = tuple(value) if isinstance(value, list | tuple) else (value,)
        if len(values) != len(self.roles):
            description = counted(len(values), "value") if values else "nothing"
            if isinstance(value, Mapping):
                description = f"a mapping with {', '.join(map(str, value)) or 'nothing'}"
            raise DataError(
                "not what the model was trained to read",
                where=where,
                found=description,
                wanted=f"{len(self.roles)}: {', '.join(self.roles)}",
            )
        return self.example(values, where)

    def value_of(self, example: Any) -> Any:
        """The inverse of `of_value`, as a JSON value: a text, or a list of the `roles`.

        Raises:
            UsageError: examples of this task cannot be sent to a server.
        """
        names = self.roles
        if not all(hasattr(example, role) for role in names):  # two texts, or one, instead
            names = getattr(example, "text_fields", ())
        if not names:
            raise UsageError("rows of this task cannot be sent to a server", found=self.task)
        values = [getattr(example, name) for name in names]
        values = [list(value) if isinstance(value, tuple) else value for value in values]
        return values if len(values) > 1 else values[0]

    # ------------------------------------------------------------------------ model
    def objective(self, model: Transformer, frame: Frame, rows: Encoded | None = None) -> Objective:
        """The objective around `model`, which reads texts by `frame`. With `rows`, those to train
        on, it has what its training takes from them."""
        from maskwright.model.objectives.modules.supervised import Supervised

        poolings: dict[str, ChunkPooling] = {"vectors-max": "max", APART: "differences"}
        options = Options(problem=self.problem, pieces=poolings.get(frame.long, "mean"))
        return Supervised(model, options, special_tokens.vocabulary(frame.words))

    def steps(self, objective: Objective, encoded: Encoded, collation: Collation) -> Steps[Outputs]:
        """Compute the outputs of the model for `encoded` rows, as a generator that can be abandoned
        between decoding steps; `inference.beam.finished` runs it to its end."""
        from maskwright.model.inference.scores import ScoringObjective, scores

        yield from ()
        assert isinstance(objective, ScoringObjective)
        return scores(objective, encoded.examples, collation)

    # ------------------------------------------------------------------------ decoding
    def calibrate(self, encoded: Encoded, read: ReadOutputs, *, final: bool = False) -> Self:
        """The task type with the options that are chosen on validation data, such as a threshold.

        Args:
            read: computes the outputs for these data with the options of a task type.
            final: whether training is over, so that decoding settings may be compared, too, and a
                `TEMPERATURE` is chosen by which the caller divides the scores of the head; else
                outputs are only computed for `self`.
        """
        return self

    def merged(self, encoded: Encoded, outputs: Outputs) -> Outputs:
        """`outputs` with the windows of each row combined; unchanged for task types that predict
        positions or generate text."""
        return outputs

    @abstractmethod
    def answers(self, encoded: Encoded, outputs: Outputs) -> Answers:
        """Return an answer for each row."""

    def scores(self, encoded: Encoded, outputs: Outputs, *, raw: bool = False) -> Scores:
        """Return the probability (N, L) of each label, or with `raw` its logit.

        Raises:
            UsageError: the task has no scores of whole rows.
        """
        raise UsageError(
            "such a model gives no score for each label", found=self.task, do="ask it to predict"
        )

    @abstractmethod
    def as_pipeline(self, encoded: Encoded, outputs: Outputs) -> Iterator[Any]:
        """An answer for each row as `pipeline` of transformers gives it; with `TOP` in `options` a
        list of that many answers, the best first, as with `top_k`."""

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        """Return the form of an answer of `as_pipeline`, or of one of several (`ranked`), to check
        answers from other processes: a type, the possible values, a list with the form of its
        items, or a mapping with the form of each value; None: any."""
        return None

    # ------------------------------------------------------------------------ evaluation
    @abstractmethod
    def metrics(self, rows: Sequence[Any], answers: Answers) -> TaskMetrics:
        """Return the metrics `measures`."""

    def report(self, encoded: Encoded, outputs: Outputs, answers: Answers) -> TaskReport:
        """Return what is shown of the `answers` for `encoded` rows."""
        return TaskReport()

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """(name, answers) of baselines without pretraining, for the part `eval_part`."""
        return []


def _require_whole(rows: Sequence[Any], extent: Extent, frame: Frame, *, writes: bool) -> None:
    """Raise a `DataError` for the first row of which tokens are cut."""
    for number in np.flatnonzero(extent.cut)[:1].tolist():
        do = 'shorten it, or let its end be cut: long="as_trained" (--long as-trained)'
        if not frame.in_windows and not writes:
            do = f'{do}, or read it in windows: long="windows" (--long windows)'
        raise DataError(
            "the text is longer than the model reads",
            where=rows[number].where,
            found=f"{int(extent.cut[number]):,} tokens too many",
            wanted=f"at most {frame.length:,} tokens, special tokens among them",
            do=do,
        )


def pipeline_answers(
    task_type: TaskType, encoded: Encoded, outputs: Outputs, top: int | None = None
) -> Iterator[Any]:
    """Return `as_pipeline` of a task type.

    Raises:
        UsageError: `top` is below 1, or the task has only one answer for each row.
    """
    if top is None:
        return task_type.as_pipeline(encoded, outputs)
    if isinstance(top, bool) or not isinstance(top, Integral) or top < 1:
        raise UsageError("no answer to give", where="--top", found=repr(top), wanted="1 or more")
    if not task_type.ranks or task_type.problem == "number":
        task = f"{task_type.task}, text to text" if task_type.writes else task_type.task
        raise UsageError(
            "such a model has one answer for each row",
            where="--top",
            found=task,
            do="ask without it",
        )
    return task_type.with_options({TOP: int(top)}).as_pipeline(encoded, outputs)


def example_of_row(task_type: TaskType, row: Row, columns: Mapping[str, Sequence[str]]) -> Any:
    """Return an example without a label from a row of a file; `columns`: names by role.

    Raises:
        DataError: a value is missing or has another type.
    """
    if task_type.alone in columns:
        return task_type.of_value(text_in(row, columns[task_type.alone]), row.where)
    (second,) = columns.get(SECOND, (SECOND,))
    if task_type.options.get(UNTOLD) and not is_empty(value_of(row, second)):
        return task_type.of_value((text_in(row, columns["text"]), text_of(row, second)), row.where)
    return task_type.example(task_type.shape.layout.inputs(row, columns), row.where)


# ------------------------------------------------------------------------ metrics and reports
def metrics_of_arrays(names: Sequence[str], truth: NDArray[Any], answers: Answers) -> TaskMetrics:
    """Return metrics of `METRICS` for labels and answers of the same shape."""
    predicted = np.asarray(answers)
    return TaskMetrics({name: row_metrics.ArrayMetric(name, truth, predicted) for name in names})


def metrics_of_sums(figures: Mapping[str, tuple[OfSums, NDArray[Any]]]) -> TaskMetrics:
    """Return metrics by name, each given as a function of sums over the rows, and the values (N, K)
    to be summed."""
    return TaskMetrics({name: row_metrics.SumMetric(*figure) for name, figure in figures.items()})


def metrics_of_means(names: Sequence[str], scores: NDArray[Any]) -> TaskMetrics:
    """Return the means of the columns of `scores` (N, K), by name."""
    return TaskMetrics(row_metrics.means(names, scores))


def alike(
    truth: NDArray[Any], answers: Answers, name: Callable[[Any], str], unit: str = "row"
) -> Finding | None:
    """Return `TaskReport.one_sided` for answers that can be compared with `truth` as arrays.

    Args:
        truth, answers: (N,) or (N, L).
        name: returns the displayed name of an answer.
        unit: what has one answer each, such as "row".
    """
    predicted = np.asarray(answers)
    if (
        len(predicted) < 2
        or bool((predicted != predicted[0]).any())
        or np.array_equal(predicted, truth)
    ):
        return None
    return Finding(
        ONE_SIDED,
        f"all {counted(len(predicted), unit)} get the same answer, {name(predicted[0])}: the model "
        "tells nothing apart, whatever its figures are",
        severity="warning",
    )


def classes_table(figures: Sequence[ClassFigures], note: str) -> Table:
    """Return a table of precision, recall and F1 by class; a dash where one is undefined."""
    return {
        "title": "Results by class",
        "head": ["", "precision", "recall", "F1", "rows"],
        "rows": [
            [
                scores.name,
                *(
                    figure(v) if np.isfinite(v) else "–"
                    for v in (scores.precision, scores.recall, scores.f1)
                ),
                f"{scores.rows:,}",
            ]
            for scores in figures
        ],
        "note": note,
    }


def text(value: Any, role: str, where: str) -> str:
    """Return `value` if it is a text.

    Raises:
        DataError: it is no text, or blank.
    """
    if not isinstance(value, str) or is_empty(value):
        raise DataError(
            f"the {role} is no text",
            where=where,
            found=repr(value)[:80],
            wanted="a text with a word in it",
            do="correct the row, or pass it over (--read on_bad=skip)",
        )
    return str(value)


# ------------------------------------------------------------------------------ types by task
def task_for(
    task: str, labels: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> TaskType:
    """Return the type that serves `task`. If several do, those that are chosen by one of `options`
    come first.

    Raises:
        UsageError: no type serves it, or several do.
    """
    shape_of(task)  # raises if no module declares it
    serving = [(module, kind) for module, name, kind in _types() if name == task]
    chosen = [pair for pair in serving if pair[1].chosen_by in (options or {})]
    fitting = chosen or [pair for pair in serving if not pair[1].chosen_by] or serving
    if len(fitting) > 1:
        raise UsageError(
            "two modules for one task",
            where=f"maskwright.{TASKS}",
            found=task,
            wanted="one of " + ", ".join(module for module, _ in fitting),
            do="uninstall the package that brings the other",
        )
    return fitting[0][1](task, tuple(labels), options or {})


def task_of(data: Dataset, options: Mapping[str, Any] | None = None) -> TaskType:
    """Return the type that serves the task of `data`; args and errors as in `task_for`."""
    labels = () if data.labels is None else data.labels.names
    return task_for(data.task.name, labels, options).of_data(data)


def task_for_head(
    head: str,
    labels: Sequence[str],
    problem: Problem,
    options: Mapping[str, Any],
    *,
    images: bool = False,
) -> TaskType:
    """Return the task type of a model whose task is unknown, from its head, labels and problem, and
    whether it reads images.

    Raises:
        UsageError: there is no such task type.
    """
    for _, task, kind in _types():
        task_type = kind(task, tuple(labels), options)
        kinds = task_type.head, task_type.problem, task_type.reads_images
        if kinds == (head, problem, images):
            return task_type
    raise UsageError("no task type has this head", found=f"{head}, {problem}")


def task_for_vectors(options: Mapping[str, Any]) -> TaskType:
    """Return the task type that embeds a single text."""
    return next(kind(task, (), options) for _, task, kind in _types() if kind.alone)


def task_for_writing(options: Mapping[str, Any]) -> TaskType:
    """Return the task type that generates a text for a text."""
    declared = _types(declared_only=True)
    return next(kind(task, (), options) for _, task, kind in declared if kind.writes)


def _types(*, declared_only: bool = False) -> Iterator[tuple[str, str, type[TaskType]]]:
    """Yield (module, task, type) of all tasks that modules declare, or serve for others."""
    for name in catalogue.names(TASKS):
        module = catalogue.load(TASKS, name)
        for shape in getattr(module, "SHAPES", ()):
            yield module.__name__, shape.name, module.TYPE
        served = {} if declared_only else getattr(module, "SERVES", {})
        for task, kind in served.items():
            yield module.__name__, task, kind
