"""Few rows are grouped in memory, many by Daft: the answers are equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("daft")

import pyarrow.parquet as pq  # noqa: E402

from maskwright.text.curate.engine import daft_engine  # noqa: E402
from maskwright.text.curate.engine.daft_engine import DaftEngine  # noqa: E402

SHARDS = 3


@pytest.fixture
def files(tmp_path: Path) -> list[tuple[int, Path]]:
    random = np.random.default_rng(0)
    found = []
    for number in range(SHARDS):
        count = 200
        table = pa.table(
            {
                "row": np.arange(count),
                "narrow": random.integers(0, 3, count),
                "wide": random.integers(-(1 << 62), 1 << 62, 40)[random.integers(0, 40, count)],
                "big": (random.integers(0, 30, count).astype(np.uint64) << np.uint64(59)),
                "count": random.integers(1, 5, count),
            }
        )
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table, path)
        found.append((number * 2, path))
    return found


@pytest.mark.parametrize("keys", [["wide"], ["narrow", "wide"], ["big", "narrow"]])
def test_grouping_in_memory_equals_daft(
    files: list[tuple[int, Path]], keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = DaftEngine()
    engine.start()
    here = [
        engine.totals(files, keys, ["count"], 3),
        engine.repeated(files, keys, ["document", "count"]),
    ]
    monkeypatch.setattr(daft_engine, "FEW_ROWS", -1)
    there = [
        engine.totals(files, keys, ["count"], 3),
        engine.repeated(files, keys, ["document", "count"]),
    ]
    for mine, other in zip(here, there, strict=True):
        assert mine.num_rows
        assert mine.schema.names == other.schema.names
        assert mine.to_pydict() == other.to_pydict()


def test_a_limit_on_sums_is_a_limit(files: list[tuple[int, Path]]) -> None:
    """The control: with a higher limit there are fewer rows."""
    low, high = (daft_engine.summed_rows(files, ["wide"], ["count"], n).num_rows for n in (1, 20))
    assert 0 < high < low
