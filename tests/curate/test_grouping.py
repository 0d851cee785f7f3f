"""Few rows are grouped in memory, many by Daft: the answers are equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("daft")

import pyarrow.parquet as pq  # noqa: E402

from maskwright.text.curate.engine import corpus  # noqa: E402
from maskwright.text.curate.engine.corpus import ShardTables  # noqa: E402
from maskwright.text.curate.engine.daft_engine import DaftEngine  # noqa: E402


@pytest.fixture
def files(tmp_path: Path) -> list[tuple[int, Path]]:
    """Three shards of 200 rows."""
    random, paths = np.random.default_rng(0), [tmp_path / f"{n}.parquet" for n in range(3)]
    for path in paths:
        columns = {
            "row": np.arange(200),
            "narrow": random.integers(0, 3, 200),
            "wide": random.integers(-(1 << 62), 1 << 62, 40)[random.integers(0, 40, 200)],
            "big": (random.integers(0, 30, 200).astype(np.uint64) << np.uint64(59)),
            "count": random.integers(1, 5, 200),
        }
        pq.write_table(pa.table(columns), path)
    return [(number * 2, path) for number, path in enumerate(paths)]


@pytest.mark.parametrize("memory", [1 << 40, 100_000])  # in one part, and in several
@pytest.mark.parametrize("keys", [["wide"], ["narrow", "wide"], ["big", "narrow"]])
def test_grouping_in_memory_equals_daft(
    files: list[tuple[int, Path]],
    keys: list[str],
    memory: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = DaftEngine()
    engine.start()
    tables = ShardTables(engine, files)

    def answers() -> list[pa.Table]:
        return [tables.totals(keys, ["count"], 3), tables.repeated(keys, ["document", "count"])]

    here = answers()
    monkeypatch.setattr(corpus, "FEW_ROWS", -1)
    monkeypatch.setattr(corpus, "free_bytes", lambda: memory)
    there = answers()
    for mine, other in zip(here, there, strict=True):
        assert mine.num_rows and mine.schema.names == other.schema.names
        assert mine.to_pydict() == other.to_pydict()


def test_a_limit_on_sums_is_a_limit(files: list[tuple[int, Path]]) -> None:
    """The control: with a higher limit there are fewer rows."""
    tables = ShardTables(DaftEngine(), files)
    low, high = (tables.totals(["wide"], ["count"], least).num_rows for least in (1, 20))
    assert 0 < high < low
