"""The state of a lake's days, and the places of the files that its manifests name.

Reads only the lake, without broker, Spark or lock, and changes nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime

from jobs.lake.earlier_formats import is_of_today
from jobs.lake.files import earlier_place
from jobs.lake.late import unfinished_moves
from jobs.lake.ledger import entry_problems, not_entered
from jobs.lake.names import in_day
from jobs.lake.port import Lake, LockHolder
from offsets.commit_log import Ledger, read_chain, read_ledger, read_twice
from offsets.manifest import DataFile, Manifest
from offsets.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Amended:
    """The number of rows that the run of a later day brought to a day."""

    by: date
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayState:
    """One committed day in figures; `late_expired` of the `late` rows are of days that had expired.

    `gaps` counts offsets of its spans that Kafka did not deliver.

    `rows` are the day's own, `amended` those that later runs brought to it. `lost` are the ranges in which
    Kafka lost `lost_offsets` before the day could settle them; None if its manifest does not say how many. A
    day `to_upgrade` is of an earlier manifest format, or names a file as one.
    """

    date: date
    state: str
    rows: int
    amended: tuple[Amended, ...]
    files: int
    bytes: int
    late: int
    late_expired: int
    invalid: int
    pending: int
    gaps: int
    lost: tuple[str, ...]
    lost_offsets: int | None
    run_id: str
    revision: int
    to_upgrade: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of a lake; `holder_alive` is None if the holder is on another host.

    `unfinished_moves` are the targets of late files of the newest day that are not brought there yet,
    `not_entered` the days that the ledger lacks until the next run; `other_entries` should not be there.
    So many days have `expired` by policy; `kept_from` is the first that stays.
    """

    lake: str
    days: tuple[DayState, ...]
    unfinished_moves: tuple[str, ...]
    expired: int
    kept_from: date | None
    not_entered: tuple[date, ...]
    other_entries: tuple[str, ...]
    next_day: date
    due_at: datetime
    due: bool
    holder: LockHolder | None
    holder_alive: bool | None
    staged: tuple[str, ...]


@read_twice
def status(lake: Lake, first: date, due_at: Callable[[Ledger, date], datetime], now: datetime) -> Status:
    """Describe a lake; `due_at` returns when a day may be run."""
    ledger = read_ledger(lake)
    day, days = ledger.next_day(first), ledger.kept
    holder = lake.lock_holder()
    moves = tuple(unfinished_moves(lake, ledger.newest)) if ledger.newest else ()
    problems = entry_problems(lake, days[0], days[-1], days) if days else ()
    not_brought = tuple(move for move in moves if not (lake.stat(move) or earlier_place(lake, move)))
    return Status(
        lake=lake.place(""),
        days=_states(read_chain(lake), not_brought),
        unfinished_moves=moves,
        expired=len(ledger.days) - len(days),
        kept_from=days[0] if days else None,
        not_entered=not_entered(lake, days),
        other_entries=tuple(problem for _, problem in problems),
        next_day=day,
        due_at=due_at(ledger, day),
        due=now >= due_at(ledger, day),
        holder=holder,
        holder_alive=is_alive(holder),
        staged=tuple(lake.staged_names()),
    )


def day_states(lake: Lake) -> tuple[DayState, ...]:
    """Describe each committed day."""
    return _states(read_chain(lake), ())


def _states(manifests: Iterator[Manifest], without: tuple[str, ...]) -> tuple[DayState, ...]:
    """Describe each day; each manifest is freed before the next is read: all may take gigabytes."""
    states: list[DayState] = []

    def described() -> Iterator[Manifest]:
        for manifest in manifests:
            states.append(_state(manifest))
            yield manifest

    amended = amendments(described(), without)
    return tuple(replace(state, amended=amended.get(state.date, ())) for state in states)


def amendments(
    manifests: Iterable[Manifest], without: tuple[str, ...] = ()
) -> Mapping[date, tuple[Amended, ...]]:
    """Count the rows that each day received from runs of later days, except in targets in `without`."""
    rows: dict[date, dict[date, int]] = {}
    for manifest in manifests:
        for file in manifest.files:
            if file.day and file.target and file.target not in without:
                of_day = rows.setdefault(file.day, {})
                of_day[manifest.day.date] = of_day.get(manifest.day.date, 0) + file.rows
    return {
        day: tuple(Amended(by=by, rows=count) for by, count in sorted(counts.items()))
        for day, counts in rows.items()
    }


def state_of(manifest: Manifest) -> str:
    """Return a committed day's state in one word."""
    return "lossy" if manifest.lossy else "complete" if any(file.rows for file in manifest.files) else "empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLocation:
    """The references at which a file exists: in its own day's folder, and at its target."""

    source: str | None
    target: str | None
    same: bool

    @property
    def ref(self) -> str | None:
        """The reference to read the file from."""
        return self.target or self.source


def locate_file(lake: Lake, manifest: Manifest, file: DataFile) -> FileLocation:
    """Find the references at which a file of a manifest exists; the target may have its earlier name."""
    source, target = in_day(manifest.day.date, file.path), file.target
    at_source, at_target = lake.stat(source), lake.stat(target) if target else None
    if target and not (at_source or at_target):
        target = earlier_place(lake, target)
        at_target = lake.stat(target) if target else None
    return FileLocation(
        source=source if at_source else None,
        target=target if at_target else None,
        same=bool(at_source and at_target and at_source.identity == at_target.identity),
    )


def _state(manifest: Manifest) -> DayState:
    return DayState(
        date=manifest.day.date,
        state=state_of(manifest),
        rows=manifest.rows(Verdict.IN_DAY),
        amended=(),
        files=len(manifest.files_of(Verdict.IN_DAY)),
        bytes=sum(file.bytes for file in manifest.files),
        late=manifest.rows(Verdict.LATE),
        late_expired=manifest.late_expired,
        invalid=manifest.rows(Verdict.INVALID),
        pending=sum(len(part.pending) for part in manifest.next.partitions),
        gaps=sum(len(gap.offsets) for gap in manifest.gaps),
        lost=tuple(str(lost) for lost in manifest.accepted.loss),
        lost_offsets=manifest.accepted.lost_offsets,
        run_id=manifest.run_id,
        revision=manifest.revision,
        to_upgrade=not is_of_today(manifest),
    )


def is_alive(holder: LockHolder | None) -> bool | None:
    """Return whether a holder's process exists; None where there is none, or it is on another host."""
    if holder is None or holder.host != socket.gethostname():
        return None
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
