"""The conventions of using a model, derived from the recipe of its pretraining.

They are also used for runs of earlier releases, which saved no conventions with their weights.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from maskwright.base.errors import ConfigError
from maskwright.model.checkpoint.conventions import Conventions, LossConvention
from maskwright.model.objectives.base.spec import Member, member_of
from maskwright.model.opening.run_folder import RECIPE, is_run
from maskwright.text.corpus.reading import ReadingOptions

FRAMED_ROWS = ("documents", "sentences")
"""Kinds of rows in which every text has its special tokens."""


def conventions_of(
    objective: Member,
    options: Mapping[str, Any],
    rows: Mapping[str, Any],
    reading: Mapping[str, Any],
    stacks: int,
) -> Conventions:
    """Return the conventions of a model with this pretraining.

    Args:
        options, rows, reading: these tables of a recipe, as plain values; of `reading` only fields
            of `ReadingOptions` are kept.
        stacks: number of stacks, 2 for an encoder-decoder.

    Raises:
        ConfigError: an option that the objective does not have.
    """
    objective.read(options)
    spec, kind = objective.spec, rows.get("kind", "auto")
    kind = spec.rows if kind == "auto" else kind
    continues = spec.writes or spec.bidirectional_prefix or spec.rows == "stream"
    kept_fields = {field.name for field in fields(ReadingOptions)} - {"notes"}
    return Conventions(
        prediction_offset=spec.prediction_offset,
        bidirectional_prefix=spec.bidirectional_prefix,
        decoder_trained=stacks == 1 or spec.trains_decoder,
        writes=spec.writes,
        framed_prompt=stacks == 1 and continues and kind in FRAMED_ROWS,
        framed_target=spec.framed_target and kind in FRAMED_ROWS,
        measure=LossConvention(
            objective=objective.name,
            options=dict(options),
            rows=dict(rows),
            reading={key: value for key, value in reading.items() if key in kept_fields},
        ),
    )


def run_around(checkpoint: Path) -> Path | None:
    """Return the folder of the run that `checkpoint` belongs to; None if it is no checkpoint."""
    parent = checkpoint.resolve().parent
    return parent.parent if parent.name == "checkpoints" and is_run(parent.parent) else None


def conventions_of_run(run: Path, stacks: int) -> Conventions:
    """Return the conventions according to the recipe of a run.

    Raises:
        ConfigError: the recipe cannot be read; the message names the file.
    """
    path = run / RECIPE
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        objective, rows, corpus = plain["objective"], plain["rows"], plain.get("corpus", {})
        if not all(isinstance(table, dict) for table in (objective, rows, corpus)):
            raise KeyError("objective")
        member = member_of(str(objective["name"]))
        return conventions_of(member, objective.get("options", {}), rows, corpus, stacks)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError("not the recipe of a run", where=path, found=error) from error
