"""One fault at every change of expiry: a reader sees a day whole or not at all, and a rerun is exact."""

from __future__ import annotations

import atexit
import errno
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from itertools import count
from pathlib import Path
from typing import cast

import pytest

from jobs.context import Pipeline
from jobs.daily import Outcome
from jobs.lake.expiry import expire
from jobs.lake.posix import PosixLake
from jobs.lake.roll_forward import finish_last_run
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.commit_log import read_expired, read_ledger
from offsets.errors import LedgerBroken
from offsets.expired import to_text
from tests.faults.store import Fault, nothing, some
from tests.faults.story import HOLDER, Reader, Story, Trial, at, four_days, memory_folder
from tests.faults.sweeps import (
    KILLED,
    MODES,
    POWER_LOST,
    SOME_KEPT,
    Alike,
    Mode,
    Record,
    each_fault,
    settle_all,
)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

DAYS = four_days(1).days
NOW = at(DAYS[-1], 48)


@dataclass(frozen=True, eq=False)
class Expiring(Story):
    """Committed days, of which all before the last two leave."""

    def command(self, pipeline: Pipeline, day: object) -> Outcome:
        with pipeline.lock_lake():
            ledger, _ = finish_last_run(pipeline.lake, pipeline.run_id)
            expire(pipeline.lake, ledger, DAYS[-1], NOW, pipeline.run_id, "a test")
        return cast("Outcome", None)

    @cache  # noqa: B019 - stories live as long as the tests
    def lake(self, count: int) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="kafka-daily-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        trial = Trial(folder, four_days(1), count, four_days(1).lake(count))
        trial.store.watch = lambda: None
        self.run(trial.lake, DAYS[0])
        return trial.lake


@cache
def expiring() -> Expiring:
    story = four_days(1)
    return Expiring(story.days, story.topic, story.tasks)


class WholeDays(Reader):
    """Looks at the days after each change: each is whole, and the oldest are the ones that are gone."""

    def look(self) -> None:
        self.looks += 1
        names = sorted(self._list())
        if names == self._names:
            return
        self._names = names
        days = sorted({day for day, _, _ in names})
        assert days == sorted(self._own)[-len(days) :], f"a day left before an older one: {days}"
        for day in days:
            seen = self._look_at(day, [name for of, name, _ in names if of == day])
            assert seen.keys() == self._own[day] | self._amended[day], f"half of {day}"


class Expiry(Trial):
    """An expiry on a faulty store."""

    def __init__(self, folder: Path, number: int = 3) -> None:
        super().__init__(folder, expiring(), number, four_days(1).lake(number + 1))

    def watch(self, number: int) -> None:
        self.number = number
        self.reader = WholeDays(self.lake, four_days(1), number + 1)
        self.reader.look()
        self.store.watch = self.reader.look

    def there(self) -> tuple[date, ...]:
        return DAYS[-2:]

    def confirm(self) -> None:
        left = [read_expired(PosixLake(self.lake), day) for day in DAYS]
        assert [bool(expired) for expired in left] == [True, True, False, False], "what expired came back"

    def require(self) -> None:
        super().require()
        result = verify(PosixLake(self.lake), None, lambda *_: None, Level.RECORDS)
        assert result.problems == ()
        assert (result.expired.days, result.not_entered) == (2, ())


def sweep(mode: Mode) -> Iterator[tuple[Trial, str]]:
    """Yield a lake after each single fault, until an expiry gets through without one."""
    return each_fault(Expiry, mode, count(1))


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_a_fault_at_any_change_of_an_expiry_leaves_whole_days_and_a_rerun_is_exact(
    mode: Mode, record_property: Record
) -> None:
    assert settle_all(sweep(mode), record_property, f"expiry, {mode.name}") > 50


@pytest.mark.parametrize("seed", range(3))
def test_a_second_fault_in_the_rerun_of_an_expiry_leaves_the_lake_exact(
    seed: int, record_property: Record
) -> None:
    def pairs() -> Iterator[tuple[Trial, str]]:
        chance = random.Random(seed)
        for _ in range(12):
            with memory_folder() as folder:
                trial = Expiry(folder)
                notes = [chance.choice(MODES).fail(trial, chance.randint(1, 50)) for _ in range(2)]
                yield trial, "; ".join(notes)

    assert settle_all(pairs(), record_property, f"two faults, seed {seed}") > 12


@pytest.mark.parametrize("mode", [KILLED, SOME_KEPT, POWER_LOST], ids=lambda mode: mode.name)
def test_the_next_run_goes_on_with_an_expiry_that_died(mode: Mode) -> None:
    """Either the day is there and is what it was, or it has expired and nothing of it is left."""
    ends, alike = set(), Alike(mode)
    for n in count(1):
        with memory_folder() as folder:
            trial = Expiry(folder, 2)
            note = alike.fail(trial, n)
            trial.store.watch = lambda: None
            story = four_days(1)
            story.run(trial.lake, DAYS[3], system=trial.store)
            lake = PosixLake(trial.lake)
            left = read_expired(lake, DAYS[0])
            ends.add(bool(left))
            there = [day.date for day in read_ledger(lake).days]
            assert there == list(DAYS), note
            kept = DAYS[1:] if left else DAYS
            assert lake.days() == list(kept), note
            assert not [name for name in lake.staged_names() if left and name.startswith(str(DAYS[0]))], note
            result = verify(lake, None, lambda *_: None, Level.RECORDS)
            assert result.problems == (), note
            trial.store.power_loss(nothing)
            assert lake.days() == list(kept), note
            if not note:
                break
    assert ends == {True, False}


def removed_file_by_file(self: PosixLake, staged: str, day: object) -> None:
    self._store.system.rmtree(self.root / f"date={day}")


def put_in_place(self: PosixLake, ref: str, text: bytes) -> None:
    self._store.system.unlink(self.root / ref)
    self._write_text(ref, text)


@pytest.mark.parametrize(
    "rule, broken",
    [("remove", removed_file_by_file), ("put", put_in_place)],
    ids=["file by file", "no rename"],
)
def test_a_broken_rule_of_expiry_is_noticed(
    rule: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    expiring().held(4)
    monkeypatch.setattr("tests.faults.story._SETTLED", set())
    monkeypatch.setattr(PosixLake, rule, broken)
    with pytest.raises((AssertionError, LedgerBroken)):
        settle_all(sweep(KILLED), lambda name, value: None, rule)


def test_a_full_disk_stops_an_expiry_and_the_next_one_goes_on(tmp_path: Path) -> None:
    trial = Expiry(tmp_path)
    ended = trial.stopped(Fault(at=2, error=errno.ENOSPC, of=frozenset({"rename"}), lasting=True))
    assert ended
    assert "No space left" in str(ended)
    trial.settle()


def test_the_entry_of_a_test_is_what_to_text_writes(tmp_path: Path) -> None:
    trial = Expiry(tmp_path)
    trial.run()
    lake = PosixLake(trial.lake)
    left = read_expired(lake, DAYS[0])
    assert left
    assert lake.entry_text(DAYS[0]) == to_text(left)
    with lake.lock(HOLDER):
        assert expire(lake, read_ledger(lake), DAYS[-1], NOW, "again", "a test") == []


def their_file_comes_last(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file of somebody else, which is durable, come into the first day just before its folder goes."""
    real = PosixLake.remove

    def removed(self: PosixLake, staged: str, day: date) -> None:
        if day == DAYS[0]:
            (trial.lake / f"date={day}" / "theirs.txt").write_text("theirs")
            disk = trial.store.disk
            folder, node = disk.find(("lakes", "orders", f"date={day}")), next(disk.numbers)
            disk.text[node], disk.durable_text[node] = bytearray(b"theirs"), b"theirs"
            disk.seen[folder]["theirs.txt"] = disk.kept[folder]["theirs.txt"] = node
        real(self, staged, day)

    monkeypatch.setattr(PosixLake, "remove", removed)
    trial.store.watch = lambda: None


def test_a_file_of_somebody_else_that_is_kept_in_staging_outlives_a_loss_of_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Expiry(tmp_path)
    their_file_comes_last(trial, monkeypatch)
    trial.run()
    trial.store.power_loss(nothing)
    (theirs,) = trial.lake.glob("_staging/*/day/theirs.txt")
    assert theirs.read_text() == "theirs"


def test_a_file_of_somebody_else_outlives_a_loss_of_power_right_after_its_folder_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may have written the rename into staging, and not yet that staging is there."""
    trial, outcomes = Expiry(tmp_path), set[str]()
    their_file_comes_last(trial, monkeypatch)

    def look() -> None:
        if not (trial.lake / f"date={DAYS[0]}").exists() and not outcomes:
            for seed in range(50):
                disk = trial.store.disk.after_power_loss(some(seed))
                (theirs,) = (path for _, path in disk.walk(tmp_path) if path.name == "theirs.txt")
                outcomes.add(theirs.relative_to(trial.lake).parts[0])

    trial.store.watch = look
    trial.run()
    assert outcomes == {"_staging", f"date={DAYS[0]}"}
