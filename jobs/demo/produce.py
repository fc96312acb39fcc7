"""Put orders into Kafka and note where each of them lies.

Relies on delivery reports: an offset is known only once the broker has said it.
Never sends a record twice: the producer is idempotent, and any refused record ends it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.demo.orders import PARTITIONS, Order
from jobs.demo.produced import Produced

TIMEOUT: Final = 30.0
PROGRESS_EVERY: Final = 2_000


def create_topic(bootstrap_servers: str, topic: str, *, partitions: int = PARTITIONS) -> None:
    """Create the topic so that it keeps stamps of the past and takes stamps of the future."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})
    settings = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
    wanted = NewTopic(topic, partitions, 1, config=settings)
    for created in admin.create_topics([wanted], request_timeout=TIMEOUT).values():
        created.result(TIMEOUT)


def produce(
    bootstrap_servers: str, topic: str, orders: Iterable[Order], *, on_progress: Callable[[int], None]
) -> list[Produced]:
    """Send the orders and return what lies where, by partition and offset.

    `on_progress` is called with how many were sent so far.

    Raises:
        KafkaException: a record was refused.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 50,
            "compression.type": "lz4",
            # A fresh broker refuses the first request for a producer id: no news for a user.
            "log_level": 3,
            "message.max.bytes": 1_048_588,
        }
    )
    truth: list[Produced] = []
    failed: list[KafkaError] = []
    sent = 0
    for sent, order in enumerate(orders, start=1):
        _send(producer, topic, order, partial(_delivered, truth, failed, order))
        if sent % PROGRESS_EVERY == 0:
            on_progress(sent)
    left = producer.flush(TIMEOUT)
    if failed or left:
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
    on_progress(sent)
    return sorted(truth)


def _send(
    producer: Producer, topic: str, order: Order, delivered: Callable[[KafkaError | None, Message], None]
) -> None:
    while True:
        try:
            producer.produce(
                topic,
                key=order.key,
                value=order.value,
                partition=order.partition,
                timestamp=order.stamp_ms,
                on_delivery=delivered,
            )
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def _delivered(
    truth: list[Produced], failed: list[KafkaError], order: Order, error: KafkaError | None, message: Message
) -> None:
    offset = message.offset()
    if error is not None or offset is None:
        failed.append(error or KafkaError(KafkaError._NO_OFFSET))
        return
    truth.append(
        Produced(
            partition=order.partition,
            offset=offset,
            kind=order.kind,
            valid=order.event_time is not None,
            kafka_timestamp=order.stamp_ms * 1000,
            event_time=order.event_time,
            order_id=order.order_id,
            amount=order.amount,
            value_crc=None if order.value is None else zlib.crc32(order.value),
        )
    )
