"""`status` sees a lake as it is: whole, held, left behind, amended, lossy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from jobs.config import Late
from jobs.daily import run_day
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.status import Amended, locate_file, status
from offsets.commit_log import Ledger
from offsets.errors import LedgerBroken
from tests.support.lake_parts import a_lossy_lake, manifest_of
from tests.support.local_engine import pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, THIRD, a_lake, three_days

NOW = datetime(2026, 4, 1, 12, tzinfo=UTC)
DAYS = (FIRST, SECOND, THIRD)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return Path(shutil.copytree(a_lake(3), tmp_path / "lake"))


@pytest.fixture
def amended(tmp_path: Path) -> Path:
    """Give a lake whose late rows were brought to their days."""
    topic = MemoryTopic(2)
    three_days(topic)
    for day in DAYS:
        run_day(pipeline(tmp_path / "amended", topic, late=Late.AMEND), day)
    return tmp_path / "amended"


def due_at(ledger: Ledger, day: date) -> datetime:
    return NOW + timedelta(hours=1)


def test_a_lake_at_a_glance(lake: Path) -> None:
    found = status(PosixLake(lake), FIRST, due_at, NOW)
    assert [(day.date, day.state, day.rows, day.late, day.invalid) for day in found.days] == [
        (FIRST, "complete", 6, 0, 1),
        (SECOND, "complete", 7, 1, 1),
        (THIRD, "complete", 7, 1, 1),
    ]
    assert [day.pending for day in found.days] == [1, 1, 1]
    assert [day.gaps for day in found.days] == [0, 0, 1]
    assert (found.next_day, found.due) == (date(2026, 3, 31), False)
    assert (found.holder, found.staged) == (None, ())
    assert status(PosixLake(lake), FIRST, lambda ledger, day: NOW, NOW).due


def test_an_absent_lake_and_an_empty_day_are_told_as_they_are(tmp_path: Path) -> None:
    found = status(PosixLake(tmp_path / "none"), FIRST, due_at, NOW)
    assert (found.days, found.next_day, found.unfinished_moves) == ((), FIRST, ())
    assert not (tmp_path / "none").exists()
    run_day(pipeline(tmp_path / "lake", MemoryTopic()), FIRST)
    (day,) = status(PosixLake(tmp_path / "lake"), FIRST, due_at, NOW).days
    assert (day.state, day.rows, day.files) == ("empty", 0, 1)
    assert day.bytes == sum(path.stat().st_size for path in (tmp_path / "lake").glob("date=*/*.parquet"))


def test_a_holder_is_alive_dead_or_elsewhere(lake: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    here = socket.gethostname()
    for host, pid, alive in ((here, 1, True), (here, gone.pid, False), ("elsewhere", 1, None)):
        holder = LockHolder(run_id="r", host=host, pid=pid, since=NOW)
        with PosixLake(lake).lock(holder):
            found = status(PosixLake(lake), FIRST, due_at, NOW)
        assert (found.holder, found.holder_alive) == (holder, alive)


def test_an_orphan_in_staging_is_told(lake: Path) -> None:
    PosixLake(lake).stage(THIRD, "dead")
    assert status(PosixLake(lake), FIRST, due_at, NOW).staged == ("2026-03-30.dead",)


def test_status_stops_at_an_edited_manifest(lake: Path) -> None:
    path = lake / f"date={SECOND}" / "_manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"revision": 1', b'"revision": 2'))
    with pytest.raises(LedgerBroken):
        status(PosixLake(lake), FIRST, due_at, NOW)


def test_amended_rows_are_told_with_the_day_whose_run_brought_them(amended: Path) -> None:
    found = status(PosixLake(amended), FIRST, due_at, NOW)
    assert [day.amended for day in found.days] == [
        (Amended(by=SECOND, rows=1),),
        (Amended(by=THIRD, rows=1),),
        (),
    ]
    assert [day.rows for day in found.days] == [6, 7, 7]
    assert found.unfinished_moves == ()


@pytest.mark.parametrize("linked", [False, True], ids=["before the link", "before the unlink"])
def test_an_open_move_of_the_newest_day_is_told(amended: Path, linked: bool) -> None:
    (late,) = (file for file in manifest_of(amended, THIRD).files if file.target)
    target, source = amended / str(late.target), amended / f"date={THIRD}" / late.path
    source.parent.mkdir(parents=True, exist_ok=True)
    os.link(target, source)
    if not linked:
        target.unlink()
    found = status(PosixLake(amended), FIRST, due_at, NOW)
    assert found.unfinished_moves == (late.target,)
    assert found.days[1].amended == ((Amended(by=THIRD, rows=1),) if linked else ())
    where = locate_file(PosixLake(amended), manifest_of(amended, THIRD), late)
    assert (where.source, where.ref) == tuple(
        path.relative_to(amended).as_posix() for path in (source, target if linked else source)
    )
    assert where.same is linked


def test_a_lossy_day_is_told_with_what_was_lost(tmp_path: Path) -> None:
    a_lossy_lake(tmp_path / "lake")
    found = status(PosixLake(tmp_path / "lake"), FIRST, due_at, NOW)
    assert [(day.state, day.lost, day.lost_offsets) for day in found.days] == [
        ("complete", (), 0),
        ("lossy", ("1:3-5",), 2),
    ]
