"""A late file has the columns of the day that it joins first, in their order, then today's others."""

from __future__ import annotations

import os
import shutil
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config import Late
from jobs.daily import run_day
from jobs.lake.posix import PosixLake
from jobs.rebuild import rebuild_day
from jobs.record.rules import Rules
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.columns import ColumnRun, columns_on
from offsets.plan import Accept
from tests.support.changing_lakes import NEW, OLD, by
from tests.support.lake import late_paths, places
from tests.support.lake_parts import manifest_of, part
from tests.support.local_engine import order, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, STARTS, THIRD, at, orders

FOURTH = date(2026, 3, 31)
DAYS = (FIRST, SECOND, THIRD, FOURTH)
ALWAYS = ["event_time", "kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_key"]


UNION = {
    "id": pa.string(),
    "n": pa.int64(),
    "gone": pa.string(),
    "nested": pa.struct([("a", pa.int32()), ("b", pa.string())]),
    "added": pa.decimal128(10, 2),
}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def topic() -> MemoryTopic:
    """Make four days of orders; each day but the first has late rows for the first."""
    made = MemoryTopic(2)
    for day in DAYS:
        orders(made, day)
        if day != FIRST:
            made.produce(0, order(STARTS[FIRST], n=7), at(day, 21.5))
    return made


def run(lake: Path, topic: MemoryTopic, day: date, rules: Rules, late: Late = Late.AMEND) -> None:
    run_day(pipeline(lake, topic, rules=rules, late=late, accept=Accept(contract=True)), day)


def rebuild(lake: Path, topic: MemoryTopic, day: date, rules: Rules) -> None:
    accept = Accept(contract=True)
    rebuild_day(pipeline(lake, topic, rules=rules, late=Late.AMEND, accept=accept), day)


def problems(lake: Path, topic: MemoryTopic) -> list[str]:
    return list(verify(PosixLake(lake), None, lambda done, total: None, Level.KAFKA, lambda: topic).problems)


def columns(path: Path) -> dict[str, pa.DataType]:
    """Return a file's own columns behind those that all have."""
    schema = pq.read_schema(path)
    assert schema.names[: len(ALWAYS)] == ALWAYS
    return dict(zip(schema.names[len(ALWAYS) :], schema.types[len(ALWAYS) :], strict=True))


@pytest.mark.parametrize("late", Late)
def test_a_late_file_has_the_columns_of_its_day_in_order_and_then_todays(
    lake: Path, topic: MemoryTopic, late: Late
) -> None:
    run(lake, topic, FIRST, OLD)
    run(lake, topic, SECOND, NEW, late)
    (path,) = lake.glob(f"**/part-late-{SECOND}-*")
    assert list(columns(path).items()) == list(UNION.items())
    (row,) = pq.ParquetFile(path).read().to_pylist()
    assert (row["id"], row["n"], row["gone"], row["added"]) == ("o", 7, None, None)
    assert list(columns(part(lake, SECOND))) == [column.name for column in NEW.columns]
    assert problems(lake, topic) == []


def test_a_name_that_differs_in_case_alone_stays_that_of_the_day(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST, by(ID="string"))
    run(lake, topic, SECOND, by(id="string", n="bigint"))
    (path,) = late_paths(lake, SECOND)
    assert list(columns(path)) == ["ID", "n"]
    assert pq.ParquetFile(path).read()["ID"].to_pylist() == ["o"]


def test_late_rows_of_many_tasks_are_joined_into_one_file_of_one_schema(lake: Path) -> None:
    topic = MemoryTopic(2)
    orders(topic, FIRST)
    for number in range(40):
        topic.produce(number % 2, order(STARTS[FIRST]), at(SECOND, 2 + number / 4))
    run(lake, topic, FIRST, OLD)
    run(lake, topic, SECOND, NEW)
    (path,) = late_paths(lake, SECOND)
    assert pq.read_metadata(path).num_rows == 40
    assert list(columns(path)) == list(UNION)


def test_the_newest_manifest_records_which_columns_count_since_which_day(
    lake: Path, topic: MemoryTopic
) -> None:
    for day, rules in zip(DAYS, (OLD, OLD, NEW, NEW), strict=True):
        run(lake, topic, day, rules)
    runs = manifest_of(lake, FOURTH).columns
    assert [run.from_date for run in runs] == [FIRST, THIRD]
    assert [column.name for column in runs[0].columns] == [*ALWAYS, "id", "n", "gone", "nested"]
    assert {column.name: column.type for column in runs[1].columns}["nested"] == "struct<a:int,b:string>"
    assert {column.name: column.type for column in runs[0].columns}["gone"] == "string"
    assert problems(lake, topic) == []


@pytest.mark.parametrize("coarse", [False, True], ids=["", "within one tick of the store's clock"])
def test_a_day_that_was_built_again_under_another_contract_has_its_new_columns_from_the_next_run_on(
    lake: Path, topic: MemoryTopic, coarse: bool
) -> None:
    for day in (FIRST, SECOND, THIRD):
        run(lake, topic, day, OLD)
    rebuild(lake, topic, FIRST, NEW)
    if coarse:
        for day in (FIRST, SECOND, THIRD):
            os.utime(lake / f"date={day}" / "_manifest.json", (0, 0))
    assert problems(lake, topic) == []
    run(lake, topic, FOURTH, by(id="string"))
    assert [run.from_date for run in manifest_of(lake, FOURTH).columns] == [FIRST, SECOND, FOURTH]
    (path,) = late_paths(lake, FOURTH)
    assert list(columns(path)) == ["added", "nested", "n", "id"]
    assert problems(lake, topic) == []


@pytest.mark.parametrize("harm", ["late file", "its day's folder"])
@pytest.mark.parametrize("today", [OLD, NEW, by(other="string")], ids=["as before", "as its owner", "other"])
def test_a_late_file_that_its_owner_writes_again_has_the_columns_of_its_own_contract(
    lake: Path, topic: MemoryTopic, harm: str, today: Rules
) -> None:
    run(lake, topic, FIRST, by(id="string"))
    topic.produce(0, order(STARTS[SECOND], n=7), at(THIRD, 21.5))
    run(lake, topic, SECOND, OLD)
    run(lake, topic, THIRD, NEW)
    before = places(lake)
    (path,) = lake.glob(f"date={SECOND}/part-late-{THIRD}-*")
    if harm == "late file":
        path.unlink()
    else:
        shutil.rmtree(lake / f"date={SECOND}")
    rebuild(lake, topic, SECOND, today if harm == "late file" else OLD)
    (again,) = lake.glob(f"date={SECOND}/part-late-{THIRD}-*")
    assert again.name != path.name
    assert set(columns(again)) == set(UNION)
    assert places(lake) == before
    assert problems(lake, topic) == []


def test_a_lake_of_an_older_format_tells_its_columns_by_all_of_its_manifests(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr("jobs.day.plan.with_columns", lambda plan, *_: plan)
        for day, rules in zip(DAYS[:3], (by(id="string"), OLD, OLD), strict=True):
            run(lake, topic, day, rules)
    assert manifest_of(lake, THIRD).columns == ()
    run(lake, topic, FOURTH, NEW)
    runs = manifest_of(lake, FOURTH).columns
    assert [run.from_date for run in runs] == [FIRST, SECOND, FOURTH]
    assert list(columns(late_paths(lake, FOURTH)[0])) == ["id", "added", "nested", "n"]


def test_a_damaged_old_manifest_stops_no_run_that_would_learn_columns_from_it(
    lake: Path, topic: MemoryTopic
) -> None:
    for day in DAYS[:3]:
        run(lake, topic, day, OLD)
    (lake / f"date={FIRST}" / "_manifest.json").write_text("damaged since")
    run(lake, topic, FOURTH, NEW)
    assert columns_on(manifest_of(lake, FOURTH).columns, FIRST) == manifest_of(lake, THIRD).columns[0].columns


def test_verify_names_columns_that_a_day_does_not_have(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST, OLD)
    recorded = manifest_of(lake, FIRST).columns
    wrong = (ColumnRun(from_date=FIRST, columns=recorded[0].columns[:-1]),)

    def misled(lake_: object, newest: object, plan: object) -> list[object]:
        return [(FIRST, wrong[0].columns)]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("jobs.day.columns.columns_before", misled)
        run(lake, topic, SECOND, OLD)
    (problem,) = problems(lake, topic)
    assert f"{SECOND}: it records other columns of {FIRST} than that day's own manifest" in problem
