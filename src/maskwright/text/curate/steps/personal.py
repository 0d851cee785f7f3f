"""personal: mask personal details, or remove documents that contain them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from maskwright.base.catalogue import require_packages
from maskwright.base.errors import ConfigError, near
from maskwright.text.curate.arrays.spans import read_entries
from maskwright.text.curate.personal_data import TYPES, Detail, details_of
from maskwright.text.curate.step import Change, CurationBatch, Outcome, RuleMeasure, Step

SUMMARY = (
    "masks e-mail addresses, telephone, bank, card and other personal numbers, or removes them"
)
LISTED = 20  # places that a record names


@dataclass(frozen=True, kw_only=True)
class Settings(Step):
    UNLESS: ClassVar[str] = "personal details (e-mail, telephone, …) were not looked for"
    CHANGES_TEXT: ClassVar[bool] = True
    PRIVATE: ClassVar[bool] = True

    detect: tuple[str, ...] = ("email", "phone", "iban", "card", "ip", "ssn", "id")
    """What counts as a personal detail: of email, phone, iban, card, ip, ssn, id (identity numbers
    of other countries), profile (a user's name in a web address)."""
    action: Literal["mask", "remove"] = "mask"
    """mask: a placeholder in place of each detail; remove: documents that have more than `most`."""
    placeholder: str = "<{type}>"
    """What stands in place of a detail; {type} is EMAIL, PHONE, ..."""
    most: int = 0
    """How many details a document may have, with action = "remove"."""
    allow: str = ""
    """A file of values that are no personal details, one a line (`#` begins a comment): a whole
    value, or `@domain` for all e-mail addresses there."""

    def check(self) -> None:
        self.require_one("detect", example='detect = ["email", "phone"]')
        for name in self.detect:
            if name not in TYPES:
                raise ConfigError(
                    "an unknown type of personal details",
                    where="detect",
                    found=repr(name),
                    wanted=", ".join(TYPES),
                    do=near(name, TYPES),
                )
        if "phone" in self.detect:
            further_types = ", ".join(f'"{name}"' for name in self.detect if name != "phone")
            require_packages(
                "finding telephone numbers",
                "phonenumbers",
                where="personal",
                otherwise=f"; or --set 'personal.detect=[{further_types}]'",
            )
        self.check_counts("most")
        if self.most and self.action == "mask":
            raise self.without_effect("most", "where details are masked")
        for name in self.detect:
            masked = self._placeholder(name)
            if details_of([f"a {masked} b"], self.detect) or "\x00" in masked:
                raise ConfigError(
                    "the placeholder is itself a personal detail, or contains a NUL",
                    where="placeholder",
                    found=repr(masked),
                    wanted="a text that no detector finds",
                    do='use "<{type}>"',
                )

    def files(self) -> Sequence[Path]:
        return (Path(self.allow),) if self.allow else ()

    def open(self) -> frozenset[str]:
        """Read the allowed values, in case-folded form.

        Raises:
            UsageError, DataError: the file cannot be read, or lists nothing.
        """
        if not self.allow:
            return frozenset()
        return frozenset(text.casefold() for text, *_ in read_entries(self.allow, "allow"))

    def apply(self, batch: CurationBatch, opened: frozenset[str], gathered: Any = None) -> Outcome:
        def allowed(value: str) -> bool:
            value = value.casefold()
            return value in opened or f"@{value.rpartition('@')[2]}" in opened

        all_details = details_of(batch.texts, self.detect, allowed)
        if self.action == "remove":
            counts = np.bincount([d.text for d in all_details], minlength=len(batch))
            return Outcome(measures=[RuleMeasure("personal_details", counts, high=self.most)])
        texts, by_index = list(batch.texts), itertools.groupby(all_details, lambda d: d.text)
        by_text = {index: list(details) for index, details in by_index}
        for index, details in by_text.items():
            texts[index] = self._masked(texts[index], details)
        return Outcome(texts=texts, changes=list(_changes(by_text)))

    def _placeholder(self, name: str) -> str:
        return self.placeholder.replace("{type}", name.upper())

    def _masked(self, text: str, details: Sequence[Detail]) -> str:
        pieces, position = [], 0
        for detail in details:
            pieces += [text[position : detail.begin], self._placeholder(detail.type)]
            position = detail.end
        return "".join([*pieces, text[position:]])


def _changes(by_text: dict[int, list[Detail]]) -> list[Change]:
    """Return a change for each document and type: the number and places, never the value."""
    changes = []
    for index, details in by_text.items():
        for name in sorted({d.type for d in details}):
            spans = [f"{d.begin} to {d.end}" for d in details if d.type == name]
            more = f" and {len(spans) - LISTED} more" if len(spans) > LISTED else ""
            where = f"characters {', '.join(spans[:LISTED])}{more}"
            changes.append(Change(index, f"personal-{name}", len(spans), where))
    return changes
