"""One topic twice: for the product and for the reference; every change is made to both.

Relies on `MemoryTopic`, which answers as a broker does. Never lets the two differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time
from typing import Final

from tests import reference
from tests.faults.scripts import SHIFTS, STAMPS, Arrival
from tests.reference import Coordinate, micros
from tests.support import memory_topic
from tests.support.local_engine import order

WALL_CLOCK: Final = datetime(2026, 12, 1, tzinfo=UTC)
HOUR: Final = 3_600_000_000
FAR: Final = 100 * HOUR


class TwinTopic:
    """A topic of two partitions, and what was produced to it: value and event time by coordinate."""

    def __init__(self, *, compacted: bool) -> None:
        """Start empty."""
        self.memory = memory_topic.MemoryTopic(2, cleanup_policy="compact" if compacted else "delete")
        self.known = reference.Topic(
            compacted, {number: reference.Partition() for number in self.memory.logs}
        )
        self.produced: dict[Coordinate, tuple[bytes | None, int | None]] = {}
        self._open: list[tuple[memory_topic.Transaction, reference.Transaction, int]] = []

    def produce(self, day: date, arrival: Arrival) -> None:
        """Produce the record of an arrival."""
        number = arrival.partition % len(self.known.partitions)
        arrived = micros(datetime.combine(day, time(arrival.hour), UTC))
        stamped = arrived + STAMPS.get(arrival.kind, 0) * HOUR
        near = arrived if abs(stamped - arrived) > FAR else stamped
        event_time = near + SHIFTS.get(arrival.kind, 0) * HOUR + arrival.micros
        record = reference.Record(
            stamp=None if arrival.kind == "no stamp" else stamped // 1000,
            event_time=None if arrival.kind in ("broken", "tombstone") else event_time,
            tombstone=arrival.kind == "tombstone",
            number=arrival.kind != "text",
            transaction=reference.Transaction() if arrival.ending else None,
        )
        value = _value(arrival.kind, number, self.known.partitions[number].high, event_time)
        self._append(number, value, record, arrival.ending, arrived // 1000)

    def _append(
        self, number: int, value: bytes | None, record: reference.Record, ending: str, arrived: int
    ) -> None:
        ours = memory_topic.Transaction() if ending else None
        stamp = memory_topic.NO_TIMESTAMP if record.stamp is None else record.stamp
        self.memory.produce(number, value, stamp, transaction=ours)
        at = self.known.partitions[number].append(record)
        self.produced[number, at] = value, record.event_time
        if ours is None or record.transaction is None:
            return
        if ending == "open":
            self._open.append((ours, record.transaction, number))
        else:
            far = ending == "marker far ahead"
            clock = micros(WALL_CLOCK) // 1000 if far else arrived
            self._end(ours, record.transaction, number, commit=ending != "abort", clock=clock)

    def _end(
        self,
        ours: memory_topic.Transaction,
        known: reference.Transaction,
        number: int,
        *,
        commit: bool,
        clock: int,
    ) -> None:
        self.memory.end(ours, commit=commit, at=clock)
        known.committed = commit
        self.known.partitions[number].append(reference.Record(clock, marker=True))

    def end_open(self, day: date) -> None:
        """End all open transactions, every second one by an abort."""
        clock = micros(datetime.combine(day, time(23), UTC)) // 1000
        for number, (ours, known, partition) in enumerate(self._open):
            self._end(ours, known, partition, commit=number % 2 == 0, clock=clock)
        self._open.clear()

    def add_partition(self) -> None:
        """Add an empty partition."""
        self.memory.add_partitions(1)
        self.known.partitions[len(self.known.partitions)] = reference.Partition()

    def retain_from(self, number: int, log_start: int) -> None:
        """Let retention take all below an offset."""
        log_start = min(log_start, self.known.partitions[number].high)
        self.memory.retain_from(number, log_start)
        self.known.partitions[number].retain_from(log_start)

    def forget(self, number: int, offsets: Iterable[int]) -> None:
        """Take records from inside a log, as compaction does."""
        for at in offsets:
            self.known.partitions[number].records.pop(at, None)
        self.memory.compact(number, offsets)

    # -- changes that no run may accept

    @contextmanager
    def broken(self, kind: str, number: int, lake: reference.Lake) -> Iterator[None]:
        """Change the topic in a way that no run may accept, and undo it at the end."""
        logs, life, known = self.memory.logs, self.memory.generation, self.known
        self.memory.logs = {
            part: memory_topic.Log(list(log.records), log.log_start, log.high) for part, log in logs.items()
        }
        self.known = known.copy()
        self._break(kind, number, lake)
        try:
            yield
        finally:
            self.memory.logs, self.memory.generation, self.known = logs, life, known

    def _break(self, kind: str, number: int, lake: reference.Lake) -> None:
        log, seen = self.known.partitions[number], lake.seen_until.get(number, 0)
        match kind:
            case "truncate":
                to = max(log.log_start, seen - 2)
                self.memory.truncate(number, to)
                log.truncate(to)
                self._fill(number, seen + 1)
            case "recreate":
                self.memory.recreate(len(self.memory.logs))
                self.known.partitions = {part: reference.Partition() for part in self.memory.logs}
                self.known.life += 1
                self._fill(number, seen + 1)
            case "other anchor":
                at, _ = lake.last.get(number, (None, None))
                if at in log.records:
                    log.records[at] = reference.Record(0)
                    records = self.memory.logs[number].records
                    place = next(index for index, record in enumerate(records) if record.offset == at)
                    records[place] = replace(records[place], value=b"another")
            case "forget pending":
                self.forget(number, lake.pending(number)[:1])
            case _:
                raise ValueError(f"no way to break a topic: {kind}")

    def _fill(self, number: int, high: int) -> None:
        while self.known.partitions[number].high < high:
            self.memory.produce(number, b"refilled", 0)
            self.known.partitions[number].append(reference.Record(0))


def _value(kind: str, number: int, at: int, event_time: int) -> bytes | None:
    """Make a payload that names its coordinate."""
    value = order(event_time, id=f"{number}-{at}")
    match kind:
        case "tombstone":
            return None
        case "broken":
            return b"[%d, %d]" % (number, at)
        case "text":
            return value.replace(b'"n":0', b'"n":"0"')
        case _:
            return value
