"""A topic held in memory that answers as a Kafka broker does.

Relies on nothing. Records, aborted records and transaction markers all take offsets; only committed records
below the last stable offset are read. Never allows more than a broker: reading below the log start or above
the last stable offset is an error.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from operator import attrgetter

from offsets.checkpoint import TopicIdentity
from offsets.day_plan import LogOffsets
from offsets.errors import ConfigError
from offsets.instants import millis
from offsets.kafka.reader import FullRecord, SeenRecord, Stretch, TopicDescription, digest_of, out_of_range
from offsets.ranges import Offsets, Range

NO_TIMESTAMP = -1


class Fate(Enum):
    """The state of a transaction."""

    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(slots=True)
class Transaction:
    """A transaction, and the partitions that it wrote to."""

    fate: Fate = Fate.OPEN
    partitions: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Record:
    """One offset of a log: a record, or a marker (which has no value to read)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    transaction: Transaction | None = None
    marker: bool = False


@dataclass(slots=True)
class Log:
    """One partition: its records and its edges."""

    records: list[Record] = field(default_factory=list)
    log_start: int = 0
    high: int = 0

    @property
    def last_stable(self) -> int:
        """The first offset of the oldest open transaction, or the high watermark."""
        opened = (
            record.offset
            for record in self.records
            if record.transaction and record.transaction.fate is Fate.OPEN
        )
        return min(opened, default=self.high)

    def visible(self, from_: int, until: int) -> list[Record]:
        """List the records of a range that a read_committed consumer gets."""
        until = min(until, self.last_stable)
        begin, end = (bisect_left(self.records, at, key=attrgetter("offset")) for at in (from_, until))
        return [
            record
            for record in self.records[begin:end]
            if not record.marker and (record.transaction is None or record.transaction.fate is Fate.COMMITTED)
        ]


class MemoryTopic:
    """A topic, its records and its settings; implements `offsets.kafka.reader.TopicReader`."""

    def __init__(
        self,
        partitions: int = 1,
        *,
        name: str = "orders",
        cleanup_policy: str | None = "delete",
        retention: timedelta | None = None,
        retention_bytes: int | None = -1,
    ) -> None:
        self.name, self.cluster_id = name, "cluster-1"
        self.cleanup_policy, self.retention, self.retention_bytes = cleanup_policy, retention, retention_bytes
        self.logs: dict[int, Log] = {}
        self.generation = 0
        self.asked: list[str] = []
        self.before: Callable[[str], None] = lambda question: None
        """Called with the question's name before each answer, so that a test can change the topic then."""
        self.recreate(partitions)

    # -- producing

    def produce(
        self,
        partition: int,
        value: bytes | None,
        timestamp: datetime | int,
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        transaction: Transaction | None = None,
    ) -> int:
        """Append a record and return its offset; an int is a timestamp in milliseconds."""
        stamp = timestamp if isinstance(timestamp, int) else millis(timestamp)
        if transaction:
            transaction.partitions.add(partition)
        return self._append(
            partition,
            timestamp=stamp,
            key=key,
            value=value,
            headers=tuple(headers),
            transaction=transaction,
        )

    def end(self, transaction: Transaction, *, commit: bool, at: datetime | int) -> None:
        """Commit or abort a transaction; its markers carry the broker's clock `at`."""
        transaction.fate = Fate.COMMITTED if commit else Fate.ABORTED
        for partition in sorted(transaction.partitions):
            self.marker(partition, at)

    def marker(self, partition: int, at: datetime | int) -> int:
        """Append a transaction marker alone."""
        stamp = at if isinstance(at, int) else millis(at)
        return self._append(partition, timestamp=stamp, key=None, value=None, marker=True)

    def _append(
        self,
        partition: int,
        *,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        transaction: Transaction | None = None,
        marker: bool = False,
    ) -> int:
        log = self.logs[partition]
        log.records.append(
            Record(
                offset=log.high,
                timestamp=timestamp,
                key=key,
                value=value,
                headers=headers,
                transaction=transaction,
                marker=marker,
            )
        )
        log.high += 1
        return log.high - 1

    # -- changes of a topic

    def retain_from(self, partition: int, log_start: int) -> None:
        """Let retention take all below an offset."""
        log = self.logs[partition]
        log.log_start = min(max(log.log_start, log_start), log.high)
        log.records = [record for record in log.records if record.offset >= log.log_start]

    def compact(self, partition: int, offsets: Iterable[int]) -> None:
        """Take records from inside a log; the edges stay."""
        gone = set(offsets)
        log = self.logs[partition]
        log.records = [record for record in log.records if record.offset not in gone]

    def recreate(self, partitions: int) -> None:
        """Delete the topic and make it again, empty and with another id."""
        self.generation += 1
        self.logs = {partition: Log() for partition in range(partitions)}

    def truncate(self, partition: int, until: int) -> None:
        """Lose the end of a log, as after an unclean leader election; refill it by producing."""
        log = self.logs[partition]
        log.records = [record for record in log.records if record.offset < until]
        log.high = min(log.high, until)

    def add_partitions(self, count: int) -> None:
        """Add empty partitions."""
        for partition in range(len(self.logs), len(self.logs) + count):
            self.logs[partition] = Log()

    # -- answering as a broker

    def describe(self, topic: str) -> TopicDescription:
        """Describe the topic."""
        self._asked("describe", topic)
        return TopicDescription(
            identity=self.identity,
            partitions=tuple(sorted(self.logs)),
            cleanup_policy=self.cleanup_policy,
            retention=self.retention,
            retention_bytes=self.retention_bytes,
            largest_message=1_048_588,
        )

    @property
    def identity(self) -> TopicIdentity:
        """The current identity of the topic."""
        return TopicIdentity(name=self.name, topic_id=f"topic-{self.generation}", cluster_id=self.cluster_id)

    def log_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, LogOffsets]:
        """Return the edges of each partition."""
        self._asked("log_offsets", topic)
        return {
            part: LogOffsets(
                partition=part,
                log_start=self.logs[part].log_start,
                last_stable=self.logs[part].last_stable,
                high=self.logs[part].high,
            )
            for part in partitions
        }

    def offsets_at(self, topic: str, instants: Mapping[int, int]) -> dict[int, int | None]:
        """Return the first offset stamped at or after an instant; markers and aborted records count."""
        self._asked("offsets_at", topic)
        return {
            part: next(
                (record.offset for record in self.logs[part].records if record.timestamp >= instant), None
            )
            for part, instant in instants.items()
        }

    def records_of(self, topic: str, wanted: Mapping[int, Stretch]) -> dict[int, list[SeenRecord]]:
        """Read visible records."""
        self._asked("records", topic)
        return {part: self._records(part, stretch) for part, stretch in wanted.items()}

    def _records(self, partition: int, wanted: Stretch) -> list[SeenRecord]:
        if wanted.from_ >= wanted.until or wanted.limit <= 0:
            return []
        return [
            SeenRecord(
                offset=record.offset,
                timestamp=record.timestamp,
                size=len(record.key or b"") + len(record.value or b""),
                digest=digest_of(record.key, record.value),
            )
            for record in self._visible(partition, wanted.from_, wanted.until)[: wanted.limit]
        ]

    def release(self) -> None:
        """Do nothing: no connection is open."""

    def sample(
        self, topic: str, partition: int, from_: int, until: int, limit: int, *, headers: bool = False
    ) -> list[FullRecord]:
        """Read visible records until they reach a size."""
        self._asked("sample", topic)
        sampled: list[FullRecord] = []
        for record in self.logs[partition].visible(from_, until):
            if limit <= 0:
                break
            sampled.append(
                FullRecord(
                    offset=record.offset,
                    timestamp=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=record.headers if headers else (),
                )
            )
            limit -= sampled[-1].size
        return sampled

    def present_of(self, topic: str, wanted: Mapping[int, Range]) -> dict[int, Offsets]:
        """Return the offsets of visible records."""
        self._asked("present", topic)
        return {
            part: Offsets.of(
                (record.offset, record.offset + 1) for record in self._visible(part, from_, until)
            )
            for part, (from_, until) in wanted.items()
        }

    def _visible(self, partition: int, from_: int, until: int) -> list[Record]:
        log = self.logs[partition]
        if from_ < until and not log.log_start <= from_ < until <= log.last_stable:
            raise out_of_range(self.name, partition, from_, f"[{log.log_start}, {log.last_stable}]")
        return log.visible(from_, until)

    def stream(
        self, topic: str, partition: int, from_: int, until: int, *, headers: bool = False
    ) -> Iterator[FullRecord]:
        """Yield the visible records one by one; headers only on demand."""
        self._asked("stream", topic)
        for record in self._visible(partition, from_, until):
            more = record.headers if headers else ()
            yield FullRecord(record.offset, record.timestamp, record.key, record.value, more)

    def _asked(self, question: str, topic: str) -> None:
        if topic != self.name:
            raise ConfigError(expected=f"a topic {topic}", found="no such topic", do="Correct `topic`.")
        self.asked.append(question)
        self.before(question)
