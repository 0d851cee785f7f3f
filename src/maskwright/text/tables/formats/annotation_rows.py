"""Rows of annotation exports: the forms of doccano, Prodigy and spaCy as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


class ExportedRow(dict[str, Any]):
    """A row of an export, before `resolve_annotations` has seen all rows.

    Attributes:
        left_out: why nothing can be learned from the row; empty if something can.
        item: the number of its entry in the file, counted from 1; 0 if it is that of the row.
    """

    left_out: str = ""
    item: int = 0


class ChosenLabels(list[Any]):
    """The labels that an annotator chose for a row.

    Attributes:
        among: the labels to choose from, where the export lists them.
    """

    def __init__(self, labels: Iterable[Any] = (), among: frozenset[str] | None = None) -> None:
        super().__init__(labels)
        self.among = among


def row(values: dict[str, Any]) -> dict[str, Any]:
    """The row with the forms of these programs converted to columns."""
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
    """The names whose flag is 1; None if a flag is neither 0 nor 1."""
    if not flags or not all(type(v) in (int, float, bool) and v in (0, 1) for v in flags.values()):
        return None
    return ChosenLabels((name for name, flag in flags.items() if flag), frozenset(flags))
