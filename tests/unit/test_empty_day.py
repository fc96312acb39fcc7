"""A day without rows: readers of its folder find one file, with the day's columns and no row."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.config import Late
from jobs.daily import run_day
from jobs.lake.posix import PosixLake
from jobs.rebuild import rebuild_day
from jobs.record.decode import day_schema
from jobs.verify.level import Level
from jobs.verify.run import verify
from tests.support.lake import places
from tests.support.lake_parts import manifest_of
from tests.support.local_engine import RULES, order, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, THIRD, at, orders


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def topic_without_the_second_day(*others: str) -> MemoryTopic:
    topic = MemoryTopic(2)
    orders(topic, FIRST)
    if "invalid" in others:
        topic.produce(0, b"not json", at(SECOND, 3))
    if "late" in others:
        topic.produce(0, order(at(FIRST, 3)), at(SECOND, 3))
    orders(topic, THIRD)
    return topic


def run(lake: Path, topic: MemoryTopic, *days: date) -> None:
    for day in days:
        run_day(pipeline(lake, topic, late=Late.AMEND), day)


def problems(lake: Path, topic: MemoryTopic) -> list[str]:
    return list(verify(PosixLake(lake), None, lambda done, total: None, Level.KAFKA, lambda: topic).problems)


def files_of(lake: Path, day: date) -> list[Path]:
    """List what the promised glob finds of a day."""
    return sorted(lake.glob(f"date={day}/*.parquet"))


@pytest.mark.parametrize(
    "others", [(), ("late",), ("invalid",), ("late", "invalid")], ids=lambda others: " and ".join(others)
)
def test_a_day_without_rows_is_a_file_with_its_columns(lake: Path, others: tuple[str, ...]) -> None:
    topic = topic_without_the_second_day(*others)
    run(lake, topic, FIRST, SECOND, THIRD)
    (path,) = files_of(lake, SECOND)
    with pq.ParquetFile(path) as file:
        assert file.metadata.num_rows == 0
        assert file.schema_arrow.remove_metadata().equals(day_schema(RULES))
    (listed,) = [file for file in manifest_of(lake, SECOND).files if file.path == path.name]
    assert (listed.rows, listed.bytes) == (0, path.stat().st_size)
    assert problems(lake, topic) == []


def test_a_day_with_rows_has_no_file_without_rows(lake: Path) -> None:
    run(lake, topic_without_the_second_day(), FIRST)
    assert [pq.read_metadata(path).num_rows for path in files_of(lake, FIRST)] == [6]


def test_a_file_without_rows_is_verified_as_any_other(lake: Path) -> None:
    topic = topic_without_the_second_day()
    run(lake, topic, FIRST, SECOND)
    (path,) = files_of(lake, SECOND)
    path.unlink()
    assert [problem for problem in problems(lake, topic) if "not there" in problem]


def test_rows_that_come_late_lie_behind_the_file_without_rows(lake: Path) -> None:
    topic = topic_without_the_second_day()
    topic.produce(1, order(at(SECOND, 5)), at(THIRD, 21.5))
    run(lake, topic, FIRST, SECOND, THIRD)
    assert [pq.read_metadata(path).num_rows for path in files_of(lake, SECOND)] == [0, 1]
    assert problems(lake, topic) == []


def test_a_day_without_rows_is_built_again_where_its_file_is_gone(lake: Path) -> None:
    """So is one that a version before this one left without a file."""
    topic = topic_without_the_second_day("late")
    run(lake, topic, FIRST, SECOND, THIRD)
    before = places(lake)
    files_of(lake, SECOND)[0].unlink()
    rebuild_day(pipeline(lake, topic, late=Late.AMEND), SECOND)
    assert len(files_of(lake, SECOND)) == 1
    assert places(lake) == before
    assert problems(lake, topic) == []
