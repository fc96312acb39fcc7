"""Makes each change of the store fail in turn, and settles the lake after it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest

from tests.faults.store import Disk, Fault, Keeps, Numbered, nothing, some
from tests.faults.story import Trial, memory_folder, states
from tests.support.local_engine import Crash

Record = Callable[[str, object], None]
T = TypeVar("T", bound=Trial)
MOVES = frozenset({"link", "unlink"})


@dataclass(frozen=True, slots=True)
class Mode:
    """How a change fails; a kill after change n leaves the same as a kill before change n + 1."""

    name: str
    error: int | None = None
    after: bool = False
    power: Callable[[int], Keeps] | None = None
    """A loss of power after the n-th change, and which unsynced changes it keeps."""

    def fail(self, trial: Trial, at: int, of: frozenset[str] | None = None) -> str:
        """Run the trial's day with the n-th change failing; n also picks one of the writes to a file."""
        fault = Fault(at=at, within=within(at), error=self.error, after=self.after, of=of)
        before = trial.store.injected
        ended = trial.stopped(fault)
        struck = trial.store.injected > before
        assert struck or ended is None, f"{ended!r} without a fault"
        if struck and self.power:
            trial.power_loss(self.power(at))
        return f"{self.name} at {at}: {ended!r}" if struck else ""


def within(at: int) -> int:
    """Return which of the writes to a file fails, where they are the change of a number."""
    return 7 * at % 30


class Alike:
    """Makes a change of a run fail, by its number, in trials that all begin alike.

    A power loss leaves names and texts, and nothing of the process that made them, not even their times. So
    one run, undisturbed, shows what is there before each change, and need not be killed at each.
    """

    def __init__(self, mode: Mode, of: frozenset[str] | None = None) -> None:
        """Take how a change fails, and of which kinds it is."""
        self._mode, self._of = mode, of
        self._before: list[tuple[Disk, str]] | None = None

    def fail(self, trial: Trial, at: int) -> str:
        """Do as the mode does, and return its note."""
        if not self._mode.power:
            return self._mode.fail(trial, at, self._of)
        if self._before is None:
            self._before = disks_before(trial, self._of)
        elif at > len(self._before):
            trial.run()
        if at > len(self._before):
            return ""
        disk, kind = self._before[at - 1]
        trial.power_loss_at(disk, self._mode.power(at))
        return f"{self._mode.name} at {at}: killed before {kind}"


def disks_before(trial: Trial, of: frozenset[str] | None) -> list[tuple[Disk, str]]:
    """Run the trial's day, and return the disk before each change that can fail, with the change's kind."""
    found, numbered = list[tuple[Disk, str]](), Numbered(of=of)

    def keep(kind: str, file: int | None) -> None:
        if numbered.count(kind, file):
            while numbered.is_due(kind, at := len(found) + 1, within(at)):
                found.append((trial.store.disk.copy(), kind))

    trial.store.about_to = keep
    trial.run()
    trial.store.about_to = lambda kind, file: None
    return found


KILLED = Mode("killed")
REFUSED = Mode("refused", errno.EIO)
ANSWER_LOST = Mode("answer lost", errno.EIO, after=True)
POWER_LOST = Mode("power lost", power=lambda at: nothing)
SOME_KEPT = Mode("power lost, some kept", power=some)
MODES = [KILLED, REFUSED, ANSWER_LOST, POWER_LOST, SOME_KEPT]


def each_fault(
    make: Callable[[Path], T], mode: Mode, numbers: Iterator[int], of: frozenset[str] | None = None
) -> Iterator[tuple[T, str]]:
    """Yield a lake after each single fault of some kinds, until a trial gets through without one."""
    alike = Alike(mode, of)
    for n in numbers:
        with memory_folder() as folder:
            trial = make(folder)
            note = alike.fail(trial, n)
            if not note:
                trial.require()
                return
            yield trial, note


def settle_all(trials: Iterator[tuple[Trial, str]], record: Record, what: str) -> int:
    """Settle each trial, print and count the faults."""
    faults, known = 0, states()
    for trial, note in trials:
        settle(trial, note)
        faults += trial.store.injected
    record("faults", faults)
    print(f"{what}: {faults} faults, {states() - known} different disks settled by a rerun")
    return faults


def settle(trial: Trial, *notes: str) -> None:
    """Settle a trial; a failure names its fault."""
    try:
        trial.settle()
    except BaseException as failed:
        failed.add_note("; ".join(notes))
        raise


def kill_after_the_rename(trial: Trial) -> None:
    """Kill the run of a day right after the rename that makes it."""
    look = trial.store.watch

    def kill() -> None:
        look()
        if trial.committed:
            trial.store.dead = True
            raise Crash("killed after the rename")

    trial.store.watch = kill
    with pytest.raises(Crash):
        trial.run()
    trial.store.watch = look
    trial.store.plant()
