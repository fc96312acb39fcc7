"""A column is read from its place in the record, as a plain reading of the JSON finds it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.record.columns import Column, parse_type
from jobs.record.decode import Decoder
from jobs.record.formats.json.wire_columns import wire_columns
from jobs.record.rules import EventTimeRule, rules_of
from jobs.record.time_format import TimeFormat, TimePattern, Written, time_form
from offsets.contract import Contract
from tests.support.local_engine import RULES

AT = 1_794_996_000_000_000
KAFKA = EventTimeRule(path=(), format=TimeFormat.ISO8601, zone="UTC")
STAMP = datetime(2026, 11, 18, 10, tzinfo=UTC)
DATA = Path(__file__).parents[2] / "data"


def column(name: str, type: str, *path: str, written: Written | None = None) -> Column:
    return Column(name, parse_type(type), path, written)


def read(
    columns: Sequence[Column], *payloads: bytes, event: EventTimeRule = KAFKA
) -> tuple[list[dict[str, Any]], list[str | None]]:
    """Decode payloads; return their rows by the columns' names, and their causes."""
    terms = replace(RULES, columns=tuple(columns), event_time=event)
    stamps = pa.array([STAMP] * len(payloads), pa.timestamp("us", "UTC"))
    found = Decoder(terms).decode(pa.array(payloads, pa.binary()), stamps)
    names = [column.name for column in columns]
    rows = zip(*(values.to_pylist() for values in found.columns), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows], found.cause.to_pylist()


def one(columns: Sequence[Column], payload: str, event: EventTimeRule = KAFKA) -> dict[str, Any]:
    (row,), (cause,) = read(columns, payload.encode(), event=event)
    assert cause is None
    return row


def test_a_field_whose_name_is_reserved_is_kept_under_another_name() -> None:
    columns = [column("order_date", "date", "date"), column("time", "string", "event_time")]
    assert one(columns, '{"date":"2026-11-18","event_time":"soon"}') == {
        "order_date": date(2026, 11, 18),
        "time": "soon",
    }


def test_a_nested_field_becomes_a_column_of_its_own() -> None:
    columns = [
        column("city", "string", "address", "city"),
        column("id", "bigint", "payload", "after", "id"),
        column("op", "string", "payload", "op"),
        column("n", "int"),
    ]
    payload = '{"n":1,"payload":{"op":"u","after":{"id":7,"x":[]}},"address":{"city":"Delft"}}'
    assert one(columns, payload) == {"city": "Delft", "id": 7, "op": "u", "n": 1}


def test_a_name_with_a_dot_is_one_name_of_a_path() -> None:
    columns = [
        column("a", "int", "x.y", "z"),
        column("b", "int", "x", "y.z"),
        column("c", "int", "x", "y", "z"),
    ]
    assert one(columns, '{"x.y":{"z":1},"x":{"y.z":2,"y":{"z":3}}}') == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("payload", ["{}", '{"a":null}', '{"a":{}}', '{"a":{"b":null}}', '{"a":{"b":{}}}'])
def test_a_value_without_its_parents_is_null(payload: str) -> None:
    assert one([column("c", "int", "a", "b", "c")], payload) == {"c": None}


@pytest.mark.parametrize(
    "payload, cause",
    [
        ('{"a":5}', "Expected `object`, got `int` - at `$.a`"),
        ('{"a":{"b":[{"c":1}]}}', "Expected `object`, got `array` - at `$.a.b`"),
        ('{"a":{"b":{"c":"1"}}}', "Expected `bigint`, got `string` - at `$.a.b.c`"),
        ('{"a":7,"a":{}}', "Expected `object`, got `int` - at `$.a`"),
    ],
)
def test_a_parent_that_is_no_object_makes_the_record_invalid(payload: str, cause: str) -> None:
    good = b'{"a":{"b":{"c":1}}}'
    rows, causes = read([column("c", "bigint", "a", "b", "c")], good, payload.encode(), good)
    assert causes == [None, cause, None]
    assert (rows[0], rows[2]) == ({"c": 1}, {"c": 1})


def test_of_a_duplicate_parent_the_last_counts_whole() -> None:
    columns = [column("b", "int", "a", "b"), column("c", "int", "a", "c")]
    assert one(columns, '{"a":{"b":1,"c":2},"a":{"b":3}}') == {"b": 3, "c": None}


def test_columns_that_are_decoded_alike_share_a_place() -> None:
    columns = [
        column("city", "string", "address", "city"),
        column("address", "struct<zip:string,city:string,at:timestamp>"),
        column("again", "struct<zip:string,city:string,at:timestamp>", "address"),
        column("more", "int", "address", "more"),
        column("price", "decimal(5,2)"),
        column("price_as_written", "json", "price"),
        column("seen_at", "string", "seen"),
        column("seen", "timestamp"),
    ]
    address = {"zip": "2611", "city": "Delft", "at": STAMP}
    row = one(
        columns,
        '{"address":{"more":3,"city":"Delft","zip":"2611","at":"2026-11-18T10:00:00Z"},"price":1.50,'
        '"seen":"2026-11-18T10:00:00Z"}',
    )
    assert row == {
        "city": "Delft",
        "address": address,
        "again": address,
        "more": 3,
        "price": row["price"],
        "price_as_written": "1.50",
        "seen_at": "2026-11-18T10:00:00Z",
        "seen": STAMP,
    }
    assert str(row["price"]) == "1.50"


@pytest.mark.parametrize(
    "columns",
    [
        [column("happened", "timestamp", "meta", "at")],
        [column("meta", "struct<at:timestamp>"), column("happened", "timestamp", "meta", "at")],
        [column("happened", "timestamp", "meta", "at"), column("twice", "timestamp", "meta", "at")],
        [column("written", "bigint", "meta", "at"), column("happened", "timestamp", "meta", "at")],
        [column("happened", "timestamp", "meta", "at", written=Written(TimeFormat.EPOCH_MS))],
    ],
    ids=["alone", "struct", "twice", "as written", "own format"],
)
def test_an_event_time_shares_the_place_of_columns(columns: list[Column]) -> None:
    event = EventTimeRule(path=("meta", "at"), format=TimeFormat.EPOCH_MS, zone="UTC")
    row = one(columns, f'{{"meta":{{"at":{AT // 1000}}}}}', event)
    assert row["happened"] == STAMP
    assert row.get("twice", STAMP) == STAMP
    assert row.get("meta", {"at": STAMP}) == {"at": STAMP}
    assert row.get("written", AT // 1000) == AT // 1000
    assert read(columns, b"{}", event=event)[1] == ["No event time - at `$.meta.at`"]


@pytest.mark.parametrize(
    "type, format, zone, written, value",
    [
        ("timestamp", "iso8601", "Asia/Tokyo", '"2026-11-18T19:00:00"', STAMP),
        ("timestamp", "iso8601_lenient", None, '"2026-11-18 11:00:00,000+0100"', STAMP),
        ("timestamp", "iso8601_lenient", "UTC", '"2026-11-18"', STAMP.replace(hour=0)),
        ("timestamp", "epoch_s", None, str(AT // 10**6), STAMP),
        ("timestamp", "epoch_ms", None, str(AT // 1000), STAMP),
        ("timestamp", "epoch_us", None, str(AT), STAMP),
        ("timestamp", "epoch_ns", None, f"{AT}999", STAMP),
        ("date", "epoch_d", None, "20775", date(2026, 11, 18)),
        ("date", "iso8601", None, '"2026-11-18T10:00:00Z"', date(2026, 11, 18)),
        ("timestamp", "dd/MM/yyyy HH:mm", "Asia/Tokyo", '"18/11/2026 19:00"', STAMP),
        ("date", "dd/MM/yyyy", None, '"18/11/2026"', date(2026, 11, 18)),
        ("array<date>", "epoch_d", None, "[0,null]", [date(1970, 1, 1), None]),
        ("map<string,timestamp>", "epoch_s", None, f'{{"k":{AT // 10**6}}}', [("k", STAMP)]),
        (
            "array<struct<at:timestamp,n:bigint>>",
            "epoch_ms",
            None,
            f'[{{"at":{AT // 1000},"n":1}}]',
            [{"at": STAMP, "n": 1}],
        ),
        ("timestamp", "epoch_ms", None, "null", None),
    ],
)
def test_a_column_has_a_time_format_of_its_own(
    type: str, format: str, zone: str | None, written: str, value: object
) -> None:
    each = column("x", type, written=Written(time_form(format), zone))
    assert one([each], f'{{"x":{written}}}') == {"x": value}


@pytest.mark.parametrize(
    "type, format, written, cause",
    [
        ("timestamp", "iso8601_lenient", '"2026-11-18"', "A time without a zone - at `$.x`"),
        ("timestamp", "iso8601_lenient", '"soon"', "Not an ISO 8601 time - at `$.x`"),
        ("timestamp", "epoch_ms", '"soon"', "Expected `timestamp` as epoch_ms, got `string` - at `$.x`"),
        ("timestamp", "epoch_s", str(AT), "Outside the years 1 to 9999 - at `$.x`"),
        ("date", "epoch_d", '"2026-11-18"', "Expected `date` as epoch_d, got `string` - at `$.x`"),
        ("date", "iso8601_lenient", "1", "Expected `date`, got `int` - at `$.x`"),
        ("array<date>", "iso8601", '["2026-11-18"]', "Not an RFC 3339 time - at `$.x[...]`"),
    ],
)
def test_a_time_of_another_format_makes_the_record_invalid(
    type: str, format: str, written: str, cause: str
) -> None:
    each = column("x", type, written=Written(time_form(format)))
    assert read([each], f'{{"x":{written}}}'.encode())[1] == [cause]


@pytest.mark.parametrize(
    "columns, name, said",
    [
        (
            [column("a", "string"), column("b", "bigint", "a")],
            "b",
            "its place `a` is read as bigint, and by another column as string",
        ),
        (
            [column("c", "int", "a", "b"), column("a", "string")],
            "c",
            "its place `a.b` lies inside `a`, which is string; only a struct works",
        ),
        (
            [column("c", "int", "a", "b"), column("a", "map<string,int>")],
            "c",
            "its place `a.b` lies inside `a`, which is map<string,int>; only a struct works",
        ),
        (
            [column("a", "struct<b:int>"), column("c", "struct<b:bigint>", "a")],
            "c",
            "its place `a` is read as struct<b:bigint>, and by another column as struct<b:int>",
        ),
        (
            [column("c", "int", 'a"b')],
            "c",
            'its place `a"b` cannot be read: a name must not hold a double quote',
        ),
    ],
)
def test_columns_that_cannot_share_a_place_are_refused(columns: list[Column], name: str, said: str) -> None:
    with pytest.raises(ValueError, match="its place") as refused:
        wire_columns(tuple(columns), KAFKA)
    assert said in str(refused.value)
    assert getattr(refused.value, "column", None) == name


NAMES = st.sampled_from(["a", "b", "date", "a.b"])
LEAVES = st.none() | st.integers(-9, 9)
OBJECTS = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=3),
    lambda inner: st.dictionaries(NAMES, LEAVES | inner, max_size=3),
    max_leaves=8,
)
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3).map(tuple), min_size=1, max_size=4, unique=True)


def plainly(record: object, path: tuple[str, ...]) -> tuple[object, bool]:
    """Return what a plain reading finds at a path of numbers, and whether the record is valid there."""
    for name in path:
        if record is None:
            return None, True
        if not isinstance(record, dict):
            return None, False
        record = record.get(name)
    return record, record is None or isinstance(record, int)


@given(st.lists(OBJECTS, max_size=5), PATHS)
def test_a_place_holds_what_a_plain_reading_finds(
    records: list[object], paths: list[tuple[str, ...]]
) -> None:
    outer = [path for path in paths if not any(path[:end] in paths for end in range(1, len(path)))]
    columns = [column(f"c{index}", "bigint", *path) for index, path in enumerate(outer)]
    rows, causes = read(columns, *(json.dumps(record).encode() for record in records))
    for record, row, cause in zip(records, rows, causes, strict=True):
        expected = [plainly(record, path) for path in outer]
        assert (cause is None) == all(valid for _, valid in expected)
        if cause is None:
            assert list(row.values()) == [value for value, _ in expected]


@pytest.mark.parametrize(
    "each, term",
    [
        (column("a", "bigint"), "bigint"),
        (column("a", "bigint", "b", "c"), {"type": "bigint", "from": "b.c"}),
        (column("a", "bigint", "b.c"), {"type": "bigint", "from": ["b.c"]}),
        (
            column("a", "array<timestamp>", written=Written(TimeFormat.EPOCH_MS)),
            {"type": "array<timestamp>", "format": "epoch_ms"},
        ),
        (
            column("a", "date", written=Written(TimePattern("dd/MM/yyyy"))),
            {"type": "date", "format": "dd/MM/yyyy"},
        ),
        (
            column("a", "timestamp", "b", written=Written(TimeFormat.ISO8601, "Asia/Tokyo")),
            {"type": "timestamp", "from": "b", "format": "iso8601", "zone": "Asia/Tokyo"},
        ),
    ],
)
def test_the_contract_holds_all_that_decides_a_column(each: Column, term: object) -> None:
    event = EventTimeRule(path=("m.x", "at"), format=TimeFormat.EPOCH_MS, zone="UTC")
    rules = replace(RULES, columns=(each,), event_time=event)
    contract = rules.contract("UTC", date(2026, 11, 1))
    record: Any = contract.terms["record"]
    assert record["columns"] == {"a": term}
    assert rules_of(contract) == rules


def test_another_place_of_a_column_is_a_change_of_the_contract() -> None:
    old, new = (
        replace(RULES, columns=(each,)).contract("UTC", date(2026, 11, 1))
        for each in (column("a", "bigint", "b", "c"), column("a", "bigint", "b", "d"))
    )
    assert new.changes_from(old) == ('record.columns.a.from: "b.c" -> "b.d"',)


def test_the_contract_of_a_lake_from_before_is_the_one_that_its_config_makes_today() -> None:
    contract = Contract(json.loads((DATA / "manifest-of-the-demo.json").read_bytes())["contract"])
    assert contract.first_day
    assert rules_of(contract).contract("Europe/Amsterdam", contract.first_day).changes_from(contract) == ()
