"""Readers of others count exactly the rows of the days, or refuse, as the table of docs/READ.md says.

Spark is tried in `tests/spark/test_readers.py`.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import duckdb
import pytest

from jobs.config import Late
from tests.support.changing_lakes import CHANGES, Row, Rows, a_changing_lake, judged, rows_to_see
from tests.support.lake import invalid, manifests
from tests.support.lake_to_read import DAYS, a_lake_to_read
from tests.support.readers import (
    ONE_DAY,
    PROGRAM,
    READERS,
    WAYS,
    counted,
    counted_by_program,
    promised,
    promised_after,
    ran,
    read_by,
    seen_after,
    snippet,
)
from tests.support.three_days import FIRST


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
    lake, rows, unfinished = made
    expected = rows if promised(reader, way, unfinished=unfinished) == "rows" else "error"
    assert counted(reader, f"{lake}/{way}") == expected


@pytest.mark.parametrize("reader", READERS)
def test_the_program_of_the_page_counts_the_rows_of_the_days(tmp_path: Path, reader: str) -> None:
    rows = a_lake_to_read(tmp_path / "lake", unfinished=False)
    assert counted_by_program(reader, tmp_path / "lake") == rows


def test_the_program_of_the_page_finds_the_invalid_records(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    a_lake_to_read(lake, unfinished=False)
    expected = sum(len(invalid(lake, day)) for day in DAYS)
    assert ran(snippet("What is no row of a day", lake), {}) == expected > 0


@pytest.mark.parametrize("way", WAYS, ids=["promised", "folder", "everywhere"])
def test_each_way_to_read_a_day_without_rows_finds_its_columns(tmp_path: Path, way: str) -> None:
    a_lake_to_read(tmp_path / "lake", unfinished=False)
    (empty,) = [path for path in (tmp_path / "lake").glob("date=2026-03-31") if path.is_dir()]
    program = f"DESCRIBE SELECT * FROM read_parquet('{empty}/{way.removeprefix('date=*/')}')"
    assert {"event_time", "id", "n"} <= {name for name, *_ in duckdb.execute(program).fetchall()}


@pytest.fixture(scope="module", params=[*product(CHANGES, Late)], ids=" ".join)
def changed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    change, late = request.param
    lake = tmp_path_factory.mktemp("changed") / "lake"
    a_changing_lake(lake, change, late)
    return lake, change


def test_a_changed_lake_has_late_rows_of_the_old_columns_and_of_the_new_ones(
    changed: tuple[Path, str],
) -> None:
    lake, _ = changed
    brought = [path.parts[-2] for path in lake.glob("date=*/part-late-*.parquet")]
    aside = list(lake.glob("date=*/_late/*/*"))
    assert (brought, len(aside)) in [([f"date={FIRST}"] * 2, 0), ([], 2)]
    assert len(rows_to_see(lake)) == 12 + len(brought)


def also(reader: str) -> set[str]:
    """Return what a reader may show as well that takes the columns of whichever file is listed first."""
    return {"all", "part"} if reader == "ClickHouse" else set()


@pytest.mark.parametrize("way", [*WAYS, PROGRAM], ids=["promised", "folder", "everywhere", "program"])
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_shows_all_rows_after_a_change_of_columns_or_refuses(
    changed: tuple[Path, str], reader: str, way: str
) -> None:
    lake, change = changed
    expected, word = rows_to_see(lake), promised_after(change, reader, way)
    assert seen_after(lambda: read_by(reader, lake, way), expected) in {word, *also(reader)}
    if way != PROGRAM:
        assert counted(reader, f"{lake}/{way}") in (
            [len(expected)] if word != "error" else [len(expected), word]
        )


@pytest.mark.parametrize("reader", READERS)
def test_one_day_with_late_rows_of_other_columns_is_shown_as_the_page_says(
    changed: tuple[Path, str], reader: str
) -> None:
    """Late files had the columns of the day that brought them alone: a reader of the day missed one."""
    lake, change = changed
    day = f"date={FIRST}/*.parquet"
    expected = rows_to_see(lake, f"date={FIRST}")
    word = promised_after(change, reader, ONE_DAY) if len(expected) > 4 else "all"
    assert seen_after(lambda: read_by(reader, lake, day), expected) in {word, *also(reader)}


def test_a_judge_of_readers_sees_what_is_wrong() -> None:
    expected: Rows = {(0, 0): {"id": "a", "nest": {"a": 1, "b": "x"}}, (0, 1): {"id": "b", "nest": None}}

    def shown(*ids: object, **more: object) -> list[Row]:
        return [{"kafka_partition": 0, "kafka_offset": at, "id": id, **more} for at, id in enumerate(ids)]

    assert judged(shown("a", "b"), expected) == "part"
    assert judged([{**shown("a")[0], "nest": {"a": 1, "b": "x"}}, shown("a", "b")[1]], expected) == "all"
    assert judged([{**shown("a")[0], "nest.a": 1.0}, shown("a", "b")[1]], expected) == "part"
    assert judged([{**shown("a")[0], "nest": {"a": 2}}, shown("a", "b")[1]], expected) == "wrong values"
    assert judged(shown("a", None), expected) == "wrong values"
    assert judged(shown("a", "b", nest=None), expected) == "wrong values"
    assert judged(shown("a"), expected) == "wrong rows"
    assert judged([*shown("a", "b"), *shown("a")], expected) == "wrong rows"
