"""What a run is to read, partition by partition, with the evidence for each edge.

Pure: the plan is data. `plan` prints the very object that a run carries out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from offsets.checkpoint import Checkpoint, TopicIdentity
from offsets.contract import Accepted, Contract
from offsets.days import Day
from offsets.ranges import Offsets


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
