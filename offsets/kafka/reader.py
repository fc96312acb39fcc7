"""What a broker says of one topic: the values, and the questions that the survey asks.

Pure. The broker answers these questions; so can a topic held in memory.
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
"""A longer retention counts as endless: no calendar reaches back so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic's identity, its partitions, and those of its settings that decide what may be gone.

    Settings are None where the broker does not let us see them; an endless `retention` is None too.
    `largest_message` is the size (bytes) of the largest batch that the broker takes from a producer.
    """

    identity: TopicIdentity
    partitions: tuple[int, ...]
    cleanup_policy: str | None
    retention: timedelta | None
    retention_bytes: int | None
    largest_message: int | None

    @property
    def compacted(self) -> bool | None:
        """Whether records may vanish from inside the log; None where the broker does not say."""
        return is_compacted(self.cleanup_policy)

    @property
    def deletes_by_time_alone(self) -> bool:
        """Whether only age can have moved a log start."""
        policies = (self.cleanup_policy or "").split(",")
        return "delete" in policies and self.retention is not None and self.retention_bytes == -1


def retention_of(milliseconds: str | None) -> timedelta | None:
    """Read `retention.ms`; None where it is endless, as -1 and Long.MAX_VALUE are, or not shown."""
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
    """One record with all that a task is given of it; `timestamp` in Kafka's milliseconds (-1: none)."""

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
    """Hash key and value, each with its length, so that no two pairs look the same."""
    both = hashlib.sha256()
    for part in (key, value):
        both.update(b"-" if part is None else b"%d:" % len(part))
        both.update(part or b"")
    return both.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Offsets `[from_, until)` of one partition, of which up to `limit` visible records are wanted."""

    from_: int
    until: int
    limit: int


Look: TypeAlias = Generator[Stretch, list[SeenRecord], T]
"""A look at one partition: it asks for stretches, and is sent the records of each."""


def out_of_range(topic: str, partition: int, offset: int, found: str) -> OffsetsLost:
    """Make the error for a log whose edges moved before its records were read."""
    return OffsetsLost(
        expected=f"partition {partition} of {topic} to hold offset {offset} while it is read",
        found=found,
        do="Nothing was changed: retention was faster. Run the same command again; it looks at the topic "
        "anew, and if something is lost, it says what and how to go on.",
        partition=partition,
        offset=offset,
    )


class TopicReader(Protocol):
    """What the survey needs from a broker; no question changes anything there."""

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
        """Read the first visible records of one stretch per partition; fewer mean that there are no more.

        Raises:
            OffsetsLost: a log starts above its stretch by now, or ends below it.
        """
        ...

    def present_of(self, topic: str, wanted: Mapping[int, Range]) -> dict[int, Offsets]:
        """Return the offsets of all visible records of one range per partition.

        Raises:
            OffsetsLost: a log starts above its range by now, or ends below it.
        """
        ...

    def sample(
        self, topic: str, partition: int, from_: int, until: int, limit: int, *, headers: bool = False
    ) -> list[FullRecord]:
        """Read up to `limit` bytes of visible records in `[from_, until)`; none if they are gone, or far."""
        ...

    def rest(self) -> None:
        """Free what is held between questions; the next one may come much later."""
        ...

    def stream(
        self, topic: str, partition: int, from_: int, until: int, *, headers: bool = False
    ) -> Iterator[FullRecord]:
        """Yield all visible records of `[from_, until)`, reading few at a time; headers only when asked for.

        Raises:
            OffsetsLost: the log starts above `from_` by now.
        """
        ...


def look_together(reader: TopicReader, topic: str, looks: Mapping[int, Look[T]]) -> dict[int, T]:
    """Run one look per partition, all in step: what they ask at the same time is sent as one question."""
    results: dict[int, T] = {}
    found: dict[int, list[SeenRecord]] = {}
    going = dict(looks)
    while going:
        wanted: dict[int, Stretch] = {}
        for part, look in list(going.items()):
            try:
                wanted[part] = look.send(found[part]) if part in found else next(look)
            except StopIteration as end:
                results[part] = end.value
                del going[part]
        found = reader.records_of(topic, wanted) if wanted else {}
    return {part: results[part] for part in looks}
