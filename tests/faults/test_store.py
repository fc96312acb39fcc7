"""One fault at every change of the store, or two: a plain rerun ends in the lake of an undisturbed run."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from datetime import date
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.config import Late
from jobs.lake.port import DayContents
from jobs.lake.posix import PosixLake
from jobs.lake.posix_file import PosixFile
from jobs.lake.store import Store
from offsets.errors import EarlierDayMissing, LedgerBroken
from tests.faults.store import Fault, FaultyOs, everything, nothing, some
from tests.faults.story import Story, Trial, four_days, memory_folder, three_weeks
from tests.faults.sweeps import (
    ANSWER_LOST,
    KILLED,
    MODES,
    MOVES,
    POWER_LOST,
    REFUSED,
    SOME_KEPT,
    Alike,
    Mode,
    Record,
    each_fault,
    kill_after_the_rename,
    settle,
    settle_all,
)
from tests.support.local_engine import Crash

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Arrow's writer closes its file when it is collected, and may meet the fault again."""


def sweep(
    mode: Mode, story: Story, number: int, of: frozenset[str] | None = None, start: Path | None = None
) -> Iterator[tuple[Trial, str]]:
    """Yield a lake after each single fault in the run of a day, until a run gets through without one."""
    return each_fault(lambda folder: Trial(folder, story, number, start), mode, count(1), of)


# -- the store itself: what it forgets and what it keeps


def write(store: FaultyOs, path: Path, text: bytes = b"text", *, sync: bool = True) -> None:
    """Write a new file; its name is not made durable."""
    file = store.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    store.write(file, text[:2])
    store.write(file, text[2:])
    if sync:
        store.fsync(file)
    store.close(file)


def sync(store: FaultyOs, *folders: Path) -> None:
    for folder in folders:
        file = store.open(folder, os.O_RDONLY)
        store.fsync(file)
        store.close(file)


def left(root: Path) -> dict[str, bytes | None]:
    """Return the text of all files by name; None for a folder without any."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
        if path.is_file() or not any(path.iterdir())
    }


@pytest.fixture
def store(tmp_path: Path) -> FaultyOs:
    """Return a store with two folders, a file in one of them, all of it durable."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "old").write_bytes(b"old")
    return FaultyOs(tmp_path)


Steps = Callable[[FaultyOs, Path, Path], None]


def new_name(store: FaultyOs, a: Path, b: Path) -> None:
    write(store, a / "new")


def new_name_synced(store: FaultyOs, a: Path, b: Path) -> None:
    write(store, a / "new")
    sync(store, a)


def only_the_name_synced(store: FaultyOs, a: Path, b: Path) -> None:
    write(store, a / "new", sync=False)
    sync(store, a)


def fsync_failed_then_repeated(store: FaultyOs, a: Path, b: Path) -> None:
    file = store.open(a / "new", os.O_WRONLY | os.O_CREAT)
    store.write(file, b"text")
    store.arm(Fault(at=1, error=errno.EIO))
    with pytest.raises(OSError, match="error"):
        store.fsync(file)
    store.fsync(file)
    store.close(file)
    sync(store, a)


def renamed(store: FaultyOs, a: Path, b: Path) -> None:
    store.rename(a / "old", b / "moved")


def renamed_target_synced(store: FaultyOs, a: Path, b: Path) -> None:
    renamed(store, a, b)
    sync(store, b)


def renamed_source_synced(store: FaultyOs, a: Path, b: Path) -> None:
    renamed(store, a, b)
    sync(store, a)


def renamed_both_synced(store: FaultyOs, a: Path, b: Path) -> None:
    renamed(store, a, b)
    sync(store, a, b)


def folder_renamed(store: FaultyOs, a: Path, b: Path) -> None:
    store.rename(a, b / "a")


def folder_renamed_target_synced(store: FaultyOs, a: Path, b: Path) -> None:
    store.rename(a, b / "a")
    sync(store, b)


def linked(store: FaultyOs, a: Path, b: Path) -> None:
    store.link(a / "old", b / "linked")


def linked_synced(store: FaultyOs, a: Path, b: Path) -> None:
    linked(store, a, b)
    sync(store, b)


def moved_unlink_unsynced(store: FaultyOs, a: Path, b: Path) -> None:
    linked_synced(store, a, b)
    store.unlink(a / "old")


def moved_in_the_wrong_order(store: FaultyOs, a: Path, b: Path) -> None:
    linked(store, a, b)
    store.unlink(a / "old")
    sync(store, a)


def removed(store: FaultyOs, a: Path, b: Path) -> None:
    store.rmtree(a)


def removed_synced(store: FaultyOs, a: Path, b: Path) -> None:
    store.rmtree(a)
    sync(store, a.parent)


def exchanged(store: FaultyOs, a: Path, b: Path) -> None:
    store.exchange(a, b)


def exchanged_synced(store: FaultyOs, a: Path, b: Path) -> None:
    exchanged(store, a, b)
    sync(store, a.parent)


def made_and_synced_below_a_name_that_is_not(store: FaultyOs, a: Path, b: Path) -> None:
    store.mkdir(a / "c")
    write(store, a / "c" / "new")
    sync(store, a / "c")


AS_IT_WAS = {"a/old": b"old", "b": None}


@pytest.mark.parametrize(
    "steps, expected",
    [
        (new_name, AS_IT_WAS),
        (new_name_synced, AS_IT_WAS | {"a/new": b"text"}),
        (only_the_name_synced, AS_IT_WAS | {"a/new": b""}),
        (fsync_failed_then_repeated, AS_IT_WAS | {"a/new": b""}),
        (renamed, AS_IT_WAS),
        (renamed_target_synced, {"a/old": b"old", "b/moved": b"old"}),
        (renamed_source_synced, AS_IT_WAS),
        (renamed_both_synced, {"a": None, "b/moved": b"old"}),
        (folder_renamed, AS_IT_WAS),
        (folder_renamed_target_synced, {"b/a/old": b"old"}),
        (linked, AS_IT_WAS),
        (linked_synced, {"a/old": b"old", "b/linked": b"old"}),
        (moved_unlink_unsynced, {"a/old": b"old", "b/linked": b"old"}),
        (moved_in_the_wrong_order, {"a": None, "b": None}),
        (removed, AS_IT_WAS),
        (removed_synced, {"b": None}),
        (exchanged, AS_IT_WAS),
        (exchanged_synced, {"a": None, "b/old": b"old"}),
        (made_and_synced_below_a_name_that_is_not, AS_IT_WAS),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_loss_of_power_takes_what_was_not_synced_and_nothing_else(
    store: FaultyOs, steps: Steps, expected: dict[str, bytes | None]
) -> None:
    steps(store, store.root / "a", store.root / "b")
    store.require_all_seen()
    seen = left(store.root)
    again = store.disk.after_power_loss(everything)
    store.power_loss(nothing)
    assert left(store.root) == expected
    store.require_all_seen()
    again.store(store.root)
    torn = {"a/new"} if steps is fsync_failed_then_repeated else set()
    assert {name: text for name, text in left(store.root).items() if name not in torn} == {
        name: text for name, text in seen.items() if name not in torn
    }


def test_a_disk_may_have_written_some_of_it_early_and_a_seed_says_which(store: FaultyOs) -> None:
    a, b = store.root / "a", store.root / "b"
    for number in range(6):
        write(store, a / f"{number}", sync=number < 3)
    store.rename(a / "old", b / "moved")
    disks = []
    for seed in [*range(40), *range(40)]:
        store.disk.after_power_loss(some(seed)).store(store.root)
        disks.append(left(store.root))
    assert disks[:40] == disks[40:]
    assert len({str(disk) for disk in disks}) > 20
    assert {text for disk in disks for name, text in disk.items() if name == "a/5"} == {b"", b"te", b"text"}
    assert all("a/old" in disk or "b/moved" in disk for disk in disks)
    assert {"a/old" in disk and "b/moved" in disk for disk in disks} == {True, False}


def test_links_are_one_file_after_a_loss_of_power_too(store: FaultyOs) -> None:
    linked_synced(store, store.root / "a", store.root / "b")
    store.power_loss()
    assert (store.root / "a" / "old").samefile(store.root / "b" / "linked")


def test_a_change_fails_before_it_is_made_or_after_and_a_killed_process_makes_no_more(
    store: FaultyOs,
) -> None:
    a = store.root / "a"
    for fault, made in [(Fault(at=2), False), (Fault(at=2, after=True), True)]:
        store.plant(fault)
        store.mkdir(a / f"{made}1")
        with pytest.raises(Crash):
            store.mkdir(a / f"{made}2")
        assert (a / f"{made}2").exists() == made
        with pytest.raises(Crash):
            store.mkdir(a / f"{made}3")
        assert not (a / f"{made}3").exists()
    store.plant(Fault(at=1, error=errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        store.mkdir(a / "full")
    store.mkdir(a / "full")
    store.plant(Fault(at=1, error=errno.EROFS, lasting=True, of=frozenset({"unlink"})))
    store.mkdir(a / "fine")
    for _ in range(2):
        with pytest.raises(OSError, match="Read-only"):
            store.unlink(a / "old")
    store.require_all_seen()
    assert store.injected == 5


def test_writes_in_a_row_to_one_file_are_one_change_of_which_any_can_fail(store: FaultyOs) -> None:
    for within, text in [(0, b""), (1, b"te"), (2, b"text")]:
        store.plant(Fault(at=2, within=within))
        with pytest.raises(Crash):
            write(store, store.root / f"{within}")
        assert (store.root / f"{within}").read_bytes() == text


def test_a_process_that_is_gone_writes_nothing_through_a_file_it_left_open(store: FaultyOs) -> None:
    file = store.open(store.root / "new", os.O_WRONLY | os.O_CREAT)
    store.plant()
    assert store.write(file, b"late") == 4
    store.close(file)
    assert (store.root / "new").read_bytes() == b""


def test_a_change_behind_the_harness_is_told(store: FaultyOs) -> None:
    store.require_all_seen()
    (store.root / "a" / "sneaked").write_bytes(b"")
    with pytest.raises(AssertionError, match="a/sneaked"):
        store.require_all_seen()


# -- the harness sees a protocol that lacks one of its rules


def bring_in_the_wrong_order(self: PosixLake, source: str, target: str) -> bool:
    from_, to = self.root / source, self.root / target
    if from_.exists():
        self._store.link(from_, to)
        self._store.unlink(from_)
    self._store.sync_folder(from_.parent)
    self._store.sync_folder(to.parent)
    return True


def bring_by_copying(self: PosixLake, source: str, target: str) -> bool:
    copy = PosixFile(self.root / target, target, self._store.system)
    copy.write((self.root / source).read_bytes())
    copy.make_durable()
    self._store.unlink(self.root / source)
    return True


def commit_without_a_sync(self: PosixLake, staged: str, day: date, contents: DayContents) -> None:
    self._store.move(self._put_together(staged, contents), self.day_folder(day))


def commit_file_by_file(self: PosixLake, staged: str, day: date, contents: DayContents) -> None:
    folder = self._put_together(staged, contents)
    self._store.make_folder(self.day_folder(day))
    for path in sorted(folder.iterdir()):
        self._store.move(path, self.day_folder(day) / path.name)
    self._store.sync_folder(self.day_folder(day))
    self._store.sync_folder(self.root)


def make_durable_in_name_alone(self: PosixFile) -> str:
    self._release()
    return self._hash.hexdigest()


@pytest.mark.parametrize(
    "where, rule, broken",
    [
        (PosixLake, "bring", bring_in_the_wrong_order),
        (PosixLake, "bring", bring_by_copying),
        (PosixLake, "commit", commit_without_a_sync),
        (PosixLake, "commit", commit_file_by_file),
        (PosixFile, "make_durable", make_durable_in_name_alone),
        (Store, "sync_all", lambda self, folder: None),
        (Store, "sync_folder", lambda self, folder: None),
    ],
)
def test_a_broken_rule_is_noticed(
    where: object, rule: str, broken: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_days(1).held(3)
    monkeypatch.setattr("tests.faults.story._SETTLED", set())
    monkeypatch.setattr(where, rule, broken)
    seen = (AssertionError, LedgerBroken, pa.ArrowInvalid)
    with pytest.raises(seen):
        settle_all(sweep(POWER_LOST, four_days(1), 2, frozenset({"fsync"})), lambda name, value: None, rule)


# -- one fault


@pytest.mark.parametrize(
    "mode, tasks, least",
    [(KILLED, 2, 75), (SOME_KEPT, 1, 50), (REFUSED, 1, 50), (ANSWER_LOST, 1, 50), (POWER_LOST, 1, 50)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_fault_at_any_change_of_a_day_with_late_rows_leaves_the_lake_exact(
    mode: Mode, tasks: int, least: int, record_property: Record
) -> None:
    assert settle_all(sweep(mode, four_days(tasks), 2), record_property, mode.name) > least


def test_a_kill_at_any_change_of_a_lakes_first_day_leaves_the_lake_exact(
    tmp_path: Path, record_property: Record
) -> None:
    trials = sweep(KILLED, four_days(1), 0, start=tmp_path)
    assert settle_all(trials, record_property, "first day") > 30


def test_a_kill_while_a_lakes_folders_are_made_leaves_a_lake_that_no_power_loss_takes() -> None:
    faults = 0
    for trial, note in sweep(KILLED, four_days(1), 0, frozenset({"mkdir", "fsync", "open"})):
        if (trial.lake / "_lock").exists():
            break
        settle(trial, note)
        faults += 1
    assert faults > 3


def test_the_next_day_finishes_first_what_a_killed_run_left_open() -> None:
    faults = 0
    for trial, note in sweep(KILLED, four_days(1), 2, MOVES | {"fsync"}):
        committed = trial.committed
        trial.watch(3)
        if not committed:
            with pytest.raises(EarlierDayMissing):
                trial.run()
            continue
        faults += 1
        settle(trial, note)
    assert faults >= 8


def test_open_moves_are_finished_whatever_the_config_says_by_now() -> None:
    faults = 0
    for trial, note in sweep(KILLED, four_days(1), 2, MOVES):
        if trial.committed:
            assert trial.run(late=Late.SET_ASIDE).already, note
            trial.require()
            faults += 1
    assert faults >= 4


# -- a day that is seen, and not durable


def test_no_late_row_is_moved_out_of_a_day_that_a_power_loss_could_take() -> None:
    """Otherwise the rows lie in their days, and a new run of the lost day brings them again."""
    for n in count(1):
        with memory_folder() as folder:
            trial = Trial(folder, four_days(1), 2)
            kill_after_the_rename(trial)
            note = POWER_LOST.fail(trial, n)
            if not note:
                break
            settle(trial, note)
    assert n > 12, "two late files are moved, by four changes and four syncs"


@pytest.mark.parametrize("seed", range(3))
def test_no_day_follows_one_that_a_power_loss_could_take(seed: int) -> None:
    """Otherwise the disk may keep the later rename and lose the earlier one: a day is missing for ever."""
    with memory_folder() as folder:
        trial = Trial(folder, four_days(1), 2)
        for number in (2, 3):
            trial.watch(number)
            kill_after_the_rename(trial)
        trial.power_loss(some(seed))
        settle(trial, f"seed {seed}")


# -- a power loss at each change of one run


@pytest.mark.parametrize("mode", [POWER_LOST, SOME_KEPT], ids=lambda mode: mode.name)
def test_a_power_loss_leaves_the_same_of_a_run_that_is_played_once_for_all_changes(mode: Mode) -> None:
    alike, numbers = Alike(mode), [1, *sorted(random.sample(range(2, 60), 8)), 1000]
    for n in numbers:
        with memory_folder() as one, memory_folder() as other:
            trials = [Trial(folder, four_days(1), 2) for folder in (one, other)]
            notes = [alike.fail(trials[0], n), mode.fail(trials[1], n)]
            assert trials[0].state() == trials[1].state(), (numbers, n)
            assert [bool(note) for note in notes] == [n < 1000] * 2
            for trial in trials:
                trial.store.require_all_seen()
                assert trial.store.injected == (n < 1000)


# -- two faults


@pytest.mark.parametrize("seed", range(3))
def test_a_second_fault_in_the_rerun_leaves_the_lake_exact(seed: int, record_property: Record) -> None:
    def pairs() -> Iterator[tuple[Trial, str]]:
        chance = random.Random(seed)
        for _ in range(12):
            with memory_folder() as folder:
                trial = Trial(folder, four_days(1), 2)
                notes = [chance.choice(MODES).fail(trial, chance.randint(1, 57)) for _ in range(2)]
                yield trial, "; ".join(notes)

    assert settle_all(pairs(), record_property, f"two faults, seed {seed}") > 12


# -- late rows of many days


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with late rows of twenty days, killed just after the commit."""
    folder = tmp_path_factory.mktemp("committed")
    trial = Trial(folder, three_weeks(), 20)
    trial.stopped(
        Fault(at=2, of=frozenset({"link"}))
    )  # the first link is a trial whether the store has links
    assert trial.committed
    assert len(list(trial.lake.glob("date=2026-05-21/_late/*/*.rows"))) == 20
    assert not list(trial.lake.glob("date=*/part-late-*"))
    return trial.lake


@pytest.mark.parametrize("mode", [KILLED, ANSWER_LOST, SOME_KEPT], ids=lambda mode: mode.name)
def test_moves_of_twenty_days_of_which_one_fails_in_each_rerun_are_all_done_in_the_end(
    mode: Mode, committed: Path
) -> None:
    notes = []
    with memory_folder() as folder:
        trial = Trial(folder, three_weeks(), 20, committed)
        while note := mode.fail(trial, 2, MOVES):
            notes.append(note)
            assert len(notes) < 100, "no run comes further than the last"
        settle(trial, *notes)
    assert len(notes) >= 19
