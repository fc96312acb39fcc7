"""Days of a topic in memory in stored lakes, and what is right there: what the same runs make in a folder."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from jobs.config import Late
from jobs.context import Pipeline
from jobs.daily import run_day
from jobs.lake.port import Lake
from jobs.verify.level import Level
from jobs.verify.run import verify
from tests.support.local_engine import LocalEngine, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.object_servers import StoredLake
from tests.support.three_days import FIRST, SECOND, THIRD, three_days

EMPTY: Final = date(2026, 3, 31)
DAYS: Final = (FIRST, SECOND, THIRD, EMPTY)
NOW: Final = datetime(2026, 4, 1, 12, tzinfo=UTC)


def three_days_of_records() -> MemoryTopic:
    """Make three days of records, with two days' late ones; the fourth day has none."""
    made = MemoryTopic(2)
    three_days(made)
    return made


def made(
    lake: Lake, records: MemoryTopic, late: Late = Late.AMEND, engine: LocalEngine | None = None
) -> Pipeline:
    """Make a run's pipeline; its tasks run in this process, and open the lake for themselves."""
    return replace(pipeline(Path("unused"), records, now=NOW, late=late, engine=engine), lake=lake)


def downloaded(place: StoredLake, folder: Path) -> Path:
    """Copy all that readers see into a folder, so that the readers of folders can be asked."""
    shutil.rmtree(folder, ignore_errors=True)
    bucket = place.bucket()
    for each in bucket.find(""):
        path = folder / each.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bucket.get(each.key) or b"")
    return folder


def in_a_folder(folder: Path, records: MemoryTopic, late: Late, days: tuple[date, ...] = DAYS) -> Path:
    for day in days:
        run_day(pipeline(folder, records, now=NOW, late=late), day)
    return folder


def problems(lake: Lake, level: Level = Level.RECORDS) -> tuple[str, ...]:
    return verify(lake, None, lambda *_: None, level).problems
