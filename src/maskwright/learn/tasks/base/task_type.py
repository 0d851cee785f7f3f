"""The interface of task types: encoding of rows, head, predictions, metrics and baselines.

    rows of labelled/  --encode-->  Examples  --a model-->  scores  --answers-->  figures, answers

Every module of `tasks/` is one task type: `SHAPES` are the tasks that it declares, with the layout
of their data; `SERVES` names tasks of other modules that it can solve, too; `TYPE` is its class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from maskwright.base import catalogue
from maskwright.base.counted import counted
from maskwright.base.errors import DataError, UsageError
from maskwright.base.findings import Finding
from maskwright.base.metrics import metrics
from maskwright.base.metrics.intervals import Estimate
from maskwright.base.report.tables import Table
from maskwright.base.report.wording import figure
from maskwright.learn.tasks.base.choices import Long
from maskwright.learn.tasks.base.encode import Frame
from maskwright.model.inference.encoded import Collation, EncodedExamples
from maskwright.model.objectives.supervised import Options, Problem
from maskwright.text.tables.column_contents import is_empty, text_in
from maskwright.text.tables.layout import Dataset, Shape
from maskwright.text.tables.rows import Row
from maskwright.text.tables.shapes import ROOM, shape_of
from maskwright.text.tokenizer.unknown import OTHER_MODEL


def classes_table(figures: Sequence[metrics.ClassFigures], note: str) -> Table:
    """Return a table of precision, recall and F1 by class; a dash where one is undefined."""
    return {
        "title": "Class by class",
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


if TYPE_CHECKING:
    from maskwright.model.inference.beam import Steps
    from maskwright.model.nn.config import ChunkPooling
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Objective, Vocabulary

# Options for a folder whose task is unknown: it accepts one text or two (UNTOLD); its single score
# is a logit, not a number (LOGIT).
UNTOLD, LOGIT = "untold", "logit"
ONE_SIDED = "one-sided-answers"
SECOND = "text_pair"
TWO_TEXTS = {"text", SECOND}  # keys of a text pair for `pipeline`

Scores = NDArray[np.float32]
Outputs = NDArray[Any]  # scores, or texts
Answers = Sequence[Any] | NDArray[Any]  # one for each row


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
class Mistake:
    """A row with a wrong prediction: its location in a file, text, label, prediction and error (see
    `TaskType.wrongness`)."""

    where: str
    text: str
    label: str
    predicted: str
    weight: float


@dataclass(frozen=True)
class TaskType(ABC):
    """A task: how rows are encoded, trained on, decoded into answers and evaluated.

    Attributes:
        task: the name of a shape.
        labels: names of the classes in order, where there are classes.
        options: what the user or the validation data chose, JSON values by name.
    """

    head: ClassVar[Literal["sequence", "token", "span", "choice"] | None]
    # Whether the model generates its answers, token by token.
    writes: ClassVar[bool] = False
    # Number of leading rows in which mistakes are looked for; None: all.
    judged: ClassVar[int | None] = None
    # The role of a single text, where the task is trained on two texts but predicts for one.
    alone: ClassVar[str] = ""
    # Default maximum number of tokens of a text.
    longest: ClassVar[int] = 512

    task: str
    labels: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def problem(self) -> Problem:
        """The kind of the labels: one class, several classes or a number."""
        return "single"

    @property
    def rivals(self) -> bool:
        """Whether the other examples of a step serve as negatives."""
        return False

    @property
    def num_outputs(self) -> int:
        """Number of outputs of the head."""
        return max(1, len(self.labels))

    @property
    def wrongness(self) -> str:
        """Name of the quantity in `Mistake.weight`."""
        return "how sure"

    @property
    @abstractmethod
    def pipeline(self) -> str:
        """The pipeline tag of the task on the Hugging Face hub."""

    @property
    def decoding(self) -> dict[str, Any]:
        """The settings besides head, problem and labels that turn scores into answers: JSON values
        by name, for programs that compute the answers elsewhere."""
        return {}

    @property
    def shape(self) -> Shape:
        """The layout of the data and the metrics of the task."""
        return shape_of(self.task)

    @property
    def roles(self) -> tuple[str, ...]:
        """The input roles of a row: all roles of its layout but the predicted one."""
        layout = self.shape.layout
        return tuple(role for role in layout.roles if role != layout.learned)

    @property
    def beside(self) -> tuple[str, ...]:
        """Optional input roles."""
        return ()

    @property
    def measures(self) -> tuple[str, ...]:
        """Names of the metrics, the default first."""
        return self.shape.metrics

    @property
    def choosable(self) -> tuple[str, ...]:
        """The metrics by which an epoch can be selected; higher is better."""
        ours = (name for name in self.shape.choosable if name in self.measures)
        return (*ours, *self.shape.selectable)

    @property
    def measure(self) -> str:
        """The metric that selects epoch and seed: "measure" of `options`, or the default."""
        return str(self.options.get("measure", self.measures[0]))

    def objective(
        self, model: Transformer, vocabulary: Vocabulary, long: Long = "head"
    ) -> Objective:
        """The objective around `model`; `long` as in a `Frame`."""
        from maskwright.model.objectives.modules.supervised import Supervised

        pooling: ChunkPooling = "max" if long == "vectors-max" else "mean"
        return Supervised(model, Options(problem=self.problem, pieces=pooling), vocabulary)

    def training_objective(
        self, model: Transformer, vocabulary: Vocabulary, long: Long, train: Encoded
    ) -> Objective:
        """Return the objective for training on `train`; `after_training` is called at its end."""
        return self.objective(model, vocabulary, long)

    def after_training(self, model: Transformer, train: Encoded) -> None:
        """Convert `model`, trained on `train` by `training_objective`, into one for
        `objective`."""
        return

    def outputs(self, objective: Objective, encoded: Encoded, collation: Collation) -> Outputs:
        """The outputs of the model for `encoded` rows."""
        from maskwright.model.inference.scores import ScoringObjective, scores

        assert isinstance(objective, ScoringObjective)
        return scores(objective, encoded.examples, collation)

    def steps(self, objective: Objective, encoded: Encoded, collation: Collation) -> Steps[Outputs]:
        """`outputs` as a generator that can be abandoned between decoding steps."""
        yield from ()
        return self.outputs(objective, encoded, collation)

    def continues(self, labels: Sequence[str]) -> bool:
        """Whether training can continue from a head with these `labels`."""
        return not self.labels or tuple(labels) == self.labels

    def of_data(self, data: Dataset) -> Self:
        """The task type with the options that follow from column names or labels of `data`."""
        return self

    def files(self, frame: Frame, width: int) -> dict[str, str]:
        """Further text files of the model folder, by path, for programs that load such a model."""
        return {}

    # ------------------------------------------------------------------------ encoding
    def encode(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        """Encode rows as ids with special tokens.

        Raises:
            DataError: a row cannot be encoded, or is too long if `frame` forbids truncation.
        """
        counting, unknown = frame.tokenizer.counting()
        encoded = self._encoded(rows, replace(frame, tokenizer=counting))
        if encoded.extent is None:  # a task type that does not compute it
            encoded = replace(encoded, extent=Extent.whole(encoded.examples, len(rows)))
        assert encoded.extent is not None
        if frame.refuses:
            self._require_whole(encoded, encoded.extent, frame)
        examples = encoded.examples
        if frame.unread is not None and examples.places is None and len(rows):
            examples = examples.without_end(frame.unread)
        findings = (*encoded.findings, *unknown.findings(OTHER_MODEL))
        return replace(encoded, examples=examples, findings=findings)

    def _require_whole(self, encoded: Encoded, extent: Extent, frame: Frame) -> None:
        """Check that no row is truncated.

        Raises:
            DataError: with the first such row.
        """
        for number in np.flatnonzero(extent.cut)[:1].tolist():
            do = 'shorten it, or let its end be cut: long="as_trained"'
            if not frame.in_windows and not self.writes:
                do = f'{do}, or read it in windows: long="windows"'
            raise DataError(
                "the text is longer than the model reads",
                where=encoded.rows[number].where,
                found=f"{int(extent.cut[number]):,} tokens too many",
                wanted=f"at most {frame.length:,} tokens, special tokens among them",
                do=do,
            )

    @abstractmethod
    def _encoded(self, rows: Sequence[Any], frame: Frame) -> Encoded:
        """`encode` without the checks of `frame` and of unknown characters."""

    @abstractmethod
    def example(self, values: Sequence[Any], where: str) -> Any:
        """Return an example without a label from the values of the `roles`.

        Raises:
            DataError: a value has another type.
        """

    @property
    def counts_places(self) -> bool:
        """Whether answers hold character offsets into the text as given."""
        return False

    def of_row(self, row: Row, columns: Mapping[str, Sequence[str]]) -> Any:
        """Return an example without a label from a row of a file; `columns`: names by role.

        Raises:
            DataError: a value is missing or has another type.
        """
        row = row.as_given() if self.counts_places else row
        return self.example([text_in(row, columns[role]) for role in self.roles], row.where)

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
        """The inverse of `of_value`, as a JSON value: a text, or a list.

        Raises:
            UsageError: examples of this task cannot be sent to a server.
        """
        raise UsageError("rows of this task cannot be sent to a server", found=self.task)

    # ------------------------------------------------------------------------ decoding
    def merged(self, encoded: Encoded, outputs: Outputs) -> Outputs:
        """`outputs` with the windows of each row combined; unchanged for task types that predict
        positions or generate text."""
        return outputs

    @abstractmethod
    def answers(self, encoded: Encoded, outputs: Outputs) -> Answers:
        """Return an answer for each row."""

    @abstractmethod
    def measured(self, rows: Sequence[Any], answers: Answers) -> dict[str, float]:
        """The values of `measures`; NaN where one is not defined."""

    @abstractmethod
    def estimated(self, rows: Sequence[Any], answers: Answers) -> dict[str, Estimate]:
        """The values of `measures` with 95 % intervals."""

    @abstractmethod
    def as_pipeline(self, encoded: Encoded, outputs: Outputs) -> Iterator[Any]:
        """An answer for each row as `pipeline` of transformers gives it."""

    def answer_form(self, example: Any, ranked: bool = False) -> Any:
        """Return the form of an answer of `as_pipeline` or `ranked`, to check answers from other
        processes: a type, the possible values, a list with the form of its items, or a mapping with
        the form of each value; None: any."""
        return None

    def scores(self, encoded: Encoded, outputs: Outputs, *, raw: bool = False) -> Scores:
        """Return the probability (N, L) of each label, or with `raw` its logit.

        Raises:
            UsageError: the task has no scores of whole rows.
        """
        raise UsageError(
            "such a model gives no score for each label", found=self.task, do="ask it to predict"
        )

    def one_sided(self, rows: Sequence[Any], answers: Answers) -> Finding | None:
        """Return a warning if the answers to all `rows` are the same and not all of them correct,
        which a good metric may hide; else None."""
        return None

    def by_class(self, rows: Sequence[Any], answers: Answers) -> Table | None:
        """Return a table of precision, recall and F1 by class; None if there are no classes."""
        return None

    def confusion(self, rows: Sequence[Any], answers: Answers) -> NDArray[np.int64] | None:
        """The confusion matrix (L, L), true label by predicted label, if the task has one."""
        return None

    def mistakes(self, encoded: Encoded, outputs: Outputs) -> list[Mistake]:
        """Return the rows with wrong predictions, the worst first."""
        return []

    def ranked(self, encoded: Encoded, outputs: Outputs, top: int) -> Iterator[list[Any]]:
        """The best `top` answers for each row, the best first, as `pipeline` gives them with
        `top_k`.

        Raises:
            UsageError: the task has only one answer for each row.
        """
        description = f"{self.task}, text to text" if self.writes else self.task
        raise UsageError(
            "such a model has one answer for each row",
            where="--top",
            found=description,
            do="ask without it",
        )

    def calibrate(self, encoded: Encoded, outputs: Callable[[], Outputs]) -> Self:
        """The task type with the options that are chosen on validation data, such as a threshold;
        `outputs` computes the model's outputs for these data, which may take a while."""
        return self

    def decoded(self, encoded: Encoded, read: Callable[[Self], Outputs]) -> Self:
        """The task type with the decoding options that are chosen on validation data; `read`
        computes the model's outputs for these data with given options."""
        return self

    def baselines(self, data: Dataset, eval_part: str) -> list[tuple[str, Answers]]:
        """(name, answers) of baselines without pretraining, for the part `eval_part`."""
        return []

    def with_options(self, values: Mapping[str, Any]) -> Self:
        """The task type with these options set."""
        return replace(self, options={**self.options, **values})


def alike(
    truth: NDArray[Any], answers: Answers, name: Callable[[Any], str], unit: str = "row"
) -> Finding | None:
    """Implement `TaskType.one_sided` for answers that can be compared with `truth` as arrays.

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


def task_for(
    task: str, labels: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> TaskType:
    """Return the type that serves `task`. If a task can be solved with a head or by generating
    text, a "prompt" in `options` selects the latter.

    Raises:
        UsageError: no type serves it, or several do.
    """
    shape_of(task)  # raises if no module declares it
    modules = [catalogue.load(ROOM, name) for name in catalogue.names(ROOM)]
    serving = [module for module in modules if task in _served(module)]
    as_text = "prompt" in (options or {})
    fitting = [module for module in serving if module.TYPE.writes == as_text] or serving
    if len(fitting) > 1:
        raise UsageError(
            "two modules for one task",
            where=f"maskwright.{ROOM}",
            found=task,
            wanted="one of " + ", ".join(module.__name__ for module in fitting),
            do="uninstall the package that brings the other",
        )
    task_type: TaskType = fitting[0].TYPE(task, tuple(labels), options or {})
    return task_type


def task_for_head(
    head: str, labels: Sequence[str], problem: Problem, options: Mapping[str, Any]
) -> TaskType:
    """Return the task type of a model whose task is unknown, from its head, labels and problem.

    Raises:
        UsageError: there is no such task type.
    """
    for name in catalogue.names(ROOM):
        module = catalogue.load(ROOM, name)
        if module.TYPE.head == head:
            for task in _served(module):
                task_type: TaskType = module.TYPE(task, tuple(labels), options)
                if task_type.problem == problem:
                    return task_type
    raise UsageError("no task type has this head", found=f"{head}, {problem}")


def task_for_vectors(options: Mapping[str, Any]) -> TaskType:
    """Return the task type that embeds a single text."""
    return _first(lambda module: bool(module.TYPE.alone), options)


def task_for_writing(options: Mapping[str, Any]) -> TaskType:
    """Return the task type that generates a text for a text."""
    return _first(lambda module: module.TYPE.writes and hasattr(module, "SHAPES"), options)


def _first(fits: Callable[[ModuleType], bool], options: Mapping[str, Any]) -> TaskType:
    modules = (catalogue.load(ROOM, name) for name in catalogue.names(ROOM))
    if (module := next(filter(fits, modules), None)) is None:
        raise UsageError("no task type is of this kind", where=f"maskwright.{ROOM}")
    task_type: TaskType = module.TYPE(_served(module)[0], (), options)
    return task_type


def _served(module: ModuleType) -> tuple[str, ...]:
    """Return the names of the tasks that a module declares, or serves for another module."""
    declared = tuple(shape.name for shape in getattr(module, "SHAPES", ()))
    return (*declared, *getattr(module, "SERVES", ()))
