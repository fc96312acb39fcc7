"""Check what is left of the days that expired by policy, and count what went with them.

Reads their entries in the ledger alone: nothing else of them is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date

from jobs.lake.port import Lake
from jobs.verify.manifests import UNREADABLE, Chain, as_problem
from offsets.commit_log import read_expired
from offsets.days import ONE_DAY
from offsets.expired import ExpiredDay
from offsets.manifest import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """How many days expired by policy until `until`, and the files, rows and bytes that went with them.

    The manifests of so many were damaged that `rows` are without theirs (`uncounted`).
    The last one is `leaving` if its folder is still there, which the next run removes.
    """

    days: int = 0
    until: date | None = None
    files: int = 0
    rows: int = 0
    bytes: int = 0
    uncounted: int = 0
    leaving: bool = False


def count_expired(lake: Lake, chain: Chain) -> tuple[Expired, list[str]]:
    """Add up what expired, and return the problems of its entries."""
    total, problems, before = Expired(), list[str](), None
    for day in _expired_dates(lake, chain):
        try:
            expired = read_expired(lake, day)
        except UNREADABLE as error:
            problems.append(as_problem(error, str(error)))
            before = None
            continue
        if expired is None:
            problems.append(f"{lake.entry_place(day)}: later days expired by policy, and this one did not")
        elif before and (problem := _gap(before, expired)):
            problems.append(problem)
        total, before = _add(total, expired), expired
    leaving = chain.expired is not None and lake.has_day(chain.expired.day.date)
    return replace(total, leaving=leaving), problems


def is_expired(chain: Chain, file: DataFile) -> bool:
    """Return whether a late file went with the day to which it was brought."""
    return bool(file.target and file.day and chain.has_expired(file.day))


def _expired_dates(lake: Lake, chain: Chain) -> Iterator[date]:
    """Yield the dates from the lake's first day until the last that expired."""
    if chain.expired is None:
        return
    last = chain.expired.day.date
    first_days = (summary.first_day for summary in chain.known.values())
    day = next(filter(None, first_days), None) or min(lake.entries())
    while day <= last:
        yield day
        day += ONE_DAY


def _add(total: Expired, expired: ExpiredDay | None) -> Expired:
    if expired is None:
        return total
    removed = expired.removed
    counted = removed.rows is not None and removed.amended is not None
    return Expired(
        days=total.days + 1,
        until=expired.day.date,
        files=total.files + removed.files,
        rows=total.rows + (removed.rows or 0) + (removed.amended or 0),
        bytes=total.bytes + removed.bytes,
        uncounted=total.uncounted + (not counted),
    )


def _gap(before: ExpiredDay, expired: ExpiredDay) -> str | None:
    if before.day.end == expired.day.start:
        return None
    ends, starts = before.day, expired.day
    return f"{ends.date} expired, and ended at {ends.end}; {starts.date}, too, starts at {starts.start}"
