"""Read visible records of several partitions at once, with one consumer.

Relies on librdkafka's statistics: only they show progress over aborted records, which are not delivered.
Never commits offsets, and never decides what an error means.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Final, Protocol, cast

from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from offsets.errors import ConfigError
from offsets.kafka.reader import FullRecord, Headers, SeenRecord, Stretch, digest_of
from offsets.ranges import Offsets, Range

STATISTICS: Final = 0.5
"""Seconds between two statistics of a consumer."""
_HEADERS: Final = methodcaller("headers")
"""Calls `headers()` from C: if a key is not UTF-8, the client returns a broken list and also sets an error.
Only a call from C sees both."""
INVISIBLE_SECONDS: Final = 1.0
"""After this many seconds with only invisible records, a consumer with larger fetches is faster."""
UNASSIGN_COUNT: Final = 16
UNASSIGN_SECONDS: Final = 0.02
"""Finished partitions are unassigned together, when there are this many, or after this many seconds without a
message of an open partition: each unassignment waits for librdkafka's own thread."""


class EndsEarly(KafkaException):
    """A log ends before an offset that was readable earlier; carries the error and the partition."""

    def __init__(self, partition: int, offset: int, known: int) -> None:
        """Make the error for a broker that has not caught up."""
        message = f"the log ends at offset {offset}, though offset {known - 1} was readable"
        super().__init__(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, message), partition)


class Fetched(Protocol):
    """The receiver of one partition's records; `at` is the next offset to read."""

    at: int
    done: bool

    @property
    def known(self) -> int:
        """The offset up to which the log was readable; an end before it raises EndsEarly."""
        ...

    def take(self, offset: int, message: Message | None) -> None:
        """Take a record; None means that the readable part of the log ends at `offset`."""
        ...


class Fetcher:
    """One consumer. `patience` is how many seconds the broker may send nothing, visible or not."""

    def __init__(self, settings: Mapping[str, Any], patience: float) -> None:
        """Connect at the first use."""
        self._patience = patience
        interval = int(1000 * min(STATISTICS, patience / 4))
        self._consumer = Consumer(
            {**settings, "stats_cb": self._on_statistics, "statistics.interval.ms": interval}
        )
        self._topic = self._statistics = ""
        self._open: dict[int, int] = {}
        self._dropped: list[int] = []
        self._ahead: tuple[str, dict[int, int]] | None = None
        self._asked = 0.0
        self.moved = 0.0
        """When the broker last sent something, by the monotonic clock; asking again is no progress."""

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def read(
        self,
        topic: str,
        wanted: Mapping[int, Fetched],
        *,
        stop_if_invisible: bool = False,
        keep_ahead: bool = False,
    ) -> None:
        """Read until all partitions are done; with `stop_if_invisible`, stop if only invisible records come.

        With `keep_ahead`, records that were fetched beyond the end are kept for a read that starts there.

        Raises:
            EndsEarly: the log ends early, as a leader that has not caught up reports for a while.
            KafkaException: with the error, and its partition if there is one.
        """
        froms = {part: wanted_part.at for part, wanted_part in wanted.items() if not wanted_part.done}
        for partition, offset, message in self.messages(topic, froms, stop_if_invisible=stop_if_invisible):
            if message is None and offset < wanted[partition].known:
                raise EndsEarly(partition, offset, wanted[partition].known)
            wanted[partition].take(offset, message)
            if wanted[partition].done:
                self.drop(partition)
        if keep_ahead:
            self._ahead = topic, {part: wanted_part.at for part, wanted_part in wanted.items()}
        else:
            self.forget()

    def forget(self) -> None:
        """Stop fetching, and drop what was fetched ahead."""
        self._ahead = None
        self._consumer.unassign()

    def messages(
        self, topic: str, froms: Mapping[int, int], *, stop_if_invisible: bool = False
    ) -> Iterator[tuple[int, int, Message | None]]:
        """Yield partition, offset and message; None marks a partition's end, and `drop` ends it earlier."""
        if self._ahead != (topic, froms):
            self.forget()
            self._forget_statistics()
            self._consumer.assign([TopicPartition(topic, part, from_) for part, from_ in froms.items()])
        self._topic, self._open, self._dropped, self._ahead = topic, dict(froms), [], None
        visible = self._asked = time.monotonic()
        try:
            while self._open:
                message = self._consumer.poll(min(0.1, self._patience / 4))
                if message is None:
                    self._unassign_dropped()
                    self._wait()
                    if stop_if_invisible and self.moved > visible + min(
                        INVISIBLE_SECONDS, self._patience / 2
                    ):
                        break
                    continue
                partition = message.partition()
                if partition is None or partition < 0 or partition in self._open:
                    yield _partition_message(message)
                    # set only now: an error, which `_partition_message` raises, is no progress
                    visible = self.moved = time.monotonic()
                if len(self._dropped) >= UNASSIGN_COUNT or time.monotonic() > visible + UNASSIGN_SECONDS:
                    self._unassign_dropped()
        except BaseException:
            self.forget()
            raise

    def _forget_statistics(self) -> None:
        """Drop queued statistics: those of an earlier read show no progress of this one."""
        self._statistics = " "
        while self._statistics:
            self._statistics = ""
            self._consumer.poll(0)

    def drop(self, partition: int) -> None:
        """Stop reading a partition; messages that still come from it are ignored."""
        del self._open[partition]
        self._dropped.append(partition)

    def _unassign_dropped(self) -> None:
        if self._dropped and self._open:
            self._consumer.incremental_unassign([TopicPartition(self._topic, part) for part in self._dropped])
            self._dropped.clear()

    def _wait(self) -> None:
        """Record progress that only the statistics show, and raise if there was none for too long."""
        text, self._statistics = self._statistics, ""
        if text:
            parts = json.loads(text)["topics"].get(self._topic, {}).get("partitions", {})
            for part, at in self._open.items():
                now = int(parts.get(str(part), {}).get("next_offset", at))
                if now > at:
                    self._open[part], self.moved = now, time.monotonic()
        if time.monotonic() - max(self._asked, self.moved) > self._patience:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no record and no end of the partition"))

    def _on_statistics(self, text: str) -> None:
        self._statistics = text


def _partition_message(message: Message) -> tuple[int, int, Message | None]:
    partition, offset, problem = message.partition(), message.offset(), message.error()
    if partition is None or offset is None or (problem and problem.code() != KafkaError._PARTITION_EOF):
        raise KafkaException(problem, partition)
    return partition, offset, None if problem else message


@dataclass(slots=True)
class Sample:
    """The first visible records of a stretch, and the ranges between them without any (`hidden`)."""

    stretch: Stretch
    at: int
    seen: list[SeenRecord] = field(default_factory=list)
    hidden: list[Range] = field(default_factory=list)
    done: bool = False

    @property
    def known(self) -> int:
        """The stretch's end."""
        return self.stretch.until

    def take(self, offset: int, message: Message | None) -> None:
        """Take a record, and set `done` when there are enough or the stretch ends."""
        until = self.stretch.until
        if offset > self.at:
            self.hidden.append((self.at, min(offset, until)))
        self.at = offset + 1
        if message is not None and offset < until:
            self.seen.append(_seen(message, offset))
        # done at the limit: no need to wait until the broker reports the end of the log
        self.done = message is None or self.at >= until or len(self.seen) == self.stretch.limit


@dataclass(slots=True)
class Presence:
    """The offsets of all visible records up to `until`.

    `hidden` is the invisible range around `until`, up to the next record or the log's readable end.
    """

    at: int
    until: int
    ranges: list[Range] = field(default_factory=list)
    hidden: Range | None = None
    done: bool = False

    @property
    def known(self) -> int:
        """The range's end."""
        return self.until

    def take(self, offset: int, message: Message | None) -> None:
        """Add the offset of a record."""
        if offset > self.until:
            self.hidden = self.at, offset
        self.at = offset + 1
        self.done = message is None or self.at >= self.until
        if message is None or offset >= self.until:
            return
        if self.ranges and self.ranges[-1][1] == offset:
            self.ranges[-1] = (self.ranges[-1][0], offset + 1)
        else:
            self.ranges.append((offset, offset + 1))

    @property
    def offsets(self) -> Offsets:
        """The offsets as a set."""
        return Offsets(self.ranges)


@dataclass(slots=True, kw_only=True)
class Contents:
    """The first visible records up to `until`, with key and value; at most `rows`, or about `bytes`.

    `ended` is set if there are no more. The log was readable up to `known`.
    """

    at: int
    until: int
    rows: int
    bytes: int
    headers: bool
    known: int
    records: list[FullRecord] = field(default_factory=list)
    done: bool = False
    ended: bool = False

    def take(self, offset: int, message: Message | None) -> None:
        """Take a record, and set `done` when there are enough."""
        if message is not None and offset < self.until:
            self.records.append(_full(message, offset, headers=self.headers))
            self.bytes -= self.records[-1].size
        self.at = offset + 1
        self.ended = message is None or self.at >= self.until
        self.done = self.ended or len(self.records) >= self.rows or self.bytes <= 0


def _full(message: Message, offset: int, *, headers: bool) -> FullRecord:
    kind, timestamp = message.timestamp()
    stamp = -1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp
    more = _headers(message, offset) if headers else ()
    return FullRecord(offset, stamp, message.key(), message.value(), more)


def _headers(message: Message, offset: int) -> Headers:
    try:
        return cast("Headers", tuple(_HEADERS(message) or ()))
    except (SystemError, UnicodeError):
        raise ConfigError(
            expected="the keys of headers to be UTF-8, where records are read by the second client",
            found=f"other bytes at offset {offset} of partition {message.partition()}",
            do="Leave headers out of record.kafka_columns, and run the day with --accept-contract.",
        ) from None


def _seen(message: Message, offset: int) -> SeenRecord:
    kind, timestamp = message.timestamp()
    key, value = message.key(), message.value()
    return SeenRecord(
        offset=offset,
        timestamp=-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        size=len(key or b"") + len(value or b""),
        digest=digest_of(key, value),
    )
