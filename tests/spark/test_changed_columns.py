"""Spark shows what docs/READ.md says after a change of columns; others do so in `tests/unit/lake`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.config import Late
from jobs.spark.engine import Engine
from tests.support.changing_lakes import CHANGES, Row, a_changing_lake, rows_to_see
from tests.support.readers import ONE_DAY, PROGRAM, WAYS, promised_after, ran, seen_after, snippet
from tests.support.three_days import FIRST


@pytest.mark.parametrize("late", Late)
@pytest.mark.parametrize("change", CHANGES)
def test_spark_shows_all_rows_after_a_change_of_columns_or_refuses(
    engine: Engine, tmp_path: Path, change: str, late: Late
) -> None:
    lake = tmp_path / "lake"
    a_changing_lake(lake, change, late)
    expected = rows_to_see(lake)

    def collected(frame: Any) -> list[Row]:
        return [row.asDict(recursive=True) for row in frame.collect()]

    for way in WAYS:
        seen = seen_after(lambda: collected(engine.session.read.parquet(f"{lake}/{way}")), expected)  # noqa: B023
        assert seen == promised_after(change, "Spark", way), way
    assert engine.session.read.parquet(f"{lake}/{WAYS[0]}").count() == len(expected)
    one_day, of_day = f"date={FIRST}/*.parquet", rows_to_see(lake, f"date={FIRST}")
    word = promised_after(change, "Spark", ONE_DAY) if late is Late.AMEND else "all"
    assert seen_after(lambda: collected(engine.session.read.parquet(f"{lake}/{one_day}")), of_day) == word
    names: dict[str, Any] = {"spark": engine.session}
    assert ran(snippet("Spark", lake), names) == len(expected)
    assert seen_after(lambda: collected(names["lake"]), expected) == promised_after(change, "Spark", PROGRAM)
