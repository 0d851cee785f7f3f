"""Scores of texts for curation: bits per token of a model, and the class of a fine-tuned one.

Opening a model loads torch; each process opens it once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from maskwright.base.errors import IncompatibleError
from maskwright.base.storage.files import file_state
from maskwright.model.checkpoint.safe_read import model_folder
from maskwright.text.curate.arrays.segmentation import passages_of

if TYPE_CHECKING:
    from maskwright.ask.predict.language_model import LanguageModel

PASSAGES = 4  # the number of passages of a text that are scored
MOST_TOKENS = 512
READ = 4000  # characters of a text that a fine-tuned model gets; it may read fewer


def open_model(folder: str) -> LanguageModel:
    """Open the model in a folder, cached per process until its files change. Errors as in
    `maskwright.load`."""
    return _open_model(folder, tuple(file_state(path) for path in model_files(folder)))


@functools.lru_cache(maxsize=2)
def _open_model(folder: str, state: tuple[object, ...]) -> LanguageModel:
    from maskwright.ask.predict.language_model import load

    return load(folder)


def model_files(folder: str) -> list[Path]:
    """Return the files of a model folder, or of the newest checkpoint and tokenizer of a run; a
    `UsageError` or `CheckpointError` if there is no model."""
    from maskwright.model.opening import folders
    from maskwright.model.opening.open import home_of
    from maskwright.text.corpus.saved import is_run

    home = home_of(model_folder(folder))
    roots = [folders.model_folder(home), home / "tokenizer"] if is_run(home) else [home]
    return sorted({path for root in roots for path in root.rglob("*") if path.is_file()})


def bits_per_token(folder: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """Compute bits per token of each text, (B,), from `PASSAGES` passages; NaN without tokens."""
    model = open_model(folder)
    passages, owners = passages_of(texts, PASSAGES)
    pieces: list[str] = []
    piece_owners: list[int] = []
    for passage, owner in zip(passages, owners.tolist(), strict=True):
        halves = _split_to_fit(model, passage.decode("utf-8", "replace").strip())
        pieces += halves
        piece_owners += [owner] * len(halves)
    tokens = [len(ids) for ids in model.model.tokenizer.encode_batch(pieces)]
    log_likelihoods = np.asarray(model.log_likelihood(pieces)) if pieces else np.zeros(0)
    sums = np.bincount(piece_owners, log_likelihoods, len(texts))
    counts = np.bincount(piece_owners, tokens, len(texts))
    with np.errstate(invalid="ignore", divide="ignore"):
        bits = np.where(counts > 0, -sums / math.log(2) / counts, np.nan)
    return bits.round(4)


def _split_to_fit(model: LanguageModel, text: str) -> list[str]:
    """Halve a text recursively until each piece fits into the model's context."""
    if not text:
        return []
    tokenizer, longest = model.model.tokenizer, model.model.config.longest
    limit = MOST_TOKENS if longest is None else min(MOST_TOKENS, longest - model.model.positions)
    limit -= sum(tokenizer.frame_margins())
    if len(text) < 2 or len(tokenizer.encode_batch([text])[0]) <= limit:
        return [text]
    middle = len(text) // 2
    return _split_to_fit(model, text[:middle].strip()) + _split_to_fit(model, text[middle:].strip())


def class_names(folder: str) -> list[str]:
    """Return the names of the two classes of a model, sorted.

    Raises:
        IncompatibleError: the model was not fine-tuned on two classes of texts.
    """
    names = sorted(answer["label"] for answer in _answers(folder, ["a text"])[0])
    if len(names) != 2:
        raise IncompatibleError(
            "the model does not tell two classes of texts apart",
            where=folder,
            found=f"{len(names)} classes",
            wanted="a model that was fine-tuned on texts with two labels",
            do="fine-tune one on labels such as yes and no",
        )
    return names


def probabilities(folder: str, texts: Sequence[str], label: str) -> NDArray[np.float64]:
    """Return the probabilities that a fine-tuned model gives the class `label`, (B,)."""
    answers = _answers(folder, [text[:READ] for text in texts])
    return np.array(
        [next(a["score"] for a in answer if a["label"] == label) for answer in answers]
    ).round(4)


def _answers(folder: str, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Predict all classes of each text, as lists of {"label", "score"}."""
    model = open_model(folder)
    if "predict" not in model.abilities:
        raise IncompatibleError(
            "the model was not fine-tuned for a task",
            where=folder,
            found=", ".join(model.abilities),
            wanted="a model that was fine-tuned on texts with two labels",
            do="maskwright finetune MODEL --data FILE",
        )
    answers = model.predictor.predict(texts, top=1_000)
    if not all(isinstance(a, list) and a and "label" in a[0] for a in answers):
        raise IncompatibleError(
            "the model gives no labels of texts",
            where=folder,
            wanted="a model that was fine-tuned on texts with two labels",
            do="fine-tune one on labels such as yes and no",
        )
    return answers
