"""The public object: a model folder that was opened once, and everything it can be asked.

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
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, overload

import numpy as np
import torch
from numpy.typing import NDArray

from maskwright.errors import DataError, IncompatibleError, MaskwrightError, UsageError
from maskwright.findings import Finding
from maskwright.inference import texts as asked
from maskwright.inference.decode import require_writer
from maskwright.inference.fill_mask import Hole
from maskwright.inference.prepared import Prepared, prepare
from maskwright.inference.prepared_writer import PreparedWriter
from maskwright.models.model import Model
from maskwright.models.open import open_model
from maskwright.predict.given import listed
from maskwright.predict.predictor import Answer, OnBad, Predictor, of_vectors, predictor
from maskwright.report import document
from maskwright.train.machine.choices import Precision
from maskwright.train.machine.machine import choose


class CutWarning(UserWarning):
    """A text was longer than the model reads, or has words that its tokenizer does not know."""


class LanguageModel:
    """A model that was opened, and what it can be asked.

    Attributes:
        precision: what is computed in: "float32", "bfloat16", or "auto", which is bfloat16 where
            there are matrix units for it. Likelihoods are always computed in float32.
        model: the opened folder: network, tokenizer, config, conventions and where they come from.
    """

    def __init__(self, model: Model, precision: Precision = "auto") -> None:
        if precision not in get_args(Precision):
            raise _no_precision(precision)
        self.model = model
        self.precision = precision
        self._poolings: dict[str, Predictor] = {}
        self._writers: dict[torch.dtype, PreparedWriter] = {}

    # ------------------------------------------------------------------------------- what it can
    @cached_property
    def abilities(self) -> tuple[str, ...]:
        """The names of the methods that this model answers."""
        config, conventions = self.model.config, self.model.conventions
        found = []
        try:
            _ = self.predictor
            found.append("predict")
        except MaskwrightError:
            pass
        words = self.model.words
        if words is None:
            return tuple(found)
        head = config.vocabulary_head is not None
        two = self.model.num_stacks == 2
        if head and config.encoder is not None and (words.mask is not None or words.sentinels):
            found.append("fill_mask")
        if head and (
            (config.decoder is not None and conventions.decoder_trained) or conventions.writes
        ):
            found.append("generate")
        if config.encoder is not None or not two:
            found.append("embed")
        try:
            asked.scoring_method(self.model.network, conventions)
            found.append("log_likelihood")
        except IncompatibleError:
            pass
        return (*found, "tokens")

    @cached_property
    def predictor(self) -> Predictor:
        """How it answers the task it was trained for.

        Raises:
            IncompatibleError: it was trained for none.
        """
        return replace(predictor(self.model), network=lambda: self._network)

    # ---------------------------------------------------------------------------------- answers
    def predict(
        self, given: Iterable[Any], *, top: int | None = None, on_bad: OnBad = "strict"
    ) -> list[Answer]:
        """An answer of the task for each example: a text, a tuple or a mapping of texts, or tables
        and columns of them (`Answering.predict` says which).

        Args:
            top: give a list of the best so many answers for each, the best first.
            on_bad: with "skip" the answer to an example that cannot be read is None.

        Raises:
            IncompatibleError: the model was not fine-tuned for a task.
            UsageError: an empty list, or an argument that is none of these.
            DataError: an example of another shape than the model was trained on.
        """
        with self._asked("predict"):
            answering = self.predictor
        if isinstance(given, Sequence) and len(given) == 0:
            raise _nothing("predict")
        return answering.predict(given, top=top, on_bad=on_bad, note=_warn)

    @overload
    def fill_mask(  # type: ignore[overload-overlap]  # a str is one text
        self, texts: str, *, top: int = 5
    ) -> list[Hole]: ...
    @overload
    def fill_mask(self, texts: Iterable[str], *, top: int = 5) -> list[list[Hole]]: ...
    def fill_mask(
        self, texts: str | Iterable[str], *, top: int = 5
    ) -> list[Hole] | list[list[Hole]]:
        """The likeliest `top` tokens for every mask of each text, or of a T5 the likeliest spans
        for every sentinel such as <extra_id_0>.

        Raises:
            IncompatibleError: the model fills no masks.
            UsageError: an empty list, or a text without a mask or longer than the model reads.
            DataError: an example that is no text.
        """
        many = self._texts(texts, "fill_mask")
        with self._asked("fill_mask"):
            found = asked.fill_masks(self.model, many, top=top, note=_warn, prepared=self._prepared)
        return found[0] if isinstance(texts, str) else found

    def generate(
        self,
        prompts: str | Iterable[str],
        *,
        tokens: int = 100,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        precision: Precision = "auto",
    ) -> str | list[str]:
        """Each prompt and what the model writes after it; of an encoder–decoder what it makes of
        it. The same prompt and seed give the same text, whatever stands beside it in the list.

        Args:
            tokens: how many are written at most.
            temperature: of the scores; 0 takes the likeliest token.
            top_k, top_p: draw among so many of the likeliest; 0 and 1 for all.
            stop: strings that end a text wherever they appear in it; it is cut before them.
            precision: "auto" is bfloat16 where the machine has matrix units for it.

        Raises:
            IncompatibleError: the model does not write.
            UsageError: an empty list, a prompt longer than the model reads, a setting out of range.
            DataError: a prompt that is no text.
        """
        many = self._texts(prompts, "generate")
        with self._asked("generate"):
            found = asked.write(
                self.model,
                many,
                tokens=tokens,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed,
                stop=stop,
                writer=self._writer(precision),
            )
        return found[0] if isinstance(prompts, str) else found

    def stream(
        self,
        prompt: str,
        *,
        tokens: int = 100,
        temperature: float = 0.8,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        precision: Precision = "auto",
    ) -> Iterator[str]:
        """What `generate` adds to the prompt, piece by piece as it is written. A piece is never
        taken back: it holds no half character, and nothing of a string that ends the text.

        Args and errors: as `generate`.
        """
        (text,) = self._texts([prompt], "stream")
        with self._asked("generate"):
            pieces = asked.write_stream(
                self.model,
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

    @cached_property
    def _network(self) -> Prepared:
        """The network with its weights prepared, once for all that reads."""
        return prepare(self.model.network, precision=self.precision)

    @property
    def _prepared(self) -> Prepared | None:
        """The network that fills masks; None of one that writes spans instead."""
        filling = self.model.tokenizer.mask is not None and self.model.config.encoder is not None
        return self._network if filling else None

    def _writer(self, precision: Precision) -> PreparedWriter:
        """The network with its weights prepared, once for each precision."""
        if precision not in get_args(Precision):
            raise _no_precision(precision)
        require_writer(self.model.config, one_way=self.model.conventions.writes)
        network = self.model.network
        dtype = choose(precision, str(network.device)).compute
        if dtype not in self._writers:
            self._writers[dtype] = PreparedWriter(network, dtype)
        return self._writers[dtype]

    def embed(
        self, texts: str | Iterable[str], *, pooling: str | None = None
    ) -> NDArray[np.float32]:
        """A vector for each text: (N, D) float32, or (D,) for one text by itself.

        A model that was trained to make vectors, here or by sentence-transformers, gives those.
        Of any other they are pooled over the states of its last layer and have length 1: their
        mean, unless `pooling` says "cls" (the first token's) or "max".

        Raises:
            UsageError: an empty list, another `pooling`, or one for a model that has its own; a
                text longer than the model reads.
            DataError: an example that is no text.
        """
        many = self._texts(texts, "embed")
        made = self.predictor if "predict" in self.abilities else None
        if made is None or not made.kind.alone:
            made = self._pooled(pooling or "mean")
            self._require_room(many)
        elif pooling is not None:
            raise UsageError(
                "this model has its own pooling",
                where="pooling",
                found=repr(pooling),
                do="leave it out",
            )
        with self._asked("embed"):
            found = made.vectors(many, note=_warn)
        return found[0] if isinstance(texts, str) else found

    def _pooled(self, pooling: str) -> Predictor:
        known = {"cls", "mean", "max"} - ({"cls"} if self.model.config.encoder is None else set())
        if pooling not in known:
            raise UsageError(
                "no such pooling",
                where="pooling",
                found=repr(pooling),
                wanted=", ".join(sorted(known)),
            )
        if pooling not in self._poolings:
            made = of_vectors(self.model, pooling)
            self._poolings[pooling] = replace(made, network=lambda: self._network)
        return self._poolings[pooling]

    def _require_room(self, texts: Sequence[str]) -> None:
        model, tokenizer = self.model, self.model.tokenizer
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
            how: the method of `inference/likelihood_prompts.py`, such as "masked"; None: as the
                model was trained. Numbers of different methods or models do not compare.

        Raises:
            IncompatibleError: the model says nothing about tokens, or cannot be asked so.
            UsageError: an empty list, no such method, a text longer than the model reads.
            DataError: an example that is no text.
        """
        many = self._texts(texts, "log_likelihood")
        with self._asked("log_likelihood"):
            found = asked.log_likelihoods(self.model, many, how)
        return float(found[0]) if isinstance(texts, str) else found

    def tokens(self, texts: str | Iterable[str]) -> list[str] | list[list[str]]:
        """The tokens of each text as the model reads it, its special tokens among them."""
        tokenizer = self.model.tokenizer
        many = self._texts(texts, "tokens")
        found = [
            tokenizer.tokens(tokenizer.frame(ids.tolist())[0])
            for ids in tokenizer.encode_batch(many)
        ]
        return found[0] if isinstance(texts, str) else found

    def _texts(self, given: str | Iterable[str], what: str) -> list[str]:
        """The texts as a list."""
        found = [given] if isinstance(given, str) else listed(given, what)
        if not found:
            raise _nothing(what)
        for number, text in enumerate(found, start=1):
            if not isinstance(text, str):
                raise DataError(
                    "not a text",
                    where=f"{what}: example {number}",
                    found=f"{type(text).__name__} {text!r}"[:80],
                    wanted="a str",
                    do="leave it out, or write it as a text",
                )
        return found

    @contextmanager
    def _asked(self, what: str) -> Iterator[None]:
        """A refusal because of what the model is also says what it can be asked."""
        try:
            yield
        except IncompatibleError as error:
            can = [name for name in self.abilities if name != what]
            remedy = f"this model can be asked: {', '.join(can)}" if can else ""
            raise IncompatibleError(
                error.what,
                where=error.where or self.model.folder,
                found=error.found or self._kind(),
                wanted=error.wanted or NEEDS[what],
                do="; ".join(filter(None, [str(error.do or ""), remedy])),
            ) from error

    # ------------------------------------------------------------------------------------ looks
    def _kind(self) -> str:
        config = self.model.config
        stacks = (
            "encoder–decoder"
            if self.model.num_stacks == 2
            else ("decoder" if config.encoder is None else "encoder")
        )
        both = [stack for stack in (config.encoder, config.decoder) if stack is not None]
        layers = "+".join(str(len(stack.blocks)) for stack in both)
        heads = [f"a {head.kind} head" for head in config.heads]
        heads += ["a vocabulary head"] if config.vocabulary_head is not None else []
        return (
            f"{self.model.model_type}, {stacks}, {layers} layers of width {config.width}, "
            f"{self.model.network.num_parameters():,} parameters, "
            f"{' and '.join(heads) or 'no head'}"
        )

    def __repr__(self) -> str:
        return (
            f"<maskwright model {str(self.model.folder)!r}: {self._kind()}; "
            f"can: {', '.join(self.abilities)}>"
        )

    def _repr_html_(self) -> str:
        """The same as a small table, for notebooks."""
        model = self.model
        task = model.task.kind if model.task is not None else "none"
        labels = ", ".join(model.about.labels[:8])
        rows = [
            ("folder", str(model.folder)),
            ("model", self._kind()),
            ("task", f"{task} ({labels})" if labels else task),
            ("can be asked", ", ".join(self.abilities)),
            *(("note", str(found)) for found in model.findings),
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
    folder: Path | str, *, base: Path | str | None = None, precision: Precision = "auto"
) -> LanguageModel:
    """Open the model in `folder` once, to be asked any number of times: a run, a checkpoint, what
    `finetune` wrote, a Hugging Face or sentence-transformers folder, or an adapter.

    Args:
        base: the folder of an adapter's base; None: the one that the adapter names.
        precision: what is computed in; "auto" is bfloat16 where there are matrix units for it.

    Raises:
        UsageError: no such folder, or several models under it.
        CheckpointError: a file is damaged or missing, or a training is not finished.
        IncompatibleError: an adapter without its base, a tokenizer that does not fit.
    """
    return LanguageModel(open_model(folder, base=base), precision)


def _no_precision(found: str) -> UsageError:
    return UsageError(
        "no such precision",
        where="precision",
        found=repr(found),
        wanted=", ".join(get_args(Precision)),
    )


def _nothing(what: str) -> UsageError:
    return UsageError(
        "nothing to answer", where=what, found="an empty list", wanted="one text or more"
    )


def _warn(found: Finding) -> None:
    warnings.warn(str(found), CutWarning, stacklevel=4)
