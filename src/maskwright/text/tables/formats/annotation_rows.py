"""A row of an export, in the forms of doccano, Prodigy, spaCy and Dataturks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maskwright.text.tables.formats import label_studio
from maskwright.text.tables.formats.annotation_labels import Chosen, Exported


def row(values: dict[str, Any]) -> dict[str, Any]:
    """A row of a file with the forms of these programs converted to columns."""
    if label_studio.is_row(values):
        return label_studio.row(values)
    made: dict[str, Any] = {}
    if type(flags := values.get("cats")) is dict and (label := _of_flags(flags)) is not None:
        made["cats"] = label
    elif type(flags) is list and are_texts(flags):
        made["cats"] = Chosen(flags)
    if "_input_hash" in values and type(values.get("accept")) is list and "options" in values:
        made["accept"] = Chosen(values["accept"])  # Prodigy
    if "Comments" in values and are_texts(values.get("label")):  # doccano
        made["label"] = Chosen(values["label"])
    if type(values.get("content")) is str and "annotation" in values:  # Dataturks
        made |= _of_dataturks(values["annotation"], values["content"])
    return Exported({**values, **made}) if made or "_input_hash" in values else values


def are_texts(value: Any) -> bool:
    return type(value) is list and all(type(each) is str for each in value)


def _of_flags(flags: Mapping[str, Any]) -> Chosen | None:
    """The names that are 1 where all others are 0; None where some are neither."""
    if not flags or not all(type(v) in (int, float, bool) and v in (0, 1) for v in flags.values()):
        return None
    return Chosen((name for name, value in flags.items() if value), frozenset(flags))


def _of_dataturks(annotation: Any, text: str) -> dict[str, Any]:
    """Its last place is that of the last character, and not the one behind it."""
    if type(annotation) is dict and are_texts(annotation.get("labels")):
        return {"annotation": Chosen(annotation["labels"])}
    if type(annotation) is not list or not all(
        type(each) is dict and type(each.get("points")) is list for each in annotation
    ):
        return {}
    parts = []
    for each in annotation:
        for point in each["points"]:
            if type(point) is not dict or type(point.get("end")) is not int:
                return {}
            parts.append({**point, "end": point["end"] + 1, "label": each.get("label")})
    return {"annotation": parts}
