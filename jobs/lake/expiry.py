"""Remove old days by policy, oldest first, and leave in the ledger what each of them was.

The entry of an expired day replaces its manifest's: from then on the day is expired, whatever is still there.
Then its folder leaves readers' sight by one rename, and is deleted. A run that dies in between is rolled
forward by the next one, under the lock. The two newest days stay: a run and a rebuild go on from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from io import SEEK_END
from typing import Final

from jobs.lake.late import finish_moves
from jobs.lake.ledger import complete_ledger
from jobs.lake.names import ASIDE, DAY_ROWS, REMOVED, STAGING_NAME, brought_by, day_ref, entry_ref, in_day
from jobs.lake.port import Lake
from offsets.commit_log import last_expired, read_ledger, read_manifest
from offsets.errors import LedgerBroken
from offsets.expired import ExpiredDay, Removed, to_text
from offsets.manifest import Manifest

STAY: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiring:
    """A day that expires, and what goes with its folder."""

    date: date
    removed: Removed


def expiring(lake: Lake, before: date) -> list[Expiring]:
    """List the days before a date that `expire` would remove; changes nothing.

    Raises:
        LedgerBroken, DayExists: the chain is broken.
    """
    return [Expiring(date=day, removed=removed) for day, _, removed in _leaving(lake, before)]


def expire(lake: Lake, before: date, at: datetime, run_id: str, reason: str) -> list[Expiring]:
    """Remove the days before a date, but for the newest two, and return them; needs the lock.

    Raises:
        LedgerBroken, DayExists: the chain is broken.
        StoreFailed: the store refused; the next run goes on with a day that it had begun to remove.
    """
    ledger = read_ledger(lake)
    finish_expiry(lake, run_id)
    complete_ledger(lake, ledger.kept)
    if ledger.newest:
        finish_moves(lake, ledger.newest)
    expired = []
    for day, manifest, removed in _leaving(lake, before):
        lake.put(entry_ref(day), to_text(ExpiredDay.of(manifest, removed, at, reason)))
        _remove(lake, day, run_id)
        expired.append(Expiring(date=day, removed=removed))
    return expired


def finish_expiry(lake: Lake, run_id: str) -> None:
    """Remove what is left of expired days by a run that died; needs the lock.

    Raises:
        StoreFailed: the store refused.
    """
    expired = last_expired(lake)
    if expired is None:
        return
    last = expired.day.date
    for name in [name for name in lake.staged_names() if _of_expired(name, last)]:
        if not lake.has_day(last):  # what took its folder away need not be durable
            lake.remove(f"{STAGING_NAME}/{name}", last)
        lake.discard(f"{STAGING_NAME}/{name}")
    if lake.has_day(last):
        lake.put(entry_ref(last), to_text(expired))  # what was seen of it need not be durable
        _remove(lake, last, run_id)


def _of_expired(name: str, last: date) -> bool:
    try:
        return date.fromisoformat(name.removeprefix(REMOVED).partition(".")[0]) <= last
    except ValueError:
        return False


def _remove(lake: Lake, day: date, run_id: str) -> None:
    staged = lake.stage(day, run_id)
    lake.remove(staged, day)
    lake.discard(staged)


def _leaving(lake: Lake, before: date) -> Iterator[tuple[date, Manifest, Removed]]:
    """Yield each day to remove, with its manifest and what lies in its folder."""
    ledger = read_ledger(lake)
    leaving = [day for day in ledger.kept[:-STAY] if day < before]
    newest = ledger.newest
    if leaving and newest and (newest.earlier is None or not newest.columns):
        raise LedgerBroken(
            expected=f"the manifest of {newest.day.date}, the newest, to record all days' bounds and columns",
            found="one of an older version, which does not",
            do="Run one more day first.",
        )
    for day in leaving:
        if manifest := read_manifest(lake, day):
            yield day, manifest, _removed(lake, manifest)


def _removed(lake: Lake, manifest: Manifest) -> Removed:
    """Return what lies in the folder of a day."""
    day, brought, size, there = manifest.day.date, dict[date, set[str]](), 0, set[str]()
    for ref in lake.files_below(day_ref(day)):
        if ref.endswith((DAY_ROWS, ASIDE)):
            there.add(ref)
            with lake.open_file(ref) as file:
                size += file.seek(0, SEEK_END)
            if (by := brought_by(ref)) and by != day:
                brought.setdefault(by, set()).add(ref)
    own = sum(file.rows for file in manifest.files if in_day(day, file.path) in there)
    amended = sum(_rows_brought(lake, by, refs) for by, refs in brought.items())
    return Removed(files=len(there), bytes=size, rows=own, amended=amended)


def _rows_brought(lake: Lake, by: date, refs: set[str]) -> int:
    manifest = read_manifest(lake, by)
    return sum(file.rows for file in manifest.files if file.target in refs) if manifest else 0
