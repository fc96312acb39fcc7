"""What a lake says of itself: the state of its days, and whether they are still what was committed.

Reads the lake alone: no broker, no Spark, no lock, and it changes nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from jobs.storage import Lake, LockHolder
from offsets.errors import DayTaken, LedgerBroken
from offsets.ledger import Ledger, read_ledger, read_manifest
from offsets.manifest import MANIFEST_NAME
from offsets.model import IN_FILES, DataFile, Manifest, Verdict, micros


@dataclass(frozen=True, slots=True, kw_only=True)
class DayState:
    """One committed day in figures; `gaps` counts offsets of its spans that Kafka did not deliver."""

    date: date
    state: str
    rows: int
    files: int
    bytes: int
    late: int
    invalid: int
    pending: int
    gaps: int
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A lake at a glance; `holder_alive` is None where the holder is on another host."""

    lake: str
    days: tuple[DayState, ...]
    next_day: date
    due_at: datetime
    due: bool
    holder: LockHolder | None
    holder_alive: bool | None
    staged: tuple[str, ...]


def status(lake: Lake, first: date, due_at: Callable[[Ledger, date], datetime], now: datetime) -> Status:
    """Describe a lake; `due_at` tells when a day may be run."""
    ledger = read_ledger(lake)
    day = ledger.next_day(first)
    holder = lake.lock_holder()
    return Status(
        lake=str(lake.root),
        days=tuple(_state(manifest) for manifest in ledger.manifests),
        next_day=day,
        due_at=due_at(ledger, day),
        due=now >= due_at(ledger, day),
        holder=holder,
        holder_alive=_alive(holder),
        staged=tuple(folder.name for folder in lake.staged_runs()),
    )


def _state(manifest: Manifest) -> DayState:
    return DayState(
        date=manifest.day.date,
        state="complete" if manifest.files else "empty",
        rows=manifest.rows(Verdict.IN_DAY),
        files=len(manifest.files_of(Verdict.IN_DAY)),
        bytes=sum(file.bytes for file in manifest.files),
        late=manifest.rows(Verdict.LATE),
        invalid=manifest.rows(Verdict.INVALID),
        pending=sum(len(part.pending) for part in manifest.next.partitions),
        gaps=sum(len(gap.offsets) for gap in manifest.gaps),
        run_id=manifest.run_id,
    )


def _alive(holder: LockHolder | None) -> bool | None:
    if holder is None or holder.host != socket.gethostname():
        return None
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a verification looked at, and all that it found wrong."""

    days: int
    files: int
    rows: int
    bytes: int
    problems: tuple[str, ...]


def verify(lake: Lake, only: date | None, seen: Callable[[int, int], None]) -> Verified:
    """Hold committed days against their manifests; `seen` is told how many files are done, of how many."""
    if only is None:
        manifests, problems = _chain(lake)
    else:
        manifest = read_manifest(lake, only)
        manifests, problems = (
            ([manifest] if manifest else []),
            ([] if manifest else [f"{only} is not committed"]),
        )
    files = [(manifest, file) for manifest in manifests for file in manifest.files]
    for done, (manifest, file) in enumerate(files):
        seen(done, len(files))
        problems += _check_file(lake, manifest, file)
    for manifest in manifests:
        problems += _check_day(lake, manifest)
    return Verified(
        days=len(manifests),
        files=len(files),
        rows=sum(file.rows for _, file in files),
        bytes=sum(file.bytes for _, file in files),
        problems=tuple(problems),
    )


def _chain(lake: Lake) -> tuple[list[Manifest], list[str]]:
    """Read the chain; where it is broken, read each day that can be read alone."""
    try:
        return list(read_ledger(lake).manifests), []
    except (LedgerBroken, DayTaken) as broken:
        problems, readable = [str(broken)], []
        for day in lake.days():
            try:
                manifest = read_manifest(lake, day)
            except (LedgerBroken, DayTaken) as unreadable:
                if str(unreadable) not in problems:
                    problems.append(str(unreadable))
            else:
                readable += [manifest] if manifest else []
        return readable, problems


def _check_day(lake: Lake, manifest: Manifest) -> Iterator[str]:
    """Check what lies in a day's folder, and that its figures add up."""
    folder = lake.day_folder(manifest.day.date)
    named = {file.path for file in manifest.files} | {MANIFEST_NAME}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in named:
            yield f"{path}: no manifest names this file"
    for verdict in IN_FILES:
        in_files = sum(file.rows for file in manifest.files_of(verdict))
        if in_files != manifest.rows(verdict):
            yield f"{manifest.day.date}: {manifest.rows(verdict)} rows {verdict} counted, {in_files} in files"
    for span, gap in zip(manifest.spans, manifest.gaps, strict=True):
        counted = sum(each.rows for each in manifest.tally if each.partition == span.partition)
        if lost := len(span.reads) - counted - len(gap.offsets):
            yield f"{manifest.day.date}: {lost} offsets of partition {span.partition} have no fate"


def _check_file(lake: Lake, manifest: Manifest, file: DataFile) -> Iterator[str]:
    """Read a file again and hold it against the manifest."""
    import pyarrow as pa

    from jobs.parquet import read_back

    path = lake.day_folder(manifest.day.date) / file.path
    try:
        back = read_back(Path(path))
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        yield f"{path}: cannot be read ({error})"
        return
    for what, expected, found in (
        ("bytes", file.bytes, back.bytes),
        ("sha256", file.sha256, back.sha256),
        ("rows", file.rows, back.rows),
        ("earliest event", file.event_time_min and micros(file.event_time_min), back.event_time_min),
        ("latest event", file.event_time_max and micros(file.event_time_max), back.event_time_max),
    ):
        if expected != found:
            yield f"{path}: {what} should be {expected}, is {found}"
    spans = {span.partition: span.reads for span in manifest.spans}
    for part in file.offsets:
        held = back.offsets.get(part.partition)
        if held is None or len(held) != part.rows:
            yield f"{path}: partition {part.partition} should hold {part.rows} distinct offsets"
        elif (held.ranges[0][0], held.ranges[-1][1]) != (part.from_offset, part.until_offset):
            edges = f"[{part.from_offset}, {part.until_offset})"
            yield f"{path}: partition {part.partition} holds other offsets than {edges}"
        elif len(held - spans[part.partition]):
            yield f"{path}: partition {part.partition} holds offsets outside the day's span"
