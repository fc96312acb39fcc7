"""How far a topic is settled: by partition, the first offset that nobody read, and those that wait.

Pure. Offsets are half-open everywhere, and a value that breaks its law cannot be made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from offsets.instants import LAST_STAMP
from offsets.ranges import Offsets


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

    def without(self, *lost: LostOffsets) -> PartitionCheckpoint:
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

    def without(self, *lost: LostOffsets) -> Checkpoint:
        """Return the checkpoint without what was lost."""
        return replace(self, partitions=tuple(part.without(*lost) for part in self.partitions))

    def goes_on_from(self, older: Checkpoint) -> bool:
        """Return whether it holds all that an older one holds, unchanged; it may hold new partitions too.

        The ledger compares what each manifest consumed with what the manifest before it named as next.
        """
        return self.topic == older.topic and set(older.partitions) <= set(self.partitions)


def _ascending(what: str, partitions: list[int]) -> None:
    if partitions != sorted(set(partitions)):
        raise ValueError(f"partitions of a {what} must ascend and occur once: {partitions}")
