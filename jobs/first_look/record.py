"""Read the one record at an offset, or explain why none is there.

Relies on a TopicReader. Changes nothing, and never waits for a record to come.
"""

from __future__ import annotations

from offsets.day_plan import LogOffsets
from offsets.errors import BrokerBehind, ConfigError
from offsets.kafka.reader import FullRecord, Stretch, TopicReader


def read_record(reader: TopicReader, topic: str, partition: int, offset: int) -> FullRecord:
    """Return the record at an offset, with its headers where they can be read.

    Raises:
        ConfigError: the topic has no such partition, or holds no record there.
        BrokerBehind: an open transaction hides the offset.
    """
    ends = require_offset(reader, topic, partition, offset)
    try:
        records = [*reader.stream(topic, partition, offset, offset + 1, headers=True)]
    except ConfigError:  # a header's key is no UTF-8, and the record is worth showing without it
        records = [*reader.stream(topic, partition, offset, offset + 1)]
    if records:
        return records[0]
    following = reader.records_of(topic, {partition: Stretch(from_=offset, until=ends.last_stable, limit=1)})[
        partition
    ]
    raise _nothing_there(
        partition,
        f"a record at offset {offset}",
        "none: it is a transaction's marker, or an aborted or a compacted record (a gap)",
        f"The next record is `show {partition}:{following[0].offset}`."
        if following
        else "No record follows it; name a lower offset.",
    )


def require_offset(reader: TopicReader, topic: str, partition: int, offset: int) -> LogOffsets:
    """Check that a log holds an offset, and return the log's offsets.

    Raises:
        ConfigError: the topic has no such partition, or the offset lies outside its log.
        BrokerBehind: an open transaction hides the offset.
    """
    partitions = reader.describe(topic).partitions
    if partition not in partitions:
        raise ConfigError(
            expected=f"a partition of {topic}, {partitions[0]} to {partitions[-1]}",
            found=f"{partition}",
            do=f"Name one of them, such as `show {partitions[0]}:{offset}`.",
        )
    ends = reader.log_offsets(topic, [partition])[partition]
    held = f"an offset that partition {partition} holds, {ends.log_start} to {ends.high - 1}"
    if ends.log_start == ends.high:
        raise _nothing_there(
            partition, f"partition {partition} to hold a record", "none", "Name another partition."
        )
    if offset < ends.log_start:
        raise _nothing_there(
            partition,
            held,
            f"{offset}, which retention (or a deletion) took",
            f"The oldest that is left is `show {partition}:{ends.log_start}`; what a day settled is in the "
            f"lake, where kafka_partition = {partition} and kafka_offset = {offset}.",
        )
    if offset >= ends.high:
        raise _nothing_there(
            partition,
            held,
            f"{offset}, which is not written yet",
            f"The newest is `show {partition}:{ends.high - 1}`.",
        )
    if offset >= ends.last_stable:
        raise BrokerBehind(
            expected=f"offset {offset} of partition {partition} to be readable",
            found=f"an open transaction from offset {ends.last_stable} on, which may still be aborted",
            do="Run the same command again once that transaction has ended.",
        )
    return ends


def _nothing_there(partition: int, expected: str, found: str, do: str) -> ConfigError:
    return ConfigError(expected=expected, found=found, do=do, partition=partition)
