"""Read the exports of annotation programs as rows; each format has its own module.

    Label Studio   JSON, JSON_MIN and CSV (label_studio.py)
    spaCy          [text, {"entities": [[0, 4, "PER"]]}], and the JSON of its version 2
    others         doccano, Prodigy, ner-annotator, LightTag, Rasa

`resolve_annotations.py` selects the rows for training when all rows have been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from maskwright.base.counted import counted
from maskwright.base.findings import Finding
from maskwright.text.corpus.ledger import Ledger
from maskwright.text.tables.formats import annotation_rows, label_studio, spacy_json
from maskwright.text.tables.formats.annotation_rows import ChosenLabels, ExportedRow


# ------------------------------------------------------------------------------ files
def rows(value: Any, file: str, ledger: Ledger) -> list[dict[str, Any]] | None:
    """Return the rows of a `.json` file that is an export; None for other files.

    Raises:
        DataError: an export of something other than texts, or of spans without offsets.
    """
    items = _listed(value)
    if items is None:
        return None
    if all(map(label_studio.is_task, items)):
        return label_studio.rows(items, file, ledger)
    if all(map(spacy_json.is_document, items)):
        return list(spacy_json.sentences(items, file, ledger))
    if all(entry is None or spacy_json.is_pair(entry) for entry in items):
        if blank := items.count(None):
            message = f"passed over: {counted(blank, 'null')} among the texts"
            ledger.counts.notes.append(Finding("null-texts", message))
        return [spacy_json.row(entry, number) for number, entry in enumerate(items, 1) if entry]
    if isinstance(value, dict) and not all(type(entry) is dict for entry in items):
        return None
    if any(type(entry) is not dict or "paragraphs" in entry for entry in items):
        return None
    rows = [_row(values) for values in items]
    return rows if type(value) is dict or any(type(row) is ExportedRow for row in rows) else None


def is_one(value: Any) -> bool:
    """Whether an object holds all rows of an export, and is not a row itself."""
    return type(value) is dict and _listed(value) is not None


def _listed(value: Any) -> list[Any] | None:
    """Return the non-empty list of entries of an export, or None."""
    if type(value) is list:
        return value if value else None
    if type(value) is not dict:
        return None
    if label_studio.is_task(value):
        return [value]
    if value.keys() >= {"classes", "annotations"}:  # ner-annotator
        items = value["annotations"]
    elif "examples" in value:  # LightTag
        items = value["examples"]
    else:  # Rasa
        rasa_data = value.get("rasa_nlu_data")
        items = rasa_data.get("common_examples") if type(rasa_data) is dict else None
    return items if type(items) is list and items else None


def line(value: Any) -> Any:
    """Convert a line of JSON Lines to a row; it may be a spaCy pair of a text and its annotations.
    Other values are returned unchanged."""
    if spacy_json.is_pair(value):
        return spacy_json.row(value)
    return _row(value) if type(value) is dict else value


def _row(values: dict[str, Any]) -> dict[str, Any]:
    """Return a row with program-specific values converted to columns."""
    is_label_studio = label_studio.is_row(values)
    return label_studio.row(values) if is_label_studio else annotation_rows.row(values)


def is_table(names: Sequence[str]) -> bool:
    """Whether a table with these columns is an export."""
    return label_studio.is_row(dict.fromkeys(names)) or set(names) == {
        "id",
        "text",
        "label",
        "Comments",
    }


def of_table(values: dict[str, str]) -> dict[str, Any]:
    """Convert a row of a table for which `is_table` holds."""
    if label_studio.is_row(values):
        return label_studio.of_table(values)
    row = ExportedRow(values)  # doccano
    if all(pieces := [piece.strip() for piece in values["label"].split("#")]):
        row["label"] = ChosenLabels(pieces)
    return row
