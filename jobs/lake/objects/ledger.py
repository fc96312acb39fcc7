"""The ledger of a lake in a bucket: numbered entries, each put once, of which a day's highest counts.

`_ledger/<date>/<number>.json` is a day's manifest, or an empty object: a fence. A fence takes a number, so
that a run which is still on its way to that number is beaten. Entries are never changed and never removed:
history stays, and whoever finishes the moves of an entry finds what it replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Final

from jobs.lake.names import ENTRY, LEDGER_NAME
from jobs.lake.objects.store import Found, ObjectStore
from offsets.errors import StoreFailed

TRIES: Final = 3
"""How often an entry is put before its outcome is taken as unknown."""
FENCE: Final = b""
NUMBERED: Final = re.compile(rf"{LEDGER_NAME}/(\d{{4}}-\d\d-\d\d)/(\d{{6}})\.json")


@dataclass(frozen=True, slots=True)
class DayEntries:
    """The entries of one day: the one that counts, if any, those before it, and the highest number."""

    counts: Found | None = None
    before: tuple[Found, ...] = ()
    number: int = 0


@dataclass(frozen=True, slots=True)
class Entries:
    """All entries of a lake, as one listing found them."""

    days: Mapping[date, DayEntries] = field(default_factory=dict)

    def of(self, day: date) -> DayEntries:
        """Return the entries of a day, which may be none."""
        return self.days.get(day, DayEntries())

    def committed(self) -> list[date]:
        """List the days that have an entry which counts, in order."""
        return sorted(day for day, entries in self.days.items() if entries.counts)


def entry_key(day: date, number: int) -> str:
    """Return the key of a day's entry."""
    return f"{LEDGER_NAME}/{day}/{number:06d}{ENTRY}"


def read_entries(store: ObjectStore, day: date | None = None) -> Entries:
    """List the entries of all days, or of one.

    Raises:
        StoreFailed: the store refused, or did not answer.
    """
    return entries_of(store.find(f"{LEDGER_NAME}/{day}" if day else LEDGER_NAME))


def entries_of(found: Iterable[Found]) -> Entries:
    """Return the entries among some objects; the size alone tells a fence."""
    days: dict[date, DayEntries] = {}
    for each in sorted(found, key=lambda each: each.key):
        if match := NUMBERED.fullmatch(each.key):
            day, number = date.fromisoformat(match[1]), int(match[2])
            old = days.get(day, DayEntries())
            if each.size == len(FENCE):
                days[day] = DayEntries(old.counts, old.before, number)
            else:
                before = (*old.before, old.counts) if old.counts else old.before
                days[day] = DayEntries(each, before, number)
    return Entries(days)


def put_entry(store: ObjectStore, day: date, number: int, text: bytes) -> bool:
    """Put a day's entry under a number, and return whether it is there: another entry may have the number.

    Whatever the store answers but that it is there now, the entry is read: `exists` may speak of our own,
    whose first answer was lost.

    Raises:
        StoreFailed: it is not known whether the entry is there, or will be.
    """
    key, failed = entry_key(day, number), None
    for _ in range(TRIES):
        try:
            if store.create(key, text):
                return True
        except StoreFailed as error:
            failed = error
        there = store.get(key)
        if there is not None:
            return there == text
    raise StoreFailed(
        expected=f"to put {store.place(key)}",
        found=failed.found if failed else "neither an entry nor a word why",
        do="It may still arrive, and nothing was removed. Run the day again: that run finds out.",
    )
