"""The static properties of an objective, its `SPEC`.

A `Spec` determines the rows, what a store has to record, which further networks are opened, the
conventions for using and evaluating the trained model (`model/opening/open.py` saves them with
it), and texts in reports. Code outside `objectives/` and `recipes/` depends on an objective's Spec,
not on its name; `member_of` resolves the name in a recipe once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from maskwright.base import catalogue, config
from maskwright.base.errors import ConfigError

if TYPE_CHECKING:
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Objective, Vocabulary

# Kinds of rows: of text (`learn/pretrain/rows.py`), of two sentences, of labelled data, of images.
TextRows = Literal["documents", "stream", "blocks", "pairs", "swapped-pairs"]
Rows = Literal[TextRows, "parallel", "labelled", "images"]
# Kinds of models: of one stack; of two, by the tokens of the tokenizer for removed parts of a text,
# or trained on pairs of sources and targets.
Form = Literal["encoder", "decoder", "sentinels", "masks", "parallel"]
Lengths = Callable[[Any, int], tuple[int, int]]
# The decoder start token of an encoder-decoder.
Start = Literal["pad", "begin", "end"]


@dataclass(frozen=True, kw_only=True)
class MeasurementSpec:
    """How an objective evaluates all models of a form, whatever their training objective.

    Attributes:
        options: (options of the model's own training, or None) -> options of the evaluation.
        at_end: options -> their values at the end of a run.
        words: options -> the rest of a sentence that begins with "measured".
    """

    options: Callable[[Any], Any]
    at_end: Callable[[Any], Any]
    words: Callable[[Any], str]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The properties of an objective that other packages use.

    Attributes:
        rows: default kind of rows, if a recipe does not specify one.
        prediction_offset: how many positions before a masked token its scores are read.
        bidirectional_prefix: whether attention within a prompt is bidirectional.
        writes: whether an encoder also learns to continue a text.
        trains_decoder: whether it trains the decoder of an encoder-decoder, too.
        framed_target: whether the decoder output of an encoder-decoder has special tokens.
        sentences: whether the store has to record where sentences begin.
        networks: names of the options with folders of further networks.
        usual_for: the form of models for whose evaluation and further training it is the default.
        measurement: how it evaluates them; None for its default options.
        static_option: path of the option that keeps the masks of a row equal in all epochs.
        token_parts: parts of the loss that predict tokens, and can be compared with guessing.
        predicts: what the targets are. Pixels are numbers, whose loss is an absolute error.
        codes: whether a model of one stack trained by it has bits per byte.
        scored_by: name in reports of the network whose token predictions are evaluated.
        text_length: (options, row length) -> number of tokens of text for a row, if larger.
        lengths: (options, tokens of text) -> maximum lengths of encoder and decoder inputs.
        piece_length: options -> number of tokens of the pieces in which rows are read, if rows are
            not read whole.
    """

    rows: Rows
    prediction_offset: int = 0
    bidirectional_prefix: bool = False
    writes: bool = False
    trains_decoder: bool = False
    framed_target: bool = False
    sentences: bool = False
    networks: tuple[str, ...] = ()
    usual_for: Form | None = None
    measurement: MeasurementSpec | None = None
    static_option: str = ""
    token_parts: tuple[str, ...] = ()
    predicts: Literal["tokens", "pixels"] = "tokens"
    codes: bool = False
    scored_by: str = "this model"
    text_length: Callable[[Any, int], int] | None = None
    lengths: Lengths | None = None
    piece_length: Callable[[Any], int] | None = None


@dataclass(frozen=True)
class Member:
    """An objective: its name in recipes, its spec, and the class of its options."""

    name: str
    spec: Spec
    options: type

    def read(self, options: Mapping[str, Any]) -> Any:
        """Convert and check the options of a recipe.

        Raises:
            ConfigError: an unknown option, or a value out of range.
        """
        return config.from_plain(self.options, dict(options), "objective.options")

    def build(
        self, model: Transformer, options: Any, vocabulary: Vocabulary, **networks: Transformer
    ) -> Objective:
        """Build the objective for `model` and the further networks that its spec names."""
        module = catalogue.load_modules("objectives", self.name)
        objective: Objective = module.build(model, options, vocabulary, **networks)
        return objective


def require_option(
    options: object, name: str, fits: bool, valid: str, *, value: Any = None, do: str | None = None
) -> None:
    """Raise a `ConfigError`, with what is `valid`, unless the option `name` fits; it has this
    `value`, or that of the field."""
    if not fits:
        raise ConfigError(
            "an option of the objective is out of range",
            where=name,
            found=getattr(options, name) if value is None else value,
            wanted=valid,
            do=do,
        )


def member_of(name: str) -> Member:
    """Return the objective of that name.

    Raises:
        UsageError: there is none; the message has similar names.
    """
    module = catalogue.load("objectives", name)
    return Member(name, module.SPEC, module.Options)


@functools.cache
def usual_for(form: Form) -> Member:
    """Return the default objective for evaluation and further training of models of that form."""
    members = map(member_of, catalogue.names("objectives"))
    return next(member for member in members if member.spec.usual_for == form)
