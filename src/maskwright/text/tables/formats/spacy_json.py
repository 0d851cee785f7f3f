"""Training data of spaCy as JSON: texts with annotations, and the documents of version 2.

["Anna sleeps", {"entities": [[0, 4, "PER"]], "cats": {"A": 1, "B": 0}}]

{"id": 0, "paragraphs": [{"raw": …, "cats": [{"label": "A", "value": 1}],
                          "sentences": [{"tokens": [{"orth": "Anna", "ner": "U-PER"}, …]}]}]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from maskwright.base.errors import DataError
from maskwright.text.corpus.ledger import Ledger
from maskwright.text.tables.formats import annotation_rows
from maskwright.text.tables.formats.annotation_rows import ExportedRow
from maskwright.text.tables.marked_text import are_marked_spans

UNKNOWN = ("", "-", None)  # unknown tags


def is_pair(value: Any) -> bool:
    """Whether a value is a text with its annotations."""
    if type(value) is not list or len(value) != 2 or type(value[0]) is not str:
        return False
    return type(value[1]) is dict or value[1] == [] or are_marked_spans(value[1])


def row(value: Sequence[Any], number: int = 0) -> dict[str, Any]:
    """Convert a pair of a text and its annotations to a row; `number` is that of its entry."""
    text, spans = value
    spans = spans if type(spans) is dict else {"entities": spans}
    row_with_labels = annotation_rows.row(ExportedRow({"text": text, **spans}))
    assert isinstance(row_with_labels, ExportedRow)
    row_with_labels.item = number
    return row_with_labels


def is_document(value: Any) -> bool:
    """Whether a value is a document of spaCy 2, and not an article of SQuAD."""
    if (
        type(value) is not dict
        or type(paragraphs := value.get("paragraphs")) is not list
        or not paragraphs
    ):
        return False
    return all(
        type(paragraph) is dict and type(paragraph.get("sentences")) is list
        for paragraph in paragraphs
    )


def sentences(
    documents: Sequence[Mapping[str, Any]], file: str, ledger: Ledger
) -> Iterator[dict[str, Any]]:
    """Yield a row for each sentence with tagged words, or for each paragraph that only has labels.

    Raises:
        DataError: a word without text; an unknown tag, when the policy is strict.
    """
    for number, document in enumerate(documents, 1):
        for paragraph_number, paragraph in enumerate(document["paragraphs"], 1):
            where = f"{file}, item {number}, paragraph {paragraph_number}"
            words = [
                word for tokenized in paragraph["sentences"] for word in _words(tokenized, where)
            ]
            tag_names = [name for name in ("ner", "tag") if any(name in word for word in words)]
            cats = paragraph.get("cats")
            if type(cats) is list and cats and "ner" not in tag_names:
                yield _labelled(paragraph, cats, where)
                continue
            for sentence in paragraph["sentences"]:
                try:
                    tagged_row = _tagged(_words(sentence, where), tag_names, where)
                except DataError as error:
                    ledger.reject(error, file=file, line=number)
                    continue
                tagged_row.item = number
                yield tagged_row


def _words(sentence: Any, where: str) -> list[dict[str, Any]]:
    words = sentence.get("tokens") if type(sentence) is dict else None
    if type(words) is not list or not all(
        type(word) is dict and type(word.get("orth")) is str for word in words
    ):
        raise DataError(
            "a sentence without words",
            where=where,
            found=repr(words)[:80],
            wanted='"tokens": [{"orth": "Anna", "ner": "U-PER"}]',
            do="write it so, or JSON lines with text and entities",
        )
    return words


def _tagged(words: list[dict[str, Any]], names: list[str], where: str) -> ExportedRow:
    exported = ExportedRow({"tokens": [word["orth"] for word in words]})
    for name in names:
        tags = [word.get(name) for word in words]
        if name == "ner" and any(tag in UNKNOWN for tag in tags):
            unknown = next(word for word in words if word.get(name) in UNKNOWN)
            raise DataError(
                "the entity tag of a word is unknown",
                where=where,
                found=repr(unknown["orth"]),
                wanted="a tag such as O or U-PER",
                do="write O where it is none, or take the sentence out (--read "
                "on_bad=skip drops and counts it)",
            )
        exported[f"{name}_tags" if name == "ner" else "pos_tags"] = tags
    return exported


def _labelled(paragraph: Mapping[str, Any], cats: list[Any], where: str) -> dict[str, Any]:
    text = paragraph.get("raw")
    if type(text) is not str or not all(
        type(category) is dict and "label" in category for category in cats
    ):
        raise DataError(
            "a labelled paragraph of another form",
            where=where,
            found=", ".join(paragraph),
            wanted='"raw" and "cats"',
            do='write rows such as {"text": …, "label": …}',
        )
    flags = {str(category["label"]): category.get("value") for category in cats}
    return annotation_rows.row(ExportedRow({"text": text, "cats": flags}))
