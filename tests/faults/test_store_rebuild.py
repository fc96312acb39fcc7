"""One fault at every change of a rebuild: a reader sees the old day or the new one, and a rerun is exact."""

from __future__ import annotations

import atexit
import errno
import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from jobs.context import Pipeline
from jobs.daily import Outcome
from jobs.lake.clean import clean
from jobs.lake.port import DayContents
from jobs.lake.posix import PosixLake
from jobs.lake.store import Store
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.commit_log import read_manifest
from offsets.errors import LedgerBroken, StoreFailed
from tests.faults.store import Fault, some
from tests.faults.story import HOLDER, Reader, Story, Trial, four_days, memory_folder
from tests.faults.sweeps import (
    ANSWER_LOST,
    KILLED,
    MODES,
    MOVES,
    POWER_LOST,
    SOME_KEPT,
    Alike,
    Mode,
    Record,
    each_fault,
    kill_after_the_rename,
    settle_all,
)
from tests.reference import Coordinate, Place
from tests.support.lake import places
from tests.support.sampled import ALL, numbered

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Arrow's writer closes its file when it is collected, and meets the fault again."""

_REVISION = re.compile(r'"revision": \d+')
OLDEST, LOST, NEWEST = 0, 1, 2
"""Two days have received amendments; the newest has brought them, and leaves rows pending."""


@dataclass(frozen=True, eq=False)
class Rebuilding(Story):
    """Committed days, of which one is built again; only its revision shows how often."""

    number: int

    def command(self, pipeline: Pipeline, day: date) -> Outcome:
        return rebuild_day(pipeline, day)

    @cache  # noqa: B019 - stories live as long as the tests
    def lake(self, count: int) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="kafka-daily-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        trial = Trial(folder, four_days(1), count, four_days(1).lake(count))
        self.run(trial.lake, self.days[self.number])
        return trial.lake

    def files(self, lake: Path) -> Iterator[tuple[str, object]]:
        for name, held in super().files(lake):
            yield name, _REVISION.sub("", held) if isinstance(held, str) else held


@cache
def rebuilding(number: int) -> Rebuilding:
    story = four_days(1)
    return Rebuilding(story.days, story.topic, story.tasks, number)


class Rebuild(Trial):
    """A rebuild on a faulty store."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(folder, rebuilding(number), 2, four_days(1).lake(3))

    @property
    def day(self) -> date:
        assert isinstance(self.story, Rebuilding)
        return self.story.days[self.story.number]

    @property
    def revision(self) -> int:
        manifest = read_manifest(PosixLake(self.lake), self.day)
        assert manifest is not None
        return manifest.revision

    def confirm(self) -> None:
        assert self.revision > 1, "a rebuild ended well, and was lost"


def sweep(mode: Mode, number: int) -> Iterator[tuple[Trial, str]]:
    """Yield a lake after each single fault, until a rebuild gets through without one."""
    return each_fault(lambda folder: Rebuild(folder, number), mode, count(1))


@pytest.mark.parametrize("mode", [KILLED, ANSWER_LOST, SOME_KEPT], ids=lambda mode: mode.name)
@pytest.mark.parametrize("number", [OLDEST, NEWEST], ids=["oldest", "newest"])
def test_a_fault_at_any_change_of_a_rebuild_leaves_the_old_day_or_the_new_one(
    number: int, mode: Mode, record_property: Record
) -> None:
    assert settle_all(sweep(mode, number), record_property, f"rebuild of {number}, {mode.name}") > 40


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOSYS, errno.ENOTSUP], ids=errno.errorcode.get)
def test_a_store_that_cannot_exchange_two_names_refuses_the_rebuild_and_the_old_day_stays(
    error: int, tmp_path: Path
) -> None:
    trial = Rebuild(tmp_path, OLDEST)
    ended = trial.stopped(Fault(at=1, error=error, of=frozenset({"exchange"}), lasting=True))
    assert isinstance(ended, StoreFailed)
    assert "in one step" in str(ended)
    assert trial.revision == 1
    four_days(1).require(trial.lake, 3)
    trial.settle()


def test_a_rebuild_moves_no_late_row_out_of_a_day_that_a_power_loss_could_take() -> None:
    story = four_days(1)
    for n in count(1):
        with memory_folder() as folder:
            trial = Trial(folder, story, NEWEST)
            kill_after_the_rename(trial)
            trial.story, trial.number = rebuilding(OLDEST), OLDEST
            note = POWER_LOST.fail(trial, n, MOVES)
            trial.story, trial.number = story, NEWEST
            trial.run()
            assert places(trial.lake) == places(story.lake(3)), note
        if not note:
            break
    assert n > 4, "two late files are moved, by four changes"


# -- a damaged late file: its owner takes it out of its day, and brings its rows in another one


class PatientReader(Reader):
    """Looks as any reader does, but knows that rows of a damaged file may be away for a moment."""

    def look(self) -> None:
        self.forget()
        super().look()


class Mending(Rebuild):
    """A rebuild of the oldest day, in which a late file is damaged, or of the day that brought it.

    Or of the day between them, whose folder is gone with all that was brought there.
    """

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__(folder, number)
        if number == LOST:
            shutil.rmtree(self.lake / f"date={self.day}")
        else:
            (damaged,) = self.lake.glob(f"date={self.story.days[OLDEST]}/part-late-*")
            table = pq.ParquetFile(damaged).read()
            pq.write_table(table, damaged, compression="none")  # readable, and not what was committed
        self.store.reload()
        self.reader = PatientReader(self.lake, self.story, 3)
        self.store.watch = self.reader.look


def mending(mode: Mode, number: int, of: frozenset[str], record: Record) -> Iterator[tuple[Mending, str]]:
    """Yield a lake after a single fault of some kinds, until a rebuild gets through without one.

    A test run draws each second fault; the proof plays all.
    """
    alike = Alike(mode, of)
    for n in numbered(2, record):
        with memory_folder() as folder:
            trial = Mending(folder, number)
            note = alike.fail(trial, n)
            yield trial, note
        if not note:
            return


@cache
def places_of(days: int) -> dict[Coordinate, Place]:
    return places(four_days(1).lake(days))


def require_mended(trial: Trial, days: int) -> None:
    trial.power_loss()
    lake = PosixLake(trial.lake)
    assert places(trial.lake) == places_of(days)
    assert verify(lake, None, lambda *_: None, Level.RECORDS).problems == ()


@pytest.mark.parametrize(
    "number, mode",
    [
        *((OLDEST, KILLED), (OLDEST, SOME_KEPT), (LOST, KILLED)),
        *((NEWEST, KILLED), (NEWEST, SOME_KEPT), (NEWEST, ANSWER_LOST)),
    ],
    ids=lambda value: value.name if isinstance(value, Mode) else f"day {value}",
)
def test_the_same_command_mends_a_damaged_late_file_after_a_fault_at_any_change_of_names(
    number: int, mode: Mode, record_property: Record
) -> None:
    """A reader sees its rows once or, between two of the changes, not at all.

    What the same command does depends on the disk alone: one that it mended is not mended again.
    """
    faults, mended = 0, set[object]()
    for trial, note in mending(mode, number, MOVES | {"rename", "exchange", "fsync"}, record_property):
        try:
            if (state := trial.state()) not in mended:
                trial.run()
                require_mended(trial, 3)
                mended.add(state)
        except BaseException as failed:
            failed.add_note(note)
            raise
        faults += bool(note)
    record_property("faults", faults)
    assert faults > 15


@pytest.mark.parametrize("mode", [KILLED, SOME_KEPT], ids=lambda mode: mode.name)
@pytest.mark.parametrize("number", [OLDEST, NEWEST], ids=["its day", "its owner"])
def test_a_run_of_the_next_day_is_not_stopped_by_a_rebuild_that_died_at_any_change_of_names(
    number: int, mode: Mode, record_property: Record
) -> None:
    """The damaged file is brought back to its day, or its successor is; then the same command mends."""
    story, mended = four_days(1), set[object]()
    for trial, note in mending(mode, number, MOVES | {"exchange"}, record_property):
        if (state := trial.state()) in mended:
            continue
        try:
            trial.reader = PatientReader(trial.lake, story, 4)
            trial.store.watch = trial.reader.look
            assert not story.run(trial.lake, story.days[3], system=trial.store).already
            assert places(trial.lake) == places_of(4)
            trial.run()
            require_mended(trial, 4)
            mended.add(state)
        except BaseException as failed:
            failed.add_note(note)
            raise


# -- runs, rebuilds and cleanings in any order, each with a fault


def walk(trial: Trial, chance: random.Random, steps: int) -> Iterator[str]:
    """Do what a user may do in any order, with a fault each time; return what was done."""
    story = four_days(1)
    for _ in range(steps):
        committed = len(PosixLake(trial.lake).days())
        number = chance.choice([committed, committed, *range(committed)])
        fresh = number >= committed
        if number >= len(story.days):
            continue
        trial.story = story if fresh or chance.random() < 0.3 else rebuilding(number)
        trial.number = number
        mode = chance.choice(MODES)
        name = "run" if trial.story is story else "rebuild"
        yield f"{name} of day {number}, {mode.fail(trial, chance.randint(1, 60))}"
        if chance.random() < 0.2:
            clean(PosixLake(trial.lake, Store(trial.store)), HOLDER)
            yield "clean"


@pytest.mark.parametrize("seed", range(8))
def test_any_row_of_faulty_runs_and_rebuilds_ends_in_the_same_rows(seed: int) -> None:
    chance = random.Random(seed)
    story = four_days(1)
    with memory_folder() as folder:
        trial = Trial(folder, story, 2)
        trial.watch(3)
        notes: list[str] = []
        try:
            for note in walk(trial, chance, 6):
                notes.append(note)
            trial.story = story
            for number in (2, 3):
                trial.number = number
                trial.run()
            trial.power_loss(some(seed))
            trial.run()
            assert places(trial.lake) == places(story.lake(4))
        except BaseException as failed:
            failed.add_note("; ".join(notes))
            raise
        assert trial.store.injected >= 2


# -- the harness sees a protocol that lacks one of its rules


def exchange_without_a_sync(self: PosixLake, staged: str, day: date, contents: DayContents) -> None:
    self._store.exchange(self._put_together(staged, contents), self.day_folder(day))


def exchange_in_two_steps(self: PosixLake, staged: str, day: date, contents: DayContents) -> None:
    folder = self._put_together(staged, contents)
    self._store.move(self.day_folder(day), folder.with_name("old"))
    self._store.move(folder, self.day_folder(day))
    self._store.sync_folder(self.root)


@pytest.mark.parametrize("broken", [exchange_without_a_sync, exchange_in_two_steps])
def test_a_broken_rule_is_noticed(broken: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Rebuild(tmp_path, OLDEST)
    monkeypatch.setattr("tests.faults.story._SETTLED", set())
    monkeypatch.setattr(PosixLake, "replace", broken)
    with pytest.raises(AssertionError):
        trial.settle()


def withdraw_nothing(self: PosixLake, source: str, target: str) -> None:
    pass


def withdraw_for_good(self: PosixLake, source: str, target: str) -> None:
    self._store.unlink(self.root / target)
    self._store.sync_folder((self.root / target).parent)


@pytest.mark.parametrize(
    "broken, says", [(withdraw_nothing, "seen twice"), (withdraw_for_good, "found neither")]
)
def test_a_broken_withdrawal_is_noticed(broken: object, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALL, "1")
    monkeypatch.setattr(PosixLake, "_withdraw", broken)
    with pytest.raises((AssertionError, LedgerBroken), match=says):
        test_a_run_of_the_next_day_is_not_stopped_by_a_rebuild_that_died_at_any_change_of_names(
            NEWEST, KILLED, lambda name, value: None
        )
