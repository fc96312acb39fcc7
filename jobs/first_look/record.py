"""Read the one record at an offset, or explain why none is there.

Relies on a TopicReader. Changes nothing, and never waits for a record to come.
"""

from __future__ import annotations

from offsets.day_plan import LogOffsets
from offsets.errors import BrokerBehind, ConfigError
from offsets.kafka.offset_lookup import last_before
from offsets.kafka.reader import FullRecord, Stretch, TopicReader, look_together


def read_record(reader: TopicReader, topic: str, partition: int, offset: int) -> FullRecord:
    """Return the record at an offset, with its headers where they can be read.

    Raises:
        ConfigError: the topic has no such partition, or holds no record there.
        BrokerBehind: an open transaction hides the offset.
    """
    log = _log(reader, topic, partition, offset)
    if log.last_stable <= offset < log.high:
        raise BrokerBehind(
            expected=f"offset {offset} of partition {partition} to be readable",
            found=f"an open transaction from offset {log.last_stable} on, which may still be aborted",
            do="Run the same command again once that transaction has ended.",
        )
    if not log.log_start <= offset < log.high:
        raise _outside(reader, topic, log, offset)
    try:
        records = [*reader.stream(topic, partition, offset, offset + 1, headers=True)]
    except ConfigError:  # a header's key is no UTF-8, and the record is worth showing without it
        records = [*reader.stream(topic, partition, offset, offset + 1)]
    if not records:
        raise ConfigError(
            expected=f"a record at offset {offset} of partition {partition}",
            found="a gap: a transaction's marker, or an aborted or a compacted record",
            do=_advice(reader, topic, log, offset),
        )
    return records[0]


def _log(reader: TopicReader, topic: str, partition: int, offset: int) -> LogOffsets:
    partitions = reader.describe(topic).partitions
    if partition in partitions:
        return reader.log_offsets(topic, [partition])[partition]
    raise ConfigError(
        expected=f"a partition of {topic}, {partitions[0]} to {partitions[-1]}",
        found=f"{partition}",
        do=f"Name one of them, such as `show {partitions[0]}:{offset}`.",
    )


def _outside(reader: TopicReader, topic: str, log: LogOffsets, offset: int) -> ConfigError:
    part = log.partition
    held = f"{log.log_start} to {log.high - 1}" if log.log_start < log.high else "none by now"
    settled = f"where kafka_partition = {part} and kafka_offset = {offset}"
    gone = offset < log.log_start
    return ConfigError(
        expected=f"an offset that partition {part} of {topic} holds ({held})",
        found=f"{offset}, which " + ("retention (or a deletion) took" if gone else "is not written yet"),
        do=_advice(reader, topic, log, offset)
        + (f" What a day settled is in the lake, {settled}." if gone else ""),
    )


def _advice(reader: TopicReader, topic: str, log: LogOffsets, offset: int) -> str:
    """Return which record can be shown: the next one, else the newest."""
    part, stable = log.partition, log.last_stable
    from_ = max(offset, log.log_start)
    if from_ < stable and (
        following := reader.records_of(topic, {part: Stretch(from_=from_, until=stable, limit=1)})[part]
    ):
        return f"The next record is `show {part}:{following[0].offset}`."
    newest = look_together(reader, topic, {part: last_before(log, stable)})[part]
    return f"The newest is `show {part}:{newest.offset}`." if newest else "Name another partition."
