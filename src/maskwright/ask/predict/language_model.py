"""The public object: a model folder that is opened once, with its methods.

    model = maskwright.load("runs/mine")
    model.fill_mask("The court [MASK] the appeal.")
    model.embed(["one text", "another"])          # (2, D)

Texts are a list, a tuple, a numpy array, or a column of pandas, polars, pyarrow or datasets; none
of these libraries is imported. Results keep the order of the texts; a single text gives a single
result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Unpack, get_args

import numpy as np
from numpy.typing import NDArray

from maskwright.ask.predict.engine import Engine, open_engine, require_new_adapter
from maskwright.ask.predict.explanation import Explanation, explain
from maskwright.ask.predict.inputs import listed
from maskwright.ask.predict.predictor import Answer, OnBad, Predictor, TaskPredictor
from maskwright.ask.predict.shared_encoder import SharedEncoder, groups_of_one_base
from maskwright.ask.predict.uncertain import UncertainRow, choose_uncertain
from maskwright.base import calls
from maskwright.base.config import require
from maskwright.base.errors import DataError, Finding, IncompatibleError, Note, UsageError
from maskwright.base.report import document
from maskwright.learn.tasks.base.choices import (
    DIMENSIONS,
    LongText,
    require_choice,
    require_dimensions,
)
from maskwright.learn.tasks.base.late_interaction import ROLES, Role
from maskwright.learn.tasks.base.similarities import unit_vectors
from maskwright.model.device import choices
from maskwright.model.device.choices import Precision
from maskwright.model.inference.fill_mask import Hole
from maskwright.model.inference.generation_settings import (
    GenerationKeywords,
    GenerationSettings,
    takes_generation_settings,
)
from maskwright.model.opening import folders
from maskwright.model.opening.open import home_of

DEFAULT = "default"
"""The name of the adapter of an adapter folder, as in `peft`."""


class CutWarning(UserWarning):
    """A text was longer than the model reads, or has words that its tokenizer does not know; or the
    folder of the model has settings that are not known here."""


class SearchResult(NamedTuple):
    """A text that is similar to a query: its number among the texts, from 0, its score, itself."""

    number: int
    score: float
    text: str


class LanguageModel:
    """An opened model.

    Attributes:
        precision: of the computation: "float32", "bfloat16", or "auto", which is bfloat16 on
            devices with matrix units for it. Likelihoods are always computed in float32.
    """

    def __init__(self, opened: Engine) -> None:
        self.precision = opened.precision
        self._active = DEFAULT if opened.has_network and opened.model.is_adapter else None
        self._models: dict[str | None, Engine] = {self._active: opened}
        if opened.runtime != choices.TORCH:
            opened.network()  # chooses and compares the engine now, not at the first call

    # ------------------------------------------------------------------------------- abilities
    def __fspath__(self) -> str:
        """The folder, so that functions that take a folder take an opened model."""
        return str(self._now.folder)

    def opened(self, adapter: str | None = None) -> Engine:
        """Return the opened model with a loaded adapter; None: with the active one."""
        return self._now if adapter is None else self._models[adapter]

    @property
    def _now(self) -> Engine:
        """The opened model with the active adapter."""
        return self._models[self._active]

    @property
    def model(self) -> folders.Model:
        """The opened folder: network, tokenizer, config, conventions and their origin. Access
        restores weights of the network that were freed when their inference copies were made."""
        return self._now.restored()

    @property
    def abilities(self) -> tuple[str, ...]:
        """The names of the methods that this model supports."""
        return self._now.abilities

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Assumptions made when the folder was opened, and which engine was chosen."""
        return (*self._now.findings, *self._now.runtime_findings)

    @property
    def engine(self) -> str:
        """The engine that computes hidden states; "torch" is the native one."""
        return self._now.runtime

    @property
    def predictor(self) -> TaskPredictor:
        """The predictor of the task that the model was trained for.

        Raises:
            IncompatibleError: the model was not trained for a task.
        """
        return self._now.predictor

    # --------------------------------------------------------------------------------- adapters
    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the adapters that were loaded."""
        return tuple(name for name in self._models if name is not None)

    @property
    def active_adapter(self) -> str | None:
        """The name of the active adapter; None: the base model is active."""
        return self._active

    def load_adapter(self, folder: Path | str, name: str | None = None) -> str:
        """Load an adapter, or a head, of the same base; `set_adapter` activates it. Weights that it
        shares with the base are kept in memory once.

        Args:
            folder: an adapter of `peft`, or the result of a fine-tuning by a method that leaves the
                model's own weights unchanged.
            name: of the adapter in this object, which is returned; None: the name of its folder.

        Raises:
            UsageError: the folder does not exist, or the name is taken.
            IncompatibleError: the adapter was trained on another base.
            CheckpointError: as in `load`.
        """
        name = folders.called(home_of(Path(folder))) if name is None else name
        require_new_adapter(name, self._models)
        self._models[name] = self._base.with_adapter(folder)
        return name

    def set_adapter(self, name: str | None) -> None:
        """Activate a loaded adapter by name; None: the model as it was opened, or the base of an
        adapter folder. Raises a `UsageError` if no adapter of this name was loaded."""
        if name is None:
            _ = self._base  # opens it if necessary
        if name not in self._models:
            raise _no_adapter(name, self.adapters)
        self._active = name

    @property
    def _base(self) -> Engine:
        """The model without an adapter; the base of an adapter folder is opened at first access."""
        if None not in self._models:
            (adapted,) = [engine for engine in self._models.values() if engine.base is None]
            self._models[None] = adapted.without_adapter
        return self._models[None]

    # ---------------------------------------------------------------------------------- inference
    @calls.checked
    def predict(
        self,
        given: Iterable[Any],
        *,
        top: int | None = None,
        on_bad: OnBad = "strict",
        adapters: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        hypothesis: str | None = None,
        several: bool = False,
        task: str | None = None,
        long: LongText = "as_trained",
        threshold: float | None = None,
    ) -> list[Answer]:
        """Predict the task of a fine-tuned model for each example.

        Args:
            given: texts, tuples or mappings of texts, or a table (see `BasePredictor.predict`).
            top: return a list of this many best predictions per example, the best first.
            on_bad: "skip" returns None for an example that cannot be read.
            adapters: names of loaded adapters; each result is then a dict from name to prediction.
                Layers that the adapters share are computed once.
            labels: any labels for single texts, given by a model of natural-language inference.
            hypothesis: with `labels`, what is said of a text (default "This example is {}.").
            several: with `labels`, whether a text has any number of them instead of one.
            task: of a text-to-text model of another library, the task whose settings and prefix its
                folder has, such as "summarization" or "translation_en_to_de".
            long: handling of texts beyond the model's context. "as_trained": as in training; most
                models truncate the end. "windows": combine the predictions of windows (`windows`
                returns their number), unless the model was trained with a method of its own.
                "refuse": raise an error.
            threshold: the probability below which the label of an example is None; of several
                labels the one from which each is given, in place of those of the validation data.

        Raises:
            IncompatibleError: the model was not fine-tuned for a task.
            UsageError: the list is empty, or an argument has an unknown value.
            DataError: an example does not have the form that the model was trained on.
        """
        if isinstance(given, Sequence) and len(given) == 0:
            raise nothing_to_answer("predict")
        if adapters is not None:
            return self._predict_with_adapters(list(adapters), given, top, on_bad, long, threshold)
        with self._errors_with_abilities("predict"):
            task_predictor = self.predictor.with_long_texts(long)
            if labels is not None:
                task_predictor = task_predictor.with_labels(labels, hypothesis, several=several)
            if task is not None:
                task_predictor = task_predictor.for_task(task)
            task_predictor = task_predictor.deciding(threshold)
        return task_predictor.predict(given, top=top, on_bad=on_bad, note=warn)

    def predict_proba(
        self, given: Iterable[Any], *, long: LongText = "as_trained"
    ) -> NDArray[np.float32]:
        """Return the probability (N, L) of each label of each example, in the order of `labels`;
        of several labels they are independent, else they sum to 1. Arguments and errors as in
        `predict`; a `UsageError` if the task has no labels of whole texts."""
        return self._task_predictor(long).predict_proba(given, note=warn)

    def uncertain(
        self, given: Iterable[Any], count: int, *, long: LongText = "as_trained"
    ) -> list[UncertainRow]:
        """Choose `count` of the examples to be labelled next, the least sure first; see
        `uncertain.choose_uncertain`. Arguments and errors as in `predict_proba`."""
        task_predictor = self._task_predictor(long)
        task_predictor.require_probabilities("uncertain", 2)
        return choose_uncertain(task_predictor, list(task_predictor.rows(given)), count, warn)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the task that the model was trained for; empty if it has none."""
        return self.predictor.task_type.labels

    def windows(self, given: Iterable[Any]) -> list[int]:
        """Return the number of windows that `predict` with long="windows" reads each example in;
        errors as in `predict`."""
        return self._task_predictor("windows").windows(given)

    def _task_predictor(self, long: LongText) -> TaskPredictor:
        with self._errors_with_abilities("predict"):
            return self.predictor.with_long_texts(long)

    @calls.checked
    def fill_mask(
        self, texts: str | Iterable[str], *, top: int = 5, long: LongText = "as_trained"
    ) -> list[Hole] | list[list[Hole]]:
        """Predict the `top` most probable tokens for every mask of each text, or with a T5 the most
        probable spans for every sentinel such as <extra_id_0>.

        Args:
            long: "windows" predicts each mask of a text beyond the model's context in a window
                around it; other values raise an error for such a text.

        Raises:
            IncompatibleError: the model cannot fill masks.
            UsageError: the list is empty, or a text has no mask or exceeds the model's context.
            DataError: an example is not a text.
        """
        text_list = self._text_list(texts, "fill_mask")
        require_choice(long, get_args(LongText), "long")
        holes = self.filled(text_list, top, warn, windows=long == "windows")
        return holes[0] if isinstance(texts, str) else holes

    def filled(
        self,
        texts: Sequence[str],
        top: int,
        note: Note,
        *,
        live: bool = False,
        windows: bool = False,
    ) -> list[list[Hole]]:
        """As `Engine.fill_masks` with the active adapter."""
        with self._errors_with_abilities("fill_mask"):
            return self._now.fill_masks(texts, top, note, live=live, windows=windows)

    @calls.checked
    @takes_generation_settings
    def generate(
        self,
        prompts: str | Iterable[str],
        *,
        precision: Precision | None = None,
        **settings: Unpack[GenerationKeywords],
    ) -> str | list[str]:
        """Generate a continuation of each prompt. A decoder returns prompt and continuation, an
        encoder–decoder only its output. Results do not depend on the other prompts of the list.

        Args:
            precision: as in `load`; None: that of the model.
            settings: the fields of `GenerationSettings`: `tokens`, the maximum number of new ones,
                `temperature` (0: greedy; without it 0.8), `top_k`, `top_p`, `typical_p`,
                `repetition_penalty`, `frequency_penalty`, `presence_penalty`, `seed`, `stop` and
                `num_beams` (above 1: beam search).

        Raises:
            IncompatibleError: the model cannot generate text.
            UsageError: the list is empty, a prompt exceeds the model's context, or a setting is out
                of range.
            DataError: a prompt is not a text.
        """
        text_list = self._text_list(prompts, "generate")
        with self._errors_with_abilities("generate"):
            _require_precision(precision)
            outputs = self._now.generate(text_list, GenerationSettings(**settings), precision)
        return outputs[0] if isinstance(prompts, str) else outputs

    @calls.checked
    @takes_generation_settings
    def stream(
        self,
        prompt: str,
        *,
        precision: Precision | None = None,
        **settings: Unpack[GenerationKeywords],
    ) -> Iterator[str]:
        """Yield the text that `generate` adds to the prompt, piece by piece. Pieces are final: they
        contain no incomplete characters, and no part of a stop string. Args as in `generate`,
        without `num_beams`."""
        (text,) = self._text_list([prompt], "stream")
        with self._errors_with_abilities("generate"):
            _require_precision(precision)
            pieces = self._now.stream(text, GenerationSettings(**settings), precision)
        return (piece.text for piece in pieces if piece.text)

    def _predict_with_adapters(
        self,
        names: list[str],
        inputs: Iterable[Any],
        top: int | None,
        on_bad: OnBad,
        long: LongText,
        threshold: float | None,
    ) -> list[Answer]:
        """Predict with several adapters; returns a dict from name to prediction per example."""
        if isinstance(inputs, Iterator):
            inputs = list(inputs)
        members: dict[str, Predictor] = {}
        for name in names:
            if name not in self._models:
                raise _no_adapter(name, self.adapters)
            member = self._models[name].predictor.with_long_texts(long).deciding(threshold)
            assert isinstance(member, Predictor)  # others have no adapters
            members[name] = member
        answers: dict[str, list[Answer]] = {}
        for group in groups_of_one_base(members):
            if len(group) == 1:
                ((name, predictor),) = group.items()
                answers[name] = predictor.predict(inputs, top=top, on_bad=on_bad, note=warn)
                continue
            rows = SharedEncoder.of(group).predict(inputs, top=top, on_bad=on_bad, note=warn)
            for name in group:
                answers[name] = [None if row is None else row[name] for row in rows]
        columns = [answers[name] for name in names]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def embed(
        self,
        texts: str | Iterable[str],
        *,
        pooling: str | None = None,
        dimensions: int | None = None,
        long: LongText = "as_trained",
    ) -> NDArray[np.float32]:
        """Embed texts: (N, D) float32, or (D,) for a single text.

        A model that was trained for embeddings, here or by sentence-transformers, computes those.
        For other models the states of the last layer are pooled and normalised to length 1.

        Args:
            pooling: "mean", "max" or "cls" (state of the first token); None: that of the model, or
                "mean". Not allowed for a model that was trained for embeddings.
            dimensions: return so many leading dimensions, scaled to length 1; None: all. The model
                must have been trained for so few (`finetune --dimensions`).
            long: handling of texts beyond the model's context. "windows": the mean of the
                embeddings of non-overlapping windows, weighted by their numbers of tokens and
                normalised. "as_trained": truncate if the model was trained for embeddings, else
                raise an error. "refuse": raise an error.

        Raises:
            UsageError: the list is empty, or `pooling` or `dimensions` is unknown or not allowed.
            DataError: an example is not a text, or exceeds the model's context.
        """
        text_list = self._text_list(texts, "embed")
        predictor = self._now.embedder(pooling)
        is_trained = "predict" in self.abilities and predictor is self.predictor
        refuses = long == "as_trained" and not is_trained
        with self._errors_with_abilities("embed"):
            predictor = predictor.with_long_texts("refuse" if refuses else long)
            try:
                vectors = predictor.vectors(text_list, note=warn)
            except DataError as error:
                advice = 'shorten it, or read it in windows: long="windows"'
                raise (error.advising(advice) if refuses else error) from None
        if dimensions is not None:
            width = vectors.shape[1]
            trained = predictor.task_type.options.get(DIMENSIONS, [width])
            require_dimensions([dimensions], min(trained), width)
            vectors = unit_vectors(vectors[:, :dimensions])
        return vectors[0] if isinstance(texts, str) else vectors

    encode = embed  # its name in sentence-transformers

    def embed_all(
        self, texts: str | Iterable[str], *, role: Role = "document"
    ) -> list[NDArray[np.float32]] | NDArray[np.float32]:
        """Embed the tokens of texts with a multi-vector encoder: an array (T, D) for each text.

        Args:
            role: "query" or "document", which may differ in prompt, length and tokens.

        Raises:
            IncompatibleError: the model makes no vectors of tokens.
            UsageError: the list is empty, or there is no such role.
        """
        require_choice(role, ROLES, "role")
        with self._errors_with_abilities("embed_all"):
            vectors = self._now.token_vectors(self._text_list(texts, "embed_all"), role, warn)
        return vectors[0] if isinstance(texts, str) else vectors

    def similarity(self, query: str | Iterable[str], texts: Iterable[str]) -> NDArray[np.float64]:
        """Return the similarity of a query to each text, (N,), or of each of Q queries, (Q, N), by
        the function of the model's folder: of vectors, of sparse weights, or MaxSim of a
        multi-vector encoder.

        Raises:
            As `embed` and `embed_all`.
        """
        query_list = self._text_list(query, "embed")
        text_list = self._text_list(texts, "embed")
        if "embed_all" in self.abilities:
            late = self._now.late
            assert late is not None
            documents = self.embed_all(text_list)
            queries = self.embed_all(query_list, role="query")
            scores = np.array([[late.score(q, d) for d in documents] for q in queries])
        else:
            embedder = self._now.embedder(None)
            vectors = embedder.vectors([*query_list, *text_list], note=warn)
            compared = embedder.task_type.compared  # type: ignore[attr-defined]
            count = len(query_list)
            scores = np.stack([compared(vectors[n : n + 1], vectors[count:]) for n in range(count)])
        return scores[0] if isinstance(query, str) else scores

    def search(
        self, query: str | Iterable[str], texts: Iterable[str], *, top: int = 10
    ) -> list[SearchResult] | list[list[SearchResult]]:
        """Return the `top` texts that are most similar to the query, the most similar first; of
        several queries a list for each. Scores and errors as in `similarity`."""
        require("top", top, 1, math.inf)
        text_list = self._text_list(texts, "embed")
        scores = np.atleast_2d(self.similarity(query, text_list))
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        results = [
            [SearchResult(int(n), float(row[n]), text_list[n]) for n in numbers]
            for row, numbers in zip(scores, best, strict=True)
        ]
        return results[0] if isinstance(query, str) else results

    def explain(self, text: str, *, label: str | None = None) -> Explanation:
        """Compute what each word of a text adds to the probability of a label: the probability of
        the text minus that of the text without the word. The model reads one text for each word.

        Args:
            label: one of `labels`; None: the most probable one.

        Raises:
            IncompatibleError: the model was not fine-tuned for a task.
            UsageError: the task has no labels of whole texts, there is no such label, or the text
                has no words.
        """
        (text,) = self._text_list(text, "explain")
        return explain(self._task_predictor("as_trained"), text, label)

    def log_likelihood(
        self, texts: str | Iterable[str], *, how: str | None = None
    ) -> float | NDArray[np.float64]:
        """Compute the log-likelihood of each text in nats: (N,) float64, a float for a single text.

        Args:
            how: a method of `model/inference/likelihood_prompts.py`, such as "masked"; None: the
                one that fits the model's training. Values of different methods or models are not
                comparable.

        Raises:
            IncompatibleError: the model predicts no tokens, or does not support the method.
            UsageError: the list is empty, the method is unknown, or a text exceeds the context.
            DataError: an example is not a text.
        """
        text_list = self._text_list(texts, "log_likelihood")
        with self._errors_with_abilities("log_likelihood"):
            likelihoods = self._now.log_likelihoods(text_list, how)
        return float(likelihoods[0]) if isinstance(texts, str) else likelihoods

    def tokens(self, texts: str | Iterable[str]) -> list[str] | list[list[str]]:
        """Return the tokens of each text as the model reads it, including special tokens."""
        tokenizer = self._now.model.tokenizer
        text_list = self._text_list(texts, "tokens")
        token_lists = [
            tokenizer.tokens(tokenizer.frame(ids.tolist())[0])
            for ids in tokenizer.encode_batch(text_list)
        ]
        return token_lists[0] if isinstance(texts, str) else token_lists

    def _text_list(self, texts: str | Iterable[str], method: str) -> list[str]:
        """Return the texts as a list; raises a `DataError` if one is not a str."""
        listed_texts = [texts] if isinstance(texts, str) else listed(texts, method)
        if not listed_texts:
            raise nothing_to_answer(method)
        for number, text in enumerate(listed_texts, start=1):
            if not isinstance(text, str):
                raise DataError(
                    "not a text",
                    where=f"{method}: example {number}",
                    found=f"{type(text).__name__} {text!r}"[:80],
                    wanted="a str",
                    do="leave it out, or write it as a text",
                )
        return listed_texts

    @contextmanager
    def _errors_with_abilities(self, method: str) -> Iterator[None]:
        """Add the model's abilities to an `IncompatibleError` raised in the block."""
        try:
            yield
        except IncompatibleError as error:
            other_methods = [name for name in self.abilities if name != method]
            remedy = f"this model can be asked: {', '.join(other_methods)}" if other_methods else ""
            if method == "predict" and self._active is None and self.adapters:
                remedy = f"let a loaded adapter answer: set_adapter({self.adapters[0]!r}); {remedy}"
            raise IncompatibleError(
                error.what,
                where=error.where or self._now.folder,
                found=error.found or self._now.describe(),
                wanted=error.wanted or NEEDS[method],
                do="; ".join(filter(None, [str(error.do or ""), remedy])),
            ) from error

    # ------------------------------------------------------------------------------------ display
    def __repr__(self) -> str:
        return (
            f"<maskwright model {str(self._now.folder)!r}: {self._now.describe()}; "
            f"can: {', '.join(self.abilities)}>"
        )

    def _repr_html_(self) -> str:
        """Return folder, model, task, abilities and findings as an HTML table, for notebooks."""
        task_type = self.predictor.task_type if "predict" in self.abilities else None
        task = "none" if task_type is None else task_type.task
        labels = "" if task_type is None else ", ".join(task_type.labels[:8])
        rows = [
            ("folder", str(self._now.folder)),
            ("model", self._now.describe()),
            ("task", f"{task} ({labels})" if labels else task),
            ("can be asked", ", ".join(self.abilities)),
            *(("note", str(finding)) for finding in self._now.findings),
        ]
        return document.render("model.html", rows=rows)


NEEDS = {
    "predict": "a model that was fine-tuned (maskwright finetune MODEL --data FILE)",
    "fill_mask": "an encoder with a vocabulary head and a mask token, or a T5",
    "generate": "a decoder with a vocabulary head",
    "embed": "a stack that reads a text, and a tokenizer",
    "embed_all": "a multi-vector encoder of sentence-transformers",
    "log_likelihood": "a vocabulary head, or one that tells replaced tokens",
    "tokens": "a folder with a tokenizer",
}


def load(
    folder: PathLike[str] | str,
    *,
    base: Path | str | None = None,
    precision: Precision = "auto",
    device: str = "auto",
    engine: str = choices.TORCH,
) -> LanguageModel:
    """Open the model in `folder`: a run, a checkpoint, a result of `finetune`, a Hugging Face or
    sentence-transformers folder, or an adapter.

    Args:
        base: the folder of an adapter's base; None: the one that the adapter names. The adapter
            gets the name "default" (see `set_adapter`).
        precision: of the computation; "auto" is bfloat16 on devices with matrix units for it.
        device: "cpu", "cuda", one of several as "cuda:1", or "auto": a GPU if there is one.
        engine: computes hidden states: "torch", the native one; "onnxruntime" or "openvino"; or
            "onnxruntime-int8", which changes predictions. `LanguageModel.findings` reports how
            its states differ.

    Raises:
        UsageError: the folder does not exist or has several models; the engine is not installed.
        CheckpointError: a file is damaged or missing, or a training is unfinished.
        IncompatibleError: an adapter lacks its base, or the tokenizer does not match the model.
    """
    _require_precision(precision)
    choices.require_engine(engine)
    opened = open_engine(
        Path(folder), base=base, precision=precision, device=device, runtime=engine
    )
    for finding in opened.findings:
        if finding.severity == "warning":
            warn(finding)
    return LanguageModel(opened)


def _no_adapter(name: str | None, loaded: Sequence[str]) -> UsageError:
    return UsageError(
        "no adapter of that name was loaded",
        where="adapter",
        found=repr(name),
        wanted=", ".join(loaded) or "the name that load_adapter gives",
        do="load it first: load_adapter(FOLDER)",
    )


def _require_precision(precision: str | None) -> None:
    require_choice("auto" if precision is None else precision, get_args(Precision), "precision")


def nothing_to_answer(method: str) -> UsageError:
    return UsageError(
        "nothing to answer", where=method, found="an empty list", wanted="one text or more"
    )


def warn(finding: Finding) -> None:
    """Warn at the line of the caller."""
    calls.warn(str(finding), CutWarning)
