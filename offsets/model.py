"""The values that a day is made of, each with its laws.

Pure: no clock, no log, no store, no broker. Offsets are half-open everywhere, instants are aware UTC,
and a value that breaks its law cannot be made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import cached_property

from offsets.days import UTC, Runs, check_runs
from offsets.days import Day as Day
from offsets.days import day_in as day_in
from offsets.days import midnight as midnight
from offsets.ranges import Offsets

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
LAST_STAMP = (1 << 62) // 1000
"""Kafka timestamps (ms) farther from 1970 come near the limit of an int64 of microseconds, or exceed it."""


def micros(instant: datetime) -> int:
    """Count the microseconds from 1970-01-01T00:00Z to an aware instant."""
    return (instant - EPOCH) // MICROSECOND


def from_micros(count: int | None) -> datetime | None:
    """Return the instant `count` microseconds after 1970-01-01T00:00Z; None for None."""
    return None if count is None else EPOCH + timedelta(microseconds=count)


def millis(instant: datetime) -> int:
    """Count the milliseconds from 1970-01-01T00:00Z to an aware instant, rounded up."""
    return -(-micros(instant) // 1000)


class Verdict(StrEnum):
    """What becomes of one record in one run, in the order of the rule; each is counted in the manifest.

    ALREADY_SETTLED: an earlier day holds it, and it goes nowhere. SKIPPED and BEFORE_FIRST go nowhere either.
    LATER_DAY stays in Kafka, and its offset is pending. The others are rows of files, below the day's folder.
    """

    ALREADY_SETTLED = "already_settled"
    SKIPPED = "skipped"
    INVALID = "invalid"
    BEFORE_FIRST = "before_first"
    LATER_DAY = "later_day"
    LATE = "late"
    IN_DAY = "in_day"


IN_FILES = (Verdict.IN_DAY, Verdict.LATE, Verdict.INVALID)
"""The verdicts whose rows a day keeps in files."""


class StartFrom(StrEnum):
    """How the first offset of a span was found: by the day before, by time (the lake's first day), or 0.

    By time: the first record stamped at or after the day's start less `validity.future`, since no valid event
    of the day has an earlier stamp.
    """

    CHECKPOINT = "checkpoint"
    LOOKUP = "lookup"
    NEW_PARTITION = "new_partition"


class EndFrom(StrEnum):
    """How the end of a span (the first offset that is not read) was found.

    Stamps are Kafka's timestamps, which producers may set. No end is wrong: what lies beyond it is settled by
    a later run, and is late there if it was of this day.
    STAMPED_PAST: a record stamped past the day and its grace ends it. BISECTED: such a stamp came too early,
    among records of the day, so a search found the offset from which on most are past it. IDLE: none is
    stamped past it, and the log is read to its high watermark. RECORDED: a rebuild takes the committed end.
    """

    STAMPED_PAST = "stamped_past"
    BISECTED = "bisected"
    IDLE = "idle"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdentity:
    """The topic that offsets belong to: a recreated topic has another id, a copied one another cluster."""

    name: str
    """The topic's name."""
    topic_id: str
    """Kafka's id of the topic; a topic that is made anew gets another."""
    cluster_id: str
    """Kafka's id of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The last delivered record of a partition below `seen_until`, which shows that a topic was refilled.

    It is kept where a day delivers nothing, and compared before and after each read while Kafka retains it.
    """

    offset: int
    """The record's offset."""
    timestamp: int
    """Kafka's timestamp, in milliseconds since 1970."""
    digest: str
    """The SHA-256 of the record's key and value."""

    def is_of(self, read: Anchor) -> bool:
        """Return whether a record read now is the same one.

        Spark and librdkafka report stamps before 1900 differently, Spark none beyond LAST_STAMP, and older
        manifests hold -1 for all below zero: of such stamps only the kind (below, beyond) is compared.
        """
        ours, theirs = ((a.offset, a.digest, _common(a.timestamp)) for a in (self, read))
        return ours == theirs


def _common(stamp: int) -> int:
    return max(-1, min(stamp, LAST_STAMP))


@dataclass(frozen=True, slots=True, kw_only=True)
class LostOffsets:
    """Offsets of one partition that Kafka lost before a day settled them, as a person accepted."""

    partition: int
    """The partition."""
    from_offset: int
    """The first offset that was lost."""
    until_offset: int
    """The offset after the last that was lost."""

    def __post_init__(self) -> None:
        if not 0 <= self.from_offset < self.until_offset:
            raise ValueError(f"offsets from {self.from_offset} to {self.until_offset} are none")

    def __str__(self) -> str:
        """Return it as the command line takes it."""
        return f"{self.partition}:{self.from_offset}-{self.until_offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCheckpoint:
    """Where one partition stands: all below `seen_until` is settled, except for `pending`.

    Pending offsets were read, and judged LATER_DAY. Each run that follows reads them again, until one gives
    them another verdict: as a rule the run of their own day.
    """

    partition: int
    """The partition."""
    seen_until: int
    """All offsets below it are settled, but for the pending ones; new offsets begin here."""
    pending: Offsets
    """Offsets below `seen_until` that were read and belong to a later day."""
    anchor: Anchor | None
    """The last delivered record below `seen_until`; null where there is none."""

    def __post_init__(self) -> None:
        if len(self.pending) and self.pending.until > self.seen_until:
            raise ValueError(f"partition {self.partition}: pending beyond seen_until {self.seen_until}")
        if self.anchor and self.anchor.offset >= self.seen_until:
            raise ValueError(f"partition {self.partition}: anchor {self.anchor.offset} not below seen_until")

    @property
    def next_from_offset(self) -> int:
        """The offset at which the next run starts to read."""
        return self.pending.first if len(self.pending) else self.seen_until

    def after(self, *lost: LostOffsets) -> PartitionCheckpoint:
        """Return the checkpoint without what was lost; losses of other partitions change nothing.

        The plan accepts only the loss from `next_from_offset` to the log's start.
        """
        mine = [each for each in lost if each.partition == self.partition]
        return replace(
            self,
            seen_until=max(self.seen_until, *(each.until_offset for each in mine), 0),
            pending=self.pending - Offsets.of((each.from_offset, each.until_offset) for each in mine),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the next run needs, per partition, and the topic that it belongs to."""

    topic: TopicIdentity
    """The topic that the offsets speak of."""
    partitions: tuple[PartitionCheckpoint, ...]
    """One entry a partition, ascending."""

    def __post_init__(self) -> None:
        _ascending("checkpoint", [part.partition for part in self.partitions])

    def of(self, partition: int) -> PartitionCheckpoint | None:
        """Return one partition's checkpoint, or None where the partition was not known."""
        return next((part for part in self.partitions if part.partition == partition), None)

    def after(self, *lost: LostOffsets) -> Checkpoint:
        """Return the checkpoint without what was lost."""
        return replace(self, partitions=tuple(part.after(*lost) for part in self.partitions))

    def goes_on_from(self, older: Checkpoint) -> bool:
        """Return whether it holds all that an older one holds, unchanged; it may hold new partitions too.

        The ledger compares what each manifest consumed with what the manifest before it named as next.
        """
        return self.topic == older.topic and set(older.partitions) <= set(self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffsets:
    """The edges of one partition's log: log start, last stable offset (LSO), high watermark."""

    partition: int
    log_start: int
    last_stable: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How a span's two ends were found, as a kind and a sentence for each."""

    start: StartFrom
    """How the start was found."""
    start_detail: str
    """The same as a sentence."""
    end: EndFrom
    """How the end was found."""
    end_detail: str
    """The same as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What one run looks at of one partition."""

    partition: int
    """The partition."""
    from_offset: int
    """The first offset that is read."""
    seen_until: int
    """That of the last checkpoint: new offsets begin here, and below it all that is not pending is
    settled."""
    until_offset: int
    """Where the reading ended; the `seen_until` of the next checkpoint."""
    reads: Offsets
    """The offsets that were read: all that were new or pending, and what lies between them where reading on
    was cheaper than seeking."""
    evidence: Evidence
    """How the two ends were found."""

    def __post_init__(self) -> None:
        if not 0 <= self.from_offset <= self.seen_until <= self.until_offset:
            raise ValueError(
                f"partition {self.partition}: span must hold 0 <= from {self.from_offset} "
                f"<= seen_until {self.seen_until} <= until {self.until_offset}"
            )
        new = Offsets.between(self.seen_until, self.until_offset)
        if len(new - self.reads) or self.reads.within(self.from_offset, self.until_offset) != self.reads:
            raise ValueError(
                f"partition {self.partition}: a span must read all that is new, and no more than itself"
            )


class Contract:
    """What decides verdict and bytes of a record, as canonical JSON; the order of keys plays no part."""

    def __init__(self, terms: Mapping[str, object]) -> None:
        """Take the terms; they must be JSON."""
        self.terms: dict[str, object] = json.loads(json.dumps(terms))

    def __eq__(self, other: object) -> bool:
        """Compare the canonical forms."""
        return isinstance(other, Contract) and self.canonical == other.canonical

    def __hash__(self) -> int:
        """Hash the canonical form."""
        return hash(self.canonical)

    @cached_property
    def canonical(self) -> str:
        """The terms with sorted keys and no blanks."""
        return json.dumps(self.terms, sort_keys=True, separators=(",", ":"))

    @property
    def first_day(self) -> date | None:
        """The lake's first day, where the terms name it."""
        day = self.terms.get("day")
        first = day.get("first") if isinstance(day, dict) else None
        return date.fromisoformat(first) if isinstance(first, str) else None

    def changes_from(self, older: Contract) -> tuple[str, ...]:
        """List each key that differs, as `key: old -> new`."""
        old, new = dict(_leaves("", older.terms)), dict(_leaves("", self.terms))
        keys = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
        return tuple(f"{key}: {old.get(key, '(none)')} -> {new.get(key, '(none)')}" for key in keys)


def _leaves(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, inner)
    else:
        yield path, json.dumps(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What a person accepted for this one run."""

    contract: tuple[str, ...] = ()
    """Each changed term of the contract, as `key: old -> new` (`--accept-contract`)."""
    start: tuple[str, ...] = ()
    """New partitions that begin above offset 0, each as a sentence (`--accept-start`)."""
    loss: tuple[LostOffsets, ...] = ()
    """Offsets that Kafka lost before a day settled them (`--accept-loss`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStart:
    """The offset at which the lake's knowledge of a partition begins."""

    partition: int
    """The partition."""
    offset: int
    """Its first offset that the lake knows of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPlan:
    """All that a run of one day will do, before it does it; what `plan` prints is what `run` executes.

    `consumed` is the checkpoint of the day before, less what was lost and accepted; a partition that it did
    not know, as on the lake's first day, is seen up to the first offset to read, with nothing pending.
    `first_offsets` are where the lake's knowledge of each partition began, on whichever day that was.
    `earlier` are the committed days with the bounds that their manifests recorded. `cleanup_policy` is
    None where the broker does not say, and remembers an earlier compaction.
    """

    day: Day
    topic: TopicIdentity
    contract: Contract
    accepted: Accepted
    consumed: Checkpoint
    earlier: tuple[Day, ...]
    spans: tuple[Span, ...]
    first_offsets: tuple[PartitionStart, ...]
    cleanup_policy: str | None
    headroom_hours: float | None
    risks: tuple[str, ...]

    def __post_init__(self) -> None:
        if [(s.partition, s.from_offset, s.seen_until) for s in self.spans] != [
            (p.partition, p.next_from_offset, p.seen_until) for p in self.consumed.partitions
        ]:
            raise ValueError(f"the spans of {self.day.date} do not go on from the checkpoint")
        for span, part in zip(self.spans, self.consumed.partitions, strict=True):
            if len(part.pending - span.reads):
                raise ValueError(
                    f"partition {span.partition}: pending offsets of {self.day.date} are not read"
                )
        if self.earlier and self.earlier[-1].end != self.day.start:
            raise ValueError(f"day {self.day.date} must begin where {self.earlier[-1].date} ends")

    @property
    def first(self) -> Day:
        """The lake's first day."""
        return self.earlier[0] if self.earlier else self.day

    @property
    def compacted(self) -> bool | None:
        """Whether records may vanish from inside the log; None where the broker does not say."""
        return is_compacted(self.cleanup_policy)

    @property
    def offsets(self) -> int:
        """How many offsets are read; transaction markers count, though they are no records."""
        return sum(len(span.reads) for span in self.spans)


def is_compacted(cleanup_policy: str | None) -> bool | None:
    """Return whether a topic's policy compacts it; None where the policy is not known."""
    return None if cleanup_policy is None else "compact" in cleanup_policy


def after_compaction(cleanup_policy: str | None, before: str | None) -> str | None:
    """Return a topic's policy, marked where only the one before compacted: what it took is gone for ever."""
    if is_compacted(cleanup_policy) or not is_compacted(before):
        return cleanup_policy
    return f"{cleanup_policy or 'not shown'}, compact before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many rows of one partition met one verdict, and between which offsets."""

    partition: int
    """The partition."""
    verdict: Verdict
    """What became of the rows."""
    rows: int
    """How many there are."""
    from_offset: int
    """The first offset among them."""
    until_offset: int
    """The offset after the last."""
    digest: str = ""
    """The SHA-256 of just these offsets as ranges, once the audit knows them: equal counts can be of other
    records. Empty in a manifest of format 1."""

    def __post_init__(self) -> None:
        if not 0 < self.rows <= self.until_offset - self.from_offset:
            raise ValueError(f"{self.rows} rows cannot lie in [{self.from_offset}, {self.until_offset})")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOffsets:
    """Which offsets of one partition a file holds."""

    partition: int
    """The partition."""
    rows: int
    """How many of its rows the file holds."""
    from_offset: int
    """The first offset among them."""
    until_offset: int
    """The offset after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One Parquet file of a day."""

    path: str
    """Its path below the day's folder."""
    verdict: Verdict
    """`in_day`, `late` or `invalid`."""
    rows: int
    """How many rows it holds."""
    bytes: int
    """Its size in bytes."""
    sha256: str
    """The SHA-256 of its bytes."""
    offsets: tuple[FileOffsets, ...]
    """Which offsets it holds, one entry a partition."""
    event_time_min: datetime | None = None
    """The earliest event time in it; null for invalid records."""
    event_time_max: datetime | None = None
    """The latest event time in it; null for invalid records."""
    day: date | None = None
    """The day that its rows belong to; null but for late ones."""
    target: str | None = None
    """The path below the lake at which its late rows are amended; null where they stay set aside, and for all
    other files."""

    def __post_init__(self) -> None:
        if self.rows != sum(part.rows for part in self.offsets):
            raise ValueError(f"{self.path}: {self.rows} rows, but its offset ranges say otherwise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """The offsets of a span that Kafka did not deliver: transaction markers, aborted or compacted records."""

    partition: int
    """The partition."""
    offsets: Offsets
    """The offsets that were not delivered."""
    probed: int = 0
    """In how many of their ranges a second client found nothing either: all of them, or a sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseCount:
    """How many records are invalid for one cause, with the coordinate of one of them."""

    cause: str
    """The cause, as a sentence."""
    rows: int
    """How many records are invalid for it."""
    partition: int
    """The partition of one of them."""
    offset: int
    """The offset of that one."""


FORMAT_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The commit record of one day: what was planned, found and written, and where the next day starts.

    docs/MANIFEST.md is written from the text below each field, here and in the values that it holds.
    """

    run_id: str
    """The run that wrote it. The names of its files hold it too."""
    revision: int
    """How often the day was built, counted from 1."""
    day: Day
    """The day and its bounds."""
    earlier: Runs | None
    """The bounds of all days before this one, from the lake's first on; null where an older format did not
    say."""
    topic: TopicIdentity
    """The topic that was read."""
    contract: Contract
    """What decides verdict and bytes of a record: the decoder's version, and the config's keys that do."""
    accepted: Accepted
    """What a person accepted, in this run or when the day was built before."""
    consumed: Checkpoint
    """The checkpoint that the run started from: the `next` of the day before, less what was lost and
    accepted."""
    first_offsets: tuple[PartitionStart, ...]
    """Where the lake's knowledge of each partition began."""
    spans: tuple[Span, ...]
    """What was read, one entry a partition."""
    cleanup_policy: str | None
    """The topic's `cleanup.policy`; null where the broker did not show it. It remembers an earlier
    compaction."""
    transactional: bool | None
    """Whether the day's gaps show transactions; null where compaction may have made them."""
    gaps: tuple[Gaps, ...]
    """What Kafka did not deliver, one entry a partition."""
    missing_pending: int
    """How many pending offsets of `consumed` compaction took."""
    tally: tuple[Tally, ...]
    """How many rows met each verdict, by partition."""
    causes: tuple[CauseCount, ...]
    """Why records are invalid, the commonest first."""
    files: tuple[DataFile, ...]
    """The files of the day, and the late ones that it brought, which may have moved to their `target`."""
    remade: tuple[DataFile, ...]
    """Amendments of this day that a rebuild wrote anew: of their bytes this manifest tells the truth, and
    that of the day that brought them no longer does."""
    next: Checkpoint
    """The checkpoint that the next day starts from."""
    started: datetime
    """When the tasks were started."""
    audited: datetime
    """When the audit had held."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of Python, of kafka-daily and of the packages that read and wrote."""

    def __post_init__(self) -> None:
        if self.earlier is not None:
            check_runs(self.earlier, self.day)

    @property
    def lossy(self) -> bool:
        """Whether Kafka lost offsets that this day should have settled."""
        return bool(self.accepted.loss)

    def rows(self, verdict: Verdict) -> int:
        """Count the rows that met a verdict."""
        return sum(tally.rows for tally in self.tally if tally.verdict is verdict)

    def files_of(self, verdict: Verdict) -> tuple[DataFile, ...]:
        """List the files that hold a verdict's rows."""
        return tuple(file for file in self.files if file.verdict is verdict)


def _ascending(what: str, partitions: list[int]) -> None:
    if partitions != sorted(set(partitions)):
        raise ValueError(f"partitions of a {what} must ascend and occur once: {partitions}")
