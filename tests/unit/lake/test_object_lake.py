"""A lake in a bucket, on a store in memory: what it asks for, what it deletes, and what it refuses."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.context import Pipeline
from jobs.daily import run_day
from jobs.day.plan import preview
from jobs.lake.expiry import expiring
from jobs.lake.objects.lake import ObjectLake
from jobs.lake.objects.lease import LEASE, LOCK_NAME
from jobs.lake.port import LockHolder
from jobs.rebuild import rebuild_day
from offsets.commit_log import read_chain
from offsets.days import ONE_DAY, midnight
from offsets.errors import ConfigError, DayExists, LakeLocked, LedgerBroken, StoreFailed
from offsets.instants import micros
from tests.faults.object_histories import FIRST, NOON
from tests.faults.object_store import MemoryObjects
from tests.support import local_engine
from tests.support.memory_topic import MemoryTopic

DAYS = 40


class Counted(MemoryObjects):
    """A store that writes down what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, str]] = []
        self.asked = lambda kind, key: self.log.append((kind, key))

    def requests(self, work: Callable[[], object]) -> Counter[str]:
        """Return how often each kind of request is made by some work."""
        self.log.clear()
        work()
        return Counter(kind for kind, _ in self.log)


@pytest.fixture
def store() -> Counted:
    return Counted()


@pytest.fixture
def of(store: Counted, tmp_path: Path) -> Callable[[], Pipeline]:
    """Return what makes a pipeline of a new process: each day has a record of its own and a late one."""
    topic = MemoryTopic(1)
    for number in range(DAYS):
        for about in (number, number - 1):
            at = midnight(FIRST + about * ONE_DAY, "UTC") + NOON
            stamp = midnight(FIRST + number * ONE_DAY, "UTC") + NOON
            topic.produce(0, b'{"id":"o","n":1,"at":%d}' % micros(at), stamp)

    def made() -> Pipeline:
        now = midnight(FIRST + (DAYS + 5) * ONE_DAY, "UTC")
        lake = ObjectLake(store, timedelta(0))
        return replace(local_engine.pipeline(tmp_path, topic, now=now), lake=lake)

    return made


def test_a_run_deletes_nothing_outside_of_staging(store: Counted, of: Callable[[], Pipeline]) -> None:
    for number in range(3):
        run_day(of(), FIRST + number * ONE_DAY)
    deleted = [key for kind, key in store.log if kind == "delete"]
    assert deleted
    assert [key for key in deleted if not key.startswith("_staging/")] == []


def test_a_rebuild_deletes_only_what_it_replaces(store: Counted, of: Callable[[], Pipeline]) -> None:
    for number in range(3):
        run_day(of(), FIRST + number * ONE_DAY)
    before = {key for key in store.objects if key.startswith("date=")}
    store.log.clear()
    rebuild_day(of(), FIRST + ONE_DAY)
    deleted = {key for kind, key in store.log if kind == "delete" and not key.startswith("_staging/")}
    assert deleted <= before
    assert {key.split("/")[0] for key in deleted} <= {f"date={FIRST}", f"date={FIRST + ONE_DAY}"}


def test_a_rerun_asks_five_times_however_many_days_there_are(
    store: Counted, of: Callable[[], Pipeline]
) -> None:
    for number in range(DAYS):
        run_day(of(), FIRST + number * ONE_DAY)
    for day in (FIRST, FIRST + (DAYS - 1) * ONE_DAY):
        asked = store.requests(lambda day=day: run_day(of(), day))  # type: ignore[misc]
        assert asked.total() <= 5
        assert not [key for kind, key in store.log if kind in ("find", "folders") and "date=" in key]


def test_a_plan_lists_the_ledger_once_and_no_day(store: Counted, of: Callable[[], Pipeline]) -> None:
    for number in range(DAYS - 1):
        run_day(of(), FIRST + number * ONE_DAY)
    asked = store.requests(lambda: preview(of(), None))
    assert [key for kind, key in store.log if kind == "find"] == ["_ledger"]
    assert asked.total() <= 5


@pytest.mark.parametrize("at_once", [1, 3])
def test_a_chain_is_read_some_days_at_once_each_object_once(
    store: Counted, of: Callable[[], Pipeline], monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    for number in range(8):
        run_day(of(), FIRST + number * ONE_DAY)
    gone = FIRST + 4 * ONE_DAY
    store.delete([f"date={gone}/_SUCCESS"])
    monkeypatch.setattr(MemoryObjects, "at_once", at_once)
    store.log.clear()
    lake = of().lake
    assert [manifest.day.date for manifest in read_chain(lake)] == lake.days()
    assert [day for day in lake.days() if not lake.is_entered(day)] == [gone]
    asked = Counter(key for _, key in store.log)
    assert max(asked.values()) == 1
    assert not lake.is_entered(gone)
    store.put(f"date={gone}/_SUCCESS", store.objects[f"date={FIRST}/_SUCCESS"][0])
    assert not lake.is_entered(gone)
    run_day(of(), gone)
    assert lake.is_entered(gone)


def test_a_store_that_ignores_conditions_is_refused_before_anything_is_read(
    store: Counted, of: Callable[[], Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(key: str, text: bytes) -> bool:
        store.put(key, text)
        return True

    monkeypatch.setattr(store, "create", create)
    with pytest.raises(StoreFailed, match="If-None-Match is ignored"):
        run_day(of(), FIRST)
    assert not [key for key in store.objects if key.startswith(("date=", "_ledger/"))]


def test_the_files_of_a_folder_that_were_copied_are_no_lake(
    store: Counted, of: Callable[[], Pipeline]
) -> None:
    store.put(f"date={FIRST}/part-20260101T000000-abcdef-00000.parquet", b"PAR1")
    with pytest.raises(DayExists, match="copy-lake"):
        run_day(of(), FIRST)


def test_days_do_not_expire(store: Counted, of: Callable[[], Pipeline]) -> None:
    for number in range(4):
        run_day(of(), FIRST + number * ONE_DAY)
    objects = dict(store.objects)
    with pytest.raises(ConfigError, match="cannot expire yet"):
        expiring(of().lake, FIRST + ONE_DAY)
    assert store.objects == objects


def holder(host: str, pid: int) -> bytes:
    return LockHolder(run_id="other", host=host, pid=pid, since=datetime(2026, 1, 1, tzinfo=UTC)).to_text()


@pytest.mark.parametrize("host, pid", [(socket.gethostname(), os.getpid()), ("elsewhere", 1)])
def test_a_run_that_may_be_alive_holds_the_lake_as_long_as_its_lease(
    store: Counted, of: Callable[[], Pipeline], host: str, pid: int
) -> None:
    """A container's host name and pid come again: a process that has them need not be the run."""
    store.now = datetime.now(UTC)
    store.put(LOCK_NAME, holder(host, pid))
    with pytest.raises(LakeLocked, match=r"run other.*the lake is free at"):
        run_day(of(), FIRST)
    store.objects[LOCK_NAME] = holder(host, pid), store.now - LEASE - timedelta(seconds=1)
    assert not run_day(of(), FIRST).already


def test_a_run_of_this_machine_that_is_dead_holds_nothing(store: Counted, of: Callable[[], Pipeline]) -> None:
    store.put(LOCK_NAME, holder(socket.gethostname(), 2**22 + 1))  # no pid is as large
    assert not run_day(of(), FIRST).already
    assert store.objects[LOCK_NAME][0] == b"{}"


def test_a_lock_that_cannot_be_read_holds_nothing(store: Counted, of: Callable[[], Pipeline]) -> None:
    store.put(LOCK_NAME, b"[1")
    assert not run_day(of(), FIRST).already


def test_another_object_in_the_place_of_a_file_stops_the_run(
    store: Counted, of: Callable[[], Pipeline]
) -> None:
    """Its size tells; `verify` compares the contents."""
    lake = of()
    create = store.create

    def committed(key: str, text: bytes) -> bool:
        done = create(key, text)
        if key.startswith("_ledger/"):
            name = next(file["path"] for file in json.loads(text)["files"])
            store.put(f"date={FIRST}/{name}", b"somebody else's")
        return done

    store.create = committed  # type: ignore[method-assign]
    with pytest.raises(LedgerBroken, match="another object of 15 bytes"):
        run_day(lake, FIRST)
