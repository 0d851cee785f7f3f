"""Convert rows exported by doccano, Prodigy and spaCy to columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class ExportedRow(dict[str, Any]):
    """A row of an export, before `resolve_annotations` processes all rows together.

    Attributes:
        left_out: why the row cannot be used for training; "" if it can.
        item: the number of its entry in the file, counted from 1; 0 if equal to the row's number.
    """

    left_out: str = ""
    item: int = 0


class ChosenLabels(list[Any]):
    """The labels that an annotator chose for a row.

    Attributes:
        among: the available labels if the export lists them, else None.
    """

    def __init__(self, labels: Iterable[Any] = (), among: frozenset[str] | None = None) -> None:
        super().__init__(labels)
        self.among = among


def row(values: dict[str, Any]) -> dict[str, Any]:
    """Return the row with program-specific values converted to columns."""
    converted: dict[str, Any] = {}
    if type(flags := values.get("cats")) is dict and (label := _of_flags(flags)) is not None:
        converted["cats"] = label
    elif type(flags) is list and _are_texts(flags):
        converted["cats"] = ChosenLabels(flags)
    if "_input_hash" in values and type(values.get("accept")) is list and "options" in values:
        converted["accept"] = ChosenLabels(values["accept"])  # Prodigy
    if "Comments" in values and _are_texts(values.get("label")):  # doccano
        converted["label"] = ChosenLabels(values["label"])
    if converted or "_input_hash" in values:
        return ExportedRow({**values, **converted})
    return values


def _are_texts(value: Any) -> bool:
    return type(value) is list and all(type(element) is str for element in value)


def _of_flags(flags: Mapping[str, Any]) -> ChosenLabels | None:
    """Return the names whose flag is 1; None if a flag is neither 0 nor 1."""
    if not flags or not all(type(v) in (int, float, bool) and v in (0, 1) for v in flags.values()):
        return None
    return ChosenLabels((name for name, flag in flags.items() if flag), frozenset(flags))
