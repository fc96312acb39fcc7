"""Remove old days by policy, oldest first, and leave in the ledger what each of them was.

The entry of an expired day replaces its manifest's: from then on the day is expired, whatever is still there.
Then its folder leaves readers' sight by one rename, and is deleted. A run that dies in between is rolled
forward by the next one, under the lock. The two newest days stay: a run and a rebuild go on from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from io import SEEK_END
from typing import Final, NamedTuple

import structlog

from jobs.lake.files import is_link, unnamed_files
from jobs.lake.late import finish_moves
from jobs.lake.names import (
    ASIDE,
    DAY_ROWS,
    OURS,
    REMOVED,
    RUN,
    STAGED_DAY,
    STAGING_NAME,
    below,
    brought_by,
    day_ref,
    earlier_name,
    entry_ref,
    in_day,
    last,
    parent,
    staged_day,
)
from jobs.lake.port import Lake
from jobs.lake.refusals import in_short, store_errors
from offsets.commit_log import (
    Ledger,
    last_expired,
    read_expired,
    read_intact,
    read_ledger,
    read_twice,
    read_whole_entry,
)
from offsets.days import ONE_DAY
from offsets.errors import LedgerBroken, StoreFailed, VerifyFailed
from offsets.expired import ExpiredDay, Removed, to_text
from offsets.manifest import Manifest
from offsets.manifest_text import LISTS_NAME, MANIFEST_NAME, from_json
from offsets.verdict import Verdict

log = structlog.get_logger(__name__)
STAY: Final = 2
LateRows = Callable[[date], Mapping[date, Mapping[str, int]] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiring:
    """A day that expires, and what goes with its folder."""

    date: date
    removed: Removed


@read_twice
def expiring(lake: Lake, before: date) -> list[Expiring]:
    """List the days before a date that `expire` would remove; changes nothing.

    Raises:
        LedgerBroken, DayExists: the chain is broken.
        VerifyFailed: a day's folder holds files that are not ours.
        ConfigError: no day leaves a lake of this kind.
    """
    lake.require_removal()
    return [
        Expiring(date=day, removed=removed) for day, _, removed in _leaving(lake, read_ledger(lake), before)
    ]


def expire(
    lake: Lake, ledger: Ledger, before: date, at: datetime, run_id: str, reason: str
) -> list[Expiring]:
    """Remove the days before a date, but for the newest two, and return them.

    Needs the lock, and the ledger of a lake in which `finish_last_run` has finished what it found.

    Raises:
        LedgerBroken, DayExists: the chain is broken.
        VerifyFailed: a day's folder holds files that are not ours: no day was removed.
        StoreFailed: the store refused; the next run goes on with a day that it had begun to remove.
    """
    lake.require_removal()
    _finish_moves_into(lake, ledger.kept, before)
    planned = [Expiring(date=day, removed=removed) for day, _, removed in _leaving(lake, ledger, before)]
    for day, manifest, removed in _leaving(lake, ledger, before):
        if manifest:
            left = ExpiredDay.of(manifest, removed, at, reason)
        else:
            log.warning("a day expires whose manifest cannot be read: its counts are lost", day=str(day))
            left = _left_unread(lake, ledger, day, removed, at, reason)
        _remove(lake, left, run_id)
    return planned


def _days_leaving(kept: Sequence[date], before: date) -> list[date]:
    return [day for day in kept[:-STAY] if day < before]


def _finish_moves_into(lake: Lake, kept: Sequence[date], before: date) -> None:
    """Finish moves of late files into the days that leave: a rebuild or an upgrade may have died before them.

    They wait below the `_late/` of the day that brings them, and would be taken for gone with the day.
    """
    leaving = {day_ref(day): day for day in _days_leaving(kept, before)}
    for by in kept if leaving else ():
        waiting = _waiting(lake, in_day(by, "_late"), leaving.keys())
        if any(leaving[folder] < by for folder in waiting) and (manifest := read_intact(lake, by)):
            finish_moves(lake, manifest, rebuilding=True)


def _waiting(lake: Lake, late: str, folders: Set[str]) -> Set[str]:
    """Return those folders of days for which late files wait in a day's `_late/`; none behind a link."""
    entry = lake.stat(late)
    if entry is None or entry.is_link:
        return set()
    try:
        return folders & {ref.split("/")[2] for ref in lake.files_below(late)}
    except StoreFailed:  # a file has that name, or somebody's folder in it is closed: look for each by itself
        return {folder for folder in folders if lake.stat(f"{late}/{folder}")}


def finish_expiry(lake: Lake, run_id: str) -> None:
    """Remove what is left of expired days by a run that died; needs the lock.

    Raises:
        StoreFailed: the store refused.
    """
    expired = last_expired(lake)
    if expired is None:
        return
    until = expired.day.date
    for name in lake.staged_names():
        if not (day := staged_day(name)) or day > until:
            continue
        if not lake.has_day(until):  # what took its folder away need not be durable
            lake.remove(f"{STAGING_NAME}/{name}", until)
        _discard(lake, f"{STAGING_NAME}/{name}", day)
    if not lake.has_day(until):
        return
    if unknown := _unknown_files(lake, day_ref(until), until):
        log.warning("an expired day stays: it holds files of somebody else", day=str(until), files=unknown)
    else:
        _remove(lake, expired, run_id)  # with its entry: what was seen of that need not be durable


def _remove(lake: Lake, expired: ExpiredDay, run_id: str) -> None:
    """Enter that a day has expired, then take its folder out of readers' sight, then delete it."""
    day = expired.day.date
    lake.put(entry_ref(day), to_text(expired))
    _drop_checkpoint(lake, day - ONE_DAY)
    staged = lake.stage(day, run_id)
    lake.remove(staged, day)
    _discard(lake, staged, day)


def _discard(lake: Lake, staged: str, day: date) -> None:
    """Remove a folder of staging, unless files of somebody else came into the old day that it holds."""
    folder = f"{staged}/{STAGED_DAY}"
    begun = last(staged).startswith(REMOVED)  # it was looked at before, and may have lost its manifest
    try:
        looked_at = not (begun or is_link(lake, staged) or is_link(lake, folder))
    except StoreFailed:  # it is closed to us, and what is told below says so
        looked_at = True
    if looked_at and (unknown := _unknown_files(lake, folder, day)):
        log.warning(
            "files of somebody else came into a day that expired: they are kept in staging, where "
            "`clean --execute` would remove them",
            folder=lake.place(folder),
            files=unknown,
        )
    else:
        lake.discard(staged)


def _manifest_in(lake: Lake, folder: str) -> Manifest | None:
    """Read the manifest in the folder of a day, which may have been moved; None if it is damaged or gone."""
    place = f"{folder}/{MANIFEST_NAME}"
    with suppress(OSError, LedgerBroken), lake.open_file(place) as file:
        return from_json(file.read(), lake.place(place), lambda at, size: b"")
    return None


def _drop_checkpoint(lake: Lake, day: date) -> None:
    """Drop from its entry the checkpoint of an expired day after which another expired, durably.

    The chain begins with that other day's checkpoint, and the pending sets of this one may be long.
    """
    with suppress(LedgerBroken):  # nothing needs a damaged entry here, and `verify` names it
        if (expired := read_expired(lake, day)) and expired.next:
            lake.put(entry_ref(day), to_text(replace(expired, next=None)))


def _left_unread(
    lake: Lake, ledger: Ledger, day: date, removed: Removed, at: datetime, reason: str
) -> ExpiredDay:
    """Return what is left of a day whose manifest is damaged: its bounds, and where the next day began."""
    after = read_intact(lake, day + ONE_DAY)
    bounds = next(bounds for bounds in ledger.days if bounds.date == day)
    consumed = after.consumed if after and not after.lossy else None
    return ExpiredDay(day=bounds, next=consumed, removed=removed, expired=at, reason=reason)


def _leaving(lake: Lake, ledger: Ledger, before: date) -> Iterator[tuple[date, Manifest | None, Removed]]:
    """Yield each day to remove, with its manifest, unless that is damaged, and what lies in its folder."""
    if (gone := ledger.expired) and lake.has_day(gone.day.date):  # a run died before its folder went
        folder = day_ref(gone.day.date)
        found = _look_through(lake, folder, gone.day.date, _manifest_in(lake, folder))
        _require_no_unknown(lake, gone.day.date, found.unknown)
    leaving, newest = _days_leaving(ledger.kept, before), ledger.newest
    late_rows = _LateRowsOnce(lake)
    if leaving and newest and (newest.earlier is None or not newest.columns):
        raise LedgerBroken(
            expected=f"the manifest of {newest.day.date}, the newest, to record all days' bounds and columns",
            found="one of an older version, which does not",
            do="Run one more day first, or `upgrade --execute`.",
        )
    for day in leaving:
        late_rows.forget(day)
        if lake.has_day(day):
            manifest = read_intact(lake, day) or read_whole_entry(lake, day)
            yield day, manifest, _removed(lake, day, manifest, late_rows)


def _removed(lake: Lake, day: date, manifest: Manifest | None, late_rows: LateRows) -> Removed:
    """Return what lies in the folder of a day.

    Raises:
        VerifyFailed: files of somebody else do too, which must not go with it.
    """
    found = _look_through(lake, day_ref(day), day, manifest, late_rows)
    _require_no_unknown(lake, day, found.unknown)
    there = [ref for ref in found.refs if ref.endswith((DAY_ROWS, ASIDE))]
    return Removed(
        files=len(there),
        bytes=sum(_size(lake, ref) for ref in there),
        rows=_sum(found.own[ref] for ref in found.own.keys() & found.refs),
        amended=_sum(found.brought[ref] for ref in found.brought.keys() & found.refs),
    )


class _Found(NamedTuple):
    """What lies in the folder of a day: rows by reference, None where unknown, and names of unknown files."""

    refs: Set[str]
    own: Mapping[str, int | None]
    brought: Mapping[str, int | None]
    unknown: list[str]


def _look_through(
    lake: Lake, folder: str, day: date, manifest: Manifest | None, late_rows: LateRows | None = None
) -> _Found:
    """Look through the folder of a day, which may have been moved, for files that no manifest names.

    Those that programs leave are passed over.
    """
    refs = set(lake.files_below(folder))
    own = _own_rows(refs, folder, manifest)
    brought = _brought_rows(late_rows or partial(_late_rows, lake), refs, folder, day)
    unnamed = refs - own.keys() - brought.keys()
    unknown = unnamed_files(lake, folder, unnamed, {MANIFEST_NAME, LISTS_NAME})
    return _Found(refs, own, brought, sorted(below(ref, folder) for ref in unknown))


def _size(lake: Lake, ref: str) -> int:
    lake.require_no_link(ref)
    with store_errors(f"read {lake.place(ref)}"), lake.open_file(ref) as file:
        return file.seek(0, SEEK_END)


def _sum(rows: Iterable[int | None]) -> int | None:
    known = list(rows)
    return None if None in known else sum(filter(None, known))


def _own_rows(refs: Set[str], folder: str, manifest: Manifest | None) -> Mapping[str, int | None]:
    """Return the rows of the day's own files; without a manifest a name shows them, but not their rows."""
    if manifest:
        return {f"{folder}/{file.path}": file.rows for file in manifest.files}
    return {ref: None for ref in refs if OURS.fullmatch(below(ref, folder)) and RUN.search(ref)}


def _brought_rows(late_rows: LateRows, refs: Set[str], folder: str, day: date) -> Mapping[str, int | None]:
    """Return the rows of the files that later days brought, as their manifests or its name say."""
    brought: dict[str, int | None] = {}
    in_folder = {ref: by for ref in refs if (by := brought_by(ref)) and parent(ref) == folder}
    for by in {by for by in in_folder.values() if by > day}:
        if (rows := late_rows(by)) is not None:
            brought |= {f"{folder}/{name}": count for name, count in rows.get(day, {}).items()}
        else:
            brought |= {ref: None for ref in refs if in_folder.get(ref) == by and RUN.search(ref)}
    return brought


class _LateRowsOnce:
    """Returns what `_late_rows` does, and reads each manifest once while days leave in order."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._known = lake, dict[date, Mapping[date, Mapping[str, int]] | None]()

    def __call__(self, by: date) -> Mapping[date, Mapping[str, int]] | None:
        if by not in self._known:
            self._known[by] = _late_rows(self._lake, by)
        return self._known[by]

    def forget(self, day: date) -> None:
        """Drop what days up to this one brought: no later day has received it."""
        self._known = {by: rows for by, rows in self._known.items() if by > day}


def _late_rows(lake: Lake, by: date) -> Mapping[date, Mapping[str, int]] | None:
    """Return the rows of the late files that a day brought, by day and name; None without its manifest."""
    if (manifest := read_intact(lake, by)) is None:
        return None
    rows: dict[date, dict[str, int]] = {}
    for file in manifest.files_of(Verdict.LATE):
        if file.target and file.day:
            names = map(last, (file.target, earlier_name(file.target)))  # an upgrade may not have renamed it
            rows.setdefault(file.day, {}).update((name, file.rows) for name in names)
    return rows


def _unknown_files(lake: Lake, folder: str, day: date) -> list[str]:
    """List the files of somebody else in the folder of a day, which may have been moved, or be gone.

    Where the store refuses, nobody knows what lies there: that is listed instead.
    """
    try:
        return _look_through(lake, folder, day, _manifest_in(lake, folder)).unknown
    except (LedgerBroken, StoreFailed) as refused:
        return [f"{refused.found} when trying {refused.expected}"]


def _require_no_unknown(lake: Lake, day: date, unknown: Sequence[str]) -> None:
    """Check that a day's folder holds no file of somebody else."""
    if unknown:
        raise VerifyFailed(
            expected=f"{lake.place(day_ref(day))} to hold what manifests name alone, since it would be "
            "removed",
            found=in_short(unknown),
            do=f"Move them out of that folder: until then {day} stays, and so does each day after it.",
            files=unknown,
        )
