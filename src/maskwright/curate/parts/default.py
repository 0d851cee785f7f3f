"""The recipe where the user names none."""

from __future__ import annotations

# Order: repair first, so that rules see what will be kept; then what each document says of itself,
# cheap before costly; then what needs the whole corpus.
STEPS: dict[str, dict[str, object]] = {
    "html": {},
    "normalise": {},
    "boilerplate": {},
    "language": {},
    "gibberish": {},
    "gopher-repetition": {},
    "gopher-quality": {},
    "personal": {},
    "exact-duplicates": {},
    "near-duplicates": {},
}
