"""The demo's orders: three days as a shop would have produced them, with all that goes wrong there.

Relies on a seed, so that the same days give the same records.
Never uses the job's decoder, verdict rule or day bounds: it states itself what each record is.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from jobs.demo.payloads import BROKEN, ODD, Fields, instant, iso, whole

T = TypeVar("T")

PARTITIONS: Final = 4
CUSTOMERS: Final = 5_000
SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

ADDRESSES: Final = tuple(
    {"city": city, "zip": postcode}
    for city, postcode in (
        ("Amsterdam", "1012 JS"),
        ("Rotterdam", "3011 AA"),
        ("Utrecht", "3511 LN"),
        ("'s-Hertogenbosch", "5211 RV"),
        ("Groningen", "9712 HN"),
        ("Zürich", "8001"),
        ("Łódź", "90-001"),
        ("Köln", "50667"),
    )
)
TAGS: Final = ((), ("gift",), ("app", "first"), ("web",), ("b2b", "express"), ("app", "promo", "gift"))
STATUS: Final = ("new", "paid", "packed", "sent")
NOTES: Final = (
    "",
    "Please ring twice, the bell is soft.",
    'The label must say "handle with care", and the receipt goes into the box, not onto it.',
    "Leave it with the neighbours at number 12 when nobody opens; they know, and they have a dog that barks.",
    "Deliver after six in the evening, through the gate on the left of the house, behind the bicycles.",
)
TWO_HOURS_EAST: Final = ZoneInfo("Etc/GMT-2")
SHARES: Final = {
    "order": 0.933,
    "around midnight": 0.03,
    "after the last day": 0.02,
    "before the first day": 0.01,
    "late": 0.005,
    "ahead of its time": 0.002,
}
STRAYS: Final = 40
YEAR_2099: Final = 4_070_908_800 * SECOND


class Moment(NamedTuple):
    """When a record was sent, what happened when, and which clock stamped it; microseconds since 1970."""

    sent: int
    kind: str
    event_time: int
    stamp: int


class Order(NamedTuple):
    """A record to produce, and what its producer states; the last three are None where it is not valid."""

    partition: int
    key: bytes
    value: bytes | None
    kind: str
    stamp_ms: int
    event_time: int | None
    order_id: str | None
    amount: float | None


def demo_days(now: datetime, zone: str) -> tuple[date, date, date]:
    """Return three days that end two days before today: they are over, and Kafka takes their stamps."""
    last = now.astimezone(ZoneInfo(zone)).date() - timedelta(days=2)
    return last - timedelta(days=2), last - timedelta(days=1), last


def make_orders(days: Sequence[date], zone: str, *, count: int = 200_000, seed: int = 7) -> Iterator[Order]:
    """Yield about `count` orders of two or more consecutive days, in the order in which they were sent."""
    rng = random.Random(seed)
    midnights = [_midnight(day, zone) for day in (*days, days[-1] + timedelta(days=1))]
    moments = sorted([*_sent(rng, midnights, count), *_odd(rng, midnights), *_wrong_clock(rng, midnights)])
    for number, moment in enumerate(moments):
        yield _order(rng, number, moment)


def _midnight(day: date, zone: str) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp()) * SECOND


def _moment(rng: random.Random, kind: str, event_time: int, delay: float) -> Moment:
    # Several producers write at once: the log is in order to a second or two only.
    stamp = event_time + int(delay)
    return Moment(stamp + int(rng.uniform(0, 2 * SECOND)), kind, event_time, stamp)


def _sent(rng: random.Random, midnights: Sequence[int], count: int) -> Iterator[Moment]:
    first, last = midnights[0], midnights[-1]
    for kind in rng.choices([*SHARES], [*SHARES.values()], k=count):
        match kind:
            case "before the first day":
                yield _moment(rng, kind, int(first - rng.random() * 3 * DAY), _delay(rng, DAY))
            case "after the last day":
                yield _moment(rng, kind, int(last + rng.random() * 3 * HOUR), _delay(rng, MINUTE))
            case "around midnight":
                near = rng.choice(midnights[1:]) + rng.uniform(-10, 10) * MINUTE
                yield _moment(rng, kind, int(near), rng.random() * 8 * MINUTE)
            case "late":
                at = _within(rng, first, last - DAY)
                yield _moment(rng, kind, at, rng.uniform(2 * HOUR, last + HOUR - at))
            case "ahead of its time":
                yield _moment(rng, kind, _within(rng, first, last), -rng.uniform(0.1, 23.9) * HOUR)
            case _:
                yield _moment(rng, kind, _within(rng, first, last), _delay(rng, 30 * SECOND))


def _within(rng: random.Random, from_: int, until: int) -> int:
    """Draw an instant: few at night, most in the afternoon."""
    day = from_ + rng.randrange(max(1, round((until - from_) / DAY))) * DAY
    busy = rng.betavariate(4, 2.5) if rng.random() < 0.8 else rng.random()
    return min(day + int(busy * DAY), until - 1)


def _delay(rng: random.Random, slowest: int) -> float:
    return rng.uniform(0.05, 2) * SECOND if rng.random() < 0.9 else rng.random() * slowest


def _odd(rng: random.Random, midnights: Sequence[int]) -> Iterator[Moment]:
    for start, end in pairwise(midnights):
        for kind in (*BROKEN, *ODD) * 2:
            yield _moment(rng, kind, rng.randrange(start, end), SECOND)
        # A decoder that rounds puts this one into the next day.
        yield _moment(rng, "nanoseconds", end - 1, 2 * SECOND)


def _wrong_clock(rng: random.Random, midnights: Sequence[int]) -> Iterator[Moment]:
    """Yield records of a producer that stamps a day ahead for a while on the second day, and one of 2099."""
    start = midnights[1] + 14 * HOUR
    for _ in range(STRAYS):
        at = start + rng.randrange(20 * MINUTE)
        yield Moment(at + SECOND, "wrong clock", at, at + 26 * HOUR)
    yield Moment(start, "stamped 2099", start - SECOND, YEAR_2099)


def _pick(rng: random.Random, choices: Sequence[T]) -> T:
    return choices[int(rng.random() * len(choices))]  # five times as fast as rng.choice


def _order(rng: random.Random, number: int, moment: Moment) -> Order:
    customer = int(rng.random() * CUSTOMERS)
    key = f"c-{customer:05d}"
    # Times are written to the millisecond, so what is stated of them is cut likewise.
    at = moment.event_time // 1000 * 1000
    order_id, amount = f"o-{number:09d}", int(rng.random() * 50_000) / 100
    fields: Fields = {
        "order_id": order_id,
        "customer": key,
        "amount": amount,
        "items": 1 + int(rng.random() * 11),
        "tags": _pick(rng, TAGS),
        "address": _pick(rng, ADDRESSES),
        "status": _pick(rng, STATUS),
        "note": _pick(rng, NOTES),
        "created_at": iso(at),
    }
    stamp_ms = moment.stamp // 1000
    said = (customer % PARTITIONS, key.encode())
    if broken := BROKEN.get(moment.kind):
        return Order(*said, broken(fields, at), moment.kind, stamp_ms, None, None, None)
    if moment.kind == "stamped 2099":
        return Order(*said, whole(fields), moment.kind, stamp_ms, None, None, None)
    value = odd(fields, at) if (odd := ODD.get(moment.kind)) else whole(_varied(rng, fields, at))
    event_time = at + 999 if moment.kind == "nanoseconds" else at
    return Order(*said, value, moment.kind, stamp_ms, event_time, order_id, amount)


def _varied(rng: random.Random, fields: Fields, at: int) -> Fields:
    """Write some event times with an offset, and leave some fields out."""
    if rng.random() < 0.2:
        fields["created_at"] = instant(at).astimezone(TWO_HOURS_EAST).isoformat(timespec="microseconds")
    if rng.random() < 0.1:
        del fields[rng.choice(("tags", "address", "status", "note"))]
    return fields
