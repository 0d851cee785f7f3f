"""A text of one's own as an objective prepares it: one row, by the options of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from maskwright.base.errors import UsageError
from maskwright.ship.explore.corrupted import Asked, corrupted

if TYPE_CHECKING:
    from maskwright.ship.explore.site import Site


def answer(site: Site, given: dict[str, Any]) -> dict[str, Any]:
    """The row, as `corrupted` says it.

    Args:
        given: model (its number), text, objective, options, seed, row.

    Raises:
        UsageError: one of them is missing, or of another type.
        Others: as `corrupted`.
    """
    kinds = {"model": int, "text": str, "objective": str, "options": dict, "seed": int, "row": int}
    for name, kind in kinds.items():
        value = given.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise UsageError(
                "not a question about a text",
                where=name,
                found=repr(value)[:80],
                wanted=kind.__name__,
            )
    number = given["model"]
    if not 0 <= number < len(site.models):
        raise UsageError("there is no such model", where="model", found=number)
    asked = Asked(
        text=given["text"],
        objective=given["objective"],
        options=given["options"],
        seed=given["seed"],
        row=given["row"],
    )
    return corrupted(site.ready(number), asked)
