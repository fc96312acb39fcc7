"""Readers of others count exactly the rows of the days, or refuse, as the table of docs/READ.md says.

Those that are not installed are skipped: Spark is tried in `tests/spark/test_readers.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.lake import invalid, manifests
from tests.support.lake_to_read import DAYS, a_lake_to_read
from tests.support.readers import READERS, WAYS, counted, promised, ran, snippet


@pytest.fixture(scope="module", params=[False, True], ids=["all committed", "unfinished"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, bool]:
    lake = tmp_path_factory.mktemp("lakes") / "lake"
    return lake, a_lake_to_read(lake, unfinished=request.param), request.param


def test_the_lake_has_all_that_a_reader_may_trip_over(made: tuple[Path, int, bool]) -> None:
    lake, rows, unfinished = made
    assert rows == 26
    assert [manifest["day"]["date"] for manifest in manifests(lake)] == [str(day) for day in DAYS]
    assert bool(list(lake.glob("_staging/*/not-committed.parquet"))) == unfinished
    assert len(list(lake.glob("date=*/part-late-*.parquet"))) == 2
    assert len(list(lake.glob("date=*/_late/*/*"))) == 1
    assert len(list(lake.glob("date=*/_invalid/*"))) == 4


@pytest.mark.parametrize("way", WAYS, ids=["promised", "folder", "everywhere"])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_counts_the_rows_of_the_days_or_refuses(
    made: tuple[Path, int, bool], reader: str, way: str
) -> None:
    pytest.importorskip(READERS[reader].module)
    lake, rows, unfinished = made
    expected = rows if promised(reader, way, unfinished=unfinished) == "rows" else "error"
    assert counted(reader, f"{lake}/{way}") == expected


@pytest.mark.parametrize("reader", READERS)
def test_the_program_of_the_page_counts_the_rows_of_the_days(tmp_path: Path, reader: str) -> None:
    pytest.importorskip(READERS[reader].module)
    rows = a_lake_to_read(tmp_path / "lake", unfinished=False)
    assert ran(snippet(reader, tmp_path / "lake")) == rows


def test_the_program_of_the_page_finds_the_invalid_records(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    a_lake_to_read(lake, unfinished=False)
    expected = sum(len(invalid(lake, day)) for day in DAYS)
    assert ran(snippet("What is no row of a day", lake)) == expected > 0


@pytest.mark.parametrize("way", WAYS, ids=["promised", "folder", "everywhere"])
def test_each_way_to_read_a_day_without_rows_finds_its_columns(tmp_path: Path, way: str) -> None:
    duckdb = pytest.importorskip("duckdb")
    a_lake_to_read(tmp_path / "lake", unfinished=False)
    (empty,) = [path for path in (tmp_path / "lake").glob("date=2026-03-31") if path.is_dir()]
    program = f"DESCRIBE SELECT * FROM read_parquet('{empty}/{way.removeprefix('date=*/')}')"
    assert {"event_time", "id", "n"} <= {name for name, *_ in duckdb.execute(program).fetchall()}
