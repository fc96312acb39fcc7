"""Every odd payload through the real pipeline, in one topic and one run: kept with the right values, or set
aside with its cause; none crashes a worker, and none changes what becomes of its neighbours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from jobs.daily import run_day
from tests.support import lake as lakes
from tests.support.brokers import Broker, MakeTopic
from tests.support.engine import FIRST, MakePipeline
from tests.support.judged import midnight
from tests.support.produce import Record, ms, send

START, END = midnight(FIRST), midnight(FIRST + timedelta(days=1))
STAMP = START + timedelta(hours=12)
AT = STAMP.isoformat().replace("+00:00", "Z")
LONG = "long " * 180_000
DEEP = 100_000
FAR = {"validity": {"past": "19000d", "future": "19000d"}}

COLUMNS = {
    "id": "string",
    "n": "bigint",
    "i": "int",
    "amount": "double",
    "ratio": "float",
    "price": "decimal(10,2)",
    "flag": "boolean",
    "on": "date",
    "seen": "timestamp",
    "blob": "binary",
    "any": "json",
    "tags": "array<string>",
    "address": "struct<city:string,zip:string>",
    "attributes": "map<string,bigint>",
    # keywords, of Python and of SQL, and names that are no identifiers
    "class": "string",
    "select": "bigint",
    "None": "string",
    "with space": "bigint",
    "a-b": "string",
    "0": "bigint",
    "ünïcode": "string",
    "f0": "string",
    "self": "string",
}


@dataclass(frozen=True)
class Valid:
    """A payload that is kept, and what its row must hold."""

    value: bytes
    row: Mapping[str, Any]


@dataclass(frozen=True)
class Invalid:
    """A payload that is set aside, and what its cause must say."""

    value: bytes | None
    cause: str


def body(**fields: object) -> bytes:
    return json.dumps({"id": "o", "at": AT} | fields, ensure_ascii=False).encode()


def text(fields: str) -> bytes:
    """Write an order with fields that json.dumps would not write."""
    return body()[:-1] + b", " + fields.encode() + b"}"


EVERY = {
    "n": -(2**63),
    "i": 2**31 - 1,
    "amount": 1e308,
    "ratio": 0.5,
    "price": Decimal("12345678.90"),
    "flag": True,
    "on": date(2024, 2, 29),
    "seen": datetime(1, 1, 1, tzinfo=UTC),
    "blob": b"\x00\xff",
    "any": '{"a":[1,{"b":null}]}',
    "tags": ["x", None, ""],
    "address": {"city": "Zürich", "zip": None},
    "attributes": [("k", 1), ("", 2**63 - 1)],
    "class": "c",
    "select": 1,
    "None": "n",
    "with space": 2,
    "a-b": "d",
    "0": 3,
    "ünïcode": "ü",
    "f0": "slot",
    "self": "me",
}
AS_JSON = EVERY | {
    "price": 12345678.9,
    "on": "2024-02-29",
    "seen": "0001-01-01T00:00:00Z",
    "blob": "AP8=",
    "any": json.loads(str(EVERY["any"])),
    "attributes": {"k": 1, "": 2**63 - 1},
    "address": {"city": "Zürich", "more": 1},
}

PAYLOADS: Mapping[str, Valid | Invalid] = {
    "plain": Valid(body(n=1), {"id": "o", "n": 1, "event_time": STAMP, "class": None}),
    "every type": Valid(
        body(**AS_JSON).replace(b'"any": {"a": [1, {"b": null}]}', b'"any": {"a":[1,{"b":null}]}'), EVERY
    ),
    "all null": Valid(body(**dict.fromkeys(AS_JSON)), dict.fromkeys(EVERY)),
    "int64 max": Valid(body(n=2**63 - 1), {"n": 2**63 - 1}),
    "900 kB string": Valid(body(id=LONG), {"id": LONG}),
    "900 kB in an unknown field": Valid(body(other=LONG), {"id": "o"}),
    "duplicate key": Valid(text('"n": 1, "n": 2'), {"n": 2}),
    "64 levels": Valid(text('"any": ' + "[" * 63 + "]" * 63), {"any": "[" * 63 + "]" * 63}),
    "brackets in a string": Valid(body(id="[" * 500), {"id": "[" * 500}),
    "zone-less": Valid(body(at=AT.removesuffix("Z")), {"event_time": STAMP}),
    "another zone": Valid(body(at="2024-03-30T16:30:00+05:30"), {"event_time": STAMP}),
    "a space for the T": Valid(body(at=AT.replace("T", " ")), {"event_time": STAMP}),
    "last nanosecond of the day": Valid(
        body(at="2024-03-30T23:59:59.999999999+01:00"), {"event_time": END - timedelta(microseconds=1)}
    ),
    "first instant of the day": Valid(body(at="2024-03-29T23:00:00Z"), {"event_time": START}),
    "white space around": Valid(b" \r\n\t" + body() + b"\n ", {"id": "o"}),
    "escapes": Valid(text('"f0": "\\u00e9\\ud83d\\ude00\\n"'), {"f0": "é😀\n"}),
    "tombstone": Invalid(None, "tombstone"),
    "empty": Invalid(b"", "truncated"),
    "blank": Invalid(b"  ", "truncated"),
    "null": Invalid(b"null", "object"),
    "array": Invalid(b"[]", "object"),
    "number": Invalid(b"42", "object"),
    "text": Invalid(b'"text"', "object"),
    "truncated": Invalid(body()[:-5], "truncated"),
    "trailing bytes": Invalid(body() + b" x", "Malformed"),
    "two objects": Invalid(body() + body(), "Malformed"),
    "byte order mark": Invalid(b"\xef\xbb\xbf" + body(), "Malformed"),
    "bad UTF-8": Invalid(body(id="@").replace(b"@", b"caf\xe9"), "UTF-8"),
    "bad UTF-8 in an unknown field": Invalid(body(other="@").replace(b"@", b"\xff"), "UTF-8"),
    "UTF-16": Invalid(body().decode().encode("utf-16"), "UTF-8"),
    "text for a number": Invalid(body(n="1"), r"Expected `bigint`, got `string` - at `\$\.n`"),
    "number for a text": Invalid(body(id=7), r"\$\.id"),
    "fraction for a whole number": Invalid(body(n=1.5), r"\$\.n"),
    "object for an array": Invalid(body(tags={}), r"\$\.tags"),
    "number in an array of texts": Invalid(body(tags=["a", 1]), r"\$\.tags"),
    "int64 overflow": Invalid(body(n=2**63), r"\$\.n"),
    "int64 underflow": Invalid(body(n=-(2**63) - 1), r"\$\.n"),
    "int overflow": Invalid(body(i=2**31), r"\$\.i"),
    "float overflow": Invalid(body(ratio=1e39), r"\$\.ratio"),
    "NaN": Invalid(text('"amount": NaN'), "Malformed"),
    "infinity": Invalid(text('"amount": 1e400'), "."),
    "decimal of too many digits": Invalid(text('"price": 123456789.01'), r"\$\.price"),
    "decimal of too many places": Invalid(text('"price": 1.234'), r"\$\.price"),
    "no date": Invalid(body(on="2023-02-29"), r"\$\.on"),
    "bad base64": Invalid(body(blob="A"), r"\$\.blob"),
    "100,000 arrays": Invalid(text('"any": ' + "[" * DEEP + "]" * DEEP), "deeper than 64"),
    "100,000 objects": Invalid(text('"other": ' + '{"a":' * DEEP + "1" + "}" * DEEP), "deeper than 64"),
    "65 levels": Invalid(text('"any": ' + "[" * 64 + "]" * 64), "deeper than 64"),
    "open brackets": Invalid(b"[" * DEEP, "deeper than 64"),
    "no event time": Invalid(b'{"id": "o"}', "No event time"),
    "null event time": Invalid(body(at=None), "No event time"),
    "a word for an event time": Invalid(body(at="yesterday"), "RFC 3339"),
    "seconds for an event time": Invalid(body(at=1711796400), r"\$\.at"),
    "a time that is none": Invalid(body(at="2024-03-30T24:00:00Z"), "No such"),
    "leap second": Invalid(body(at="2024-03-30T10:59:60Z"), "leap second"),
    "year 1": Invalid(body(at="0001-01-01T00:00:00Z"), "before Kafka's timestamp"),
    "year 1, before it in UTC": Invalid(body(at="0001-01-01T00:00:00+14:00"), "years 1 to 9999"),
    "year 9999": Invalid(body(at="9999-12-31T23:59:59Z"), "after Kafka's timestamp"),
    "year 9999, beyond it in UTC": Invalid(body(at="9999-12-31T23:59:59-14:00"), "years 1 to 9999"),
    "too old by a microsecond": Invalid(
        body(at=(STAMP - timedelta(days=30, microseconds=1)).isoformat()), "more than 30 d before"
    ),
    "too far ahead by a microsecond": Invalid(
        body(at=(STAMP + timedelta(days=1, microseconds=1)).isoformat()), "more than 1 d after"
    ),
}


def test_every_payload_is_settled_as_the_rule_says(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    name, records = topic(partitions=2), []
    for number, payload in enumerate(PAYLOADS.values()):
        records.append(Record(number % 2, payload.value, ms(STAMP), b"key %d" % number))
    offsets = send(broker.bootstrap_servers, name, records)
    run_day(pipeline(name, {"record": {"columns": COLUMNS}}), FIRST)

    kept, aside = lakes.rows(lake, FIRST), lakes.invalid(lake, FIRST)
    wrong = []
    for (what, payload), record, offset in zip(PAYLOADS.items(), records, offsets, strict=True):
        where = (record.partition, offset)
        match payload:
            case Valid(_, expected):
                row = kept.pop(where, None)
                found = None if row is None else {key: row[key] for key in expected}
                if found != expected:
                    wrong.append(f"{what}: {str(aside.get(where, found))[:300]}")
            case Invalid(value, cause):
                row = aside.pop(where, None)
                told = row and re.search(cause, row["cause"], re.IGNORECASE)
                if not told or row is None or (row["value"], row["key"]) != (value, record.key):
                    wrong.append(f"{what}: {str(row and row['cause'])[:300]}")
    assert not wrong, "\n".join(wrong)
    assert not kept
    assert not aside


def test_columns_are_read_from_where_the_data_has_them(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    """A change as Debezium writes it, with a key that is an object."""
    columns = {
        "order_date": {"from": "payload.after.date", "type": "date", "format": "epoch_d"},
        "city": {"from": "payload.after.address.city", "type": "string"},
        "total": {"from": ["payload", "after", "total.eur"], "type": "decimal(10,2)"},
        "changed_at": {"from": "payload.ts_ns", "type": "timestamp", "format": "epoch_ns"},
        "op": {"from": "payload.op", "type": "string"},
        "n": {"from": "payload.after.id", "type": "bigint"},
    }
    key = {"format": "json", "columns": {"customer": {"from": "payload.id", "type": "bigint"}}}
    time = {"field": "payload.at", "format": "iso8601_lenient"}
    after = {"id": 2**53 + 1, "date": 19812, "address": {"city": "Delft"}, "total.eur": "12.5"}
    change = {"op": "c", "at": "2024-03-30 12:00:00,5+0100", "ts_ns": ms(STAMP) * 10**6 + 999, "after": after}
    values = [change, change | {"after": None, "op": "d"}, change | {"after": [1]}, change, change]
    keys = [b'{"payload":{"id":7}}', b'{"payload":null}', None, None, b'{"payload":{"id":"7"}}']
    records = [
        Record(0, json.dumps({"payload": value}).encode(), ms(STAMP), key)
        for value, key in zip(values, keys, strict=True)
    ]
    name = topic()
    send(broker.bootstrap_servers, name, records)
    run_day(pipeline(name, {"record": {"columns": columns, "key": key}, "event_time": time}), FIRST)
    kept = [row for _, row in sorted(lakes.rows(lake, FIRST).items())]
    whole = {
        "n": 2**53 + 1,
        "order_date": date(2024, 3, 30),
        "city": "Delft",
        "total": Decimal("12.50"),
        "changed_at": STAMP,
        "op": "c",
        "event_time": STAMP + timedelta(milliseconds=500),
        "customer": 7,
    }
    gone = dict.fromkeys(("n", "order_date", "city", "total", "customer"))
    assert [{name: row[name] for name in whole} for row in kept] == [
        whole,
        whole | gone | {"op": "d"},
        whole | {"customer": None},
    ]
    causes = [row["cause"] for _, row in sorted(lakes.invalid(lake, FIRST).items())]
    assert causes == [
        "Expected `object`, got `array` - at `$.payload.after`",
        "Key: Expected `bigint`, got `string` - at `$.payload.id`",
    ]


def test_seconds_in_a_field_of_milliseconds_are_set_aside(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    """They would be in January 1970, which no validity allows."""
    name, stamp = topic(), ms(STAMP)
    values = [stamp, stamp // 1000, stamp * 1000, 2**63 - 1, -(2**63), f"{stamp}", stamp + 0.5]
    records = [Record(0, json.dumps({"at": value}).encode(), stamp) for value in values]
    send(broker.bootstrap_servers, name, records)
    run_day(pipeline(name, {"event_time": {"format": "epoch_ms"}}), FIRST)
    assert list(lakes.rows(lake, FIRST)) == [(0, 0)]
    assert lakes.rows(lake, FIRST)[0, 0]["event_time"] == STAMP
    causes = [row["cause"] for _, row in sorted(lakes.invalid(lake, FIRST).items())]
    assert len(causes) == 6
    assert "before Kafka's timestamp" in causes[0]


def test_an_event_time_decades_away_is_kept_where_the_validity_allows_it(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    """What lies before the first day is counted, what lies after it stays pending."""
    name = topic()
    times = ["1975-01-01T00:00:00Z", "2070-01-01T00:00:00Z", AT]
    send(broker.bootstrap_servers, name, [Record(0, body(at=at), ms(STAMP)) for at in times])
    run_day(pipeline(name, FAR), FIRST)
    assert list(lakes.places(lake)) == [(0, 2)]
    assert lakes.pending(lake) == {(0, 1)}
    assert lakes.verdicts(lakes.manifest(lake, FIRST)) == {"before_first": 1, "later_day": 1, "in_day": 1}


def test_raw_records_keep_their_bytes_and_a_missing_value(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    name = topic()
    records = [
        Record(0, b"\x00\xff not json", ms(STAMP), b"\xfe", (("h", b"\x80"), ("h", None), ("", b""))),
        Record(0, None, ms(STAMP), b"key"),
        Record(0, b"", ms(STAMP), None),
        Record(0, b"x" * 900_000, ms(END - timedelta(milliseconds=1)), b""),
        Record(0, b"tomorrow", ms(END), b""),
        Record(0, b"yesterday", ms(START - timedelta(milliseconds=1)), b""),
    ]
    send(broker.bootstrap_servers, name, records)
    raw = {"record": {"format": "raw", "columns": {}}, "event_time": {"field": None, "source": "kafka"}}
    run_day(pipeline(name, raw), FIRST)
    found = lakes.rows(lake, FIRST)
    assert [offset for _, offset in sorted(found)] == [0, 1, 2, 3]
    for record, (_, row) in zip(records, sorted(found.items()), strict=False):
        headers = tuple((each["key"], each["value"]) for each in row["kafka_headers"] or [])
        assert (row["value"], row["kafka_key"], headers) == (record.value, record.key, record.headers)
        assert ms(row["event_time"]) == ms(row["kafka_timestamp"]) == record.stamp
    assert lakes.pending(lake) == {(0, 4)}
    assert lakes.verdicts(lakes.manifest(lake, FIRST))["before_first"] == 1
    assert not lakes.invalid(lake, FIRST)
