"""The public object: a model folder that is opened once, with its methods.

    model = maskwright.load("runs/mine")
    model.fill_mask("The court [MASK] the appeal.")
    model.embed(["one text", "another"])          # (2, D)

Texts are a list, a tuple, a numpy array, or a column of pandas, polars, pyarrow or datasets; none
of these libraries is imported. Answers come in the order of the texts. One text by itself gives
one answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, overload

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.ask.predict import texts as inference_texts
from maskwright.ask.predict.inputs import listed
from maskwright.ask.predict.open_model import OpenModel
from maskwright.ask.predict.predictor import Answer, OnBad, Predictor
from maskwright.ask.predict.shared_encoder import SharedEncoder, groups_of_one_base
from maskwright.base.errors import DataError, IncompatibleError, UsageError
from maskwright.base.findings import Finding, Note
from maskwright.base.report import document
from maskwright.learn.tasks.base.choices import LongText, require_long_text
from maskwright.model.device.choices import Precision
from maskwright.model.graph.engines.base import names as engines
from maskwright.model.inference.decode import require_writer
from maskwright.model.inference.fill_mask import Hole
from maskwright.model.inference.prepared import Prepared
from maskwright.model.opening import folders
from maskwright.model.opening.model import Model
from maskwright.model.opening.open import home_of, open_model

DEFAULT = "default"
"""What the adapter of an adapter folder is called, as in `peft`."""


class CutWarning(UserWarning):
    """A text was longer than the model reads, or has words that its tokenizer does not know."""


class LanguageModel:
    """An opened model.

    Attributes:
        precision: of the computation: "float32", "bfloat16", or "auto", which is bfloat16 where
            there are matrix units for it. Likelihoods are always computed in float32.
    """

    def __init__(
        self, model: Model, precision: Precision = "auto", engine: str = engines.TORCH
    ) -> None:
        if precision not in get_args(Precision):
            raise _no_precision(precision)
        engines.require(engine)
        self.precision = precision
        self._active = DEFAULT if model.is_adapter else None
        opened = OpenModel(model, precision, engine=engine)
        self._models: dict[str | None, OpenModel] = {self._active: opened}
        if engine != engines.TORCH:
            opened.network()  # chosen and compared now, and not with the first answer

    @classmethod
    def of(cls, opened: OpenModel) -> LanguageModel:
        """The language model of an opened folder, such as one on the weights of another."""
        language_model = cls(opened.model, opened.precision)
        language_model._models = {language_model._active: opened}
        return language_model

    # ------------------------------------------------------------------------------- what it can
    def opened(self, adapter: str | None = None) -> OpenModel:
        """The opened folder, or the folder with a loaded adapter."""
        return self._now if adapter is None else self._models[adapter]

    @property
    def _now(self) -> OpenModel:
        """The model with the adapter that is active."""
        return self._models[self._active]

    @property
    def model(self) -> Model:
        """The opened folder: network, tokenizer, config, conventions and where they come from. Its
        network has all weights from now on, besides the copies that are laid out for inference."""
        return self._now.restored()

    @property
    def abilities(self) -> tuple[str, ...]:
        """The names of the methods that this model answers."""
        return self._now.abilities

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Assumptions made when the folder was opened, and which engine was chosen."""
        return (*self._now.model.findings, *self.engine_findings)

    @property
    def engine_findings(self) -> tuple[Finding, ...]:
        """Which engine was chosen, the measured times, and how its states differ from ours; empty
        for "torch"."""
        return self._now.engine_findings

    @property
    def engine(self) -> str:
        """The engine that computes states: "torch" is our own."""
        return self._now.engine

    @property
    def predictor(self) -> Predictor:
        """The predictor of the task that the model was trained for.

        Raises:
            IncompatibleError: it was trained for none.
        """
        return self._now.predictor

    # --------------------------------------------------------------------------------- adapters
    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of the adapters that were loaded."""
        return tuple(name for name in self._models if name is not None)

    @property
    def active_adapter(self) -> str | None:
        """The name of the adapter that answers; None: the model without one does."""
        return self._active

    def load_adapter(self, folder: Path | str, name: str | None = None) -> str:
        """Load a further adapter, or a head, of the same base; `set_adapter` lets it answer. What
        it has in common with the base is held, and laid out, once.

        Args:
            folder: an adapter of `peft`, or the result of a fine-tuning by a method that leaves the
                model's own weights as they are.
            name: what it is called here; None: as its folder.

        Returns:
            The name.

        Raises:
            UsageError: no such folder, or the name is taken.
            IncompatibleError: it stands on another model.
            CheckpointError: as `load`.
        """
        name = folders.called(home_of(Path(folder))) if name is None else name
        if name in self._models:
            raise UsageError(
                "an adapter of that name is loaded already",
                where="name",
                found=repr(name),
                do="give another name",
            )
        self._models[name] = self._base.with_adapter(folder)
        return name

    def set_adapter(self, name: str | None) -> None:
        """Let the adapter of that name answer from now on; None: the model as it was opened, or
        the base of an adapter folder.

        Raises:
            UsageError: no such adapter was loaded.
        """
        if name is None:
            _ = self._base  # opened if need be
        if name not in self._models:
            raise _no_adapter(name, self.adapters)
        self._active = name

    @property
    def _base(self) -> OpenModel:
        """The model without an adapter; that of an adapter folder is opened when it is asked."""
        if None not in self._models:
            (adapted,) = [opened for opened in self._models.values() if opened.base is None]
            base = open_model(adapted.model.path)
            self._models[None] = OpenModel(base, self.precision, engine=adapted.engine)
        return self._models[None]

    # ---------------------------------------------------------------------------------- answers
    def predict(
        self,
        given: Iterable[Any],
        *,
        top: int | None = None,
        on_bad: OnBad = "strict",
        adapters: Sequence[str] | None = None,
        long: LongText = "as_trained",
    ) -> list[Answer]:
        """An answer of the task for each example: a text, a tuple or a mapping of texts, or tables
        and columns of them (`BasePredictor.predict` says which).

        Args:
            top: give a list of the best so many answers for each, the best first.
            on_bad: with "skip" the answer to an example that cannot be read is None.
            adapters: several that were loaded: each example then has an answer of each, by name;
                texts are read once up to where these differ.
            long: what becomes of a text that is longer than the model reads. "as_trained": what it
                was trained with, and most models cut the end. "windows": the text is read in
                windows (`windows` says in how many) and their answers are put together, unless the
                model was trained with a way of its own. "refuse": it is refused.

        Raises:
            IncompatibleError: the model was not fine-tuned for a task.
            UsageError: an empty list, or an argument that is none of these.
            DataError: an example of another shape than the model was trained on.
        """
        if isinstance(given, Sequence) and len(given) == 0:
            raise nothing_to_answer("predict")
        if adapters is not None:
            return self._several(list(adapters), given, top, on_bad, long)
        with self._refusals_with_abilities("predict"):
            answering = self.predictor.with_long_texts(long)
        return answering.predict(given, top=top, on_bad=on_bad, note=warn)

    def windows(self, given: Iterable[Any]) -> list[int]:
        """In how many windows `predict` with long="windows" reads each example; 1: at once.

        Raises:
            As `predict`.
        """
        with self._refusals_with_abilities("predict"):
            answering = self.predictor.with_long_texts("windows")
        return answering.windows(given)

    @overload
    def fill_mask(  # type: ignore[overload-overlap]  # a str is one text
        self, texts: str, *, top: int = 5, long: LongText = "as_trained"
    ) -> list[Hole]: ...
    @overload
    def fill_mask(
        self, texts: Iterable[str], *, top: int = 5, long: LongText = "as_trained"
    ) -> list[list[Hole]]: ...
    def fill_mask(
        self, texts: str | Iterable[str], *, top: int = 5, long: LongText = "as_trained"
    ) -> list[Hole] | list[list[Hole]]:
        """The likeliest `top` tokens for every mask of each text, or of a T5 the likeliest spans
        for every sentinel such as <extra_id_0>.

        Args:
            long: with "windows" each mask of a text that is longer than the model reads is judged
                in the window around it; else such a text is refused.

        Raises:
            IncompatibleError: the model fills no masks.
            UsageError: an empty list, or a text without a mask or longer than the model reads.
            DataError: an example that is no text.
        """
        many = self._texts(texts, "fill_mask")
        require_long_text(long)
        holes = self.filled(many, top, warn, windows=long == "windows")
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
        """As `fill_mask` of a list; `note` gets what the tokenizer does not know. `live`: nothing
        more will be asked, so no weights are laid out."""
        with self._refusals_with_abilities("fill_mask"):
            network = None if live else self._now.network()
            return inference_texts.fill_masks(
                self._now.model, texts, top=top, note=note, prepared=network, windows=windows
            )

    def generate(
        self,
        prompts: str | Iterable[str],
        *,
        tokens: int = 100,
        temperature: float | None = None,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        num_beams: int = 1,
        precision: Precision | None = None,
    ) -> str | list[str]:
        """Each prompt and what the model writes after it; of an encoder–decoder what it makes of
        it. The same prompt and seed give the same text, whatever stands beside it in the list.

        Args:
            tokens: how many are written at most.
            temperature: of the scores; 0 takes the likeliest token. None: 0.8.
            top_k, top_p: draw among so many of the likeliest; 0 and 1 for all.
            stop: strings that end a text wherever they appear in it; it is cut before them.
            num_beams: above 1, the likeliest whole text is searched with so many beams; nothing is
                drawn then.
            precision: as of `load`; None: that of the model.

        Raises:
            IncompatibleError: the model does not write.
            UsageError: an empty list, a prompt longer than the model reads, a setting out of range.
            DataError: a prompt that is no text.
        """
        many = self._texts(prompts, "generate")
        with self._refusals_with_abilities("generate"):
            written = inference_texts.write(
                self._now.model,
                many,
                tokens=tokens,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                stop=stop,
                num_beams=num_beams,
                writer=self._writer(precision),
            )
        return written[0] if isinstance(prompts, str) else written

    def stream(
        self,
        prompt: str,
        *,
        tokens: int = 100,
        temperature: float | None = None,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        precision: Precision | None = None,
    ) -> Iterator[str]:
        """What `generate` adds to the prompt, piece by piece as it is written. A piece is never
        taken back: it holds no half character, and nothing of a string that ends the text.

        Args and errors: as `generate`.
        """
        (text,) = self._texts([prompt], "stream")
        with self._refusals_with_abilities("generate"):
            pieces = inference_texts.write_stream(
                self._now.model,
                text,
                tokens=tokens,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                stop=stop,
                writer=self._writer(precision),
            )
        return (piece.text for piece in pieces if piece.text)

    def _several(
        self,
        names: list[str],
        inputs: Iterable[Any],
        top: int | None,
        on_bad: OnBad,
        long: LongText,
    ) -> list[Answer]:
        """The answers of several adapters to each example, by name."""
        if isinstance(inputs, Iterator):
            inputs = list(inputs)
        members: dict[str, Predictor] = {}
        for name in names:
            if name not in self._models:
                raise _no_adapter(name, self.adapters)
            members[name] = self._models[name].predictor.with_long_texts(long)
        answers: dict[str, list[Answer]] = {}
        for group in groups_of_one_base(members):
            if len(group) == 1:
                ((name, predictor),) = group.items()
                answers[name] = predictor.predict(inputs, top=top, on_bad=on_bad, note=warn)
                continue
            rows = SharedEncoder.of(group).predict(inputs, top=top, on_bad=on_bad, note=warn)
            for name in group:
                answers[name] = [None if row is None else row[name] for row in rows]
        return [
            dict(zip(names, row, strict=True))
            for row in zip(*(answers[name] for name in names), strict=True)
        ]

    def _writer(self, precision: Precision | None) -> Prepared:
        """The network for generation, in `precision` or in that of the model."""
        if precision is not None and precision not in get_args(Precision):
            raise _no_precision(precision)
        model = self._now.model
        require_writer(model.config, one_way=model.conventions.writes)
        return self._now.network(precision)

    def embed(
        self,
        texts: str | Iterable[str],
        *,
        pooling: str | None = None,
        long: LongText = "as_trained",
    ) -> NDArray[np.float32]:
        """A vector for each text: (N, D) float32, or (D,) for one text by itself.

        A model that was trained to make vectors, here or by sentence-transformers, gives those.
        Of any other they are pooled over the states of its last layer and have length 1: their
        mean, unless `pooling` says "cls" (the first token's) or "max".

        Args:
            long: what becomes of a text that is longer than the model reads. "windows": its vector
                is the mean of those of windows without overlap, weighted by how many tokens each
                has, at length 1. "as_trained": a model that was trained to make vectors cuts the
                end, any other refuses the text. "refuse": it is refused.

        Raises:
            UsageError: an empty list, another `pooling`, or one for a model that has its own; a
                text longer than the model reads.
            DataError: an example that is no text.
        """
        many = self._texts(texts, "embed")
        predictor = self.predictor if "predict" in self.abilities else None
        if predictor is None or not predictor.task_type.alone:
            predictor = self._now.pooled(pooling or "mean")
            if long == "as_trained":
                self._require_room(many)
        elif pooling is not None:
            raise UsageError(
                "this model has its own pooling",
                where="pooling",
                found=repr(pooling),
                do="leave it out",
            )
        with self._refusals_with_abilities("embed"):
            vectors = predictor.with_long_texts(long).vectors(many, note=warn)
        return vectors[0] if isinstance(texts, str) else vectors

    def _require_room(self, texts: Sequence[str]) -> None:
        model, tokenizer = self._now.model, self._now.model.tokenizer
        if model.config.longest is None:
            return
        most = model.config.longest - model.positions
        for text, ids in zip(texts, tokenizer.encode_batch(list(texts)), strict=True):
            count = len(ids) + sum(tokenizer.frame_margins())
            if count > most:
                raise UsageError(
                    "the text is longer than the model reads",
                    where=text[:60],
                    found=f"{count} tokens",
                    wanted=f"at most {most}",
                    do="embed its parts, or shorten it",
                )

    def log_likelihood(
        self, texts: str | Iterable[str], *, how: str | None = None
    ) -> float | NDArray[np.float64]:
        """The log-likelihood of each text in nats, (N,) float64; a number for one text by itself.

        Args:
            how: the method of `model/inference/likelihood_prompts.py`, such as "masked"; None: as
                the model was trained. Numbers of different methods or models do not compare.

        Raises:
            IncompatibleError: the model says nothing about tokens, or cannot be asked so.
            UsageError: an empty list, no such method, a text longer than the model reads.
            DataError: an example that is no text.
        """
        many = self._texts(texts, "log_likelihood")
        with self._refusals_with_abilities("log_likelihood"):
            network = self._now.network()
            float32_network = network if network.dtype == torch.float32 else None
            model = self._now.model
            likelihoods = inference_texts.log_likelihoods(model, many, how, float32_network)
        return float(likelihoods[0]) if isinstance(texts, str) else likelihoods

    def tokens(self, texts: str | Iterable[str]) -> list[str] | list[list[str]]:
        """The tokens of each text as the model reads it, its special tokens among them."""
        tokenizer = self._now.model.tokenizer
        many = self._texts(texts, "tokens")
        names = [
            tokenizer.tokens(tokenizer.frame(ids.tolist())[0])
            for ids in tokenizer.encode_batch(many)
        ]
        return names[0] if isinstance(texts, str) else names

    def _texts(self, texts: str | Iterable[str], method: str) -> list[str]:
        """The texts as a list."""
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
    def _refusals_with_abilities(self, method: str) -> Iterator[None]:
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
                where=error.where or self._now.model.folder,
                found=error.found or self._now.describe(),
                wanted=error.wanted or NEEDS[method],
                do="; ".join(filter(None, [str(error.do or ""), remedy])),
            ) from error

    # ------------------------------------------------------------------------------------ looks
    def __repr__(self) -> str:
        return (
            f"<maskwright model {str(self._now.model.folder)!r}: {self._now.describe()}; "
            f"can: {', '.join(self.abilities)}>"
        )

    def _repr_html_(self) -> str:
        """The same as a small table, for notebooks."""
        model = self._now.model
        task = model.task.kind if model.task is not None else "none"
        labels = ", ".join(model.about.labels[:8])
        rows = [
            ("folder", str(model.folder)),
            ("model", self._now.describe()),
            ("task", f"{task} ({labels})" if labels else task),
            ("can be asked", ", ".join(self.abilities)),
            *(("note", str(finding)) for finding in model.findings),
        ]
        return document.render("model.html", rows=rows)


NEEDS = {
    "predict": "a model that was fine-tuned (maskwright finetune MODEL --data FILE)",
    "fill_mask": "an encoder with a vocabulary head and a mask token, or a T5",
    "generate": "a decoder with a vocabulary head",
    "embed": "a stack that reads a text, and a tokenizer",
    "log_likelihood": "a vocabulary head, or one that tells replaced tokens",
    "tokens": "a folder with a tokenizer",
}


def load(
    folder: Path | str,
    *,
    base: Path | str | None = None,
    precision: Precision = "auto",
    engine: str = engines.TORCH,
) -> LanguageModel:
    """Open the model in `folder` once, to be asked any number of times: a run, a checkpoint, what
    `finetune` wrote, a Hugging Face or sentence-transformers folder, or an adapter.

    Args:
        base: the folder of an adapter's base; None: the one that the adapter names. The adapter is
            called "default" (`set_adapter`).
        precision: what is computed in; "auto" is bfloat16 where there are matrix units for it.
        engine: what reads texts: "torch", our own; "onnxruntime" or "openvino"; "auto", which
            measures those that are installed for a second or two and takes another where it is
            clearly faster. "onnxruntime-int8" gives other answers, and is taken only by its name.
            `LanguageModel.findings` says what was chosen and how its states differ.

    Raises:
        UsageError: no such folder, or several models under it; an engine that is not installed.
        CheckpointError: a file is damaged or missing, or a training is not finished.
        IncompatibleError: an adapter without its base, a tokenizer that does not fit.
    """
    engines.require(engine)
    return LanguageModel(open_model(folder, base=base), precision, engine)


def _no_adapter(name: str | None, loaded: Sequence[str]) -> UsageError:
    return UsageError(
        "no adapter of that name was loaded",
        where="adapter",
        found=repr(name),
        wanted=", ".join(loaded) or "the name that load_adapter gives",
        do="load it first: load_adapter(FOLDER)",
    )


def _no_precision(precision: str) -> UsageError:
    return UsageError(
        "no such precision",
        where="precision",
        found=repr(precision),
        wanted=", ".join(get_args(Precision)),
    )


def nothing_to_answer(method: str) -> UsageError:
    return UsageError(
        "nothing to answer", where=method, found="an empty list", wanted="one text or more"
    )


def warn(finding: Finding) -> None:
    warnings.warn(str(finding), CutWarning, stacklevel=4)
