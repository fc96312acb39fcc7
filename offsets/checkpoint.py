"""How far each partition is settled: the first offset not yet read, and the pending offsets below it.

Pure. All ranges are half-open. Constructors reject values that contradict themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from offsets.instants import LAST_STAMP
from offsets.ranges import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdentity:
    """The topic that offsets belong to: a recreated topic has a new id, a copied topic another cluster id."""

    name: str
    """The topic's name."""
    topic_id: str
    """Kafka's id of the topic; a recreated topic gets another."""
    cluster_id: str
    """Kafka's id of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """The last delivered record of a partition below `seen_until`, by which a refilled topic is noticed.

    Each run compares it with the log before and after reading, while Kafka retains it. A day that delivers
    nothing keeps the older anchor.
    """

    offset: int
    """The record's offset."""
    timestamp: int
    """Kafka's timestamp, in milliseconds since 1970."""
    digest: str
    """The SHA-256 of the record's key and value."""

    def is_same_record(self, read: Anchor) -> bool:
        """Return whether a record read now is this one.

        All timestamps below zero count as equal, and so do all beyond LAST_STAMP: Spark and librdkafka report
        those before 1900 differently, Spark reports none beyond LAST_STAMP, and older manifests hold -1 for
        all below zero.
        """
        ours, theirs = ((a.offset, a.digest, _comparable_stamp(a.timestamp)) for a in (self, read))
        return ours == theirs


def _comparable_stamp(stamp: int) -> int:
    return max(-1, min(stamp, LAST_STAMP))


@dataclass(frozen=True, slots=True, kw_only=True)
class LostOffsets:
    """The range of one partition in which Kafka lost offsets before a day settled them, as a person accepted.

    It begins with the first unsettled offset and ends at the log's start; others in it may be settled.
    """

    partition: int
    """The partition."""
    from_offset: int
    """The first offset that was lost."""
    until_offset: int
    """The start of the log that was left."""
    unsettled: int | None = field(default=None, compare=False)
    """How many of these offsets no day had settled; null if a manifest up to format 3 does not say."""

    def __post_init__(self) -> None:
        if not 0 <= self.from_offset < self.until_offset:
            raise ValueError(f"offsets from {self.from_offset} to {self.until_offset} are none")
        if self.unsettled is not None and not 0 < self.unsettled <= self.until_offset - self.from_offset:
            raise ValueError(f"{self.unsettled} offsets cannot be lost in {self}")

    def __str__(self) -> str:
        """Return the text that `--accept-loss` takes."""
        return f"{self.partition}:{self.from_offset}-{self.until_offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCheckpoint:
    """The progress of one partition: all offsets below `seen_until` are settled, except for `pending`.

    Pending offsets were read, and judged LATER_DAY. Each later run reads them again until they get another
    verdict, normally in the run of their own day.
    """

    partition: int
    """The partition."""
    seen_until: int
    """All offsets below it are settled, except the pending ones; new offsets begin here."""
    pending: Offsets
    """Offsets below `seen_until` that were read and belong to a later day."""
    anchor: Anchor | None
    """The last delivered record below `seen_until`; null if there is none."""

    def __post_init__(self) -> None:
        if len(self.pending) and self.pending.until > self.seen_until:
            raise ValueError(f"partition {self.partition}: pending beyond seen_until {self.seen_until}")
        if self.anchor and self.anchor.offset >= self.seen_until:
            raise ValueError(f"partition {self.partition}: anchor {self.anchor.offset} not below seen_until")

    @property
    def next_from_offset(self) -> int:
        """The offset at which the next run starts to read."""
        return self.pending.first if len(self.pending) else self.seen_until

    def has_settled(self, offset: int) -> bool:
        """Return whether an offset was read, and is not pending."""
        return offset < self.seen_until and offset not in self.pending

    def unsettled(self, until: int) -> Offsets:
        """Return the offsets below `until` that no day has settled: the pending and the new ones."""
        return self.pending.within(0, until) | Offsets.between(self.seen_until, until)

    def without(self, *lost: LostOffsets) -> PartitionCheckpoint:
        """Return the checkpoint without the lost offsets; losses of other partitions change nothing.

        The plan accepts only the loss from `next_from_offset` to the log's start.
        """
        losses = [loss for loss in lost if loss.partition == self.partition]
        return replace(
            self,
            seen_until=max(self.seen_until, *(loss.until_offset for loss in losses), 0),
            pending=self.pending - Offsets.of((loss.from_offset, loss.until_offset) for loss in losses),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What the next run needs, per partition, and the topic that it belongs to."""

    topic: TopicIdentity
    """The topic of the offsets."""
    partitions: tuple[PartitionCheckpoint, ...]
    """One entry per partition, ascending."""

    def __post_init__(self) -> None:
        _ascending("checkpoint", [part.partition for part in self.partitions])

    def of(self, partition: int) -> PartitionCheckpoint | None:
        """Return one partition's checkpoint, or None if the partition was not known."""
        return next((part for part in self.partitions if part.partition == partition), None)

    def without(self, *lost: LostOffsets) -> Checkpoint:
        """Return the checkpoint without the lost offsets."""
        return replace(self, partitions=tuple(part.without(*lost) for part in self.partitions))

    def continues(self, older: Checkpoint) -> bool:
        """Return whether this checkpoint holds all partitions of an older one, unchanged; it may hold more.

        The ledger compares each manifest's `consumed` with the `next` of the manifest before it.
        """
        return self.topic == older.topic and set(older.partitions) <= set(self.partitions)


def _ascending(what: str, partitions: list[int]) -> None:
    if partitions != sorted(set(partitions)):
        raise ValueError(f"partitions of a {what} must ascend and occur once: {partitions}")
