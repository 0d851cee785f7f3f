"""What an objective says of itself before anything is built: its `SPEC`.

A `Spec` decides which rows are made, what a store has to record, which further networks are
opened, how the model that was trained so is asked and measured (`model/opening/of_recipe.py` saves
that with the model), and what a page says of it. Outside `objectives/` and `recipes/` an objective
is known by its Spec, not its name. A recipe's choice resolves it once (`member_of`) and carries it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from maskwright.base import catalogue, config

if TYPE_CHECKING:
    from maskwright.model.nn.transformer import Transformer
    from maskwright.model.objectives.base.objective import Objective, Vocabulary

# Rows that are made of text (`learn/pretrain/rows.py`); of two sentences; and what labelled data
# gives.
Rows = Literal["documents", "stream", "blocks", "pairs", "swapped-pairs", "parallel", "labelled"]
# A model of one stack; of two, by what its tokenizer has for what is cut out of a text, or one that
# learns from sources with their targets.
Form = Literal["encoder", "decoder", "sentinels", "masks", "parallel"]
Lengths = Callable[[Any, int], tuple[int, int]]
# The token that a decoder of two stacks begins with.
Start = Literal["pad", "begin", "end"]


@dataclass(frozen=True, kw_only=True)
class MeasurementSpec:
    """How an objective measures every model of a form, whatever the model was trained by.

    Attributes:
        options: (the options of the model's own training, or None) -> those it is measured by.
        at_end: options -> as they are when a run ends.
        words: options -> the rest of a sentence that begins "measured".
    """

    options: Callable[[Any], Any]
    at_end: Callable[[Any], Any]
    words: Callable[[Any], str]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What other packages know of an objective.

    Attributes:
        rows: how tokens become the rows that it learns from, unless a recipe says otherwise.
        prediction_offset: how many positions before a token its scores stand where it is masked.
        bidirectional_prefix: the tokens of a prompt see each other.
        writes: an encoder learns to continue a text, too.
        trains_decoder: of two stacks it trains both, not the encoder alone.
        framed_target: what the decoder of two stacks writes stands within its special tokens.
        sentences: the store has to record where sentences begin.
        networks: the names of options that hold the folder of a further network.
        usual_for: the form of models that are all measured, and trained further, by this objective.
        measurement: how it measures them; None: by its default options.
        static_option: the path of the option that keeps the masks of a row the same in every epoch.
        token_parts: the parts of its loss that predict tokens, comparable with guessing.
        codes: a model of one stack that it trains gives bits per byte, as of every token.
        scored_by: the network whose predictions of tokens are evaluated, for a page.
        text_length: (options, row length) -> tokens of text that a row is made of, where these are
            more than the row.
        lengths: (options, tokens of text) -> the most that encoder and decoder read, of two stacks.
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
    codes: bool = False
    scored_by: str = "this model"
    text_length: Callable[[Any, int], int] | None = None
    lengths: Lengths | None = None


@dataclass(frozen=True)
class Member:
    """An objective as its module gives it.

    Attributes:
        name: by which recipes choose it.
        options: the type of its options.
    """

    name: str
    spec: Spec
    options: type

    def read(self, options: Mapping[str, Any]) -> Any:
        """The options of a recipe, checked.

        Raises:
            ConfigError: an option that it does not take, or a value out of range.
        """
        return config.from_plain(self.options, dict(options), "objective.options")

    def build(
        self, model: Transformer, options: Any, vocabulary: Vocabulary, **networks: Transformer
    ) -> Objective:
        """The objective over `model`, and over the further networks that its spec names."""
        module = catalogue.load_modules("objectives", self.name)
        objective: Objective = module.build(model, options, vocabulary, **networks)
        return objective


def member_of(name: str) -> Member:
    """The objective of that name.

    Raises:
        UsageError: there is none; the message has the near names.
    """
    module = catalogue.load("objectives", name)
    return Member(name, module.SPEC, module.Options)


@functools.cache
def usual_for(form: Form) -> Member:
    """The objective by which any model of that form is measured, and trained further."""
    members = map(member_of, catalogue.names("objectives"))
    return next(member for member in members if member.spec.usual_for == form)
