"""Sends records to Kafka exactly as a test wants them, and returns their offsets.

Relies on delivery reports: only the broker's answer holds an offset. Never sends a record twice.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from confluent_kafka import KafkaError, Message, Producer

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMEOUT = 60.0


def ms(instant: datetime) -> int:
    """Count the milliseconds since 1970, as Kafka stamps records."""
    return (instant - EPOCH) // timedelta(milliseconds=1)


class Record(NamedTuple):
    """One record to send; `stamp` is Kafka's timestamp in milliseconds."""

    partition: int
    value: bytes | None
    stamp: int
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def order(at: datetime, partition: int = 0, *, stamp: datetime | None = None, **fields: object) -> Record:
    """Make a record of an order with an event time; `stamp` is the same unless it is given."""
    body = {"id": "o", "n": 1} | fields | {"at": at.isoformat().replace("+00:00", "Z")}
    return Record(partition, json.dumps(body).encode(), ms(stamp or at))


def every(step: timedelta, from_: datetime, count: int, partition: int = 0) -> list[Record]:
    """Make orders at regular instants."""
    return [order(from_ + step * number, partition, n=number) for number in range(count)]


def send(
    servers: str, topic: str, records: Sequence[Record], client: Mapping[str, str] | None = None
) -> list[int]:
    """Send records and return the offset of each; `client` are more of the client's properties."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "linger.ms": 20,
            "log_level": 0,
            "message.max.bytes": 1_048_588,
            **(client or {}),
        }
    )
    return _sent(producer, topic, records)


class Transactions:
    """A transactional producer for one topic; every step returns the offsets of its records."""

    def __init__(self, servers: str, topic: str, client: Mapping[str, str] | None = None) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": f"test-{uuid.uuid4().hex}",
                "linger.ms": 5,
                "log_level": 0,
                **(client or {}),
            }
        )
        self._producer.init_transactions(TIMEOUT)

    def begin(self, records: Sequence[Record]) -> list[int]:
        """Send records in a transaction that stays open."""
        self._producer.begin_transaction()
        return _sent(self._producer, self._topic, records)

    def commit(self, records: Sequence[Record]) -> list[int]:
        """Send records in a transaction of their own."""
        offsets = self.begin(records)
        self.commit_open()
        return offsets

    def abort(self, records: Sequence[Record]) -> list[int]:
        """Send records in a transaction, and abort it; their offsets stay taken."""
        offsets = self.begin(records)
        self.abort_open()
        return offsets

    def commit_open(self) -> None:
        self._producer.commit_transaction(TIMEOUT)

    def abort_open(self) -> None:
        self._producer.abort_transaction(TIMEOUT)


def _sent(producer: Producer, topic: str, records: Iterable[Record]) -> list[int]:
    offsets: dict[int, int] = {}
    failed: list[KafkaError] = []
    count = 0
    for count, record in enumerate(records, start=1):
        report = partial(_delivered, offsets, failed, count - 1)
        while True:
            try:
                producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=report,
                    timestamp=record.stamp,
                    headers=list(record.headers),
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(TIMEOUT) == 0
    assert not failed, failed[0].str()
    return [offsets[number] for number in range(count)]


def _delivered(
    offsets: dict[int, int], failed: list[KafkaError], number: int, error: KafkaError | None, message: Message
) -> None:
    offset = message.offset()
    if error is not None or offset is None:
        failed.append(error or KafkaError(KafkaError._NO_OFFSET))
    else:
        offsets[number] = offset
