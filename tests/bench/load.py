"""Fills a topic for the bench: days of 2 M JSON orders of about 324 B over 4 partitions.

Event times are spread evenly over each day and stamped as produced a little later; one record in 10,000 is
broken, a hundred of each later day happened the day before.
Ids and traces do not compress, as real ones do not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import count
from typing import NamedTuple
from zoneinfo import ZoneInfo

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

PARTITIONS = 4
BROKEN_EVERY = 10_000
LATE = 100
BROKEN = (
    b"",
    b"null",
    b'{"order_id":"cut',
    b'{"order_id":7}',
    b'{"order_id":"o","note":"caf\xe9"}',
    b'{"order_id":"no time"}',
)
ORDER = (
    b'{"order_id":"%016x%016x","customer":"c-%07d","amount":%d.%02d,"items":%d,"paid":%s,"tags":["%s","web"],'
    b'"address":{"city":"%s","zip":"%04d AB"},"status":"%s",'
    b'"note":"Leave it with the neighbours at number %d, trace %016x%016x",'
    b'"created_at":"%s.%03dZ"}'
)
TAGS = (b"gift", b"express", b"promo", b"first")
CITIES = (b"Amsterdam", b"Rotterdam", b"Utrecht", b"Groningen", b"Maastricht")
STATUS = (b"new", b"paid", b"packed", b"sent")


class Sent(NamedTuple):
    """One record to send."""

    partition: int
    key: bytes
    value: bytes
    stamp_ms: int


def records(day: date, zone: str, per_day: int, first_number: int) -> Iterator[Sent]:
    """Make one day's records in the order of their event times."""
    start = _midnight_ms(day, zone)
    length = _midnight_ms(day + timedelta(days=1), zone) - start
    late_every = per_day // LATE
    second, text = -1, b""
    for number in range(per_day):
        at = start + number * length // per_day
        if at // 1000 != second:
            second = at // 1000
            text = datetime.fromtimestamp(second, ZoneInfo("UTC")).strftime("%Y-%m-%dT%H:%M:%S").encode()
        mixed = (first_number + number) * 2_654_435_761 % 4_294_967_291
        noise = (first_number + number + 1) * 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835 % 2**128
        noise ^= noise >> 61
        customer = mixed % 1_000_000
        when = text
        if first_number and number % late_every == 7:
            when = (datetime.fromtimestamp(second, ZoneInfo("UTC")) - timedelta(days=1)).strftime(
                "%Y-%m-%dT%H:%M:%S"
            ).encode()  # fmt: skip
        value = ORDER % (
            noise >> 64,
            noise % 2**64,
            customer,
            mixed % 900,
            mixed % 100,
            mixed % 11 + 1,
            b"true" if mixed % 3 else b"false",
            TAGS[mixed % 4],
            CITIES[mixed % 5],
            mixed % 9000 + 1000,
            STATUS[mixed % 4],
            mixed % 500,
            (noise >> 32) * mixed % 2**64,
            noise * mixed % 2**64,
            when,
            at % 1000,
        )
        if number % BROKEN_EVERY == 11:
            value = BROKEN[number // BROKEN_EVERY % len(BROKEN)]
        yield Sent(customer % PARTITIONS, b"c-%07d" % customer, value, at + mixed % 3000)


def load(
    bootstrap_servers: str, topic: str, days: Sequence[date], zone: str, *, per_day: int, compression: str
) -> int:
    """Create the topic, send all days and give how many records were sent."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for created in admin.create_topics(
        [NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})]
    ).values():
        created.result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": 1,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "batch.num.messages": 10_000,
            "compression.type": compression,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 524_288,
        }
    )
    numbers = count(0, per_day)
    for day in days:
        for record in records(day, zone, per_day, next(numbers)):
            _send(producer, topic, record)
    if producer.flush(60):
        raise KafkaException("not all records were delivered")
    return per_day * len(days)


def _send(producer: Producer, topic: str, record: Sent) -> None:
    while True:
        try:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp=record.stamp_ms,
            )
            return
        except BufferError:
            producer.poll(0.1)


def _midnight_ms(day: date, zone: str) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp()) * 1000


def main() -> None:
    """Load from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="bench")
    parser.add_argument("--first", type=date.fromisoformat, required=True)
    parser.add_argument("--days", type=int, default=2)
    parser.add_argument("--zone", default="Europe/Amsterdam")
    parser.add_argument("--per-day", type=int, default=2_000_000)
    parser.add_argument("--compression", default="lz4")
    given = parser.parse_args()
    days = [given.first + timedelta(days=number) for number in range(given.days)]
    started = time.monotonic()
    sent = load(
        given.bootstrap_servers,
        given.topic,
        days,
        given.zone,
        per_day=given.per_day,
        compression=given.compression,
    )
    print(f"{sent:,} records in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
