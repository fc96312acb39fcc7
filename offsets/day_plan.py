"""The plan of a run: what to read of each partition, with the evidence for where it starts and ends.

Pure: the plan is data. The command `plan` prints the same object that a run executes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from offsets.checkpoint import Checkpoint, TopicIdentity
from offsets.columns import ColumnRuns
from offsets.contract import Accepted, Contract
from offsets.days import Day
from offsets.ranges import Offsets


class StartFrom(StrEnum):
    """How the first offset of a span was found.

    CHECKPOINT: the day before recorded it. LOOKUP: on the lake's first day, a look-up by time finds the first
    record stamped at or after the day's start less `validity.future`, since no valid event of the day has an
    earlier stamp. NEW_PARTITION: on later days, a partition without a checkpoint begins at its log start.
    """

    CHECKPOINT = "checkpoint"
    LOOKUP = "lookup"
    NEW_PARTITION = "new_partition"


class EndFrom(StrEnum):
    """How the end of a span (the first offset that is not read) was found.

    Stamps are Kafka's timestamps, which producers may set. No end can be wrong: a later run settles what lies
    beyond it, as late rows if they belong to this day.
    STAMPED_PAST: the span ends before a record stamped after the day and its grace. BISECTED: such a record
    lay among records of the day, so a bisection found the offset after which most records are past the day.
    IDLE: no record is stamped past the day, and the span ends at the high watermark. RECORDED: a rebuild
    takes the committed end.
    """

    STAMPED_PAST = "stamped_past"
    BISECTED = "bisected"
    IDLE = "idle"
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOffsets:
    """The log start, last stable offset (LSO) and high watermark of one partition."""

    partition: int
    log_start: int
    last_stable: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How the start and the end of a span were found, each as a kind and a sentence."""

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
    """What one run reads of one partition."""

    partition: int
    """The partition."""
    from_offset: int
    """The first offset that is read."""
    seen_until: int
    """The `seen_until` of the last checkpoint: new offsets begin here, and all below it are settled or
    pending."""
    until_offset: int
    """The offset after the last that was read; the `seen_until` of the next checkpoint."""
    reads: Offsets
    """The offsets that were read: all new and pending ones, and those between them where reading was cheaper
    than seeking."""
    evidence: Evidence
    """How its start and its end were found."""

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
    """The first offset of a partition that belongs to the lake."""

    partition: int
    """The partition."""
    offset: int
    """Its first offset that belongs to the lake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayPlan:
    """Everything that a run of one day will do; `plan` prints it, and `run` executes it.

    `consumed` is the checkpoint of the day before, without the losses that were accepted. A partition that
    is new to it has `seen_until` at the first offset to read, and nothing pending. `first_offsets` are the
    offsets at which the lake began to read each partition. `earlier` are the committed days with their
    recorded bounds; `columns` are theirs, and the day's own. `cleanup_policy` is None if the broker does not
    show it, and marks an earlier compaction.
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
    columns: ColumnRuns = ()

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
        """Whether records may vanish from inside the log; None if the broker does not show it."""
        return is_compacted(self.cleanup_policy)

    @property
    def offsets(self) -> int:
        """How many offsets are read; transaction markers count too."""
        return sum(len(span.reads) for span in self.spans)


def is_compacted(cleanup_policy: str | None) -> bool | None:
    """Return whether a cleanup policy compacts; None if the policy is not known."""
    return None if cleanup_policy is None else "compact" in cleanup_policy


def after_compaction(cleanup_policy: str | None, before: str | None) -> str | None:
    """Return a cleanup policy, marked if only the one before compacted: the compacted records stay gone."""
    if is_compacted(cleanup_policy) or not is_compacted(before):
        return cleanup_policy
    return f"{cleanup_policy or 'not shown'}, compact before"
