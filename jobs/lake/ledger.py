"""The ledger beside the days: each committed day's manifest once more, so that all are found by one listing.

The manifest in a day's folder is the truth. Its entry in the ledger comes after the rename, and a run that
dies in between is rolled forward by the next one, under the lock. An entry without a folder shows that a day
was lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import date

from jobs.lake.names import entry_ref, staged_day
from jobs.lake.port import Lake
from jobs.lake.refusals import not_published
from offsets.commit_log import read_expired, read_intact


def has_other_entry(lake: Lake, day: date) -> bool:
    """Return whether a day has an entry that is not its manifest."""
    return lake.stat(entry_ref(day)) is not None and not lake.is_entered(day)


def enter_days(lake: Lake, days: Collection[date]) -> None:
    """Enter committed days in the ledger.

    Raises:
        NotPublished: the store refused; the days themselves are committed.
    """
    with not_published(f"the ledger to have the manifest of {min(days)}"):
        lake.enter(days)


def not_entered(lake: Lake, days: list[date]) -> tuple[date, ...]:
    """List the committed days that the next run enters: new ones, and those that a rebuild replaced."""
    entered = set(lake.entries())
    missing = {day for day in days if day not in entered and lake.has_manifest(day)}
    return tuple(sorted(missing | set(replaced_days(lake, days))))


def enter_missing(lake: Lake, days: Collection[date]) -> None:
    """Enter those of some committed days that have no entry; needs the lock.

    Raises:
        NotPublished: the store refused.
    """
    if missing := sorted(set(days) - set(lake.entries())):
        enter_days(lake, missing)


def replaced_days(lake: Lake, days: list[date]) -> Iterator[date]:
    """Yield the days that a rebuild replaced, and died before it entered them.

    Its staging names the day until the day is entered, so that not all entries need be compared. A damaged
    manifest does not replace its entry, which may be the copy that brings it back.
    """
    for day in sorted(set(days) & {*map(staged_day, lake.staged_names()), *days[-1:]}):
        if has_other_entry(lake, day) and read_intact(lake, day):
            yield day


def entry_problems(
    lake: Lake, first: date, newest: date, readable: Collection[date]
) -> Iterator[tuple[date, str]]:
    """Yield each day whose entry is not what it should be, and the reason, but for those still to be entered.

    Reads every entry that is a copy, and its manifest, which must be `readable`. Of a day without a folder
    between `first` and `newest` the chain tells.
    """
    replaced = set(replaced_days(lake, sorted(readable)))
    for day in lake.entries():
        if day > newest or (day < first and read_expired(lake, day) is None):
            yield day, folder_gone(lake, day)
        elif day in readable and day not in replaced and not lake.is_entered(day):
            yield day, lake.entry_problem(day)


def folder_gone(lake: Lake, day: date) -> str:
    """Return the problem of a day that has an entry and no folder."""
    return f"{day}: its folder is gone; {lake.entry_place(day)} shows that it was committed"
