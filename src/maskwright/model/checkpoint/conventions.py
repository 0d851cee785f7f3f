"""The conventions of using a model, in the table `maskwright` of its config.json.

    "maskwright": {"conventions": {"prediction_offset": 1, "writes": true, …}}

Other libraries ignore the table and keep it when they save the folder. A folder without it has the
defaults (`Conventions()`), as in the library that it comes from. The table `maskwright_taught` of
earlier releases is read, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from maskwright.base.config import from_plain, require, to_plain
from maskwright.base.errors import ConfigError

KEY = "maskwright"
EARLIER = "maskwright_taught"
# Names of the fields in folders of earlier releases.
EARLIER_NAMES = {
    "shift": "prediction_offset",
    "whole": "bidirectional_prefix",
    "decoder": "decoder_trained",
    "writes": "writes",
    "framed": "framed_prompt",
}


@dataclass(frozen=True, kw_only=True)
class LossConvention:
    """How the loss of a model on a text is measured: as pretraining measured held-out text.

    Attributes:
        objective: the name of the objective, and `options` of it.
        rows: the table `rows` of a recipe.
        reading: the settings by which files of text are read.
    """

    objective: str
    options: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Conventions:
    """How a model is used, where its class alone does not determine it.

    Attributes:
        prediction_offset: how many positions before a masked token its scores stand (1 for models
            of the hybrid objective, else 0).
        bidirectional_prefix: the tokens of a prompt see each other (prefix language models).
        decoder_trained: of an encoder with a decoder, the decoder was trained, too.
        writes: an encoder was also trained to continue a text, token by token.
        framed_prompt: a prompt begins with the opening special tokens, such as [CLS].
        framed_target: the output of a decoder of two stacks begins with them.
        measure: how its loss on a text is measured; None: by the usual objective of its class.
    """

    prediction_offset: int = 0
    bidirectional_prefix: bool = False
    decoder_trained: bool = True
    writes: bool = False
    framed_prompt: bool = False
    framed_target: bool = True
    measure: LossConvention | None = None

    def __post_init__(self) -> None:
        require("prediction_offset", self.prediction_offset, 0, 8)


def table(conventions: Conventions) -> dict[str, Any]:
    """Return the conventions as a table for config.json."""
    return {"conventions": dict(to_plain(conventions))}


def read(config: Mapping[str, Any]) -> Conventions | None:
    """Read the conventions in a config.json; None if it has none.

    Raises:
        ConfigError: an invalid table; the message names the field.
    """
    our_table = config.get(KEY)
    if our_table is not None and not isinstance(our_table, dict):
        raise ConfigError(
            "not a table",
            where=f"config.json: {KEY}",
            found=repr(our_table)[:80],
            wanted="a JSON object",
        )
    if our_table is not None and "conventions" in our_table:
        where = f"config.json: {KEY}.conventions"
        return from_plain(Conventions, our_table["conventions"], where)
    if EARLIER not in config:
        return None
    earlier_table = config[EARLIER]
    if not isinstance(earlier_table, dict) or (unknown := earlier_table.keys() - EARLIER_NAMES):
        raise ConfigError(
            "not a table of conventions",
            where=f"config.json: {EARLIER}",
            found=repr(sorted(unknown) if isinstance(earlier_table, dict) else earlier_table)[:80],
            wanted=", ".join(EARLIER_NAMES),
            do="copy the folder again from where it was saved",
        )
    plain = {EARLIER_NAMES[name]: value for name, value in earlier_table.items()}
    return from_plain(Conventions, plain, f"config.json: {EARLIER}")
