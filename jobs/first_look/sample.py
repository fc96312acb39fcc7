"""Read a sample of a topic: some records at each log's start, and more at places over the whole of it.

Relies on the second client. Bounded in records, bytes and time, however large the topic is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from offsets.day_plan import LogOffsets
from offsets.errors import ConfigError
from offsets.kafka.reader import FullRecord, TopicReader

RECORDS: Final = 4_000
"""About how many records are read."""
BYTES: Final = 32 << 20
"""About how many bytes are read."""
PLACES: Final = 40
"""At how many places of the topic, beside the start of each log."""
SECONDS: Final = 20.0
"""After this time no further place is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSample:
    """The records read, each with its partition; `oldest` are Kafka's timestamps (ms) at log starts above 0.

    What lies before such a start was deleted.
    """

    records: tuple[tuple[int, FullRecord], ...]
    oldest: tuple[int, ...]


def read_sample(reader: TopicReader, topic: str) -> TopicSample:
    """Return a sample of a topic's records.

    Raises:
        ConfigError: the topic does not exist, or holds no record that can be read.
    """
    ends = reader.log_offsets(topic, reader.describe(topic).partitions)
    found: dict[tuple[int, int], FullRecord] = {}
    started = time.monotonic()
    chosen = [*_places(ends)]
    for partition, from_, until in chosen:
        for record in reader.sample(topic, partition, from_, until, BYTES // len(chosen)):
            found[partition, record.offset] = record
        if time.monotonic() - started > SECONDS:
            break
    if not found:
        raise ConfigError(
            expected=f"topic {topic} to hold records, from which a configuration can be proposed",
            found="none that can be read",
            do="Produce some, or copy conf/example.yaml and write the configuration by hand.",
        )
    return TopicSample(
        records=tuple((partition, found[partition, offset]) for partition, offset in sorted(found)),
        oldest=tuple(
            min(record.timestamp for (part, _), record in found.items() if part == partition)
            for partition, log in ends.items()
            if log.log_start > 0 and any(part == partition for part, _ in found)
        ),
    )


def _places(ends: Mapping[int, LogOffsets]) -> Iterator[tuple[int, int, int]]:
    """Yield ranges: the first records of each partition, then equal shares of all logs."""
    logs = [log for log in ends.values() if log.last_stable > log.log_start]
    total = sum(log.last_stable - log.log_start for log in logs)
    rows = max(RECORDS // (2 * max(len(logs), 1)), 10)
    for log in logs:
        yield log.partition, log.log_start, min(log.log_start + rows, log.last_stable)
    rows = RECORDS // (2 * PLACES)
    for number in range(PLACES):
        rank = total * (number + 1) // (PLACES + 1)
        for log in logs:
            length = log.last_stable - log.log_start
            if rank < length:
                at = log.log_start + max(min(rank, length - rows), 0)
                yield log.partition, at, min(at + rows, log.last_stable)
                break
            rank -= length
