"""Numbers with their nouns."""

from __future__ import annotations

from maskwright.counted import counted


def test_one_is_singular_and_nothing_else() -> None:
    assert counted(1, "row") == "1 row"
    assert counted(0, "row") == "0 rows"
    assert counted(12_345, "row") == "12,345 rows"
    assert counted(1, "class", "classes") == "1 class"
    assert counted(2, "class", "classes") == "2 classes"
