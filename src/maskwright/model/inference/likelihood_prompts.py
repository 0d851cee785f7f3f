"""The special tokens around a text whose likelihood is computed, and the methods a model supports.

The tokens depend on the method (`likelihood.py`) and are those of the model's training. If the
model or its tokenizer does not support a method, the error names those that it supports.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from maskwright.base.errors import IncompatibleError, UsageError, near

if TYPE_CHECKING:  # so that a command line is checked without torch
    from maskwright.model.inference.prepared import Prepared
    from maskwright.model.nn.transformer import Transformer
    from maskwright.text.tokenizer.tokenizer import Tokenizer

METHODS = (
    "causal",
    "masked",
    "masked-within-word",
    "masked-next",
    "masked-next-within-word",
    "sequence-to-sequence",
    "replaced",
)
# The gap token of T5 vocabularies, which have no mask token (Raffel et al. 2020, section 3.1).
SENTINEL = "<extra_id_0>"


@dataclass(frozen=True)
class PromptFrame:
    """The token ids around a text, and the encoder input of an encoder-decoder model."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    source: tuple[int, ...] = ()


def frame_for(model: Transformer | Prepared, tokenizer: Tokenizer, method: str) -> PromptFrame:
    """Return the frame of a text for a scoring method; raises IncompatibleError if the model does
    not support it."""
    require_method(method, "how")
    try:
        return _fitting_frame(model, tokenizer, method)
    except IncompatibleError as error:
        raise error.advising(_supported(model, tokenizer)) from None


def require_method(name: str, where: str) -> None:
    """Raise a `UsageError`, with similar names, if there is no scoring method of that name; `where`
    is the option that has it."""
    if name not in METHODS:
        raise UsageError(
            "unknown scoring method",
            where=where,
            found=repr(name),
            wanted=near(name, METHODS),
            do="leave it out to score as the model was trained",
        )


def _supported(model: Transformer | Prepared, tokenizer: Tokenizer) -> str:
    """Return the advice to choose one of the methods that this model supports."""
    supported = []
    for method in METHODS:
        if len(model.config.stacks) == 2 and method.startswith("masked"):
            continue  # their encoders are rarely trained to predict masks
        with contextlib.suppress(IncompatibleError):
            _fitting_frame(model, tokenizer, method)
            supported.append(method)
    return f"choose another method: {', '.join(supported)}" if supported else "choose another model"


def _fitting_frame(model: Transformer | Prepared, tokenizer: Tokenizer, method: str) -> PromptFrame:
    """As `frame_for`, for a valid name of a method."""
    config = model.config
    framed_ids = tokenizer.frame([-1])[0]  # -1 stands for the text
    text_index = framed_ids.index(-1)
    single = PromptFrame(tuple(framed_ids[:text_index]), tuple(framed_ids[text_index + 1 :]))
    if method == "replaced":
        _require(
            config.encoder is not None and detector(model) is not None,
            method,
            "an encoder with a head of one score per token",
        )
        return single
    _require(config.vocabulary_head is not None, method, "a vocabulary head")
    if method == "sequence-to-sequence":
        _require(len(config.stacks) == 2, method, "an encoder and a decoder")
        return _two_stacks(tokenizer, single)
    if method == "causal":
        _require(len(config.stacks) == 1, method, "a single stack")
        opening = single.before if config.encoder is not None else ()
        return PromptFrame(opening or first_token(tokenizer))
    _require(config.encoder is not None, method, "an encoder")
    _require(tokenizer.mask is not None, method, "a mask token")
    if method.startswith("masked-next") and not single.before:
        return PromptFrame(first_token(tokenizer), single.after)
    return single


def first_token(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the token before a text, as in streams (`text/store/rows.py`)."""
    for token in (tokenizer.end, tokenizer.separator, tokenizer.begin):
        if token is not None:
            return (token,)
    raise IncompatibleError(
        "the tokenizer has no token that a text could begin after",
        where="tokenizer",
        wanted="an end, separator or begin token",
        do="train the tokenizer with special tokens",
    )


def _two_stacks(tokenizer: Tokenizer, single: PromptFrame) -> PromptFrame:
    """Return the frame for encoder-decoder models: the source is one mask, the target fills it.

    With a mask token the source is `<s> <mask> </s>` and the target `<s> text`, after the end token
    or separator (BART, Lewis et al. 2020, text infilling). Without one they are the first sentinel,
    and that sentinel and the text, after the padding token (T5's span corruption).
    """
    sentinel = tokenizer.id(SENTINEL)
    closing = tokenizer.separator if tokenizer.end is None else tokenizer.end
    if tokenizer.mask is not None and closing is not None:
        mask, before = tokenizer.mask, (closing, *single.before)
    elif sentinel is not None and tokenizer.pad is not None:
        mask, before = sentinel, (tokenizer.pad, sentinel)
    else:
        raise IncompatibleError(
            "the tokenizer has no token for a hole",
            where="tokenizer",
            wanted=f"a mask token and an end token, or {SENTINEL} and padding",
        )
    return PromptFrame(before, source=tuple(tokenizer.frame([mask])[0]))


def detector(model: Transformer | Prepared) -> str | None:
    """Return the name of the head with one logit of "replaced" per token; None without one."""
    heads = (h.name for h in model.config.heads if h.kind == "token" and h.labels == 1)
    return next(heads, None)


def _require(holds: bool, method: str, requirement: str) -> None:
    if not holds:
        raise IncompatibleError(
            "scoring method not supported by this model",
            where="how",
            found=method,
            wanted=requirement,
        )
