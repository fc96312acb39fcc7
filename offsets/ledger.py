"""The chain of committed days, read from their manifests.

Relies on a reader that lists day folders and gives manifests' texts. Never writes, and never asks Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from functools import partial
from itertools import pairwise
from typing import Protocol

from offsets.errors import ConfigWrong, DayTaken, EarlierDayMissing, LedgerBroken
from offsets.manifest import from_json
from offsets.model import Day, Manifest

ONE_DAY = timedelta(days=1)


class LedgerReader(Protocol):
    """What the ledger needs of a lake."""

    def days(self) -> list[date]:
        """List the dates that have a folder, in order."""
        ...

    def manifest_text(self, day: date) -> bytes | None:
        """Give a day's manifest, or None where the folder has none."""
        ...

    def offset_lists(self, day: date, at: int, size: int) -> bytes:
        """Read bytes of the sets that are listed beside a day's manifest; none where there are none."""
        ...

    def manifest_place(self, day: date) -> str:
        """Say where a day's manifest lies."""
        ...


@dataclass(frozen=True, slots=True)
class Ledger:
    """The committed days without a hole, each starting where the one before ended."""

    manifests: tuple[Manifest, ...]

    @property
    def newest(self) -> Manifest | None:
        """The last committed day."""
        return self.manifests[-1] if self.manifests else None

    @property
    def days(self) -> tuple[Day, ...]:
        """The committed days with the bounds that their manifests recorded."""
        return tuple(manifest.day for manifest in self.manifests)

    def of(self, day: date) -> Manifest | None:
        """Give a day's manifest, or None where it is not committed."""
        return next((each for each in self.manifests if each.day.date == day), None)

    def next_day(self, first: date) -> date:
        """Name the day that comes next; `first` counts only while nothing is committed."""
        return self.newest.day.date + ONE_DAY if self.newest else first

    def admit(self, day: date, first: date) -> None:
        """Check that a day, not yet committed, is the one that comes next.

        Raises:
            EarlierDayMissing: a day before it is not committed.
            LedgerBroken: a later day is committed.
            ConfigWrong: it lies before the lake's first day.
        """
        begins = self.manifests[0].day.date if self.manifests else first
        if day < begins:
            raise ConfigWrong(
                expected=f"a day from {begins} on, the first of this lake",
                found=f"{day}",
                do="Name a later day; what happened before the first day is counted, not kept.",
            )
        due = self.next_day(first)
        if day > due:
            raise EarlierDayMissing(
                expected=f"{day - ONE_DAY} to be committed before {day}",
                found=f"{due} is the next day to settle",
                do=f"Run {due} first (`run --from {due} --to {day}`).",
                missing=due.isoformat(),
            )
        if day < due:
            raise LedgerBroken(
                expected=f"no committed day after {day}",
                found=f"{due - ONE_DAY} is committed and {day} is not",
                do="A committed day was removed: restore its folder from a backup.",
            )


def read_manifest(reader: LedgerReader, day: date) -> Manifest | None:
    """Read one day's manifest; None where the day has no folder.

    Raises:
        DayTaken: the folder is there without a manifest.
        LedgerBroken: the manifest is damaged or speaks of another day.
    """
    if day not in reader.days():
        return None
    text = reader.manifest_text(day)
    place = reader.manifest_place(day)
    if text is None:
        raise DayTaken(
            expected=f"{day} to be absent or committed by kafka-daily",
            found=f"its folder without {place}",
            do="Somebody else made that folder: move it away, then run the day.",
        )
    manifest = from_json(text, place, partial(reader.offset_lists, day))
    if manifest.day.date != day:
        raise LedgerBroken(
            expected=f"the manifest of {day} at {place}",
            found=f"the one of {manifest.day.date}",
            do="Restore the day's folder from a backup.",
        )
    return manifest


def read_ledger(reader: LedgerReader) -> Ledger:
    """Read all manifests and check that each day goes on where the one before stopped.

    Raises:
        LedgerBroken: a manifest cannot be read, or the chain has a hole.
    """
    manifests = [each for day in reader.days() if (each := read_manifest(reader, day))]
    if manifests:
        check_first(manifests[0])
    for before, after in pairwise(manifests):
        check_link(before, after)
    return Ledger(tuple(manifests))


def check_first(oldest: Manifest) -> None:
    """Check that the oldest day that is there is the lake's first, as its contract tells.

    Raises:
        LedgerBroken: days before it were removed.
    """
    first = oldest.contract.first_day
    if first and first != oldest.day.date:
        raise LedgerBroken(
            expected=f"{first}, the first day of this lake, to be there",
            found=f"{oldest.day.date} is the oldest",
            do="Restore the missing days from a backup.",
        )


def check_link(before: Manifest, after: Manifest) -> None:
    """Check that a day goes on where the one before stopped.

    Raises:
        LedgerBroken: it does not.
    """
    found = None
    if after.day.date != before.day.date + ONE_DAY:
        found = f"{before.day.date + ONE_DAY} is missing between {before.day.date} and {after.day.date}"
    elif after.day.start != before.day.end:
        found = f"{before.day.date} ends at {before.day.end}, {after.day.date} starts at {after.day.start}"
    elif not after.consumed.goes_on_from(before.next.after(*after.accepted.loss)):
        found = f"{after.day.date} did not start from the checkpoint of {before.day.date}"
    if found:
        raise LedgerBroken(
            expected="each committed day to go on where the one before stopped",
            found=found,
            do="Restore the missing or changed day from a backup.",
        )
