"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from maskwright.base.metrics.intervals import Estimate
from maskwright.base.terminal import counted, decimals, rounded


def test_one_is_singular_and_nothing_else() -> None:
    assert counted(1, "row") == "1 row"
    assert counted(0, "row") == "0 rows"
    assert counted(12_345, "row") == "12,345 rows"
    assert counted(1, "class", "classes") == "1 class"
    assert counted(2, "class", "classes") == "2 classes"


SMALL = [(1.23456789e-9, 1.23457e-9), (-0.0123456789, -0.0123457), (0.0, 0.0)]


@pytest.mark.parametrize(
    ("value", "wanted"), [(0.12345678, 0.123457), (-1234.56789012, -1234.56789), *SMALL]
)
def test_numbers_of_any_size_keep_their_digits(value: float, wanted: float) -> None:
    assert rounded(value) == wanted


def test_figures_that_are_small_are_not_shown_as_nothing() -> None:
    assert decimals(0.12345) == "0.1235" and decimals(0.0) == "0.0000"
    assert decimals(2.5e-17) == "2.5e-17" and decimals(-0.00004) == "-4e-05"
    assert decimals(0.0004, 3) == "0.0004" and decimals(0.0004) == "0.0004"
    assert decimals(float("nan")) == "nan"
    assert Estimate(2e-17, 1e-17, 3e-17).render() == "2e-17 (1e-17 to 3e-17)"
