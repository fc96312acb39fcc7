"""Makes each change of the store fail in turn, and settles the lake after it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.faults.store import Fault, Keeps, nothing, some
from tests.faults.story import Trial, states
from tests.support.local_engine import Crash

Record = Callable[[str, object], None]
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
        fault = Fault(at=at, within=7 * at % 30, error=self.error, after=self.after, of=of)
        before = trial.store.injected
        ended = trial.stopped(fault)
        struck = trial.store.injected > before
        assert struck or ended is None, f"{ended!r} without a fault"
        if struck and self.power:
            trial.power_loss(self.power(at))
        return f"{self.name} at {at}: {ended!r}" if struck else ""


KILLED = Mode("killed")
REFUSED = Mode("refused", errno.EIO)
ANSWER_LOST = Mode("answer lost", errno.EIO, after=True)
POWER_LOST = Mode("power lost", power=lambda at: nothing)
SOME_KEPT = Mode("power lost, some kept", power=some)
MODES = [KILLED, REFUSED, ANSWER_LOST, POWER_LOST, SOME_KEPT]


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
