"""Predictions of a fine-tuned model (for files: file.py).

    load(folder).predict(["a text", …])  ->  [{"label": "good", "score": 0.93}, …]

Order is kept whatever is read together. Each answer has the shape that `pipeline` of the reference
library gives it.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from maskwright.ask.predict.inputs import examples
from maskwright.base.errors import CheckpointError, DataError, IncompatibleError, UsageError, near
from maskwright.base.findings import Finding, Note, ignore
from maskwright.base.terminal import shell_word
from maskwright.learn.finetune import learner
from maskwright.learn.tasks.base import sentence_transformers_folder
from maskwright.learn.tasks.base.choices import (
    HIERARCHICAL,
    LONG,
    POOLINGS,
    LongText,
    require_long_text,
)
from maskwright.learn.tasks.base.encode import Frame, asking, collation_of, frame_of, room
from maskwright.learn.tasks.base.task_type import (
    LOGIT,
    TWO_TEXTS,
    UNTOLD,
    Encoded,
    Extent,
    Outputs,
    TaskType,
    task_for,
    task_for_head,
    task_for_vectors,
    task_for_writing,
)
from maskwright.model.checkpoint.fine_tuned import COPY, TASK, TaskRecord, require_agreement
from maskwright.model.inference.encoded import Collation
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.inference.scores import require_finite
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.objectives.supervised import PROBLEM_TYPES, Problem
from maskwright.model.opening import generation_settings
from maskwright.model.opening.model import Model
from maskwright.model.opening.open import open_model
from maskwright.text.tables.column_contents import is_empty, joined_or_whole
from maskwright.text.tables.shapes import may_be_joined
from maskwright.text.tokenizer.training.sample import not_unicode


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 1


def _is_range(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(map(_is_number, value))
        and (value[0] < value[1])
    )


KNOWN: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("low", "high", "usual"), (_is_number, "a number")),
    **dict.fromkeys(("prompt", "measure", "missing", "key"), (_is_text, "a text")),
    **dict.fromkeys(("beams", "longest"), (_is_count, "1 or more")),
    "pooling": (lambda value: value in list(POOLINGS), ", ".join(POOLINGS)),
    "scale": (_is_range, "two numbers, the lower first"),
    "step": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "threshold": (lambda value: value is None or _is_number(value), "a number"),
}


def require_known_options(task: TaskRecord, path: Path) -> None:
    """Refuse settled options of `task.json` that no release has written.

    Raises:
        CheckpointError: naming the option.
    """
    for name, value in task.settled.items() if task.format == 1 else ():
        fits, expected = KNOWN.get(name, (None, near(name, KNOWN)))
        if fits is None or not fits(value):
            raise CheckpointError(
                "the option is unknown" if fits is None else "the option's value does not fit",
                where=f"{path}: settled.{name}",
                found=repr(value)[:80],
                wanted=expected,
                do=COPY,
            )


OnBad = Literal["strict", "skip"]  # as of files
PORTION = 2048  # examples that are read, encoded and answered together
Answer = Any


class BasePredictor(ABC):
    """Predicts examples, a portion at a time."""

    task_type: TaskType
    columns: Mapping[str, Sequence[str]]

    @property
    @abstractmethod
    def findings(self) -> Sequence[Finding]:
        """Findings about its answers."""

    @abstractmethod
    def with_long_texts(self, long: LongText) -> Self:
        """A copy that cuts texts longer than the model reads as in training, reads them in windows,
        or refuses them.

        Raises:
            UsageError: another word for `long`.
        """

    @abstractmethod
    def answer(
        self, rows: Sequence[Any], top: int | None = None, note: Note = ignore
    ) -> tuple[list[Answer], Extent]:
        """An answer for each example in the form of the task type, or the `top` best answers, and
        how much of each example was read. `note` gets a finding about texts that were cut.

        Raises:
            DataError: a text is longer than the model reads, and may not be cut.
        """

    @abstractmethod
    def with_columns(self, columns: Mapping[str, Sequence[str]]) -> Self:
        """A copy that reads these columns of a file, by role."""

    @abstractmethod
    def extent(self, rows: Sequence[Any]) -> Extent:
        """How much of each example would be read."""

    def answers(
        self, rows: Sequence[Any], top: int | None = None, note: Note = ignore
    ) -> list[Answer]:
        """The answers of `answer`."""
        return self.answer(rows, top, note)[0]

    def predict(
        self,
        given: Iterable[Any],
        *,
        top: int | None = None,
        on_bad: OnBad = "strict",
        note: Note = ignore,
    ) -> list[Answer]:
        """An answer for each text, or for each tuple or mapping of texts, in their order; a text or
        a mapping of texts by itself is one example. A mapping has the names of the roles, or those
        that the columns of the training data had. A mapping of lists, or a table of pandas, polars,
        pyarrow or datasets, is read by its columns of these names; others are not read.

        Args:
            given: as above.
            top: give a list of the best so many answers for each, the best first.
            note: gets what was cut, or is unknown to the tokenizer.
            on_bad: with "skip" the answer to an example that cannot be read, such as an empty text,
                is None; with "strict" it is refused.

        Raises:
            DataError: an example that is empty, or of another shape than the model was trained on;
                a table without the columns that are read.
            UsageError: another word for `on_bad`; the path of a file; a set, which has no order.
        """
        if on_bad not in get_args(OnBad):
            raise UsageError(
                "the handling of bad examples is unknown",
                where="on_bad",
                found=repr(on_bad),
                wanted=near(str(on_bad), get_args(OnBad)),
            )
        values = examples(given, self.columns, self._other_names)
        rows = (self._tried(v, f"example {n}", on_bad) for n, v in enumerate(values, start=1))
        return list(
            itertools.chain.from_iterable(
                self._answered(portion, top, note) for portion in portions(rows)
            )
        )

    def windows(self, given: Iterable[Any]) -> list[int]:
        """In how many windows each example is read; args and errors as `predict`."""
        values = examples(given, self.columns, self._other_names)
        rows = (self._tried(v, f"example {n}", "strict") for n, v in enumerate(values, start=1))
        counts = (self.extent(portion).windows.tolist() for portion in portions(rows))
        return list(itertools.chain.from_iterable(counts))

    @property
    def _other_names(self) -> set[str]:
        """Further names that a column of examples may have."""
        names = {
            *self.task_type.roles,
            *self.task_type.beside,
            *filter(None, [self.task_type.alone]),
        }
        return names | (TWO_TEXTS if self.task_type.head == "sequence" else set())

    def _answered(self, portion: list[Any], top: int | None, note: Note) -> Iterator[Answer]:
        """An answer to each row of the part, None to None."""
        readable = [row for row in portion if row is not None]
        answers = iter(self.answers(readable, top, note) if readable else ())
        yield from (None if row is None else next(answers) for row in portion)

    def _tried(self, value: Any, where: str, on_bad: OnBad) -> Any:
        """The example that a value stands for; None for a bad one that is passed over."""
        try:
            return self.row(value, where)
        except DataError as error:
            if on_bad == "skip":
                return None
            raise error.advising(
                'correct it, or pass it over (on_bad="skip"): its answer is then None'
            ) from None

    def row(self, value: Any, where: str) -> Any:
        """The example that a value stands for, as the task reads it.

        Raises:
            DataError: it is none.
        """
        if isinstance(value, Mapping):
            two = self.task_type.options.get(UNTOLD) and value.keys() >= TWO_TEXTS
            value = value if two else self._renamed(value)
        _require_unicode(list(value.values()) if isinstance(value, Mapping) else value, where)
        return self.task_type.of_value(value, where)

    def _renamed(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """By role, where the keys are the columns that were learned from; of several columns that
        fill a role together, the last may be missing or empty."""
        by_role: dict[str, Any] = {}
        for role, names in self.columns.items():
            cells = [value.get(name) for name in names]
            while len(cells) > 1 and is_empty(cells[-1]):
                cells.pop()
            if may_be_joined(role) and len(names) > 1 and not value.keys().isdisjoint(names):
                by_role[role] = joined_or_whole(cells)
            elif names[0] not in value:
                return value
            else:
                by_role[role] = cells[0] if len(names) == 1 else cells
        return by_role


def _require_unicode(value: Any, where: str) -> None:
    """Refuse half of a surrogate pair, which no tokenizer takes, naming the example."""
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise not_unicode(error, where) from error
    elif isinstance(value, Mapping):
        _require_unicode(list(value.values()), where)
    elif isinstance(value, list | tuple):
        for element in value:
            _require_unicode(element, where)


@dataclass(frozen=True)
class Predictor(BasePredictor):
    """A fine-tuned model with the encoding of its inputs.

    Attributes:
        columns: the columns of a file that are read, by role.
        targets: the columns of the training data that are predicted, by role.
        values: the numbers that encoded the labels there; None: the labels stood there themselves.
        separator: between several labels in a cell there; None: no cells had several.
        findings: about how texts are read.
        network: gives the network, prepared once for all who have it; weights that were laid out
            are freed in `model`.
        path: the folder of the weights, and `hashes` of the files that were compared there.
    """

    model: Transformer
    network: Callable[[], Prepared]
    task_type: TaskType
    frame: Frame
    collation: Collation
    columns: dict[str, Sequence[str]]
    targets: dict[str, Sequence[str]] = field(default_factory=dict)
    values: Sequence[int] | None = None
    separator: str | None = None
    findings: Sequence[Finding] = ()
    path: Path | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)

    def with_long_texts(self, long: LongText) -> Self:
        require_long_text(long)
        return (
            self if long == self.frame.too_long else replace(self, frame=asking(self.frame, long))
        )

    def with_columns(self, columns: Mapping[str, Sequence[str]]) -> Self:
        return replace(self, columns=dict(columns))

    def extent(self, rows: Sequence[Any]) -> Extent:
        extent = self.task_type.encode(rows, self.frame).extent
        assert extent is not None
        return extent

    def answer(
        self, rows: Sequence[Any], top: int | None = None, note: Note = ignore
    ) -> tuple[list[Answer], Extent]:
        encoded, outputs = self._outputs(rows, note)
        assert encoded.extent is not None
        return list(answers_of(self.task_type, encoded, outputs, top)), encoded.extent

    def vectors(self, texts: Sequence[str], note: Note = ignore) -> NDArray[np.float32]:
        """(N, D) float32: the vector of each text by itself, of a task that makes vectors."""
        vectors = []
        rows = (
            self.task_type.of_value({self.task_type.alone: t}, f"example {n}")
            for n, t in enumerate(texts, start=1)
        )
        for portion in portions(rows):
            merged = self.task_type.merged(*self._outputs(portion, note))
            vectors.append(np.asarray(merged, np.float32))
        return np.concatenate(vectors)

    def _outputs(self, rows: Sequence[Any], note: Note) -> tuple[Encoded, Outputs]:
        """The encoded rows, and the outputs of the model."""
        encoded = self.task_type.encode(rows, self.frame)
        for finding in encoded.findings:
            note(finding)
        outputs = self._read(encoded)
        require_finite(outputs, encoded.examples, self.path)
        return encoded, outputs

    @cached_property
    def objective(self) -> Objective:
        """What is asked, above the prepared network; with the examples of an `Encoded` and
        `collation` it is what `model/inference/together.py` takes."""
        network: Any = self.network()
        return learner.objective_of(network, self.task_type, self.frame)

    @cached_property
    def _read(self) -> Callable[[Encoded], Outputs]:
        return self.reader(self.task_type)

    def reader(self, task_type: TaskType) -> Callable[[Encoded], Outputs]:
        """A function from rows that `task_type` encoded to scores, or to generated texts."""
        network: Any = self.network()
        return learner.reader(network, task_type, self.frame, self.collation)


def answers_of(
    task_type: TaskType, encoded: Encoded, outputs: Outputs, top: int | None
) -> Iterator[Answer]:
    """The answers of a task type from the outputs of a model: one each, or the `top` best.

    Raises:
        UsageError: fewer than one, or a task with one answer only.
    """
    if top is None:
        return task_type.as_pipeline(encoded, outputs)
    if isinstance(top, bool) or not isinstance(top, Integral) or top < 1:
        raise UsageError("no answer to give", where="--top", found=repr(top), wanted="1 or more")
    return task_type.ranked(encoded, outputs, int(top))


def load(folder: Path | str, *, base: Path | str | None = None) -> Predictor:
    """The fine-tuned model in `folder`: what `finetune` wrote, a model folder with one head, one of
    sentence-transformers, whose vectors are given as that library makes them, or an adapter of
    `peft`, which is opened on its base.

    Args:
        base: the folder of an adapter's base; None: the one that the adapter names.

    Raises:
        UsageError: no such folder.
        CheckpointError: a fine-tuning that is not finished, or whose `task.json` is damaged or does
            not fit the model.
        IncompatibleError: a model without a head, or a tokenizer.
    """
    return predictor(open_model(folder, base=base))


def predictor(loaded: Model) -> Predictor:
    """The predictor of the task that an opened model was trained for.

    Raises:
        CheckpointError: `task.json` does not fit the model.
        IncompatibleError: a model without a task, or without a tokenizer.
    """
    path, findings, adapter = loaded.path, list(loaded.findings), loaded.is_adapter
    heads = loaded.config.heads
    record = loaded.task
    bare = record is None and not heads and not adapter
    sentence_folder = sentence_transformers_folder.read(path) if bare else None
    findings += [] if sentence_folder is None else sentence_folder.findings()
    writes = bare and sentence_folder is None and loaded.writes_for_texts
    asked_for = record is not None or sentence_folder is not None or writes or len(heads) == 1
    if loaded.words is None or not asked_for:
        raise IncompatibleError(
            "this model was not fine-tuned for a task",
            where=path,
            found=", ".join(f"a {h.kind} head" for h in heads) or "no head",
            wanted="one head, or what sentence-transformers writes of vectors, and a tokenizer",
            do=f"fine-tune it first: maskwright finetune {shell_word(path)} --data FILE",
        )
    task: dict[str, Any] = {"length": loaded.config.longest or TaskType.longest}
    if record is not None:
        task_type = _task_type_of_record(record, loaded, loaded.home / TASK)
        task |= {name: value for name, value in vars(record).items() if value is not None}
    elif sentence_folder is not None:
        task_type = sentence_transformers_folder.task_of_folder(
            sentence_folder, loaded.tokenizer, loaded.config.width
        )
        task["length"] = sentence_folder.length or task["length"]
        task["columns"] = {task_type.alone: (task_type.alone,)}
    elif writes:
        settings = generation_settings.read(path, loaded.extra)
        options = generation_settings.options(settings, loaded.tokenizer.vocabulary_size)
        task_type = task_for_writing(options)
        findings = [finding for finding in findings if finding.name != generation_settings.FINDING]
        findings += generation_settings.findings(settings, follows=True)
    else:
        problems = {theirs: ours for ours, theirs in PROBLEM_TYPES.items()}
        labels = loaded.about.labels or tuple(f"LABEL_{i}" for i in range(heads[0].labels))
        one_score = heads[0].kind == "sequence" and heads[0].labels == 1
        default_problem: Problem = "number" if one_score else "single"
        if heads[0].over is not None:
            task["long"] = HIERARCHICAL
        problem = problems.get(loaded.about.problem_type or "", default_problem)
        if problem == "number" and not one_score:
            raise IncompatibleError(
                "the model predicts more than one number",
                where=path,
                found=", ".join(labels),
                wanted="one number, or classes",
                do="fine-tune it for one of them, or use the library that made it",
            )
        # One score is how likely something is, as `pipeline` has it, unless it is called a number.
        logit = problems.get(loaded.about.problem_type or "") != "number"
        if heads[0].kind == "sequence":
            activation, most = sentence_transformers_folder.read_head(path, loaded.extra)
            task["length"] = most or task["length"]
            logit = activation == "Sigmoid" if activation else logit
            if activation and not one_score:
                change = (
                    f"sentence-transformers gives the scores of this folder through {activation}"
                )
                shares = "here they are shares of 1, as of transformers"
                findings.append(Finding("scores-as-shares", change, shares))
        problem = "number" if one_score and problem == "single" else problem
        options = {UNTOLD: True, LOGIT: one_score and logit}
        task_type = task_for_head(heads[0].kind, labels, problem, options)
        if task_type.head == "span":  # which reads longer texts in windows
            task["length"] = min(task["length"], task_type.longest)
    collation = collation_of(loaded.config, loaded.tokenizer, loaded.extra)
    length = room(loaded.config, int(task["length"]), loaded.positions)
    # What another library trained is asked as that library asks it.
    words = loaded.tokenizer if record is not None else loaded.tokenizer.as_declared()
    frame = frame_of(loaded.config, words, length, task.get("long", "head"))
    pad = loaded.extra.get("pad_token_id")
    if record is None and loaded.config.encoder is None and type(pad) is int:
        frame = replace(frame, unread=pad)
    return Predictor(
        loaded.network,
        laid_out_once(loaded.network),
        task_type,
        frame,
        replace(collation, alone=loaded.positions > 0),
        task.get("columns") or {role: (role,) for role in task_type.roles},
        task.get("targets", {}),
        task.get("values"),
        task.get("separator"),
        findings,
        loaded.path,
        loaded.hashes,
    )


def laid_out_once(network: Transformer) -> Callable[[], Prepared]:
    """A function that returns the prepared network, which is made at the first call."""
    return functools.cache(lambda: prepare(network, give_up=True))


def of_vectors(model: Model, pooling: str) -> Predictor:
    """The predictor of vectors of a model that was not trained for them: `pooling` over the states
    of its last layer, at length 1.

    Raises:
        IncompatibleError: the model has no tokenizer, or cannot be pooled so.
    """
    task_type = task_for_vectors({"pooling": pooling})
    length = room(model.config, model.config.longest or TaskType.longest, model.positions)
    collation = collation_of(model.config, model.tokenizer, model.extra)
    return Predictor(
        model.network,
        laid_out_once(model.network),
        task_type,
        frame_of(model.config, model.tokenizer, length, "head"),
        replace(collation, alone=model.positions > 0),
        {task_type.alone: (task_type.alone,)},
    )


def _task_type_of_record(record: TaskRecord, loaded: Model, path: Path) -> TaskType:
    """The task type in `task.json`, if it fits the model.

    Raises:
        CheckpointError: it does not.
    """

    def refuse(fault: str, field: str, value: object, expected: object = None) -> CheckpointError:
        where = f"{path}: {field}"
        return CheckpointError(fault, where=where, found=value, wanted=expected, do=COPY)

    try:
        task_type = task_for(record.kind, record.labels, record.settled)
    except UsageError as error:
        raise refuse(error.what, "kind", error.found, error.wanted) from error
    if record.long not in LONG:
        fault = "the handling of long texts is unknown"
        raise refuse(fault, "long", repr(record.long), near(record.long, LONG))
    require_known_options(record, path)
    head = loaded.config.heads[0] if len(loaded.config.heads) == 1 else None
    if (None if head is None else head.kind) != task_type.head:
        expected_task = "a task for " + ("no head" if head is None else f"its {head.kind} head")
        fault = "the model's head is not the one of its task"
        raise refuse(fault, "kind", record.kind, expected_task)
    if (head is not None and head.over is not None) is not (record.long == HIERARCHICAL):
        fault = "the handling of long texts is not the one that the model was made for"
        raise refuse(fault, "long", record.long)
    if head is not None:
        require_agreement(record, loaded.about.labels, head.kind, head.labels, path)
    problem = loaded.about.problem_type
    if task_type.head == "sequence" and problem not in (None, PROBLEM_TYPES[task_type.problem]):
        fault = "the task is not the one that the model was made for"
        raise refuse(fault, "kind", record.kind, problem)
    return task_type


def portions(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """`rows` in lists of at most `PORTION`."""
    remaining = iter(rows)
    while portion := list(itertools.islice(remaining, PORTION)):
        yield portion
