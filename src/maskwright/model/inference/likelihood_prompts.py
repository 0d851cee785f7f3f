"""What stands around a text when a model is asked how likely it is, and whether it can be asked so.

By method (`text_likelihood`), as the model's training had it. A method that the model or its
tokenizer does not support is refused, and those that it can be asked by are named.
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
# The hole of a span-corrupting vocabulary that has no mask token (Raffel et al. 2020, section 3.1).
SENTINEL = "<extra_id_0>"


@dataclass(frozen=True)
class PromptFrame:
    """The tokens around a text, and for two stacks the source beside it."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    source: tuple[int, ...] = ()


def frame_for(model: Transformer | Prepared, tokenizer: Tokenizer, method: str) -> PromptFrame:
    """The frame of a text for this scoring method; refuses methods that the model does not
    support."""
    require_method(method, "how")
    try:
        return _fitting_frame(model, tokenizer, method)
    except IncompatibleError as error:
        raise _remedied(error, model, tokenizer) from None


def require_method(name: str, where: str) -> None:
    """Refuse an unknown scoring method; `where` is the option that names it.

    Raises:
        UsageError: the message has the near names.
    """
    if name not in METHODS:
        raise UsageError(
            "unknown scoring method",
            where=where,
            found=repr(name),
            wanted=near(name, METHODS),
            do="leave it out to score as the model was trained",
        )


def _remedied(
    error: IncompatibleError, model: Transformer | Prepared, tokenizer: Tokenizer
) -> IncompatibleError:
    """The error with the methods that this model supports."""
    fitting = []
    for method in METHODS:
        if len(model.config.stacks) == 2 and method.startswith("masked"):
            continue  # of these the encoder is rarely trained to fill holes by itself
        with contextlib.suppress(IncompatibleError):
            _fitting_frame(model, tokenizer, method)
            fitting.append(method)
    do = f"choose another method: {', '.join(fitting)}" if fitting else "choose another model"
    return IncompatibleError(
        error.what, where=error.where, found=error.found, wanted=error.wanted, do=do
    )


def _fitting_frame(model: Transformer | Prepared, tokenizer: Tokenizer, method: str) -> PromptFrame:
    """As `frame_for`, where the method is known."""
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
        return PromptFrame(opening or _opening(tokenizer))
    _require(config.encoder is not None, method, "an encoder")
    _require(tokenizer.mask is not None, method, "a mask token")
    if method.startswith("masked-next") and not single.before:
        return PromptFrame(_opening(tokenizer), single.after)
    return single


def _opening(tokenizer: Tokenizer) -> tuple[int, ...]:
    """The token from which the first one is predicted, as in streams (`text/store/stream.py`)."""
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
    """The source is one mask and the target fills it.

    With a mask token: `<s> <mask> </s>`, target `<s> text`, decoding begun by the end token or the
    separator (BART, Lewis et al. 2020, text infilling). Without one: the first sentinel, target
    that sentinel and the text, decoding begun by padding (T5's span corruption).
    """
    sentinel = tokenizer.id(SENTINEL)
    closing = tokenizer.separator if tokenizer.end is None else tokenizer.end
    if tokenizer.mask is not None and closing is not None:
        hole, before = tokenizer.mask, (closing, *single.before)
    elif sentinel is not None and tokenizer.pad is not None:
        hole, before = sentinel, (tokenizer.pad, sentinel)
    else:
        raise IncompatibleError(
            "the tokenizer has no token for a hole",
            where="tokenizer",
            wanted=f"a mask token and an end token, or {SENTINEL} and padding",
        )
    return PromptFrame(before, source=tuple(tokenizer.frame([hole])[0]))


def detector(model: Transformer | Prepared) -> str | None:
    """The head that gives each token one score, the logit of "replaced"; None without one."""
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
