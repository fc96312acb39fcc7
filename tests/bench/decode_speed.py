"""Measure what decoding costs: `python -m tests.bench.decode_speed`.

Relies on nothing but the decoder: 9 columns, about 320 bytes a record, one core, the best of several rounds.
Never asserts: msgspec alone is measured in the same rounds, since a busy machine slows both.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa

from jobs.record.columns import Column, parse_type
from jobs.record.decode import Decoder
from jobs.record.formats.json.payload import Payloads
from jobs.record.rules import EventTimeRule, RecordFormat, Rules, Tombstones
from jobs.record.time_format import TimeFormat

RECORDS, BATCH, ROUNDS = 40_000, 10_000, 15
Way = Callable[[pa.BinaryArray], object]
TYPES = {
    "order_id": "string",
    "amount": "double",
    "items": "bigint",
    "tags": "array<string>",
    "address": "struct<city:string,zip:string>",
    "created_at": "string",
    "customer": "string",
    "status": "string",
    "note": "string",
}
COLUMNS = tuple(Column(name, parse_type(text)) for name, text in TYPES.items())


def payload(dice: random.Random, number: int) -> bytes:
    """Make one order."""
    order = {
        "order_id": f"o-{number:012d}",
        "created_at": f"2026-11-{dice.randint(1, 28):02d}T10:07:{number % 60:02d}.{number:06d}Z",
        "customer": f"customer-{dice.randint(1, 99_999):05d}",
        "amount": round(dice.random() * 1000, 2),
        "items": dice.randint(1, 20),
        "tags": ["new", "eu", "web"][: dice.randint(1, 3)],
        "address": {"city": "Amsterdam", "zip": "1012 AB"},
        "status": "shipped",
        "note": "x" * dice.randint(60, 90),
    }
    return json.dumps(order).encode()


def rules() -> Rules:
    """Give the rules of an ordinary topic."""
    return Rules(
        format=RecordFormat.JSON,
        columns=COLUMNS,
        kafka_columns=frozenset(),
        event_time=EventTimeRule(path=("created_at",), format=TimeFormat.ISO8601, zone="UTC"),
        past=timedelta(days=30),
        future=timedelta(days=1),
        tombstones=Tombstones.QUARANTINE,
    )


def best(
    batches: list[pa.BinaryArray], ways: dict[str, Callable[[pa.BinaryArray], object]]
) -> dict[str, float]:
    """Give each way's best round in microseconds of processor time a record, the ways taken in turns."""
    found = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, way in ways.items():
            start = time.process_time()
            for batch in batches:
                way(batch)
            found[name] = min(found[name], (time.process_time() - start) / RECORDS * 1e6)
    return found


def main() -> None:
    """Print the cost of msgspec alone and of the decoder."""
    dice = random.Random(1)
    records = [payload(dice, number) for number in range(RECORDS)]
    batches = [pa.array(records[at : at + BATCH], pa.binary()) for at in range(0, RECORDS, BATCH)]
    stamps = pa.nulls(BATCH, pa.timestamp("us", "UTC"))
    decoder, payloads = Decoder(rules()), Payloads(COLUMNS)
    print(f"{sum(map(len, records)) / RECORDS:.0f} bytes a record")
    gc.disable()
    ways: dict[str, Way] = {
        "rows alone (checks and msgspec)": lambda batch: deque(payloads.read(batch), maxlen=0),
        "decoder": lambda batch: decoder.decode(batch, stamps),
    }
    for name, micros in best(batches, ways).items():
        print(f"{name:32s} {micros:.2f} us a record")


if __name__ == "__main__":
    main()
