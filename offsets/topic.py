"""What a broker says of one topic: the values, and the questions that the survey asks.

Pure. The broker answers these questions; so can a topic held in memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, Protocol

from offsets.model import Anchor, TopicIdentity, Watermarks, is_compacted
from offsets.ranges import Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic's identity, its partitions, and those of its settings that decide what may be gone.

    Settings are None where the broker does not let us see them; `retention` is None where it is endless too.
    `largest_message` is the most bytes that the broker takes as one batch of a producer.
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


def digest_of(key: bytes | None, value: bytes | None) -> str:
    """Hash key and value, each with its length, so that no two pairs look the same."""
    both = hashlib.sha256()
    for part in (key, value):
        both.update(b"-" if part is None else b"%d:" % len(part))
        both.update(part or b"")
    return both.hexdigest()


class TopicReader(Protocol):
    """What the survey needs of a broker; no answer changes anything there."""

    def describe(self, topic: str) -> TopicDescription:
        """Describe a topic without creating it."""
        ...

    def watermarks(self, topic: str, partitions: Iterable[int]) -> dict[int, Watermarks]:
        """Give log start, last stable offset and high watermark of each partition."""
        ...

    def offsets_at(self, topic: str, instants: Mapping[int, int]) -> dict[int, int | None]:
        """Give per partition the first offset stamped at or after an instant (ms), or None."""
        ...

    def records(self, topic: str, partition: int, from_: int, until: int, limit: int) -> list[SeenRecord]:
        """Read up to `limit` visible records of `[from_, until)`; fewer mean that there are no more."""
        ...

    def present(self, topic: str, partition: int, from_: int, until: int) -> Offsets:
        """Give the offsets of all visible records of `[from_, until)`.

        Raises:
            OffsetsLost: the log starts above `from_` by now.
        """
        ...

    def stream(
        self, topic: str, partition: int, from_: int, until: int, *, headers: bool = False
    ) -> Iterator[FullRecord]:
        """Read all visible records of `[from_, until)`, few at a time; headers only when asked for.

        Raises:
            OffsetsLost: the log starts above `from_` by now.
        """
        ...
