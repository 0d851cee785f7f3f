"""The interface of task types: encoding of rows, head, predictions, metrics and baselines.

    rows of labelled/  --encode-->  Examples  --a model-->  scores  --answers-->  figures, answers

Every module of `tasks/` is one task type. `SHAPES` are the tasks that it declares, with what their
data look like; a module that serves tasks of another in its own way names them in `SERVES`. `TYPE`
is its class.
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
    """Precision, recall and F1 of each class; a dash where one is not defined."""
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
    from maskwright.model.inference.steps import Steps
    from maskwright.model.nn.config import ChunkPooling
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Objective, Vocabulary

# Of `options`, where a folder has a head and says no task: there may be one text or two; and its
# one score is a logit, not a number.
UNTOLD, LOGIT = "untold", "logit"
ONE_SIDED = "one-sided-answers"
SECOND = "text_pair"
TWO_TEXTS = {"text", SECOND}  # two texts as `pipeline` is given them

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
        """Of windows by how many ids they have (W,), the number of the text of each (W,), rising,
        the number of the row of each text (S,), rising, and what is cut of each text (S,).

        Args:
            rows: None: each text is a row.  cut: None: nothing is.
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
    """Rows of a task as a model reads them.

    Attributes:
        rows: as `tasks` gives them; prediction leaves their labels empty.
        findings: what did not fit, or the tokenizer does not know; empty where all
            was well.
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
    """A row that was answered wrongly: where it stands, the text, its label, what was predicted,
    and how wrong that is (see `TaskType.wrongness`)."""

    where: str
    text: str
    label: str
    predicted: str
    weight: float


@dataclass(frozen=True)
class TaskType(ABC):
    """One task, as a model learns and answers it.

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
        """`objective`, as it learns `train`; `after_training` ends it."""
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
        """Rows as ids in frames.

        Raises:
            DataError: a row that cannot be encoded, or one that would be cut where `frame` says
                that nothing may be left out.
        """
        counting, unknown = frame.tokenizer.counting()
        encoded = self._encoded(rows, replace(frame, tokenizer=counting))
        if encoded.extent is None:  # a task type that tells nothing of windows
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
        """Refuse rows of which something is cut.

        Raises:
            DataError: naming the first.
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
        """An example without a label from the values of the `roles`.

        Raises:
            DataError: values of another type.
        """

    @property
    def counts_places(self) -> bool:
        """Whether answers hold character offsets into the text as given."""
        return False

    def of_row(self, row: Row, columns: Mapping[str, Sequence[str]]) -> Any:
        """An example without a label from a row of a file; `columns` by role.

        Raises:
            DataError: a value that is missing or of another type.
        """
        row = row.as_given() if self.counts_places else row
        return self.example([text_in(row, columns[role]) for role in self.roles], row.where)

    def of_value(self, value: Any, where: str) -> Any:
        """An example without a label from what a program gives: a text, a tuple of the `roles`, or
        a mapping by role.

        Raises:
            DataError: something else.
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
            UsageError: examples of this task do not travel.
        """
        raise UsageError("rows of this task cannot be sent to a server", found=self.task)

    # ------------------------------------------------------------------------ decoding
    def merged(self, encoded: Encoded, outputs: Outputs) -> Outputs:
        """`outputs` with the windows of each row combined; unchanged for task types that predict
        positions or generate text."""
        return outputs

    @abstractmethod
    def answers(self, encoded: Encoded, outputs: Outputs) -> Answers:
        """An answer for each row."""

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
        """The form of the answer that `as_pipeline` gives to the example, or of one that `ranked`
        gives, to check answers from another process: a type, the values that there are, a list with
        the form of its items, or a mapping with that of each part; None: any."""
        return None

    def scores(self, encoded: Encoded, outputs: Outputs, *, raw: bool = False) -> Scores:
        """(N, L) the probability of each label, or with `raw` its score before that.

        Raises:
            UsageError: such a task has no scores of whole rows.
        """
        raise UsageError(
            "such a model gives no score for each label", found=self.task, do="ask it to predict"
        )

    def one_sided(self, rows: Sequence[Any], answers: Answers) -> Finding | None:
        """That the answers to all `rows` are one and the same though not all of them are right,
        which a good figure may hide; else None."""
        return None

    def by_class(self, rows: Sequence[Any], answers: Answers) -> Table | None:
        """Precision, recall and F1 of each class, where there are classes."""
        return None

    def confusion(self, rows: Sequence[Any], answers: Answers) -> NDArray[np.int64] | None:
        """The confusion matrix (L, L), true label by predicted label, if the task has one."""
        return None

    def mistakes(self, encoded: Encoded, outputs: Outputs) -> list[Mistake]:
        """The rows that were answered wrongly, the worst first."""
        return []

    def ranked(self, encoded: Encoded, outputs: Outputs, top: int) -> Iterator[list[Any]]:
        """The best `top` answers for each row, the best first, as `pipeline` gives them with
        `top_k`.

        Raises:
            UsageError: there is only one answer in such a task.
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
    """What `TaskType.one_sided` says of answers that can be compared with the `truth`, row by row.

    Args:
        truth, answers: (N,) or (N, L).
        name: of an answer, as it is shown.
        unit: what an answer is given to.
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
    """`value`, which has to be a text.

    Raises:
        DataError: it is none, or blank.
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
    """The type that serves `task`; where a head can answer it as well as written text, a "prompt"
    in `options` asks for text.

    Raises:
        UsageError: none does, or several do.
    """
    shape_of(task)  # refuses what no module declares
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
    """The task type of a model of which only the head is known, and what its folder says besides.

    Raises:
        UsageError: there is none.
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
    """The task type that embeds a single text."""
    return _first(lambda module: bool(module.TYPE.alone), options)


def task_for_writing(options: Mapping[str, Any]) -> TaskType:
    """The task type that generates a text for a text."""
    return _first(lambda module: module.TYPE.writes and hasattr(module, "SHAPES"), options)


def _first(fits: Callable[[ModuleType], bool], options: Mapping[str, Any]) -> TaskType:
    modules = (catalogue.load(ROOM, name) for name in catalogue.names(ROOM))
    if (module := next(filter(fits, modules), None)) is None:
        raise UsageError("no task type is of this kind", where=f"maskwright.{ROOM}")
    task_type: TaskType = module.TYPE(_served(module)[0], (), options)
    return task_type


def _served(module: ModuleType) -> tuple[str, ...]:
    """The tasks that a module declares, or serves in its own way."""
    declared = tuple(shape.name for shape in getattr(module, "SHAPES", ()))
    return (*declared, *getattr(module, "SERVES", ()))
