"""Retention by hand: records deleted before an offset."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient


def delete_before(admin: AdminClient, name: str, partition: int, offset: int) -> None:
    """Move the log's start, as retention would."""
    asked = admin.delete_records([TopicPartition(name, partition, offset)])
    assert [future.result(30).low_watermark for future in asked.values()] == [offset]
