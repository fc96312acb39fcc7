"""Spark counts the rows of the days, as docs/READ.md says; tests/unit/lake/test_readers.py has the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.spark.engine import Engine
from tests.support.lake_to_read import a_lake_to_read
from tests.support.readers import WAYS, promised, ran, snippet


@pytest.mark.parametrize("unfinished", [False, True], ids=["all committed", "unfinished"])
def test_spark_counts_the_rows_of_the_days(engine: Engine, tmp_path: Path, unfinished: bool) -> None:
    lake = tmp_path / "lake"
    rows = a_lake_to_read(lake, unfinished=unfinished)
    assert [promised("Spark", way, unfinished=unfinished) for way in WAYS] == ["rows"] * 3
    assert [engine.session.read.parquet(f"{lake}/{way}").count() for way in WAYS] == [rows] * 3
    assert ran(snippet("Spark", lake), {"spark": engine.session}) == rows
