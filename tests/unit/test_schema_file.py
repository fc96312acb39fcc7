"""`_schema.json` tells the columns of all days; it is made of the manifests, after each commit."""

from __future__ import annotations

import errno
import json
import shutil
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.config import Late
from jobs.daily import run_day
from jobs.lake.posix import PosixLake
from jobs.lake.store import System
from jobs.rebuild import rebuild_day
from jobs.record.columns import ddl, parse_type, quoted
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.errors import NotPublished
from offsets.plan import Accept
from tests.support.changing_lakes import NEW, OLD, by
from tests.support.lake_parts import part
from tests.support.local_engine import Crash, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, THIRD, three_days


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def topic() -> MemoryTopic:
    made = MemoryTopic(2)
    three_days(made)
    return made


def run(lake: Path, topic: MemoryTopic, day: date, system: System | None = None, rules: Any = OLD) -> None:
    run_day(pipeline(lake, topic, rules=rules, system=system, accept=Accept(contract=True)), day)


def document(lake: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((lake / "_schema.json").read_bytes())
    return parsed


def notes(lake: Path) -> tuple[str, ...]:
    verified = verify(PosixLake(lake), None, lambda done, total: None, Level.RECORDS)
    assert verified.problems == ()
    return verified.notes


def test_it_tells_each_column_with_its_newest_type_and_its_days(lake: Path, topic: MemoryTopic) -> None:
    for day, rules in ((FIRST, OLD), (SECOND, NEW), (THIRD, by(id="string", gone="json"))):
        run(lake, topic, day, rules=rules)
    columns = {column.pop("name"): column for column in document(lake)["columns"]}
    assert [*columns][-5:] == ["id", "n", "gone", "nested", "added"]
    assert columns["n"] == {"spark": "bigint", "arrow": "int64", "since": f"{FIRST}", "until": f"{THIRD}"}
    assert columns["added"] | {"since": f"{SECOND}", "until": f"{THIRD}"} == columns["added"]
    assert columns["gone"] == {"spark": "string", "arrow": "string", "since": f"{FIRST}", "until": None}
    assert columns["kafka_offset"]["spark"] == "bigint NOT NULL"
    assert columns["kafka_offset"]["arrow"] == "int64 not null"
    assert [run["from_date"] for run in document(lake)["days"]] == [
        f"{day}" for day in (FIRST, SECOND, THIRD)
    ]
    assert notes(lake) == ()


def test_its_arrow_is_that_of_the_files_of_each_day(lake: Path, topic: MemoryTopic) -> None:
    for day, rules in ((FIRST, OLD), (SECOND, NEW)):
        run(lake, topic, day, rules=rules)
    for day, run_of_days in zip((FIRST, SECOND), document(lake)["days"], strict=True):
        schema: pa.Schema = pq.read_schema(part(lake, day)).remove_metadata()
        assert run_of_days["arrow"] == schema.to_string()


def test_names_in_it_stand_in_backticks_as_spark_reads_them() -> None:
    type = parse_type("struct<`größe`:int,inner:array<struct<`a b`:int>>>")
    assert ddl(type, quoted) == "struct<`größe`:int,`inner`:array<struct<`a b`:int>>>"


def test_a_day_that_is_built_again_writes_it_too(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST)
    run(lake, topic, SECOND)
    rebuild_day(pipeline(lake, topic, rules=NEW, accept=Accept(contract=True)), FIRST)
    assert [run["from_date"] for run in document(lake)["days"]] == [f"{FIRST}", f"{SECOND}"]
    assert notes(lake) == ()


def test_a_lost_day_whose_owner_is_the_newest_is_in_it_as_it_was_built_again(
    lake: Path, topic: MemoryTopic
) -> None:
    """The owner is built again after the day; its manifest of before knows of no other."""
    for day in (FIRST, SECOND, THIRD):
        run_day(pipeline(lake, topic, rules=OLD, late=Late.AMEND), day)
    shutil.rmtree(lake / f"date={SECOND}")
    rebuild_day(pipeline(lake, topic, rules=NEW, late=Late.AMEND, accept=Accept(contract=True)), SECOND)
    assert [run["from_date"] for run in document(lake)["days"]] == [
        f"{day}" for day in (FIRST, SECOND, THIRD)
    ]
    assert notes(lake) == ()


class Kills(System):
    """The system calls of a run that is killed, or refused, when it would write the file."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def rename(self, source: Path, target: Path) -> None:
        if target.name == "_schema.json":
            raise self.error
        super().rename(source, target)


def test_a_run_that_is_killed_before_it_leaves_it_to_the_next_one(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST)
    with pytest.raises(Crash):
        run(lake, topic, SECOND, Kills(Crash()), NEW)
    (note,) = notes(lake)
    assert "_schema.json tells other columns than the manifests; no day depends on it, and the next" in note
    run(lake, topic, FIRST, rules=NEW)
    assert len(notes(lake)) == 1, "of an older day, nothing is looked at"
    run(lake, topic, SECOND, rules=NEW)
    assert len(document(lake)["days"]) == 2
    assert notes(lake) == ()


def test_a_store_that_refuses_it_stops_no_day(lake: Path, topic: MemoryTopic) -> None:
    refuses = Kills(OSError(errno.EIO, "refused"))
    for day in (FIRST, SECOND):
        with pytest.raises(NotPublished, match=r"The day is committed .* then run the day again"):
            run(lake, topic, day, refuses)
    (note,) = notes(lake)
    assert "_schema.json is not there" in note
    run(lake, topic, THIRD)
    assert notes(lake) == ()


def test_one_that_somebody_changed_is_a_note_and_no_problem(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST)
    (lake / "_schema.json").write_text("{}")
    assert len(notes(lake)) == 1
    (lake / "_schema.json").unlink()
    (lake / "_schema.json").symlink_to(lake / "_lock")
    (note,) = notes(lake)
    assert "a symbolic link" in note


def test_a_lake_of_an_older_format_has_none_until_its_next_day(
    lake: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr("jobs.day.plan.with_columns", lambda plan, *_: plan)
        run(lake, topic, FIRST)
    assert not (lake / "_schema.json").exists()
    assert notes(lake) == ()
    run(lake, topic, SECOND)
    assert [run["from_date"] for run in document(lake)["days"]] == [f"{FIRST}"]
