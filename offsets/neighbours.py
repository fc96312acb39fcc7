"""What the lake records of one day that is to be built again: in its own manifest, else in its neighbours'.

Reads through the ledger's reader; never asks Kafka. Where a day's folder or manifest is gone, the day before
records where it started, and the day after where it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise

from offsets.checkpoint import Checkpoint, PartitionCheckpoint
from offsets.commit_log import (
    Ledger,
    LedgerReader,
    build_first,
    check_link,
    policy_of,
    read_linked,
    read_manifest,
    require_first,
)
from offsets.contract import Accepted, Contract
from offsets.day_plan import DayPlan, EndFrom, Evidence, PartitionStart, Span, StartFrom
from offsets.days import ONE_DAY, Day, days_of
from offsets.errors import ConfigError, DayExists, LedgerBroken
from offsets.manifest import Manifest
from offsets.manifest_text import require_lists
from offsets.plan import reads_of
from offsets.ranges import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDay:
    """All that is recorded of a committed day; `manifest` is None where only its neighbours record it."""

    day: Day
    contract: Contract
    consumed: Checkpoint
    spans: tuple[Span, ...]
    next: Checkpoint
    first_offsets: tuple[PartitionStart, ...]
    manifest: Manifest | None

    def plan(
        self,
        *,
        earlier: tuple[Day, ...],
        contract: Contract,
        accepted: Accepted,
        cleanup_policy: str | None,
    ) -> DayPlan:
        """Make the plan that reads again what was read then."""
        return DayPlan(
            day=self.day,
            topic=self.consumed.topic,
            contract=contract,
            accepted=accepted,
            consumed=self.consumed,
            earlier=earlier,
            spans=self.spans,
            first_offsets=self.first_offsets,
            cleanup_policy=cleanup_policy,
            headroom_hours=None,
            risks=(),
        )

    @classmethod
    def of(cls, manifest: Manifest) -> RecordedDay:
        """Make it of what a day's own manifest says."""
        return cls(
            day=manifest.day,
            contract=manifest.contract,
            consumed=manifest.consumed,
            spans=manifest.spans,
            next=manifest.next,
            first_offsets=manifest.first_offsets,
            manifest=manifest,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The committed days around one day, and its own manifest where it can be read.

    `earlier` are the bounds of all days before it, `before` is the manifest of the last of them. `after` are
    the next day, the newest, and those between them that brought late rows here; `later` are the bounds of
    all later days that can be read. `policy` is the last cleanup policy that is recorded, marked where one
    that was read compacted.
    """

    date: date
    earlier: tuple[Day, ...]
    before: Manifest | None
    own: Manifest | None
    after: tuple[Manifest, ...]
    later: tuple[Day, ...]
    policy: str | None

    @property
    def newest(self) -> Manifest | None:
        """The lake's newest day that can be read."""
        return self.after[-1] if self.after else self.own or self.before

    @property
    def known(self) -> bool:
        """Whether its own manifest, or a later one, records where the day ended."""
        return bool(self.own or self.after)

    @property
    def ledger(self) -> Ledger:
        """The ledger as it was before the day, except that it remembers each compaction that was read."""
        return Ledger(self.earlier, replace(self.before, cleanup_policy=self.policy) if self.before else None)

    def recorded(self) -> RecordedDay:
        """Return what is recorded of the day.

        Raises:
            LedgerBroken: its own manifest is gone, and its neighbours do not record what it held.
        """
        return RecordedDay.of(self.own) if self.own else self._by_neighbours()

    def _by_neighbours(self) -> RecordedDay:
        if self.before is None or not self.after:
            raise LedgerBroken(
                expected=f"the days before and after {self.date} to record what it held",
                found=f"none {'after' if self.before else 'before'} it",
                do="Restore the day's folder from a backup.",
            )
        before, after = self.before, self.after[0]
        if after.lossy:
            raise LedgerBroken(
                expected=f"{after.day.date} to tell where {self.date} ended",
                found="it accepted a loss, so it tells only where it went on",
                do="Restore the day's folder from a backup.",
            )
        begins = {each.partition: each.offset for each in after.first_offsets}
        consumed = tuple(
            before.next.of(part.partition) or _begun(part.partition, begins)
            for part in after.consumed.partitions
        )
        return RecordedDay(
            day=days_of(after.earlier)[-1]
            if after.earlier
            else Day(date=self.date, zone=after.day.zone, start=before.day.end, end=after.day.start),
            contract=after.contract,
            consumed=Checkpoint(topic=after.consumed.topic, partitions=consumed),
            spans=tuple(
                _span(old, new) for old, new in zip(consumed, after.consumed.partitions, strict=True)
            ),
            next=after.consumed,
            first_offsets=after.first_offsets,
            manifest=None,
        )


def read_history(reader: LedgerReader, day: date, *, removed: bool = False) -> History:
    """Read the day before and all later ones; only the day's own manifest may be damaged or gone.

    With `removed` the day was committed, though its folder may be gone.

    Raises:
        ConfigError: the day was never committed.
        DayExists: another day's folder is there without a manifest.
        LedgerBroken: a day that is read cannot be read, or the chain is broken elsewhere.
    """
    days = reader.days()
    if days and day < days[0]:
        require_first(days[0], _first_of(reader, days[0]))
    if not days or day < days[0] or day - days[-1] > ONE_DAY * removed:
        raise ConfigError(
            expected="--force with a day that was committed",
            found=f"{day}, and {f'days from {days[0]} to {days[-1]}' if days else 'an empty lake'}",
            do="Run the day without --force.",
        )
    own = _own(reader, day)
    older = [each for each in days if each < day]
    if own is None:
        _require_neighbours(reader, day, days)
        _require_folders(reader, day, older)
    before = read_manifest(reader, older[-1]) if older else None
    after, later, policies = _needed(_later(reader, day, [each for each in days if each > day]), day)
    _check_near(day, own, before, after)
    if own:
        for one, other in pairwise([each for each in (before, own, *after[:1]) if each]):
            check_link(one, other)
    linked = _linked(reader, day, older, own, (before, *after))
    earlier = _earlier(day, linked, before, own, after)
    require_first(min(days[0], day), _first_day(day, earlier, (own, before, *after)))
    near = (each for each in (*linked, before, own) if each)
    policy = policy_of([*(each.cleanup_policy for each in near), *policies])
    return History(date=day, earlier=earlier, before=before, own=own, after=after, later=later, policy=policy)


def _first_of(reader: LedgerReader, day: date) -> date | None:
    """Return the lake's first day, as the manifest of the oldest day present names it."""
    own = _own(reader, day)
    return own.contract.first_day if own else None


def _later(reader: LedgerReader, day: date, days: list[date]) -> Iterator[Manifest]:
    """Read the later days one by one; where the day's folder is gone, other ones may be lost too.

    Late rows that those brought here are gone with the folder: they are built after it, and find none here.
    """
    whole, before = reader.has_day(day), None
    for later in days:
        if manifest := read_manifest(reader, later) if whole else _own(reader, later):
            if before and (whole or later == before.day.date + ONE_DAY):
                check_link(before, manifest)
            yield manifest
            before = manifest


def _needed(
    later: Iterable[Manifest], day: date
) -> tuple[tuple[Manifest, ...], tuple[Day, ...], list[str | None]]:
    """Keep of the later days the next one, the newest and those that brought rows here; of all, their bounds.

    The third value is their policies. There may be years of others, each with a thousand files.
    """
    kept, days, policies = list[Manifest](), list[Day](), list[str | None]()
    for manifest in later:
        if len(kept) > 1 and not _brought_to(day, kept[-1]):
            kept.pop()
        kept.append(manifest)
        days.append(manifest.day)
        policies.append(manifest.cleanup_policy)
    return tuple(kept), tuple(days), policies


def _brought_to(day: date, by: Manifest) -> bool:
    return any(file.target and file.day == day for file in by.files)


def _first_day(day: date, earlier: tuple[Day, ...], near: Iterable[Manifest | None]) -> date:
    """Return the lake's first day, which must be present: late rows of later days may lie in it."""
    named = (each.contract.first_day for each in near if each)
    return next(filter(None, named), earlier[0].date if earlier else day)


def _linked(
    reader: LedgerReader,
    day: date,
    older: list[date],
    own: Manifest | None,
    others: Iterable[Manifest | None],
) -> list[Manifest]:
    """Read all days before, but only where no manifest that was read records their bounds.

    Raises:
        LedgerBroken, DayExists: one cannot be read.
    """
    if any(each.earlier is not None for each in (own, *others) if each):
        return []
    unread = (each for each in older if own is None and _own(reader, each) is None)
    if lost := next(unread, None):  # of the two, neither can be built first
        raise LedgerBroken(
            expected=f"all days before {day} to have a manifest, since none records the bounds of others",
            found=f"none of {lost} that can be read",
            do=f"Restore date={lost} from a backup first.",
        )
    return read_linked(reader, older)


def _earlier(
    day: date,
    linked: list[Manifest],
    before: Manifest | None,
    own: Manifest | None,
    after: tuple[Manifest, ...],
) -> tuple[Day, ...]:
    """Return the bounds of the days before."""
    if own and own.earlier is not None:
        return days_of(own.earlier)
    if before and before.earlier is not None:
        return (*days_of(before.earlier), before.day)
    told = next((each.earlier for each in after if each.earlier is not None), None)
    if told is not None:
        return tuple(each for each in days_of(told) if each.date < day)
    return tuple(each.day for each in linked)


def _own(reader: LedgerReader, day: date) -> Manifest | None:
    """Read the day's own manifest; None where it is damaged or gone, so that its neighbours are asked."""
    try:
        manifest = read_manifest(reader, day)
        if manifest:
            require_lists(manifest)
    except (LedgerBroken, DayExists) as gone:
        if "format" in gone.facts:  # a newer version wrote it, and knows what it says
            raise
        return None
    return manifest


def _require_neighbours(reader: LedgerReader, day: date, days: list[date]) -> None:
    """Check that the days beside one without a manifest can be read: they alone record what it held."""
    for near in days:
        if abs(near - day) == ONE_DAY and _own(reader, near) is None:
            raise _two_in_a_row(day, f"neither it nor {near} has a manifest that can be read")


def _require_folders(reader: LedgerReader, day: date, older: list[date]) -> None:
    """Check that no earlier folder is gone: late rows of a day without a manifest may lie in any of them."""
    for before, after in pairwise(older):
        if after != before + ONE_DAY:
            gone = before + ONE_DAY
            raise LedgerBroken(
                expected=f"all days before {day} to be there, since late rows of it may lie in each",
                found=f"no folder of {gone}",
                do=f"Restore date={gone} from a backup first." if reader.has_day(day) else build_first(gone),
            )


def _check_near(
    day: date, own: Manifest | None, before: Manifest | None, after: tuple[Manifest, ...]
) -> None:
    """Check that no other day is missing beside the one that is built again."""
    for neighbour, step in ((before, -ONE_DAY), (next(iter(after), None), ONE_DAY)):
        if neighbour and neighbour.day.date - day != step:
            wanted = day + step
            found = f"{neighbour.day.date} is the nearest"
            if own is None:
                raise _two_in_a_row(day, found)
            raise LedgerBroken(
                expected=f"{wanted} to be committed beside {day}", found=found, do=build_first(wanted)
            )


def _two_in_a_row(day: date, found: str) -> LedgerBroken:
    return LedgerBroken(
        expected=f"the days beside {day} to record what it held",
        found=found,
        do="Two days in a row are missing: restore one of them from a backup. If somebody else made the "
        f"folder of {day}, move it away instead.",
    )


def _begun(partition: int, begins: dict[int, int]) -> PartitionCheckpoint:
    offset = begins[partition]
    return PartitionCheckpoint(partition=partition, seen_until=offset, pending=Offsets(), anchor=None)


def _span(old: PartitionCheckpoint, new: PartitionCheckpoint) -> Span:
    detail = "as the neighbouring days record it"
    return Span(
        partition=old.partition,
        from_offset=old.next_from_offset,
        seen_until=old.seen_until,
        until_offset=new.seen_until,
        reads=reads_of(old.pending, old.seen_until, new.seen_until),
        evidence=Evidence(
            start=StartFrom.CHECKPOINT, start_detail=detail, end=EndFrom.RECORDED, end_detail=detail
        ),
    )
