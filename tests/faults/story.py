"""Histories of tiny days for a store that fails, and what a reader of the lake may see at any moment.

Relies on the engine that runs here and on a topic in memory, so that one run takes milliseconds. The lake
that undisturbed runs leave is the reference for all others.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog

import jobs.context
from jobs.config import Late
from jobs.context import Pipeline
from jobs.daily import Outcome, run_day
from jobs.lake.clean import clean, orphans
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.store import Store
from offsets.errors import NotPublished, StoreFailed
from tests.faults.store import Disk, Fault, FaultyOs, Keeps, nothing
from tests.reference import Coordinate
from tests.support.lake import files, places
from tests.support.local_engine import Crash, LocalEngine, days, order, pipeline
from tests.support.memory_topic import MemoryTopic

HOLDER = LockHolder(run_id="clean", host="here", pid=1, since=datetime(2026, 6, 1, tzinfo=UTC))
MEMORY = Path("/dev/shm")

_RUN = re.compile(r"20260601T\d{6}-[0-9a-f]{6}")
_HASH = re.compile(rb'"(sha256|checksum)": "[0-9a-f]{64}"')
_RUNS: Counter[Path] = Counter()
"""How many runs a lake has seen: they are named by it, so that equal histories leave equal disks."""


Visible = dict[str, set[Coordinate]]


def _run_id(number: int) -> str:
    """Return the id of a run; it has the form of real ones, by which names show whose file it is."""
    return f"20260601T000000-{number:06x}"


@contextmanager
def memory_folder() -> Iterator[Path]:
    """Yield a folder in memory where the machine has one: thousands of files are made in it."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="kafka-daily-") as made:
        yield Path(made)


def at(day: date, hours: float) -> datetime:
    """Return an instant of a day; the zone of all stories is UTC."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(hours=hours)


# -- stories


@dataclass(frozen=True, eq=False)
class Story:
    """A topic and its days."""

    days: tuple[date, ...]
    topic: MemoryTopic
    tasks: int

    def run(self, lake: Path, day: date, **changed: Any) -> Outcome:
        """Run one day as a process of its own would."""
        engine = LocalEngine(self.topic, least_tasks=self.tasks)
        terms: dict[str, Any] = {"late": Late.AMEND, "zone": "UTC", "first": self.days[0], "engine": engine}
        _RUNS[lake] += 1
        of_run = replace(pipeline(lake, self.topic, **(terms | changed)), run_id=_run_id(_RUNS[lake]))
        with pytest.MonkeyPatch.context() as patched, structlog.testing.capture_logs():
            patched.setattr(jobs.context, "_versions", lambda: {"kafka-daily": "0"})
            return self.command(of_run, day)

    def command(self, pipeline: Pipeline, day: date) -> Outcome:
        """Run the command of this story."""
        return run_day(pipeline, day)

    @cache  # noqa: B019 - stories live as long as the tests
    def lake(self, count: int) -> Path:
        """Return the lake of the first days, left by undisturbed runs; copy it, never change it."""
        folder = Path(tempfile.mkdtemp(prefix="kafka-daily-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for day in self.days[:count]:
            self.run(folder / "lake", day)
        assert len(places(folder / "lake")) >= count, "each row lies in one place"
        return folder / "lake"

    @cache  # noqa: B019 - as above
    def held(self, count: int) -> dict[str, object]:
        """Return what the files of the reference hold."""
        return dict(self.files(self.lake(count)))

    @cache  # noqa: B019 - as above
    def visible(self, count: int) -> tuple[Visible, Visible]:
        """Return what a reader sees of each day in the end: its own rows, and those that amend it."""
        folders = [f"date={day}" for day in self.days[:count]]
        own, amended = ({day: set[Coordinate]() for day in folders} for _ in range(2))
        for path in self.lake(count).glob("date=*/*.parquet"):
            (amended if "late-" in path.name else own)[path.parent.name].update(_rows(path))
        return own, amended

    def files(self, lake: Path) -> Iterator[tuple[str, object]]:
        """Yield the name of each file outside of staging, with the rows or the manifest in it.

        The runs' names are masked, and hashes left out, since a footer names the run.
        """
        for name in files(lake):
            if not name.startswith("_staging/") and name != "_lock":
                yield _RUN.sub("RUN", name), _content((lake / name).read_bytes())

    def require(self, lake: Path, count: int) -> None:
        """Check that a lake is the reference: rows, manifests, and nothing beside them but orphans."""
        assert dict(self.files(lake)) == self.held(count)
        beside = {"_lock", "_schema.json", "_staging", "_ledger"}
        known = {*beside, *(f"date={day}" for day in self.days[:count])}
        assert {path.name for path in lake.iterdir()} <= known
        staging = lake / "_staging"
        left = sorted(path.name for path in staging.iterdir()) if staging.exists() else []
        assert [orphan.name for orphan in orphans(PosixLake(lake))] == left


@cache
def four_days(tasks: int = 2) -> Story:
    """Bad rows and early ones on each day; from the third on, late rows of two closed days as well."""
    all_days = tuple(days(date(2026, 5, 4), date(2026, 5, 7)))
    topic = MemoryTopic(2)
    for day in all_days:
        for partition in (0, 1):
            topic.produce(partition, order(at(day, 2)), at(day, 2))
            topic.produce(partition, order(at(day, 9)), at(day, 9))
            if day >= all_days[2]:
                topic.produce(partition, order(at(all_days[0], 5)), at(day, 10))
                topic.produce(partition, order(at(all_days[1], 5)), at(day, 11))
        topic.produce(0, b"not json", at(day, 12))
        topic.produce(1, order(at(day, 25)), at(day, 13))
    return Story(all_days, topic, tasks)


@cache
def three_weeks() -> Story:
    """Twenty days, and one more that brings late rows of them all."""
    all_days = tuple(days(date(2026, 5, 1), date(2026, 5, 21)))
    topic = MemoryTopic()
    for day in all_days:
        topic.produce(0, order(at(day, 2)), at(day, 2))
    for day in all_days[:-1]:
        topic.produce(0, order(at(day, 3)), at(all_days[-1], 3))
    return Story(all_days, topic, 1)


@cache
def _content(text: bytes) -> object:
    if not text.startswith(b"PAR1"):
        return _RUN.sub("RUN", _HASH.sub(b"", text).decode())
    table = pq.ParquetFile(pa.BufferReader(text)).read(["kafka_partition", "kafka_offset"])
    return tuple(zip(*table.to_pydict().values(), strict=True))


def _rows(path: Path) -> tuple[Coordinate, ...]:
    rows = _content(path.read_bytes())
    assert isinstance(rows, tuple)
    return rows


# -- the reader


class Reader:
    """Looks at `date=*/*.parquet` after each change, as a query would that runs at that moment."""

    def __init__(self, lake: Path, story: Story, count: int) -> None:
        """Take from the reference what a whole day is."""
        self.lake, self.looks = lake, 0
        self._own, self._amended = story.visible(count)
        self._names: list[tuple[str, str, int]] = []
        self._last: set[Coordinate] = set()

    def look(self) -> None:
        """Check that every day seen is whole, that no row is seen twice, and that none went away."""
        self.looks += 1
        names = sorted(self._list())
        if names == self._names:
            return
        self._names = names
        everything: Counter[Coordinate] = Counter()
        for day in sorted({day for day, _, _ in names}):
            everything += self._look_at(day, [name for of, name, _ in names if of == day])
        twice = [row for row, times in everything.items() if times > 1]
        assert not twice, f"seen twice: {twice}"
        assert self._last <= everything.keys(), f"gone: {self._last - everything.keys()}"
        self._last = set(everything)

    def _look_at(self, day: str, names: list[str]) -> Counter[Coordinate]:
        seen = {name: _rows(self.lake / day / name) for name in names if name.endswith(".parquet")}
        own = Counter(row for name, rows in seen.items() if "late-" not in name for row in rows)
        late = Counter(row for name, rows in seen.items() if "late-" in name for row in rows)
        assert own.keys() == self._own[day], f"half of {day}"
        assert "_manifest.json" in names, f"no manifest in {day}"
        assert late.keys() <= self._amended[day], f"rows of another day in {day}"
        return own + late

    def forget(self) -> None:
        """Let what was seen go away once: the power failed."""
        self._last, self._names = set(), []

    def _list(self) -> Iterator[tuple[str, str, int]]:
        with suppress(FileNotFoundError):
            for day in os.scandir(self.lake):
                if day.name.startswith("date="):
                    yield day.name, "", 0
                    with os.scandir(day.path) as entries:
                        yield from [(day.name, entry.name, entry.inode()) for entry in entries]


# -- the trial


class Trial:
    """A lake on a faulty store, watched by a reader, and the day that is to be settled."""

    def __init__(self, folder: Path, story: Story, number: int, start: Path | None = None) -> None:
        """Begin before the day of a number, from 0: after undisturbed runs, or from another lake."""
        self.lake, self.story, self.number = folder / "lakes" / "orders", story, number
        if number or start:
            start = start or story.lake(number)
            shutil.copytree(start, self.lake)
            _RUNS[self.lake] = _RUNS[start]
        self._runs = _RUNS[self.lake]
        self.store = FaultyOs(folder)
        self.watch(number)

    def watch(self, number: int) -> None:
        """Let a reader look who knows the days up to a number."""
        self.number = number
        self.reader = Reader(self.lake, self.story, number + 1)
        self.reader.look()
        self.store.watch = self.reader.look

    @property
    def day(self) -> date:
        """The day to be settled."""
        return self.story.days[self.number]

    @property
    def committed(self) -> bool:
        """Whether that day is there."""
        return (self.lake / f"date={self.day}").exists()

    def run(self, **changed: Any) -> Outcome:
        """Run the day on the faulty store."""
        return self.story.run(self.lake, self.day, system=self.store, **changed)

    def stopped(self, fault: Fault, **changed: Any) -> Exception | None:
        """Run the day in a process of its own, with a fault ahead; return the error that ended it."""
        self.store.plant(fault)
        try:
            self.run(**changed)
        except (Crash, StoreFailed, NotPublished) as ended:
            return ended
        finally:
            self.store.plant()
        return None

    def power_loss(self, keeps: Keeps = nothing) -> None:
        """Cut the power, and let the reader look at what is left."""
        self.store.power_loss(keeps)
        self.reader.forget()
        self.reader.look()

    def power_loss_at(self, disk: Disk, keeps: Keeps) -> None:
        """Cut the power when a run had come to this disk, in a trial that began as this one did."""
        self.store.disk = disk
        self.store.injected += 1
        _RUNS[self.lake] = self._runs + 1
        self.power_loss(keeps)

    def settle(self) -> None:
        """Check that a plain rerun ends in the reference, and that no loss of power takes it back.

        What a rerun does depends on the disk alone: a state that was settled before is not settled again.
        """
        self.store.require_all_seen()
        self.reader.look()
        state = self.state()
        if state in _SETTLED:
            return
        self.run()
        self.store.require_all_seen()
        self.require()
        self.power_loss()
        self.require_entered()
        self.confirm()
        self.require()
        clean(PosixLake(self.lake, Store(self.store)), HOLDER)
        assert orphans(PosixLake(self.lake)) == []
        self.require()
        _SETTLED.add(state)

    def state(self) -> object:
        """Return all that the next run depends on."""
        return self.story, self.number, _RUNS[self.lake], self.store.disk.state()

    def require_entered(self) -> None:
        """Check that the ledger has each day's manifest: a run that ended well leaves none to a later one."""
        for day in self.there():
            entry, manifest = self.lake / f"_ledger/{day}.json", self.lake / f"date={day}/_manifest.json"
            assert entry.exists(), f"{entry} was lost"
            assert entry.read_bytes() == manifest.read_bytes()

    def there(self) -> tuple[date, ...]:
        """Return the days that have a folder in the end."""
        return self.story.days[: self.number + 1]

    def confirm(self) -> None:
        """Check that a run that ended well needs no other."""
        assert self.run().already, "a run ended well, and its day was lost"

    def require(self) -> None:
        """Check that the lake is the reference."""
        self.story.require(self.lake, self.number + 1)


_SETTLED: set[object] = set()


def states() -> int:
    """Count the different disks that were settled by a rerun so far."""
    return len(_SETTLED)
