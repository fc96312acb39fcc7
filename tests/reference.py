"""The specification as a program: what a lake must hold, worked out record by record, in memory.

A `Topic` is what a broker holds: per partition, records by their offsets between a log start and a high
watermark. A record has Kafka's stamp and an event time, or none that can be read; it may be a tombstone, a
transaction's marker, or part of a transaction that is open, committed or aborted. What compaction took is
simply not there.

A `Request` is the input of one run: the day, the rules of its contract, what today's zone database says, the
policy for late rows, and what a person accepted.

A `Lake` is what the days hold that were settled. Every offset from a partition's first one up to its
`seen_until` has exactly one `Place`: its day's files (IN_DAY); the files of an earlier day to which a later
run brought it (AMENDED), or that run's late files, where it stays (SET_ASIDE); the invalid files of the day
that saw it (INVALID); the counts of that day alone (SKIPPED, BEFORE_FIRST); the topic still, to be settled by
the day it belongs to (PENDING); nowhere, since the day in which it lay left by policy (EXPIRED); nowhere,
since no reader is ever shown it (GAP); nowhere, since retention was faster and a person accepted that (LOST).

`Lake.settle` returns the lake after one more day. `Lake.refusals` returns the errors that this day must end
with, and may end with. Where a day ends in a partition is an argument: any end is correct, since what is not
seen yet is settled later; `Lake.end_is_lawful` says what "any" means. An offset, once placed, is placed again
in one case only: a PENDING one, by the next day. `Lake.rebuild` reads a day's offsets again, under its rules
or others; by others its own records may turn invalid and its invalid ones valid, and nothing else may change.

All of it is written for reading: loops over single records, no ranges, no columns, no files. It shares no
code with what it judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from enum import Enum, auto
from zoneinfo import ZoneInfo

Coordinate = tuple[int, int]
"""A partition and an offset."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def micros(instant: datetime) -> int:
    """Count the microseconds since 1970."""
    return (instant - EPOCH) // timedelta(microseconds=1)


# -- the topic


@dataclass(slots=True)
class Transaction:
    """A transaction; `committed` is None while it is open."""

    committed: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """One offset of a log; two records are the same only if they are one.

    `stamp` is Kafka's, in milliseconds, or None. `event_time` is in microseconds, or None where the payload
    has none that can be read. `number` is whether the payload's number is one; it counts only where the
    contract has a column for it.
    """

    stamp: int | None
    event_time: int | None = None
    tombstone: bool = False
    number: bool = True
    transaction: Transaction | None = None
    marker: bool = False

    @property
    def visible(self) -> bool:
        """Return whether a reader of committed records sees it."""
        return not self.marker and (self.transaction is None or self.transaction.committed is True)


@dataclass(slots=True)
class Partition:
    """One log; an offset between its edges without a record was compacted."""

    records: dict[int, Record] = field(default_factory=dict)
    log_start: int = 0
    high: int = 0

    @property
    def last_stable(self) -> int:
        """The first offset of an open transaction, or the high watermark."""
        for offset, record in sorted(self.records.items()):
            if record.transaction and record.transaction.committed is None:
                return offset
        return self.high

    def visible(self, from_: int, until: int) -> Iterator[tuple[int, Record]]:
        """Yield the records of a range that a reader sees."""
        for offset in range(max(from_, self.log_start), min(until, self.last_stable)):
            if offset in self.records and self.records[offset].visible:
                yield offset, self.records[offset]

    def first_stamped(self, from_stamp: int) -> int | None:
        """Look up by time as a broker does: whatever has a stamp counts, shown to readers or not."""
        for offset, record in sorted(self.records.items()):
            if record.stamp is not None and record.stamp >= from_stamp:
                return offset
        return None

    def append(self, record: Record) -> int:
        """Append a record, and return its offset."""
        self.records[self.high] = record
        self.high += 1
        return self.high - 1

    def retain_from(self, log_start: int) -> None:
        """Let retention take all below an offset."""
        self.log_start = max(log_start, self.log_start)
        self.records = {at: record for at, record in self.records.items() if at >= self.log_start}

    def truncate(self, until: int) -> None:
        """Lose the end of the log."""
        self.high = until
        self.records = {at: record for at, record in self.records.items() if at < until}


@dataclass(slots=True)
class Topic:
    """A topic; a recreated one has another `life`."""

    compacted: bool
    partitions: dict[int, Partition] = field(default_factory=dict)
    life: int = 0

    def copy(self) -> Topic:
        """Return an independent copy."""
        logs = {
            number: Partition(dict(log.records), log.log_start, log.high)
            for number, log in self.partitions.items()
        }
        return Topic(self.compacted, logs, self.life)


# -- the rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A contract: what decides a record's place, apart from the days."""

    zone: str
    past: timedelta
    future: timedelta
    skip_tombstones: bool
    number_column: bool

    def valid(self, record: Record) -> bool:
        """Judge a record by itself."""
        if record.tombstone or record.event_time is None or record.stamp is None:
            return False
        if self.number_column and not record.number:
            return False
        ahead = timedelta(microseconds=record.event_time - record.stamp * 1000)
        return -self.past <= ahead <= self.future


@dataclass(frozen=True, slots=True)
class ZoneDatabase:
    """What is held to be true of all zones: the real rules, but for clocks moved on from some date."""

    moved_from: date = date.max
    moved_by: timedelta = timedelta()

    def utc_offset(self, zone: str, local: datetime) -> timedelta:
        """Return a zone's distance from UTC at a local time."""
        distance = local.replace(tzinfo=ZoneInfo(zone)).utcoffset() or timedelta()
        return distance + (self.moved_by if local.date() >= self.moved_from else timedelta())

    def midnight(self, zone: str, day: date) -> int:
        """Return a date's first instant."""
        local = datetime(day.year, day.month, day.day)
        return micros((local - self.utc_offset(zone, local)).replace(tzinfo=UTC))


@dataclass(frozen=True, slots=True)
class Day:
    """A date and its instants `[start, end)`, as its run recorded them."""

    date: date
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The input of a run."""

    day: date
    rules: Rules
    zones: ZoneDatabase
    grace: timedelta
    amend: bool
    accept_contract: bool = False
    accept_start: bool = False
    accept_loss: frozenset[tuple[int, int, int]] = frozenset()


# -- the lake


class Fate(Enum):
    """What became of an offset."""

    IN_DAY = auto()
    AMENDED = auto()
    SET_ASIDE = auto()
    INVALID = auto()
    SKIPPED = auto()
    BEFORE_FIRST = auto()
    PENDING = auto()
    GAP = auto()
    LOST = auto()
    EXPIRED = auto()


@dataclass(frozen=True, slots=True)
class Place:
    """An offset's fate, the day whose run gave it, and for a late one the day it belongs to."""

    fate: Fate
    day: date
    of: date | None = None

    @property
    def lies_in(self) -> date | None:
        """The day in whose folder its row lies, if it has one."""
        match self.fate:
            case Fate.AMENDED:
                return self.of
            case Fate.IN_DAY | Fate.SET_ASIDE | Fate.INVALID:
                return self.day
            case _:
                return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """One settled day: its bounds, its request, and the places that it gave to offsets."""

    day: Day
    request: Request
    ends: Mapping[int, int]
    placed: Mapping[Coordinate, Place]
    lossy: bool
    expired: date = date.min
    """The last day that had left by then."""

    def offsets(self, partition: int, *fates: Fate) -> list[int]:
        """List the offsets of a partition to which this day gave one of some fates."""
        return sorted(
            offset
            for (part, offset), place in self.placed.items()
            if part == partition and place.fate in fates
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """The errors that a run may end with, and those of which it must end with one."""

    must: frozenset[str]
    may: frozenset[str]


@dataclass(frozen=True, slots=True)
class Lake:
    """What the settled days hold; a day more is another lake."""

    days: tuple[Settled, ...] = ()
    places: Mapping[Coordinate, Place] = field(default_factory=dict)
    first: Mapping[int, int] = field(default_factory=dict)
    seen_until: Mapping[int, int] = field(default_factory=dict)
    last: Mapping[int, tuple[int, Record]] = field(default_factory=dict)
    """The last record below `seen_until` that a run saw; another topic has another one."""
    life: int = 0
    expired: date = date.min
    """The last day that left by policy."""
    went: Mapping[date, int] = field(default_factory=dict)
    """How many rows went with each day that left; a rebuild of their owner may read some of them again."""

    @property
    def kept(self) -> tuple[Settled, ...]:
        """The settled days that are still there."""
        return tuple(settled for settled in self.days if settled.day.date > self.expired)

    def expire(self, until: date) -> Lake:
        """Return the lake after the days until a date left, with all that lay in them."""
        places = {
            at: replace(place, fate=Fate.EXPIRED) if place.lies_in and place.lies_in <= until else place
            for at, place in self.places.items()
        }
        went = Counter(place.lies_in for place in self.places.values() if place.lies_in)
        left = {day: rows for day, rows in went.items() if day <= until}
        return replace(self, places=places, expired=until, went={**self.went, **left})

    # -- what the next day goes on from

    def pending(self, partition: int) -> list[int]:
        """List the offsets of a partition that wait for their day."""
        return sorted(
            offset
            for (part, offset), place in self.places.items()
            if part == partition and place.fate is Fate.PENDING
        )

    def from_offset(self, partition: int) -> int:
        """Return the first offset that the next run needs."""
        return min([*self.pending(partition), self.seen_until[partition]])

    def bounds(self, request: Request) -> Day:
        """Return a day's bounds: it begins where the day before ended, and ends by today's zone rules."""
        zone = request.rules.zone
        end = request.zones.midnight(zone, request.day + DAY)
        if not self.days:
            return Day(request.day, request.zones.midnight(zone, request.day), end)
        start = self.days[-1].day.end
        return Day(request.day, start, max(start, end))

    def over(self, request: Request) -> int:
        """Return the stamp (ms) from which on records arrived when the day and its grace were over."""
        return -(-(self.bounds(request).end + request.grace // timedelta(microseconds=1)) // 1000)

    def begin(self, log: Partition, request: Request) -> int:
        """Return the offset at which a partition begins that no day has seen."""
        if self.days:
            return log.log_start
        start = self.bounds(request).start - request.rules.future // timedelta(microseconds=1)
        first = log.first_stamped(-(-start // 1000))
        return max(log.log_start, log.last_stable if first is None else first)

    # -- when a run is refused

    def refusals(self, topic: Topic, request: Request) -> Refusals:
        """Return the errors that a run must end with, and may end with."""
        must, may = set[str](), set[str]()
        if self.days and not request.accept_contract and self._contract_changed(request):
            must.add("ContractChanged")
        if self.days and topic.life != self.life:
            must.add("TopicChanged")
        for number in sorted(set(self.seen_until) | set(topic.partitions)):
            log = topic.partitions.get(number)
            if log is None:
                must.add("TopicChanged")
                continue
            if number not in self.seen_until:
                begin = self.begin(log, request)
                if begin == log.log_start > 0 and not request.accept_start:
                    must.add("OffsetsLost")
            else:
                must |= self._log_changed(number, log, topic.compacted)
                shown = {offset for offset, _ in log.visible(0, log.high)}
                waiting = {offset for offset in self.pending(number) if offset >= log.log_start}
                if waiting - shown and not topic.compacted:
                    must.add("AuditFailed")
                begin, lost = self.seen_until[number], self.lost(number, log)
                if lost and lost not in request.accept_loss:
                    must.add("OffsetsLost")
            if log.last_stable < log.high:
                may.add("BrokerBehind")
                end = log.first_stamped(self.over(request))
                if max(begin, log.high if end is None else end) > log.last_stable:
                    must.add("BrokerBehind")
        logs = topic.partitions.items()
        lost_now = {lost for number, log in logs if (lost := self.lost(number, log))}
        if request.accept_loss - lost_now:
            must.add("ConfigError")
        return Refusals(must=frozenset(must), may=frozenset(must | may))

    def _contract_changed(self, request: Request) -> bool:
        before = self.days[-1]
        moved = request.zones.midnight(request.rules.zone, request.day) != before.day.end
        return moved or request.rules != before.request.rules

    def _log_changed(self, number: int, log: Partition, compacted: bool) -> set[str]:
        """Check that the log below `seen_until` still ends with the record that ended it."""
        seen = self.seen_until[number]
        if log.high < seen:
            return {"TopicChanged"}
        if log.last_stable < seen:
            return {"BrokerBehind"}
        at, record = self.last.get(number, (0, None))
        shown = [visible for _, visible in log.visible(at, seen)]
        if record is not None and shown and shown[0] is record:
            shown.pop(0)
        elif record is not None and at >= log.log_start and not compacted:
            return {"TopicChanged"}
        return {"TopicChanged"} if shown else set()

    def lost(self, number: int, log: Partition) -> tuple[int, int, int] | None:
        """Return what retention took before it was settled: partition, first offset, one past the last."""
        if number not in self.seen_until or self.from_offset(number) >= log.log_start:
            return None
        return number, self.from_offset(number), log.log_start

    # -- one day more

    def end_is_lawful(self, topic: Topic, request: Request, number: int, until: int) -> bool:
        """Return whether a day may end there: never back, never beyond the LSO, behind all stamped before it.

        The last rule holds only for logs that a sample shows whole.
        """
        log = topic.partitions[number]
        seen = max(self.seen_until.get(number, 0), log.log_start if number in self.seen_until else 0)
        if not seen <= until <= log.last_stable:
            return False
        over = self.over(request)
        return not any(
            record.stamp is None or record.stamp < over for _, record in log.visible(until, log.high)
        )

    def settle(self, topic: Topic, request: Request, ends: Mapping[int, int]) -> Lake:
        """Return the lake after a day that ends at some offset in each partition."""
        day = self.bounds(request)
        placed: dict[Coordinate, Place] = {}
        first, seen_until, last = dict(self.first), dict(self.seen_until), dict(self.last)
        for number, log in topic.partitions.items():
            if number not in first:
                first[number] = seen_until[number] = self.begin(log, request)
                shown = list(log.visible(0, first[number]))
                last |= {number: shown[-1]} if shown else {}
            for offset in [*self.pending(number), *range(seen_until[number], ends[number])]:
                placed[number, offset] = self._place(log, offset, request, day)
            shown = list(log.visible(seen_until[number], ends[number]))
            last |= {number: shown[-1]} if shown else {}
            seen_until[number] = max(seen_until[number], ends[number])
        lossy = any(place.fate is Fate.LOST for place in placed.values())
        settled = Settled(
            day=day, request=request, ends=dict(ends), placed=placed, lossy=lossy, expired=self.expired
        )
        places = {**self.places, **placed}
        return Lake(
            (*self.days, settled), places, first, seen_until, last, topic.life, self.expired, self.went
        )

    def _place(self, log: Partition, offset: int, request: Request, day: Day) -> Place:
        """Return the place of one offset that is pending or new."""
        if offset < log.log_start:
            return Place(Fate.LOST, day.date)
        record = log.records.get(offset)
        if record is None or not record.visible:
            return Place(Fate.GAP, day.date)
        days = [*(settled.day for settled in self.days), day]
        place = place_of(record, request.rules, days, amend=request.amend)
        if place.fate is Fate.AMENDED and place.of and place.of <= self.expired:
            return replace(place, fate=Fate.SET_ASIDE)
        return place

    # -- a day again

    def rebuild(self, topic: Topic, day: date, rules: Rules, *, gone: bool = False) -> Lake | None:
        """Return the lake after a day was read again under some rules; None where that must be refused.

        Each offset must meet the fate that it met before; only under other rules may records of the day's own
        files trade places with invalid ones. A day that is `gone` left no record of its verdicts: only
        offsets that stayed pending, that are in earlier days or were lost are known, and must come out equal.
        """
        at = next(number for number, settled in enumerate(self.days) if settled.day.date == day)
        old, before = self.days[at], Lake(self.days[:at])
        request = replace(old.request, rules=rules)
        placed: dict[Coordinate, Place] = {}
        for (number, offset), was in old.placed.items():
            if was.fate is Fate.LOST:  # the entry of a day that is gone names the accepted loss
                placed[number, offset] = was
                continue
            now = before._place(topic.partitions[number], offset, request, old.day)
            if now.fate in (Fate.AMENDED, Fate.SET_ASIDE):
                moved = was.fate is Fate.AMENDED
                now = replace(now, fate=Fate.AMENDED if moved else Fate.SET_ASIDE)
            if not _may_become(was.fate, now.fate, gone=gone, same_rules=rules == old.request.rules):
                return None
            placed[number, offset] = now
        expired = {key for key in placed if self.places[key].fate is Fate.EXPIRED}
        if gone:  # nobody knows any more that they were brought to a day that left
            aside = {key: replace(placed[key], fate=Fate.SET_ASIDE) for key in expired}
            placed, expired = placed | aside, set()
        final = {
            key: place
            for key, place in placed.items()
            if place.fate is not Fate.PENDING and key not in expired
        }
        days = (
            *self.days[:at],
            replace(old, placed=placed, request=request, expired=self.expired),
            *self.days[at + 1 :],
        )
        return replace(self, days=days, places={**self.places, **final})


def place_of(record: Record, rules: Rules, days: Sequence[Day], *, amend: bool) -> Place:
    """Return the place of a visible record, by the run of the last of all days so far."""
    day, at = days[-1], record.event_time
    if record.tombstone and rules.skip_tombstones:
        return Place(Fate.SKIPPED, day.date)
    if at is None or not rules.valid(record):
        return Place(Fate.INVALID, day.date)
    if at < days[0].start:
        return Place(Fate.BEFORE_FIRST, day.date)
    if at >= day.end:
        return Place(Fate.PENDING, day.date)
    if at >= day.start:
        return Place(Fate.IN_DAY, day.date)
    of = next(earlier.date for earlier in days if earlier.start <= at < earlier.end)
    return Place(Fate.AMENDED if amend else Fate.SET_ASIDE, day.date, of)


def _may_become(was: Fate, now: Fate, *, gone: bool, same_rules: bool) -> bool:
    if was is now:
        return True
    if gone:
        bound = (Fate.PENDING, Fate.AMENDED, Fate.GAP, Fate.LOST)
        return was not in bound and now not in bound
    return not same_rules and {was, now} == {Fate.IN_DAY, Fate.INVALID}
