"""What the lake records of a day that is to be rebuilt: its own manifest, or else those of its neighbours.

Reads through the ledger's reader; never asks Kafka. If a day's folder or manifest is gone, the day before
records where it started, and the day after records where it ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise

from offsets.checkpoint import Checkpoint, PartitionCheckpoint
from offsets.commit_log import (
    FROM_BACKUP,
    Ledger,
    LedgerReader,
    build_first,
    check_link,
    copies_of,
    kept_days,
    policy_of,
    read_entry,
    read_intact,
    read_linked,
    read_manifest,
    require_first,
    require_not_expired,
)
from offsets.contract import Accepted
from offsets.day_plan import DayPlan, EndFrom, Evidence, Span, StartFrom
from offsets.days import ONE_DAY, Day, days_of
from offsets.errors import ConfigError, LedgerBroken
from offsets.manifest import Manifest
from offsets.plan import offsets_to_read
from offsets.ranges import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDay:
    """All that is recorded of a committed day; `manifest` is None if only its neighbours record it.

    `plan` reads the recorded spans again, `next` is the checkpoint with which the day ended.
    """

    plan: DayPlan
    next: Checkpoint
    manifest: Manifest | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The committed days around one day, and its own manifest if it can be read.

    `earlier` are the bounds of all days before it, and `before` is the manifest of the last of them. `after`
    are the manifests of the next day, of the newest day, and of days between them that brought late rows
    here. `policy` is the last recorded cleanup policy, marked if an earlier one compacted.

    Where its own manifest is gone, `accepted` is what its entry in the ledger says was accepted, and `do` is
    what helps where the neighbours do not record enough.
    """

    date: date
    earlier: tuple[Day, ...]
    before: Manifest | None
    own: Manifest | None
    after: tuple[Manifest, ...]
    policy: str | None
    accepted: Accepted
    do: str

    @property
    def manifests(self) -> list[Manifest]:
        """All of these manifests, in the order of their days."""
        return [manifest for manifest in (self.before, self.own, *self.after) if manifest]

    @property
    def newest(self) -> Manifest | None:
        """The lake's newest day that can be read."""
        return next(reversed(self.manifests), None)

    @property
    def known(self) -> bool:
        """Whether the day's own manifest, or a later one, records where the day ended."""
        return bool(self.own or self.after)

    @property
    def ledger(self) -> Ledger:
        """The ledger as it was before the day, but with every compaction recorded since."""
        return Ledger(self.earlier, replace(self.before, cleanup_policy=self.policy) if self.before else None)

    def recorded(self) -> RecordedDay:
        """Return what is recorded of the day.

        Raises:
            LedgerBroken: the day's own manifest is gone, and its neighbours do not record what it held.
        """
        if self.own is None:
            return self._from_neighbours()
        plan = self._plan(self.own, self.own.day, self.own.accepted, self.own.consumed, self.own.spans)
        return RecordedDay(plan=plan, next=self.own.next, manifest=self.own)

    def _plan(
        self, of: Manifest, day: Day, accepted: Accepted, consumed: Checkpoint, spans: tuple[Span, ...]
    ) -> DayPlan:
        """Return the plan that reads spans again, under the contract and first offsets of a manifest."""
        return DayPlan(
            day=day,
            topic=consumed.topic,
            contract=of.contract,
            accepted=accepted,
            consumed=consumed,
            earlier=self.earlier,
            spans=spans,
            first_offsets=of.first_offsets,
            cleanup_policy=self.policy,
            headroom_hours=None,
            risks=(),
        )

    def _from_neighbours(self) -> RecordedDay:
        if self.before is None or not self.after:
            raise LedgerBroken(
                expected=f"the days before and after {self.date} to record what it held",
                found=f"none {'after' if self.before else 'before'} it",
                do=self.do,
            )
        before, after = self.before, self.after[0]
        if after.lossy:
            raise LedgerBroken(
                expected=f"{after.day.date} to tell where {self.date} ended",
                found="it accepted a loss, so it tells only where it went on",
                do=self.do,
            )
        begins = {start.partition: start.offset for start in after.first_offsets}
        ended = before.next.without(*self.accepted.loss)
        starts = tuple(
            ended.of(part.partition) or _new_partition(part.partition, begins)
            for part in after.consumed.partitions
        )
        day = (
            days_of(after.earlier)[-1]
            if after.earlier
            else Day(date=self.date, zone=after.day.zone, start=before.day.end, end=after.day.start)
        )
        consumed = Checkpoint(topic=after.consumed.topic, partitions=starts)
        spans = tuple(map(_recorded_span, starts, after.consumed.partitions))
        plan = self._plan(after, day, self.accepted, consumed, spans)
        return RecordedDay(plan=plan, next=after.consumed, manifest=None)


def read_history(reader: LedgerReader, day: date, *, removed: bool = False) -> History:
    """Read the day before and all later days; only the day's own manifest may be damaged or gone.

    `removed` means that the day was committed, even if its folder is gone.

    Raises:
        ConfigError: the day was never committed.
        DayExists: another day's folder has no manifest.
        LedgerBroken: another day cannot be read, or the chain is broken elsewhere.
    """
    days, expired = kept_days(reader)
    require_not_expired(day, expired)
    if days and day < days[0]:
        oldest = read_intact(reader, days[0])
        require_first(days[0], oldest.contract.first_day if oldest else None, expired)
    entered = [entry for entry in reader.entries() if not expired or entry > expired.day.date]
    if day in entered and (not days or day - days[-1] > ONE_DAY):
        found = f"no folder of {day - ONE_DAY} either" if days else "no folder of any day"
        raise _two_in_a_row(reader, day, found)
    if not days or day < days[0] or day - days[-1] > ONE_DAY * removed:
        raise ConfigError(
            expected="--force with a day that was committed",
            found=f"{day}, and {f'days from {days[0]} to {days[-1]}' if days else 'an empty lake'}",
            do="Run the day without --force.",
        )
    own = read_intact(reader, day)
    older = [other_day for other_day in days if other_day < day]
    if own is None:
        _require_folders(reader, day, older)
        _require_neighbours(reader, day, {*days, *entered})
    before = read_manifest(reader, older[-1]) if older else None
    after, policies = _keep_needed(
        _read_later(reader, day, [other_day for other_day in days if other_day > day]), day
    )
    _require_adjacent(reader, day, own, before, after)
    if own:
        for first, second in pairwise([manifest for manifest in (before, own, *after[:1]) if manifest]):
            check_link(first, second)
    linked = _read_older(reader, day, older, own, (before, *after))
    earlier = _earlier_bounds(day, linked, before, own, after)
    first_day = _first_day(day, earlier, (own, before, *after))
    require_first(min(days[0], day), first_day, expired)
    manifests = (manifest for manifest in (*linked, before, own) if manifest)
    policy = policy_of([*(manifest.cleanup_policy for manifest in manifests), *policies])
    entry = read_entry(reader, day) if own is None else None
    return History(
        date=day,
        earlier=earlier,
        before=before,
        own=own,
        after=after,
        policy=policy,
        accepted=entry.accepted if entry else Accepted(),
        do=FROM_BACKUP if own else copies_of(reader, [day]) or FROM_BACKUP,
    )


def _read_later(reader: LedgerReader, day: date, days: list[date]) -> Iterator[Manifest]:
    """Yield the manifests of later days; if the day's folder is gone, unreadable ones are skipped.

    Late rows that such a day brought here went with the folder. It is rebuilt after this day, and then
    brings them again.
    """
    whole, before = reader.has_day(day), None
    for later in days:
        if manifest := read_manifest(reader, later) if whole else read_intact(reader, later):
            if before and (whole or later == before.day.date + ONE_DAY):
                check_link(before, manifest)
            yield manifest
            before = manifest


def _keep_needed(later: Iterable[Manifest], day: date) -> tuple[tuple[Manifest, ...], list[str | None]]:
    """Return the manifests of later days that are needed, and the policies of all later days.

    Needed are the next day, the newest, and those that brought rows here. The others are not kept: there may
    be years of them, each with a thousand files.
    """
    kept, policies = list[Manifest](), list[str | None]()
    for manifest in later:
        if len(kept) > 1 and not any(file.target and file.day == day for file in kept[-1].files):
            kept.pop()
        kept.append(manifest)
        policies.append(manifest.cleanup_policy)
    return tuple(kept), policies


def _first_day(day: date, earlier: tuple[Day, ...], manifests: Iterable[Manifest | None]) -> date:
    """Return the lake's first day, as a manifest names it, else the oldest known day."""
    first_days = (manifest.contract.first_day for manifest in manifests if manifest)
    return next(filter(None, first_days), earlier[0].date if earlier else day)


def _read_older(
    reader: LedgerReader,
    day: date,
    older: list[date],
    own: Manifest | None,
    others: Iterable[Manifest | None],
) -> list[Manifest]:
    """Read all days before, unless a manifest that was read already records their bounds.

    Raises:
        LedgerBroken, DayExists: one of them cannot be read.
    """
    if any(manifest.earlier is not None for manifest in (own, *others) if manifest):
        return []
    unread = (older_day for older_day in older if own is None and read_intact(reader, older_day) is None)
    if lost := next(unread, None):  # each of the two days needs the other one's manifest to be rebuilt
        raise LedgerBroken(
            expected=f"all days before {day} to have a manifest, since none records the bounds of others",
            found=f"none of {lost} that can be read",
            do=copies_of(reader, [lost]) or f"Restore date={lost} from a backup first.",
        )
    return read_linked(reader, older)


def _earlier_bounds(
    day: date,
    linked: list[Manifest],
    before: Manifest | None,
    own: Manifest | None,
    after: tuple[Manifest, ...],
) -> tuple[Day, ...]:
    """Return the bounds of the days before, from the nearest manifest that records them."""
    if own and own.earlier is not None:
        return days_of(own.earlier)
    if before and before.earlier is not None:
        return (*days_of(before.earlier), before.day)
    recorded = next((manifest.earlier for manifest in after if manifest.earlier is not None), None)
    if recorded is not None:
        return tuple(older_day for older_day in days_of(recorded) if older_day.date < day)
    return tuple(manifest.day for manifest in linked)


def _require_neighbours(reader: LedgerReader, day: date, days: Collection[date]) -> None:
    """Check that the neighbours of a day without a manifest can be read: only they record what it held."""
    for neighbour in sorted(days):
        if abs(neighbour - day) == ONE_DAY and read_intact(reader, neighbour) is None:
            found = f"neither it nor {neighbour} has a manifest that can be read"
            raise _two_in_a_row(reader, day, found)


def _require_folders(reader: LedgerReader, day: date, older: list[date]) -> None:
    """Check that no earlier folder is missing: late rows of a day without a manifest may lie in any."""
    for before, after in pairwise(older):
        if after != before + ONE_DAY:
            missing = before + ONE_DAY
            raise LedgerBroken(
                expected=f"all days before {day} to be there, since late rows of it may lie in each",
                found=f"no folder of {missing}",
                do=f"Restore date={missing} from a backup first."
                if reader.has_day(day)
                else build_first(missing),
            )


def _require_adjacent(
    reader: LedgerReader,
    day: date,
    own: Manifest | None,
    before: Manifest | None,
    after: tuple[Manifest, ...],
) -> None:
    """Check that the days directly before and after the rebuilt one are present."""
    for neighbour, step in ((before, -ONE_DAY), (next(iter(after), None), ONE_DAY)):
        if neighbour and neighbour.day.date - day != step:
            wanted = day + step
            nearest = f"{neighbour.day.date} is the nearest"
            if own is None:
                raise _two_in_a_row(reader, day, nearest)
            raise LedgerBroken(
                expected=f"{wanted} to be committed beside {day}", found=nearest, do=build_first(wanted)
            )


def _two_in_a_row(reader: LedgerReader, day: date, found: str) -> LedgerBroken:
    beside = [each for each in reader.days() if abs(each - day) <= ONE_DAY]
    copies = copies_of(reader, [each for each in beside if read_intact(reader, each) is None])
    return LedgerBroken(
        expected=f"the days beside {day} to record what it held",
        found=found,
        do=copies
        or "Two days in a row are missing: restore one of them from a backup. If somebody else made the "
        f"folder of {day}, move it away instead.",
    )


def _new_partition(partition: int, begins: dict[int, int]) -> PartitionCheckpoint:
    offset = begins[partition]
    return PartitionCheckpoint(partition=partition, seen_until=offset, pending=Offsets(), anchor=None)


def _recorded_span(old: PartitionCheckpoint, new: PartitionCheckpoint) -> Span:
    detail = "as the neighbouring days record it"
    return Span(
        partition=old.partition,
        from_offset=old.next_from_offset,
        seen_until=old.seen_until,
        until_offset=new.seen_until,
        reads=offsets_to_read(old.pending, old.seen_until, new.seen_until),
        evidence=Evidence(
            start=StartFrom.CHECKPOINT, start_detail=detail, end=EndFrom.RECORDED, end_detail=detail
        ),
    )
