"""Vectors of texts, as every dialect asks for them (prompt, length, number of figures), and how
alike two of them are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from maskwright.learn.tasks.base.choices import COMPARED, NAME, PROMPTS, SKIPPED
from maskwright.learn.tasks.base.similarities import compared
from maskwright.ship.serve.dialects.base.chosen import Chosen
from maskwright.ship.serve.errors import Refusal
from maskwright.ship.serve.host import Answered


async def vectors(
    model: Chosen,
    texts: Sequence[str],
    *,
    field: str,
    truncate: bool,
    normalize: bool = True,
    dimensions: int | None = None,
    prompt: str | None = None,
) -> tuple[list[NDArray[np.float32]], Answered]:
    """(D,) of each text, and what is known of the answer.

    Args:
        normalize: at length 1; else as the model makes them, whose length may be 1, too.
        dimensions: how many figures are wanted.
        prompt: the name of what is put before each text; None: the model's own choice.

    Raises:
        Refusal: the model makes no vectors, has no such prompt, or has other dimensions.
    """
    if not model.makes_vectors:
        raise model.unable("a model that makes vectors")
    texts = prompted(model, texts, prompt)
    options = model.options(field, truncate=truncate)
    answered = await model.host.embed(model.name, texts, options)
    found: list[NDArray[np.float32]] = answered.values
    require_dimensions(dimensions, len(found[0]))
    return [_unit(each) for each in found] if normalize else found, answered


def require_dimensions(wanted: int | None, known: int) -> None:
    """Refuse a vector that is cut off: that is another vector, unless a model was trained so.

    Raises:
        Refusal: naming the number that there is.
    """
    if wanted is not None and wanted != known:
        what = (
            "the model was not trained so that the first figures of a vector are one (Matryoshka)"
        )
        raise Refusal("validation", what, field="dimensions", limit=known)


def prompted(model: Chosen, texts: Sequence[str], name: str | None) -> list[str]:
    """The texts with the prompt of that name before them.

    Raises:
        Refusal: there is none, or another cannot be put in its place.
    """
    options: dict[str, Any] = dict(model.task_type.options) if model.task_type else {}
    if name is None or name == options.get(NAME):
        return list(texts)
    prompts = options.get(PROMPTS, {})
    if name not in prompts:
        known = ", ".join(prompts) or "none"
        raise Refusal(
            "validation", f"no prompt of that name; there are: {known}", field="prompt_name"
        )
    if options.get(NAME) is not None or SKIPPED in options:
        what = f"the model always has the prompt {options.get(NAME)!r}"
        raise Refusal("validation", what, field="prompt_name")
    return [prompts[name] + text for text in texts]


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    length = float(np.linalg.norm(vector.astype(np.float64)))
    return vector if length == 0 or abs(length - 1) < 1e-6 else (vector / length).astype(np.float32)


async def alike(
    model: Chosen, source: str, texts: Sequence[str], **options: Any
) -> tuple[list[float], Answered]:
    """How alike `source` is to each of the texts, compared as the folder of the model says; further
    arguments and errors as of `vectors`."""
    (first, *others), answered = await vectors(model, [source, *texts], normalize=False, **options)
    task_type = model.task_type
    similarity = "cosine" if task_type is None else task_type.decoding.get(COMPARED, "cosine")
    scores = compared(similarity, first[None], np.stack(others)).tolist()
    return [float(f"{score:.7g}") for score in scores], answered  # of any size
