"""The recipe where the user names none."""

from __future__ import annotations

from maskwright.curate.parts.recipe import Recipe, make

# Order: repair first, so that rules see what will be kept; then what each document says of itself,
# cheap before costly; then what needs the whole corpus.
STEPS: dict[str, dict[str, object]] = {}


def default_recipe() -> Recipe:
    """The steps that fit most texts, in their order."""
    return make(list(STEPS), STEPS)
