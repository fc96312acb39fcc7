"""The chain of committed days, read from their manifests.

Relies on a reader that lists day folders and reads manifests' texts. Never writes, and never asks Kafka. A
run reads the end of the chain alone, however long it is: the newest manifest, which records the bounds of all
days before it, and the one before, from which it must go on. `read_chain` reads all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import pairwise
from typing import Protocol, TypeVar

from offsets.day_plan import after_compaction
from offsets.days import ONE_DAY, Day, days_of, with_next
from offsets.errors import ConfigError, DayExists, EarlierDayMissing, LedgerBroken
from offsets.manifest import Manifest
from offsets.manifest_text import from_json

T = TypeVar("T")


class LedgerReader(Protocol):
    """What the ledger needs from a lake."""

    def days(self) -> list[date]:
        """List the dates that have a folder, in order."""
        ...

    def has_day(self, day: date) -> bool:
        """Return whether a date has a folder."""
        ...

    def has_manifest(self, day: date) -> bool:
        """Return whether a day's folder has a manifest, without reading it."""
        ...

    def manifest_text(self, day: date) -> bytes | None:
        """Return a day's manifest, or None where the folder has none."""
        ...

    def offset_lists(self, day: date, at: int, size: int) -> bytes:
        """Read bytes of the file of long sets beside a day's manifest; no bytes where it is missing."""
        ...

    def manifest_place(self, day: date) -> str:
        """Return the path of a day's manifest."""
        ...


@dataclass(frozen=True, slots=True)
class Ledger:
    """The committed days without a hole, with their recorded bounds, and the newest one's manifest.

    Its cleanup policy is marked (`compact before`) where only an earlier manifest that was read compacted.
    """

    days: tuple[Day, ...]
    newest: Manifest | None = None

    def holds(self, day: date) -> bool:
        """Return whether a day is committed."""
        return bool(self.days) and self.days[0].date <= day <= self.days[-1].date

    def next_day(self, first: date) -> date:
        """Return the day that comes next; `first` counts only while nothing is committed."""
        return self.newest.day.date + ONE_DAY if self.newest else first

    def admit(self, day: date, first: date) -> None:
        """Check that a day, not yet committed, is the one that comes next.

        Raises:
            EarlierDayMissing: a day before it is not committed.
            LedgerBroken: a later day is committed.
            ConfigError: it lies before the lake's first day.
        """
        begins = self.days[0].date if self.days else first
        if day < begins:
            raise ConfigError(
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
                do=f"A committed day was removed: build it again (`run --date {day} --force`), or restore it "
                "from a backup.",
            )


def read_twice(read: Callable[[], T]) -> T:
    """Read without the lock; read once more before a broken chain is reported.

    A rebuild may exchange a day's folder between two reads: a manifest of one version, a list of the other.

    Raises:
        DayExists, LedgerBroken: it is broken at the second read too.
    """
    try:
        return read()
    except (DayExists, LedgerBroken):
        return read()


def read_manifest(reader: LedgerReader, day: date) -> Manifest | None:
    """Read one day's manifest; None where the day has no folder.

    Raises:
        DayExists: the folder is there without a manifest.
        LedgerBroken: the manifest is damaged or is of another day.
    """
    if not reader.has_day(day):
        return None
    text = reader.manifest_text(day)
    place = reader.manifest_place(day)
    if text is None:
        raise _taken(reader, day)
    manifest = from_json(text, place, partial(reader.offset_lists, day))
    if manifest.day.date != day:
        raise LedgerBroken(
            expected=f"the manifest of {day} at {place}",
            found=f"the one of {manifest.day.date}",
            do="Restore the day's folder from a backup.",
        )
    return manifest


def read_ledger(reader: LedgerReader) -> Ledger:
    """Read the end of the chain, and check that no day before it is missing.

    Raises:
        DayExists: a day's folder is there without a manifest.
        LedgerBroken: a day is missing, or one of the newest two cannot be read or is not linked to the other.
    """
    dates = reader.days()
    require_committed(reader, dates)
    near = read_linked(reader, dates[-2:])
    if not near:
        return Ledger(())
    newest = near[-1]
    if newest.earlier is None:
        return _read_back(reader)
    days = (*days_of(newest.earlier), newest.day)
    require_first(dates[0], days[0].date)
    require_first(dates[0], newest.contract.first_day)
    return Ledger(days, replace(newest, cleanup_policy=policy_of(each.cleanup_policy for each in near)))


def _read_back(reader: LedgerReader) -> Ledger:
    """Read a chain of an older format: each manifest records its own day alone, and the policy of its run."""
    days, newest, policy = list[Day](), None, None
    for newest in read_chain(reader):
        days.append(newest.day)
        policy = after_compaction(newest.cleanup_policy, policy)
    return Ledger(tuple(days), replace(newest, cleanup_policy=policy) if newest else None)


def policy_of(policies: Iterable[str | None]) -> str | None:
    """Return the last cleanup policy, marked where one of them compacted."""
    policy = None
    for each in policies:
        policy = after_compaction(each, policy)
    return policy


def read_chain(reader: LedgerReader) -> Iterator[Manifest]:
    """Read all manifests one by one, and check that each day goes on where the one before stopped.

    Raises:
        DayExists: a day's folder is there without a manifest.
        LedgerBroken: a manifest cannot be read, or the chain has a hole.
    """
    before = None
    for day in reader.days():
        if manifest := read_manifest(reader, day):
            if before:
                check_link(before, manifest)
            else:
                check_first(manifest)
            yield manifest
            before = manifest


def require_committed(reader: LedgerReader, dates: Sequence[date]) -> None:
    """Check that no day is missing between the dates and that each has a manifest; none is read.

    Raises:
        DayExists: a day's folder is there without a manifest.
        LedgerBroken: a day between two others is missing.
    """
    for day in dates:
        if not reader.has_manifest(day):
            raise _taken(reader, day)
    for before, after in pairwise(dates):
        if after != before + ONE_DAY:
            raise _hole(before, after)


def read_linked(reader: LedgerReader, dates: Sequence[date]) -> list[Manifest]:
    """Read the manifests of some days, and check that each goes on where the one before stopped.

    Raises:
        DayExists: a day's folder is there without a manifest.
        LedgerBroken: a manifest cannot be read, or does not go on from the one before.
    """
    manifests = [each for day in dates if (each := read_manifest(reader, day))]
    for before, after in pairwise(manifests):
        check_link(before, after)
    return manifests


def check_first(oldest: Manifest) -> None:
    """Check that the oldest day present is the lake's first day, which its contract names.

    Raises:
        LedgerBroken: days before it were removed.
    """
    require_first(oldest.day.date, oldest.contract.first_day)


def require_first(oldest: date, first: date | None) -> None:
    """Check that the oldest day present is the lake's first day, where that is known.

    Raises:
        LedgerBroken: days before it were removed.
    """
    if first and first != oldest:
        raise LedgerBroken(
            expected=f"{first}, the first day of this lake, to be there",
            found=f"{oldest} is the oldest",
            do="Restore the missing days from a backup.",
        )


def check_link(before: Manifest, after: Manifest) -> None:
    """Check that a day goes on where the one before stopped.

    Raises:
        LedgerBroken: it does not.
    """
    if after.day.date != before.day.date + ONE_DAY:
        raise _hole(before.day.date, after.day.date)
    if after.day.start != before.day.end:
        raise _broken(
            f"{before.day.date} ends at {before.day.end}, {after.day.date} starts at {after.day.start}"
        )
    if not after.consumed.goes_on_from(before.next.without(*after.accepted.loss)):
        raise _broken(f"{after.day.date} did not start from the checkpoint of {before.day.date}")
    if (
        before.earlier is not None
        and after.earlier is not None
        and after.earlier != with_next(before.earlier, before.day)
    ):
        raise _broken(f"{after.day.date} and {before.day.date} record other bounds for the days before them")


def build_first(day: date | None) -> str:
    """Return the advice to build another day again before the one that was asked for."""
    return f"Build {day} again first (`run --date {day} --force`)."


def _hole(before: date, after: date) -> LedgerBroken:
    gone = before + ONE_DAY
    return LedgerBroken(
        expected="each committed day to go on where the one before stopped",
        found=f"{gone} is missing between {before} and {after}",
        do=f"Build that one first (`run --date {gone} --force`), or restore it from a backup."
        if after == gone + ONE_DAY
        else "Two days in a row are missing: restore one of them from a backup.",
    )


def _broken(found: str) -> LedgerBroken:
    return LedgerBroken(
        expected="each committed day to go on where the one before stopped",
        found=found,
        do="Restore the changed one from a backup.",
    )


def _taken(reader: LedgerReader, day: date) -> DayExists:
    days = reader.days()
    again = f"build that day again first (`run --date {day} --force`), or restore it from a backup"
    if day == days[0] and len(days) > 1:  # no day before it records where it began
        again = "restore it from a backup"
    return DayExists(
        expected=f"{day} to be absent or committed by kafka-daily",
        found=f"its folder without {reader.manifest_place(day)}",
        do=f"If its manifest was lost, {again}. If somebody else made that folder, move it away, then run "
        "the day.",
    )
