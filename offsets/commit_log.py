"""The chain of committed days, read from their manifests.

Relies on a reader that lists day folders and reads the text of manifests. Never writes, and never asks Kafka.
A run reads only the last two manifests, however long the chain is: the newest one records the bounds of all
days before it, and must continue from the one before. `read_chain` reads all manifests.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial, wraps
from itertools import pairwise
from shlex import quote
from typing import Final, ParamSpec, Protocol, TypeVar

from offsets.day_plan import after_compaction
from offsets.days import ONE_DAY, Day, days_of, with_next
from offsets.errors import ConfigError, DayExists, EarlierDayMissing, LedgerBroken
from offsets.expired import ExpiredDay, from_text
from offsets.manifest import Manifest
from offsets.manifest_text import from_json, require_lists

P = ParamSpec("P")
T = TypeVar("T")
FROM_BACKUP: Final = "Restore the day's folder from a backup."


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
        """Return a day's manifest, or None if the folder has none."""
        ...

    def offset_lists(self, day: date, at: int, size: int) -> bytes:
        """Read bytes of the file of long sets beside a day's manifest; no bytes if it is missing."""
        ...

    def manifest_place(self, day: date) -> str:
        """Return the path of a day's manifest."""
        ...

    def entries(self) -> list[date]:
        """List the dates that the lake's list of manifests has an entry of, in order."""
        ...

    def entry_text(self, day: date) -> bytes | None:
        """Return a day's entry in that list: its manifest once more; None if there is none."""
        ...

    def entry_place(self, day: date) -> str:
        """Return the path of a day's entry."""
        ...

    def replaced_place(self, day: date) -> str | None:
        """Return the place of the folder that a day had before, as long as its entry is that one's manifest.

        A run died that had exchanged the folder, before it entered the new manifest.
        """
        ...

    def late_since_replaced(self, day: date) -> list[str]:
        """Return the places of late files that came to a day since it had that folder."""
        ...


@dataclass(frozen=True, slots=True)
class Ledger:
    """The committed days, with no day missing, with their recorded bounds and the manifest of the newest.

    That manifest's cleanup policy is marked (`compact before`) if only an earlier manifest says `compact`.
    """

    days: tuple[Day, ...]
    newest: Manifest | None = None
    expired: ExpiredDay | None = None
    """The last day that expired by policy; the days until it are committed, and are not there."""

    @property
    def kept(self) -> list[date]:
        """The dates of the committed days that have not expired."""
        return [day.date for day in self.days if not self.expired or day.date > self.expired.day.date]

    def holds(self, day: date) -> bool:
        """Return whether a day is committed."""
        return bool(self.days) and self.days[0].date <= day <= self.days[-1].date

    def next_day(self, first: date) -> date:
        """Return the day that comes next, which is `first` while nothing is committed."""
        return self.newest.day.date + ONE_DAY if self.newest else first

    def require_next(self, day: date, first: date) -> None:
        """Check that a day, not yet committed, is the one that comes next.

        Raises:
            EarlierDayMissing: a day before it is not committed.
            LedgerBroken: a later day is committed.
            ConfigError: the day lies before the lake's first day, or has expired.
        """
        require_not_expired(day, self.expired)
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


def read_twice(read: Callable[P, T]) -> Callable[P, T]:
    """Make a function that reads without the lock read again before it reports a broken chain.

    A rebuild may exchange a day's folder meanwhile: then a manifest and its list are of two versions.
    """

    @wraps(read)
    def twice(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return read(*arguments, **named)
        except (DayExists, LedgerBroken):
            return read(*arguments, **named)

    return twice


def read_manifest(reader: LedgerReader, day: date) -> Manifest | None:
    """Read one day's manifest; None if the day has no folder.

    Raises:
        DayExists: the folder has no manifest.
        LedgerBroken: the manifest is damaged, or belongs to another day.
    """
    if not reader.has_day(day):
        return None
    text = reader.manifest_text(day)
    place = reader.manifest_place(day)
    if text is None:
        raise _no_manifest(reader, day)
    try:
        manifest = from_json(text, place, partial(reader.offset_lists, day))
    except LedgerBroken as broken:
        if "format" in broken.facts:
            raise
        do = FROM_BACKUP if _is_oldest(reader, day) else broken.do.replace("--date D ", f"--date {day} ")
        do = _copy_or_rebuild(reader, day) or do
        raise LedgerBroken(expected=broken.expected, found=broken.found, do=do) from None
    if manifest.day.date != day:
        raise LedgerBroken(
            expected=f"the manifest of {day} at {place}",
            found=f"the one of {manifest.day.date}",
            do="Restore the day's folder from a backup.",
        )
    return manifest


def read_intact(reader: LedgerReader, day: date) -> Manifest | None:
    """Read a day's manifest and the sets that it names; None if they are damaged or gone.

    Raises:
        LedgerBroken: a newer version wrote it.
    """
    try:
        manifest = read_manifest(reader, day)
        if manifest:
            require_lists(manifest)
    except (LedgerBroken, DayExists) as error:
        if "format" in error.facts:  # not damaged: a newer version wrote it
            raise
        return None
    return manifest


def read_entry(reader: LedgerReader, day: date) -> Manifest | None:
    """Read the manifest that a day's entry holds, without the sets that it names; None if it is damaged."""
    text = reader.entry_text(day)
    try:
        manifest = from_json(text or b"", reader.entry_place(day), partial(reader.offset_lists, day))
    except LedgerBroken:
        return None
    return manifest if manifest.day.date == day else None


def read_whole_entry(reader: LedgerReader, day: date) -> Manifest | None:
    """Read the manifest that a day's entry holds, and the sets that it names; None if they are not whole.

    None too if it is of the folder that the day had before, whose files have other names.
    """
    manifest = None if reader.replaced_place(day) else read_entry(reader, day)
    try:
        if manifest:
            require_lists(manifest)
    except LedgerBroken:
        return None
    return manifest


def copies_of(reader: LedgerReader, days: Iterable[date]) -> str:
    """Return the advice to copy the manifests of days from the ledger; empty if none is whole there.

    Where a run died before it entered the new manifest, it is to put the folder of before back.
    """
    there = [day for day in days if reader.has_day(day)]
    copies = [
        f"`cp {quote(reader.entry_place(day))} {quote(reader.manifest_place(day))}`"
        for day in there
        if read_whole_entry(reader, day)
    ]
    moves = [command for day in there for command in _put_back(reader, day)]
    steps = [f"Copy the manifest from the ledger: {' and '.join(copies)}"] if copies else []
    steps += [f"Put the folder back that a dead run replaced: {' and then '.join(moves)}"] if moves else []
    return f"{'. '.join(steps)}, then try again." if steps else ""


def _put_back(reader: LedgerReader, day: date) -> tuple[str, ...]:
    """Return the commands that put the folder back that a day had before, if a run died just after."""
    before, now = reader.replaced_place(day), reader.manifest_place(day).rpartition("/")[0]
    if before is None:
        return ()
    aside = f"{before.rpartition('/')[0]}/damaged"
    moves: list[tuple[str, ...]] = [(now, aside), (before, now)]
    if late := reader.late_since_replaced(day):
        moves.insert(0, (*late, before))
    return tuple(f"`mv {' '.join(map(quote, places))}`" for places in moves)


def read_ledger(reader: LedgerReader) -> Ledger:
    """Read the last two manifests, and check that no day before them is missing.

    Raises:
        DayExists: a day's folder has no manifest.
        LedgerBroken: a day is missing, or the last two manifests cannot be read or do not adjoin.
    """
    dates, expired = kept_days(reader)
    require_committed(reader, dates)
    require_none_lost(reader, dates, expired)
    newest_two = read_linked(reader, dates[-2:])
    if not newest_two:
        return Ledger(())
    newest = newest_two[-1]
    if newest.earlier is None:  # manifests of older formats record only their own day
        recorded = [(manifest.day, manifest.cleanup_policy) for manifest in read_chain(reader)]
        days, policies = zip(*recorded, strict=True)
    else:
        days = (*days_of(newest.earlier), newest.day)
        policies = tuple(manifest.cleanup_policy for manifest in newest_two)
    for first in (days[0].date, newest.contract.first_day):
        require_first(dates[0], first, expired)
    return Ledger(days, replace(newest, cleanup_policy=policy_of(policies)), expired)


def policy_of(policies: Iterable[str | None]) -> str | None:
    """Return the last cleanup policy, marked if an earlier one compacted."""
    policy = None
    for cleanup_policy in policies:
        policy = after_compaction(cleanup_policy, policy)
    return policy


def read_chain(reader: LedgerReader) -> Iterator[Manifest]:
    """Read all manifests one by one, and check that each day continues where the one before ended.

    Raises:
        DayExists: a day's folder has no manifest.
        LedgerBroken: a manifest cannot be read, or a day is missing.
    """
    days, expired = kept_days(reader)
    require_none_lost(reader, days[-1:], expired)
    before: Manifest | ExpiredDay | None = expired
    for day in days:
        if manifest := read_manifest(reader, day):
            if before:
                check_link(before, manifest)
            else:
                require_first(manifest.day.date, manifest.contract.first_day)
            yield manifest
            before = manifest


def require_committed(reader: LedgerReader, dates: Sequence[date]) -> None:
    """Check that no day is missing between the dates, and that each has a manifest, without reading any.

    Raises:
        DayExists: a day's folder has no manifest.
        LedgerBroken: a day between two others is missing.
    """
    for day in dates:
        if not reader.has_manifest(day):
            raise _no_manifest(reader, day)
    for before, after in pairwise(dates):
        if after != before + ONE_DAY:
            raise _day_missing(before, after)


def kept_days(reader: LedgerReader) -> tuple[list[date], ExpiredDay | None]:
    """List the days that have a folder and have not expired, and return the last that has, if any.

    Raises:
        LedgerBroken: an entry that is read for it is damaged.
    """
    days = reader.days()
    expired = last_expired(reader, days)
    return [day for day in days if not expired or day > expired.day.date], expired


def last_expired(reader: LedgerReader, days: Sequence[date] | None = None) -> ExpiredDay | None:
    """Return the last day that has expired; days expire in order, so that few entries show it.

    It is the day before the oldest of the `days` that have a folder, or that one, which is to be removed
    still. Where neither shows it, a folder was lost, or came back, and a bisection finds it.

    Raises:
        LedgerBroken: one of these entries is damaged.
    """
    entries = reader.entries()
    if not entries or (reader.has_day(entries[0]) and read_expired(reader, entries[0]) is None):
        return None
    oldest = bisect_left(entries, next(iter(reader.days() if days is None else days), date.max))
    for at in (oldest, oldest - 1):
        expired = read_expired(reader, entries[at]) if 0 <= at < len(entries) else None
        if expired and not any(read_expired(reader, day) for day in entries[at + 1 : at + 2]):
            return expired
    if read_expired(reader, entries[0]) is None:
        return None
    until = bisect_left(entries, True, key=lambda day: read_expired(reader, day) is None)
    return read_expired(reader, entries[until - 1])


def first_kept(reader: LedgerReader) -> date:
    """Return the first date that has not expired."""
    expired = last_expired(reader)
    return expired.day.date + ONE_DAY if expired else date.min


def read_expired(reader: LedgerReader, day: date) -> ExpiredDay | None:
    """Read a day's entry, if the day has expired; else return None.

    Raises:
        LedgerBroken: the entry is damaged, or belongs to another day.
    """
    text, place = reader.entry_text(day), reader.entry_place(day)
    expired = from_text(text, place) if text else None
    if expired and expired.day.date != day:
        raise LedgerBroken(
            expected=f"the entry of {day} at {place}",
            found=f"the one of {expired.day.date}",
            do="Restore it from a backup.",
        )
    return expired


def require_not_expired(day: date, expired: ExpiredDay | None) -> None:
    """Check that a day has not expired.

    Raises:
        ConfigError: it has.
    """
    if expired and day <= expired.day.date:
        raise ConfigError(
            expected=f"a day from {expired.day.date + ONE_DAY} on, the first that this lake keeps",
            found=f"{day}, which expired by policy ({expired.reason})",
            do="Name a later day. What was removed by policy is neither settled nor built again.",
        )


def require_none_lost(reader: LedgerReader, dates: Sequence[date], expired: ExpiredDay | None) -> None:
    """Check that no day is gone that has an entry: the newest ones leave no hole among the others.

    Raises:
        LedgerBroken: a day was committed, and its folder is gone; or all days are that have not expired.
    """
    if expired and not dates:
        raise LedgerBroken(
            expected=f"{expired.day.date + ONE_DAY}, the first day of this lake after those that expired, "
            "to be there",
            found="no folder of any day",
            do="Restore the days from a backup. Without one, this lake cannot go on: begin another "
            "(lake.path).",
        )
    if lost := [day for day in reader.entries() if not dates or day > dates[-1]]:
        raise day_gone(reader, lost, dates)


def day_gone(reader: LedgerReader, lost: Sequence[date], dates: Sequence[date]) -> LedgerBroken:
    """Return the error of days that have an entry and no folder; `dates` have one."""
    first = lost[0]
    if len(lost) == 1 and first - ONE_DAY in dates:
        do = f"Build that day again (`run --date {first} --force`), or restore its folder from a backup."
    else:
        do = "Restore their folders from a backup" if len(lost) > 1 else "Restore its folder from a backup"
        do += ". Without one, move " + (
            f"{reader.entry_place(first)} and those of the days after it"
            if len(lost) > 1
            else reader.entry_place(first)
        )
        do += f" out of the lake: then {first} is settled anew, from what Kafka still holds."
    return LedgerBroken(
        expected=f"the folder of {first}, which was committed, as {reader.entry_place(first)} shows",
        found="no such folder" if len(lost) == 1 else f"no such folder, and {len(lost) - 1} more are gone",
        do=do,
        missing=[str(day) for day in lost],
    )


def read_linked(reader: LedgerReader, dates: Sequence[date]) -> list[Manifest]:
    """Read the manifests of some days, and check that each continues where the one before ended.

    Raises:
        DayExists: a day's folder has no manifest.
        LedgerBroken: a manifest cannot be read, or does not continue from the one before.
    """
    manifests = [manifest for day in dates if (manifest := read_manifest(reader, day))]
    for before, after in pairwise(manifests):
        check_link(before, after)
    return manifests


def require_first(oldest: date, first: date | None, expired: ExpiredDay | None = None) -> None:
    """Check that the oldest day present is the lake's first day that has not expired, if that is known.

    Raises:
        LedgerBroken: days before it were removed, and not by policy.
    """
    what = "the first day of this lake"
    if expired:
        first, what = expired.day.date + ONE_DAY, f"{what} after those that expired"
    if first and first != oldest:
        raise LedgerBroken(
            expected=f"{first}, {what}, to be there",
            found=f"{oldest} is the oldest",
            do="Restore the missing days from a backup. If they expired by policy, restore `_ledger` beside "
            "the days: only its entries say so.",
        )


def check_link(before: Manifest | ExpiredDay, after: Manifest) -> None:
    """Check that a day continues where the one before ended.

    Raises:
        LedgerBroken: it does not.
    """
    if after.day.date != before.day.date + ONE_DAY:
        raise _day_missing(before.day.date, after.day.date)
    if after.day.start != before.day.end:
        raise _not_linked(
            f"{before.day.date} ends at {before.day.end}, {after.day.date} starts at {after.day.start}"
        )
    if before.next and not after.consumed.continues(before.next.without(*after.accepted.loss)):
        raise _not_linked(f"{after.day.date} did not start from the checkpoint of {before.day.date}")
    for loss in after.accepted.loss:
        part = before.next and before.next.of(loss.partition)
        if part and loss.unsettled not in (None, left := len(part.unsettled(loss.until_offset))):
            raise _not_linked(
                f"{after.day.date} lost {loss.unsettled} offsets in {loss}, "
                f"of which {before.day.date} left {left} unsettled"
            )
    if (
        before.earlier is not None
        and after.earlier is not None
        and after.earlier != with_next(before.earlier, before.day)
    ):
        raise _not_linked(
            f"{after.day.date} and {before.day.date} record other bounds for the days before them"
        )


def build_first(day: date | None) -> str:
    """Return the advice to rebuild another day before the requested one."""
    return f"Build {day} again first (`run --date {day} --force`)."


def _day_missing(before: date, after: date) -> LedgerBroken:
    missing = before + ONE_DAY
    return LedgerBroken(
        expected="each committed day to go on where the one before stopped",
        found=f"{missing} is missing between {before} and {after}",
        do=f"Build that one first (`run --date {missing} --force`), or restore it from a backup."
        if after == missing + ONE_DAY
        else "Two days in a row are missing: restore one of them from a backup.",
    )


def _not_linked(found: str) -> LedgerBroken:
    return LedgerBroken(
        expected="each committed day to go on where the one before stopped",
        found=found,
        do="Restore the changed one from a backup.",
    )


def _no_manifest(reader: LedgerReader, day: date) -> DayExists:
    again = f"build that day again first (`run --date {day} --force`), or restore it from a backup"
    if _is_oldest(reader, day):
        again = "restore it from a backup"
    return DayExists(
        expected=f"{day} to be absent or committed by kafka-daily",
        found=f"its folder without {reader.manifest_place(day)}",
        do=_copy_or_rebuild(reader, day)
        or f"If its manifest was lost, {again}. If somebody else made that folder, move it away, then run "
        "the day.",
    )


def _copy_or_rebuild(reader: LedgerReader, day: date) -> str:
    copies = copies_of(reader, [day])
    again = "" if _is_oldest(reader, day) else f" Or build that day again first (`run --date {day} --force`)."
    return copies and copies + again


def _is_oldest(reader: LedgerReader, day: date) -> bool:
    """Return whether a day cannot be rebuilt without its manifest: none before it records where it began."""
    days = reader.days()
    return day == days[0] and len(days) > 1
