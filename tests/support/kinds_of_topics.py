"""Seven kinds of topics as teams have them, on a topic in memory, each with a few broken records."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from offsets.instants import micros, millis
from tests.support.memory_topic import MemoryTopic

START = datetime(2026, 5, 1, 0, 10, tzinfo=UTC)
DAYS = 3
RECORDS = 4_500
KAFKA = {"bootstrap_servers": "localhost:9092"}
BROKEN = 7
"""This many records of each topic are no JSON."""


def iso(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def order(rng: random.Random, at: datetime, number: int) -> dict[str, Any]:
    made: dict[str, Any] = {
        "order_id": f"o-{number:09}",
        "customer": f"c-{rng.randrange(5000):05}",
        "amount": round(rng.lognormvariate(3, 1), 2) if number % 9 else rng.randrange(100),
        "currency": rng.choice(["EUR", "USD"]),
        "items": [
            {"sku": f"s{rng.randrange(99)}", "quantity": rng.randrange(1, 9), "price": rng.random() * 50}
            for _ in range(rng.randrange(4))
        ],
        "paid": rng.random() < 0.8,
        "coupon": None if rng.random() < 0.9 else "SPRING",
        "address": {"city": "Zürich", "zip": f"{rng.randrange(99999):05}"} if rng.random() < 0.95 else None,
        "delivery_day": f"2026-06-{rng.randrange(1, 29):02}",
        "created_at": iso(at),
    }
    if number % 400 == 0:
        made["gift note"] = "for `you`: it's #1"
    return made


def reading(rng: random.Random, at: datetime, number: int) -> dict[str, Any]:
    return {
        "device": {"id": f"d{rng.randrange(300)}", "firmware": "1.2.3", "location": {"lat": 52.1, "lon": 4}},
        "measured": {"epoch_ms": millis(at), "sequence": number},
        "values": {"temperature": round(rng.gauss(20, 5), 1), "humidity": rng.randrange(100)},
        "samples": [[rng.randrange(9), rng.random()] for _ in range(rng.randrange(3))],
        "alarms": [],
        "uptime_ms": number * 1000,
        "serial": 2**63 + number,
    }


def click(rng: random.Random, at: datetime, number: int) -> dict[str, Any]:
    keys = rng.sample(range(400), rng.randrange(1, 12))
    return {
        "type": rng.choice(["view", "click", "search"]),
        "date": at.date().isoformat(),
        "eventTime": iso(at),
        "user": {"anonymousId": str(UUID(int=rng.getrandbits(128))), "userId": None},
        "properties": {f"exp-{key}": rng.choice(["a", "b", 7, True]) for key in keys},
        "counters": {f"${{c{key}}}": key for key in keys},
        "url": "https://example.org/?q=1#x",
        "ip": "10.0.0.1",
        "IP": "10.0.0.1",
        "context": [] if number % 3 else {"page": 1},
    }


def transfer(rng: random.Random, at: datetime, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "iban": f"NL{rng.randrange(10**14):014}",
        "amount": f"{rng.randrange(10**9)}.{rng.randrange(100):02}",
        "fee": "0.10",
        "account": f"{rng.randrange(10**10)}",
        "bookedAt": iso(at).replace("Z", "+00:00"),
        "valueDate": at.date().isoformat(),
        "rate": None if number % 50 else "1.0832",
        "kafka_source": "core",
    }


def change(rng: random.Random, at: datetime, number: int) -> dict[str, Any]:
    row = {"id": number % 700, "name": "x", "price": round(rng.random(), 3), "updated": micros(at)}
    operation = rng.choice("cuud")
    return {
        "before": None if operation == "c" else row,
        "after": None if operation == "d" else row,
        "source": {"version": "2.7", "connector": "postgresql", "ts_ms": millis(at), "lsn": number * 10**6},
        "op": operation,
        "ts_ms": millis(at) + 120,
        "ts_us": micros(at) + 120_000,
        "ts_ns": micros(at) * 1000 + 120_000_000,
        "transaction": None,
    }


def connected(rng: random.Random, at: datetime, number: int) -> dict[str, Any]:
    """Make a change as Kafka Connect's JSON converter writes it, with its schema in each record."""
    fields = [{"type": "int64", "optional": False, "field": name} for name in ("before", "after", "ts_ms")]
    return {"schema": {"type": "struct", "fields": fields}, "payload": change(rng, at, number)}


def awkward(rng: random.Random, at: datetime, number: int) -> dict[str, Any]:
    """Make a record with names and values on which schemas break; most of them are rare, or begin late."""
    made: dict[str, Any] = {
        "order.id": 2**53 + number,
        "Order Date": at.date().isoformat(),
        "date": at.date().isoformat(),
        "event_time": iso(at) if number % 40 else iso(at).rstrip("Z"),
        "kafka_source": "core",
        "type": "null",
        "Total": number if number % 700 else number + 0.5,
        "total": -number,
        "large": 2**60 + number if number % 3 else 0.25,
        "nulls first": None if number < RECORDS else {"since": iso(at), "Name.First": "Zoë", "date": "soon"},
        "written": at.strftime("%Y-%m-%dT%H:%M:%S,5+0000"),
        "local": at.strftime("%Y-%m-%d %H:%M"),
        "list": [] if number % 50 else [None, {"a": number}, {"a": None, "b": [1.5]}],
        "empty": {},
    }
    if number % 1500 == 7:
        made["seldom"] = rng.choice([7, 7.5, "7", {"a": 7}, [7], True])
    if number > 2.9 * RECORDS:
        made["new"] = "2026-05-04"
    return made


KINDS: dict[str, Callable[[random.Random, datetime, int], dict[str, Any]]] = {
    "orders": order,
    "iot": reading,
    "clicks": click,
    "transfers": transfer,
    "debezium": change,
    "connect": connected,
    "awkward": awkward,
}
SIZES = {"awkward": 3 * RECORDS}
"""How many records are made where others than RECORDS: three times as many as are sampled."""


def produce(kind: str, *, records: int | None = None, seed: int = 7, seconds_late: float = 20) -> MemoryTopic:
    """Make a topic of a kind: three days, stamped a little after each event, with a few broken records."""
    rng, topic = random.Random(seed), MemoryTopic(3)
    records = records or SIZES.get(kind, RECORDS)
    step = timedelta(days=DAYS, minutes=-15) / records
    broken = set(rng.sample(range(records), BROKEN))
    for number in range(records):
        at = START + number * step
        stamp = at + timedelta(seconds=rng.uniform(0, seconds_late))
        value = json.dumps(KINDS[kind](rng, at, number), ensure_ascii=False).encode()
        topic.produce(number % 3, b"{" if number in broken else value, stamp, key=b"k%d" % number)
        if kind in ("debezium", "connect") and number % 97 == 0:
            topic.produce(number % 3, None, stamp, key=b"k%d" % number)
    return topic
