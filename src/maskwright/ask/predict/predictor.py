"""Predictions of a fine-tuned model (for files: file.py).

    load(folder).predict(["a text", …])  ->  [{"label": "good", "score": 0.93}, …]

Predictions keep the order of the examples, however these are batched, and have the form that
`pipeline` of the reference library returns.
"""

from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from maskwright.ask.predict.inputs import examples
from maskwright.base.config import require
from maskwright.base.errors import (
    CheckpointError,
    DataError,
    Finding,
    IncompatibleError,
    Note,
    UsageError,
    ignore,
    near,
)
from maskwright.base.terminal import shell_word
from maskwright.learn.finetune import learner
from maskwright.learn.tasks.base import sentence_transformers_folder
from maskwright.learn.tasks.base.bag_of_words import (
    BagOfWords,
    encode_words,
    latent_vectors,
)
from maskwright.learn.tasks.base.choices import (
    HIERARCHICAL,
    LONG,
    TASKS,
    LongText,
    require_choice,
)
from maskwright.learn.tasks.base.encode import Frame, collation_of, frame_of, room
from maskwright.learn.tasks.base.task_type import (
    ALL_PROBABILITIES,
    LEAST_PROBABILITY,
    LOGIT,
    THRESHOLDS,
    TWO_TEXTS,
    UNTOLD,
    Encoded,
    Extent,
    Outputs,
    TaskType,
    pipeline_answers,
    task_for,
    task_for_head,
    task_for_vectors,
    task_for_writing,
)
from maskwright.learn.tasks.base.text_generation import for_task
from maskwright.learn.tasks.base.zero_shot import HYPOTHESIS, zero_shot_task
from maskwright.model.checkpoint.fine_tuned import (
    COPY,
    MODEL,
    TASK,
    TaskRecord,
    read_task,
    require_agreement,
)
from maskwright.model.inference.encoded import Collation
from maskwright.model.inference.prepared import Prepared, prepare
from maskwright.model.inference.scores import ScoringObjective, require_finite
from maskwright.model.inference.together import ScoreRequest, scores_of_all
from maskwright.model.nn.transformer import Transformer
from maskwright.model.objectives.base.objective import Objective
from maskwright.model.objectives.supervised import PROBLEM_TYPES, Problem
from maskwright.model.opening import folders
from maskwright.model.opening.open import home_of, is_bag_of_words, open_model
from maskwright.model.opening.special_tokens import end_of_text
from maskwright.text.tables.cell_values import is_empty, joined_or_whole
from maskwright.text.tables.shapes import may_be_joined
from maskwright.text.tokenizer.training.sample import not_unicode


def require_thresholds(task: TaskRecord, path: Path) -> None:
    """Raise a `CheckpointError` if `task.json` has thresholds, but not one for each label."""
    thresholds = task.settled.get(THRESHOLDS)
    if thresholds is None:
        return
    are_numbers = isinstance(thresholds, list) and all(
        isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= 1
        for number in thresholds
    )
    if not are_numbers or len(thresholds) != len(task.labels):
        raise _mismatch(
            "the option's value does not fit",
            path,
            f"settled.{THRESHOLDS}",
            repr(thresholds)[:80],
            f"{len(task.labels)} numbers from 0 to 1",
        )


OnBad = Literal["strict", "skip"]  # as of files
PORTION = 2048  # examples that are read, encoded and predicted together
Answer = Any


class BasePredictor(ABC):
    """Base class of predictors, which process `PORTION` examples at a time."""

    task_type: TaskType
    columns: Mapping[str, Sequence[str]]

    @property
    @abstractmethod
    def findings(self) -> Sequence[Finding]:
        """Findings about the predictions."""

    @abstractmethod
    def with_long_texts(self, long: LongText) -> Self:
        """Return a copy that handles texts beyond the model's context as `long` says: as in
        training, in windows, or with an error. Raises a `UsageError` for other values."""

    def deciding(self, threshold: float | None = None, *, all_scores: bool = False) -> Self:
        """Return a copy that decides otherwise which labels it gives.

        Args:
            threshold: the probability below which a row gets no label (its `label` is None), or of
                several labels the one from which each is given, in place of those chosen on
                validation data; None: as trained.
            all_scores: add the probability of every label to each prediction, by label, as
                "probabilities".

        Raises:
            ConfigError: the threshold is no probability.
            UsageError: the task has no probabilities of labels.
        """
        if threshold is None and not all_scores:
            return self
        options: dict[str, Any] = {ALL_PROBABILITIES: all_scores}
        if threshold is not None:
            require("--threshold", threshold, 0.0, 1.0)
            options[LEAST_PROBABILITY] = threshold
        self.require_probabilities("--scores" if threshold is None else "--threshold")
        return self.with_task(self.task_type.with_options(options))

    def require_probabilities(self, where: str, labels: int = 1) -> None:
        """Raise a `UsageError` if the task has no probabilities of labels of whole texts, or of
        fewer than `labels` that exclude each other."""
        task_type = self.task_type
        too_few = task_type.problem != "multi" and len(task_type.labels) < labels
        if too_few or not task_type.scores_rows or task_type.problem == "number":
            raise UsageError(
                "the task has no probabilities of labels of whole texts, or too few labels",
                where=where,
                found=f"{task_type.task}, number of labels: {len(task_type.labels)}",
                wanted="classification of texts or pairs, or multi-label",
                do="leave it out",
            )

    def with_task(self, task_type: TaskType) -> Self:
        """Return a copy that answers as `task_type`; raises a `UsageError` if it cannot."""
        raise UsageError(
            "a server decides itself which labels it gives",
            where="--threshold, --scores",
            do="leave them out, or name a model folder",
        )

    @abstractmethod
    def answer(
        self, rows: Sequence[Any], top: int | None = None, note: Note = ignore
    ) -> tuple[list[Answer], Extent]:
        """Predict examples. Returns one prediction per example in the form of the task type (a list
        of the `top` best, if given), and how much of each example was read.

        Args:
            note: called with findings, such as that texts were truncated.

        Raises:
            DataError: a text exceeds the model's context and may not be truncated.
        """

    @abstractmethod
    def extent(self, rows: Sequence[Any]) -> Extent:
        """Return how much of each example `answer` would read."""

    def predict(
        self,
        given: Iterable[Any],
        *,
        top: int | None = None,
        on_bad: OnBad = "strict",
        note: Note = ignore,
    ) -> list[Answer]:
        """Predict examples and return the predictions in their order.

        Args:
            given: an iterable of texts, tuples or mappings of texts; or one text or mapping, which
                is one example. Keys are roles, or column names of the training data. A mapping of
                lists, or a table of pandas, polars, pyarrow or datasets, is read by its columns of
                these names; other columns are ignored.
            top: return a list of this many best predictions per example, the best first.
            note: called with findings about truncated texts and unknown words.
            on_bad: "skip" returns None for an example that cannot be read, such as an empty text;
                "strict" raises the error.

        Raises:
            DataError: an example is empty, or not of the form that the model was trained on; a
                table lacks columns that are read.
            UsageError: `on_bad` is neither; the input is a file path, or a set, which has no order.
        """
        require_choice(on_bad, get_args(OnBad), "on_bad")
        rows = portions(self.rows(given, on_bad))
        return [answer for portion in rows for answer in self._padded(portion, top, note)]

    def rows(self, given: Iterable[Any], on_bad: OnBad = "strict") -> Iterator[Any]:
        """Yield the examples of the task that `predict` reads; None for a bad one with "skip"."""
        values = examples(given, self.columns, self._other_names)
        return (self._example(v, f"example {n}", on_bad) for n, v in enumerate(values, start=1))

    def windows(self, given: Iterable[Any]) -> list[int]:
        """Return the number of windows each example is read in; errors as in `predict`."""
        rows = portions(self.rows(given))
        return [count for portion in rows for count in self.extent(portion).windows.tolist()]

    @property
    def _other_names(self) -> set[str]:
        """Column names that examples may have besides those of `columns`."""
        task_type = self.task_type
        names = {*task_type.roles, *task_type.optional_roles, task_type.alone} - {""}
        return names | (TWO_TEXTS if task_type.head == "sequence" else set())

    def _padded(self, portion: list[Any], top: int | None, note: Note) -> Iterator[Answer]:
        """Yield a prediction for each example of the portion, and None for each None."""
        readable = [row for row in portion if row is not None]
        answers = iter(self.answer(readable, top, note)[0] if readable else ())
        yield from (None if row is None else next(answers) for row in portion)

    def _example(self, value: Any, where: str, on_bad: OnBad) -> Any:
        """Return `row(value, where)`; None if that fails and `on_bad` is "skip"."""
        try:
            return self.row(value, where)
        except DataError as error:
            if on_bad == "skip":
                return None
            raise error.advising(
                'correct it, or pass it over (on_bad="skip"): its answer is then None'
            ) from None

    def row(self, value: Any, where: str) -> Any:
        """Convert an input value to an example of the task; raises a `DataError` that names `where`
        if it is not one."""
        if isinstance(value, Mapping):
            is_pair = self.task_type.options.get(UNTOLD) and value.keys() >= TWO_TEXTS
            value = value if is_pair else self._by_role(value)
        _require_unicode(list(value.values()) if isinstance(value, Mapping) else value, where)
        return self.task_type.of_value(value, where)

    def _by_role(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        """Rename the keys of an example from columns of the training data to roles; returns `value`
        itself if a column is missing. Where several columns are joined into one role, the last ones
        may be missing or empty."""
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
    """Raise a `DataError` that names `where` if a text contains a lone surrogate."""
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


@dataclass(frozen=True, kw_only=True)
class TaskPredictor(BasePredictor):
    """A model of one task. Its outputs can be turned into predictions, scores and metrics.

    Attributes:
        columns: the columns of a file that are read, by role.
        targets: the columns of the training data that are predicted, by role.
        values: the numbers that encoded the labels there; None: labels were written out.
        separator: between several labels in a cell there; None: cells had one label each.
        findings: about how texts are read.
        path: the folder of the weights, and `hashes` of its files that were compared.
    """

    task_type: TaskType
    columns: dict[str, Sequence[str]]
    targets: dict[str, Sequence[str]] = field(default_factory=dict)
    values: Sequence[int] | None = None
    separator: str | None = None
    findings: Sequence[Finding] = ()
    path: Path | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """The maximum number of tokens of an example that are read; None: there is none."""

    @abstractmethod
    def encode(self, rows: Sequence[Any]) -> Encoded:
        """Encode rows; errors as in `TaskType.encode`."""

    @abstractmethod
    def outputs(self, encoded: Encoded) -> Outputs:
        """Compute the outputs of encoded rows, which the task type turns into predictions.

        Raises:
            CheckpointError: an output is not finite.
        """

    @abstractmethod
    def outputs_of_all(self, requests: Sequence[tuple[Self, Encoded]]) -> list[Outputs]:
        """Compute the outputs of encoded rows together, each for a predictor that shares weights
        with this one; errors as in `outputs`."""

    def with_task(self, task_type: TaskType) -> Self:
        return replace(self, task_type=task_type)

    def for_task(self, task: str) -> Self:
        """Return a copy that writes texts by the settings that the folder of another library has
        for a task; errors as `text_generation.for_task`."""
        return self.with_task(for_task(self.task_type, task))

    def predict_proba(self, given: Iterable[Any], *, note: Note = ignore) -> NDArray[np.float32]:
        """As `LanguageModel.predict_proba`; `note` as in `predict`."""
        self.require_probabilities("predict_proba")
        return self.probabilities(self.rows(given), note)

    def probabilities(self, rows: Iterable[Any], note: Note = ignore) -> NDArray[np.float32]:
        """As `predict_proba` of rows that are examples of the task already."""
        probabilities = [np.empty((0, len(self.task_type.labels)), np.float32)]
        for portion in portions(rows):
            encoded = self.encode(portion)
            for finding in encoded.findings:
                note(finding)
            probabilities.append(self.task_type.scores(encoded, self.outputs(encoded)))
        return np.concatenate(probabilities)

    @abstractmethod
    def vectors_of(self, rows: Sequence[Any]) -> NDArray[np.float32]:
        """Return a vector of each row, (N, D), by which similar rows are told from others."""

    def with_labels(
        self, labels: Sequence[str], hypothesis: str | None = None, *, several: bool = False
    ) -> Self:
        """Return a copy that gives each text one of any `labels`, or with `several` any number, by
        whether a hypothesis about it follows; errors as `zero_shot_task`."""
        template = HYPOTHESIS if hypothesis is None else hypothesis
        task_type = zero_shot_task(self.task_type, labels, template, several=several)
        columns: dict[str, Sequence[str]] = {role: (role,) for role in task_type.roles}
        return replace(self, task_type=task_type, columns=columns, targets={}, values=None)

    def extent(self, rows: Sequence[Any]) -> Extent:
        extent = self.encode(rows).extent
        assert extent is not None
        return extent

    def answer(
        self, rows: Sequence[Any], top: int | None = None, note: Note = ignore
    ) -> tuple[list[Answer], Extent]:
        encoded = self.encode(rows)
        for finding in encoded.findings:
            note(finding)
        assert encoded.extent is not None
        answers = pipeline_answers(self.task_type, encoded, self.outputs(encoded), top)
        return list(answers), encoded.extent


@dataclass(frozen=True, kw_only=True)
class BagOfWordsPredictor(TaskPredictor):
    """A bag of words, which reads all of a text."""

    bag: BagOfWords

    @classmethod
    def opened(cls, folder: Path | str) -> BagOfWordsPredictor:
        """Open the bag of words in a result of `finetune`, or in its model folder.

        Raises:
            CheckpointError: the fine-tuning is not finished, or a file is damaged.
        """
        home = home_of(Path(folder))
        path = home / MODEL if (home / MODEL).is_dir() else home
        bag, record = BagOfWords.load(path), read_task(home)
        if record is None:
            fault = f"{TASK} is missing"
            raise CheckpointError(fault, where=home, wanted="a whole result", do=COPY)
        where = home / TASK
        task_type = _recorded_type(record, where)
        require_agreement(record, (), "linear", len(bag.bias), where)
        return cls(
            task_type=task_type,
            columns={**record.columns} or {role: (role,) for role in task_type.roles},
            targets={**record.targets},
            values=record.values,
            separator=record.separator,
            path=path,
            bag=bag,
        )

    @property
    def longest(self) -> None:
        return None

    def with_long_texts(self, long: LongText) -> Self:
        require_choice(long, get_args(LongText), "long")
        return self

    def encode(self, rows: Sequence[Any]) -> Encoded:
        return encode_words(rows)

    def outputs(self, encoded: Encoded) -> Outputs:
        return self.bag.scores(encoded.rows)

    def vectors_of(self, rows: Sequence[Any]) -> NDArray[np.float32]:
        return latent_vectors([row.whole_text for row in rows])

    def outputs_of_all(self, requests: Sequence[tuple[Self, Encoded]]) -> list[Outputs]:
        return [predictor.outputs(encoded) for predictor, encoded in requests]


@dataclass(frozen=True, kw_only=True)
class Predictor(TaskPredictor):
    """A model with a network.

    Attributes:
        frame: the encoding of its inputs.
        network: returns the prepared network, which is shared; weights whose layout it changed are
            freed in `model`.
    """

    model: Transformer
    network: Callable[[], Prepared]
    frame: Frame
    collation: Collation

    @property
    def longest(self) -> int:
        return self.frame.length

    def with_long_texts(self, long: LongText) -> Self:
        require_choice(long, get_args(LongText), "long")
        is_trained_way = long == self.frame.too_long
        return self if is_trained_way else replace(self, frame=replace(self.frame, too_long=long))

    def encode(self, rows: Sequence[Any]) -> Encoded:
        return self.task_type.encode(rows, self.frame)

    def outputs(self, encoded: Encoded) -> Outputs:
        outputs = self._read(encoded)
        require_finite(outputs, encoded.examples, self.path)
        return outputs

    def outputs_of_all(self, requests: Sequence[tuple[Self, Encoded]]) -> list[Outputs]:
        all_scores = scores_of_all([predictor.request(encoded) for predictor, encoded in requests])
        for scores, (predictor, encoded) in zip(all_scores, requests, strict=True):
            require_finite(scores, encoded.examples, predictor.path)
        return list(all_scores)

    def request(self, encoded: Encoded) -> ScoreRequest:
        """Return the encoded rows as `model/inference/together.py` takes them."""
        assert isinstance(self.objective, ScoringObjective)
        return ScoreRequest(self.objective, encoded.examples, self.collation)

    def vectors_of(self, rows: Sequence[Any]) -> NDArray[np.float32]:
        mean = replace(self, task_type=task_for_vectors({"pooling": "mean"}))
        return mean.vectors([row.whole_text for row in rows])

    def vectors(self, texts: Sequence[str], note: Note = ignore) -> NDArray[np.float32]:
        """Embed each text by itself, (N, D) float32, if the task is one of embeddings."""
        vectors = []
        rows = (
            self.task_type.of_value({self.task_type.alone: t}, f"example {n}")
            for n, t in enumerate(texts, start=1)
        )
        for portion in portions(rows):
            encoded = self.encode(portion)
            for finding in encoded.findings:
                note(finding)
            merged = self.task_type.merged(encoded, self.outputs(encoded))
            vectors.append(np.asarray(merged, np.float32))
        return np.concatenate(vectors)

    @cached_property
    def objective(self) -> Objective:
        """The objective of the task on the prepared network."""
        network: Any = self.network()
        return learner.objective_of(network, self.task_type, self.frame)

    @cached_property
    def _read(self) -> Callable[[Encoded], Outputs]:
        return self.reader(self.task_type)

    def reader(self, task_type: TaskType) -> Callable[[Encoded], Outputs]:
        """Return a function that computes scores, or generated texts, of rows encoded by
        `task_type`."""
        network: Any = self.network()
        return learner.reader(network, task_type, self.frame, self.collation)


def load(folder: Path | str, *, base: Path | str | None = None) -> TaskPredictor:
    """Open the fine-tuned model in `folder`: a result of `finetune`, a model folder with one head,
    a folder of sentence-transformers (embeddings are computed as by that library), or an adapter
    of `peft`, which is opened on its base.

    Args:
        base: the folder of an adapter's base; None: the one that the adapter names.

    Raises:
        UsageError: the folder does not exist.
        CheckpointError: the fine-tuning is unfinished, or its `task.json` is damaged or does not
            match the model.
        IncompatibleError: the model has no head, or no tokenizer.
    """
    if base is None and is_bag_of_words(Path(folder)):
        return BagOfWordsPredictor.opened(folder)
    return predictor(open_model(folder, base=base))


def predictor(loaded: folders.Model) -> Predictor:
    """Return the predictor of the task that an opened model was trained for. The task comes from
    `task.json`, a sentence-transformers folder, generation settings, or the single head.

    Raises:
        CheckpointError: `task.json` does not match the model.
        IncompatibleError: the model has no task, or no tokenizer.
    """
    path, findings, adapter = loaded.path, list(loaded.findings), loaded.is_adapter
    heads, record, keeps_end, segments = loaded.config.heads, loaded.task, False, True
    is_foreign = record is None and not heads and not adapter
    sentence_folder = sentence_transformers_folder.read(path) if is_foreign else None
    findings += [] if sentence_folder is None else sentence_folder.findings()
    generates = is_foreign and sentence_folder is None and loaded.writes_for_texts
    has_head = len(heads) == 1 and heads[0].kind != "patch"
    has_task = record is not None or sentence_folder is not None or generates or has_head
    _ = loaded.reader  # raises where there is none
    if not has_task:
        raise IncompatibleError(
            "this model was not fine-tuned for a task",
            where=path,
            found=", ".join(f"a {h.kind} head" for h in heads)
            or "; ".join(["no head", *map(str, findings)]),
            wanted="one head, or what sentence-transformers writes of vectors",
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
        keeps_end = sentence_folder.keeps_end
        task["columns"] = {task_type.alone: (task_type.alone,)}
    elif generates:
        num_ids, end = loaded.tokenizer.vocabulary_size, end_of_text(loaded.tokenizer)
        settings = folders.read_generation_config(path, loaded.extra, end)
        options = folders.generation_options(settings, num_ids)
        options[TASKS] = {
            name: folders.generation_options(
                folders.read_generation_config(path, loaded.extra, end, name), num_ids
            )
            for name in ("", *settings[folders.TASK_SETTINGS])
        }
        task_type = task_for_writing(options)
        findings = [finding for finding in findings if finding.name != folders.GENERATION_FINDING]
        findings += folders.generation_findings(settings, follows=True)
    else:
        problems = {theirs: ours for ours, theirs in PROBLEM_TYPES.items()}
        labels = loaded.about.labels or tuple(f"LABEL_{i}" for i in range(heads[0].labels))
        single_score = heads[0].kind == "sequence" and heads[0].labels == 1
        default_problem: Problem = "number" if single_score else "single"
        if heads[0].over is not None:
            task["long"] = HIERARCHICAL
        problem = problems.get(loaded.about.problem_type or "", default_problem)
        if problem == "number" and not single_score:
            raise IncompatibleError(
                "the model predicts more than one number",
                where=path,
                found=", ".join(labels),
                wanted="one number, or classes",
                do="fine-tune it for one of them, or use the library that made it",
            )
        # As in `pipeline`, a single score is a probability unless the config calls it a number.
        logit = problems.get(loaded.about.problem_type or "") != "number"
        if heads[0].kind == "sequence":
            head = sentence_transformers_folder.read_head(path, loaded.extra)
            task["length"] = head["length"] or task["length"]
            activation, keeps_end, segments = (
                head[name] for name in ("activation", "keeps_end", "segments")
            )
            logit = activation == "Sigmoid" if activation else logit
            if activation and not single_score:
                message = f"scores are shares of 1; sentence-transformers applies {activation}"
                findings.append(Finding("scores-as-shares", message))
        problem = "number" if single_score and problem == "single" else problem
        options = {UNTOLD: True, LOGIT: single_score and logit}
        images = loaded.about.images is not None
        task_type = task_for_head(heads[0].kind, labels, problem, options, images=images)
        if task_type.head == "span":  # reads longer texts in windows
            task["length"] = min(task["length"], task_type.longest)
    plain = _plain_predictor(loaded, task_type, int(task["length"]))
    frame = replace(plain.frame, long=task.get("long", "head"), keeps_end=keeps_end)
    frame = replace(frame, segments=frame.segments and segments)
    if record is None:
        # Models of other libraries get their inputs tokenized as those libraries do.
        if loaded.words is not None:
            frame = replace(frame, words=loaded.words.as_declared())
        pad_id = loaded.extra.get("pad_token_id")
        if loaded.config.encoder is None and type(pad_id) is int:
            frame = replace(frame, unread=pad_id)
    return replace(
        plain,
        frame=frame,
        columns=task.get("columns") or {role: (role,) for role in task_type.roles},
        targets=task.get("targets", {}),
        values=task.get("values"),
        separator=task.get("separator"),
        findings=findings,
        path=loaded.path,
        hashes=loaded.hashes,
    )


def _plain_predictor(model: folders.Model, task_type: TaskType, length: int) -> Predictor:
    """Return a predictor of a task type, whose network is prepared at the first use."""
    length = room(model.config, length, model.positions)
    collation = collation_of(model.config, model.reader, model.extra)
    return Predictor(
        model=model.network,
        network=functools.cache(lambda: prepare(model.network, give_up=True)),
        task_type=task_type,
        frame=frame_of(model.config, model.reader, length, "head"),
        collation=replace(collation, alone=model.positions > 0),
        columns={task_type.alone: (task_type.alone,)},
    )


def of_vectors(model: folders.Model, pooling: str) -> Predictor:
    """Return a predictor of embeddings for a model that was not trained for them: `pooling` over
    the states of its last layer, normalised to length 1.

    Raises:
        IncompatibleError: the model has no tokenizer, or does not support this pooling.
    """
    task_type = task_for_vectors({"pooling": pooling})
    return _plain_predictor(model, task_type, model.config.longest or TaskType.longest)


def _mismatch(
    fault: str, path: Path, field: str, value: object, expected: object = None
) -> CheckpointError:
    return CheckpointError(fault, where=f"{path}: {field}", found=value, wanted=expected, do=COPY)


def _recorded_type(record: TaskRecord, path: Path) -> TaskType:
    """Return the task type of a record; raises a `CheckpointError` if there is none, or no such
    option."""
    try:
        task_type = task_for(record.kind, record.labels, record.settled)
    except UsageError as error:
        raise _mismatch(error.what, path, "kind", error.found, error.wanted) from error
    require_thresholds(record, path)
    return task_type


def _task_type_of_record(record: TaskRecord, loaded: folders.Model, path: Path) -> TaskType:
    """Return the task type that `task.json`, at `path`, records; raises a `CheckpointError` if it
    does not match the model."""

    task_type = _recorded_type(record, path)
    if record.long not in LONG:
        fault = "the handling of long texts is unknown"
        raise _mismatch(fault, path, "long", repr(record.long), near(record.long, LONG))
    head = loaded.config.heads[0] if len(loaded.config.heads) == 1 else None
    if (None if head is None else head.kind) != task_type.head:
        expected_task = "a task for " + ("no head" if head is None else f"its {head.kind} head")
        fault = "the model's head is not the one of its task"
        raise _mismatch(fault, path, "kind", record.kind, expected_task)
    if (head is not None and head.over is not None) is not (record.long == HIERARCHICAL):
        fault = "the handling of long texts is not the one that the model was made for"
        raise _mismatch(fault, path, "long", record.long)
    if head is not None:
        require_agreement(record, loaded.about.labels, head.kind, head.labels, path)
    problem = loaded.about.problem_type
    if task_type.head == "sequence" and problem not in (None, PROBLEM_TYPES[task_type.problem]):
        fault = "the task is not the one that the model was made for"
        raise _mismatch(fault, path, "kind", record.kind, problem)
    return task_type


def portions(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Split `rows` into lists of at most `PORTION`."""
    remaining = iter(rows)
    while portion := list(itertools.islice(remaining, PORTION)):
        yield portion
