"""The port to a broker: the questions about one topic, and the values that answer them.

Pure. A broker answers the questions, or a topic in memory in a test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from offsets.checkpoint import Anchor, TopicIdentity
from offsets.day_plan import LogOffsets, is_compacted
from offsets.errors import OffsetsLost
from offsets.ranges import Offsets, Range

T = TypeVar("T")

LONGEST_RETENTION = timedelta(days=365_000)
"""A longer retention counts as endless: a date that far back does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic's identity, its partitions, and the settings that decide which records may be gone.

    Settings are None if the broker does not show them; an endless `retention` is None too.
    `largest_message` is the size (bytes) of the largest batch that the broker accepts from a producer.
    """

    identity: TopicIdentity
    partitions: tuple[int, ...]
    cleanup_policy: str | None
    retention: timedelta | None
    retention_bytes: int | None
    largest_message: int | None

    @property
    def compacted(self) -> bool | None:
        """Whether records may vanish from inside the log; None if the broker does not show it."""
        return is_compacted(self.cleanup_policy)

    @property
    def keeps_all(self) -> bool:
        """Whether retention takes no record, by age or by size; False if the broker does not show it."""
        if self.cleanup_policy is None:
            return False
        unlimited = self.retention is None and self.retention_bytes == -1
        return unlimited or "delete" not in self.cleanup_policy.split(",")

    @property
    def deletes_by_time_alone(self) -> bool:
        """Whether only the age of records can have moved a log start."""
        policies = (self.cleanup_policy or "").split(",")
        return "delete" in policies and self.retention is not None and self.retention_bytes == -1


def retention_of(milliseconds: str | None) -> timedelta | None:
    """Read `retention.ms`; None if it is not shown, or endless, as -1 and Long.MAX_VALUE are."""
    if milliseconds is None or not 0 <= int(milliseconds) <= LONGEST_RETENTION // timedelta(milliseconds=1):
        return None
    return timedelta(milliseconds=int(milliseconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRecord:
    """One record as read: `timestamp` in Kafka's milliseconds (-1: none), `digest` of key and value."""

    offset: int
    timestamp: int
    size: int
    digest: str

    @property
    def anchor(self) -> Anchor:
        """The record as an anchor."""
        return Anchor(offset=self.offset, timestamp=self.timestamp, digest=self.digest)


Headers = tuple[tuple[str, bytes | None], ...]


class FullRecord(NamedTuple):
    """One record with all that a task receives; `timestamp` in Kafka's milliseconds (-1: none)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """The bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


def digest_of(key: bytes | None, value: bytes | None) -> str:
    """Hash key and value, each with its length, so that different pairs have different digests."""
    both = hashlib.sha256()
    for part in (key, value):
        both.update(b"-" if part is None else b"%d:" % len(part))
        both.update(part or b"")
    return both.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A request for up to `limit` visible records in offsets `[from_, until)` of one partition."""

    from_: int
    until: int
    limit: int


Look: TypeAlias = Generator[Stretch, list[SeenRecord], T]
"""A look-up in one partition, as a coroutine: it yields stretches, and receives the records of each."""


def out_of_range(topic: str, partition: int, offset: int, found: str) -> OffsetsLost:
    """Return the error for a log whose start or end moved before its records were read."""
    return OffsetsLost(
        expected=f"partition {partition} of {topic} to hold offset {offset} while it is read",
        found=found,
        do="Nothing was changed: retention was faster. Run the same command again; it looks at the topic "
        "anew, and if something is lost, it says what and how to go on.",
        partition=partition,
        offset=offset,
    )


class TopicReader(Protocol):
    """What a run needs from a broker; no method changes anything there."""

    def describe(self, topic: str) -> TopicDescription:
        """Describe a topic without creating it."""
        ...

    def log_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
        """Return log start, last stable offset and high watermark of each partition."""
        ...

    def offsets_at(self, topic: str, instants: Mapping[int, int]) -> dict[int, int | None]:
        """Return per partition the first offset stamped at or after an instant (ms), or None."""
        ...

    def records_of(self, topic: str, wanted: Mapping[int, Stretch]) -> dict[int, list[SeenRecord]]:
        """Read the first visible records of one stretch per partition, up to its limit.

        Raises:
            OffsetsLost: a log now starts after the beginning of its stretch, or ends before its end.
        """
        ...

    def present_of(self, topic: str, wanted: Mapping[int, Range]) -> dict[int, Offsets]:
        """Return the offsets of all visible records of one range per partition.

        Raises:
            OffsetsLost: a log now starts after the beginning of its range, or ends before its end.
        """
        ...

    def sample(
        self, topic: str, partition: int, from_: int, until: int, limit: int, *, headers: bool = False
    ) -> list[FullRecord]:
        """Read up to about `limit` bytes of visible records in `[from_, until)`.

        Returns none if retention took them, or if too many invisible records precede them.
        """
        ...

    def release(self) -> None:
        """Free the resources held between requests; the next request may come much later."""
        ...

    def stream(
        self, topic: str, partition: int, from_: int, until: int, *, headers: bool = False
    ) -> Iterator[FullRecord]:
        """Yield all visible records of `[from_, until)`, reading few at a time, with `headers` if asked.

        Raises:
            OffsetsLost: the log now starts after `from_`.
        """
        ...


def look_together(reader: TopicReader, topic: str, looks: Mapping[int, Look[T]]) -> dict[int, T]:
    """Run one look-up per partition, all in step, so that each round sends one request for all partitions."""
    results: dict[int, T] = {}
    records: dict[int, list[SeenRecord]] = {}
    going = dict(looks)
    while going:
        wanted: dict[int, Stretch] = {}
        for part, look in list(going.items()):
            try:
                wanted[part] = look.send(records[part]) if part in records else next(look)
            except StopIteration as end:
                results[part] = end.value
                del going[part]
        records = reader.records_of(topic, wanted) if wanted else {}
    return {part: results[part] for part in looks}
