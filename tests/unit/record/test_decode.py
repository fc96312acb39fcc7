"""Every payload gets the verdict and the columns that it alone deserves."""

from __future__ import annotations

import base64
import json
import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.record.columns import Column, parse_type
from jobs.record.decode import Decoded, Decoder, day_schema
from jobs.record.formats.json import arrays
from jobs.record.formats.json import payload as payloads_of_json
from jobs.record.formats.json.payload import MAX_NESTING, TOO_DEEP, nesting
from jobs.record.rules import EventTimeRule, RecordFormat, Rules, Tombstones
from jobs.record.time_format import TimeFormat

AT = "2026-11-18T10:00:00Z"
AT_MICROS = 1_794_996_000_000_000
STAMP = datetime(2026, 11, 18, 12, tzinfo=UTC)


def rules(
    columns: dict[str, str],
    *,
    at: str = "at",
    format: TimeFormat = TimeFormat.ISO8601,
    zone: str = "UTC",
    record: RecordFormat = RecordFormat.JSON,
) -> Rules:
    return Rules(
        format=record,
        columns=tuple(Column(name, parse_type(text)) for name, text in columns.items()),
        kafka_columns=frozenset(),
        event_time=EventTimeRule(path=tuple(at.split(".")) if at else (), format=format, zone=zone),
        past=timedelta(days=30),
        future=timedelta(days=1),
        tombstones=Tombstones.QUARANTINE,
    )


def decoded(terms: Rules, *payloads: bytes | None, stamp: datetime | None = STAMP) -> Decoded:
    values = pa.array(payloads, pa.binary())
    return Decoder(terms).decode(values, pa.array([stamp] * len(payloads), pa.timestamp("us", "UTC")))


def rows(found: Decoded) -> list[tuple[Any, ...]]:
    """Give each record's columns, event time and cause; of a record that is not valid no column counts."""
    made = zip(
        *(column.to_pylist() for column in found.columns),
        found.event_time.to_pylist(),
        found.cause.to_pylist(),
        strict=True,
    )
    return [row if row[-1] is None else (*[None] * (len(row) - 2), *row[-2:]) for row in made]


def of(type: str, text: str) -> tuple[Any, str | None]:
    """Decode one value in a column of one type; give it with its cause."""
    found = decoded(rules({"x": type}), f'{{"at":"{AT}","x":{text}}}'.encode())
    return found.columns[0][0].as_py(), found.cause[0].as_py()


@pytest.mark.parametrize(
    "columns, record",
    [
        ({"a": "decimal(3,1)", "b": "decimal(3,1)"}, '"a":1.25,"b":"x"'),
        ({"a": "struct<c:decimal(3,1),d:decimal(3,1)>"}, '"a":{"c":1.25,"d":"x"}'),
        ({"a": "array<decimal(3,1)>", "b": "timestamp"}, '"a":[1.25,"x"],"b":"x"'),
    ],
    ids=["columns", "fields", "elements"],
)
def test_of_two_causes_the_first_is_told(columns: dict[str, str], record: str) -> None:
    (cause,) = decoded(rules(columns), f'{{"at":"{AT}",{record}}}'.encode()).cause.to_pylist()
    assert cause.startswith("More digits than `decimal(3,1)` has - at `$.a")


ORDER = {"id": "string", "items": "int", "class": "array<struct<w:timestamp,p:decimal(5,2)>>"}


@pytest.mark.parametrize(
    "payload, cause",
    [
        (None, "No value (tombstone)"),
        (b"", "Malformed JSON: truncated"),
        (b"  \n", "Malformed JSON: truncated"),
        (b"null", "Expected `object`, got `null`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"5", "Expected `object`, got `int`"),
        (b'{"at":"2026', "Malformed JSON: truncated"),
        (b'{"at":1}x', "Expected `timestamp`, got `int` - at `$.at`"),
        (b'{"id":"a"}x', "Malformed JSON: trailing characters"),
        (b"{}{}", "Malformed JSON: trailing characters"),
        (b"{}\x00", "Malformed JSON: trailing characters"),
        (b"\xef\xbb\xbf{}", "Malformed JSON: invalid character"),
        (b'{"other":"\xff"}', "Not valid UTF-8"),
        (b'{"\xff":1}', "Not valid UTF-8"),
        (b'{"id":"\xed\xa0\x80"}', "Not valid UTF-8"),
        (b'{"id":"\\ud800"}', "Malformed JSON: truncated"),
        (b'{"id":"\\ud800 and on"}', "Malformed JSON: unexpected end of escaped utf-16 surrogate pair"),
        (b'{"other":"\\udc00 and on"}', "Malformed JSON: invalid utf-16 surrogate pair"),
        (b'{"items":NaN}', "Malformed JSON: invalid character"),
        (b'{"items":2147483648}', "Expected `int` <= 2147483647 - at `$.items`"),
        (b'{"items":"3"}', "Expected `int`, got `string` - at `$.items`"),
        (b'{"items":1.0}', "Expected `int`, got `float` - at `$.items`"),
        (b'{"items":"3","items":3}', "Expected `int`, got `string` - at `$.items`"),
        (b"[" * 100_000, "Nested deeper than 64 levels"),
        (b'{"other":' + b'{"a":[' * 50_000, "Nested deeper than 64 levels"),
        (b'{"at":' + b"[" * 64 + b"]" * 64 + b"}", "Nested deeper than 64 levels"),
        (b"{}", "No event time - at `$.at`"),
        (b'{"at":null}', "No event time - at `$.at`"),
        (b'{"at":"soon"}', "Not an RFC 3339 time - at `$.at`"),
        (b'{"at":"2026-06-30T23:59:60Z"}', "A leap second, which no column can hold - at `$.at`"),
        (b'{"at":"0000-01-01T00:00:00Z"}', "Outside the years 1 to 9999 - at `$.at`"),
        (
            b'{"at":"2026-11-18T10:00:00Z","class":[null,{"w":"2026-11-18T10:00:00"}]}',
            "A time without a zone - at `$.class[...].w`",
        ),
        (
            b'{"at":"2026-11-18T10:00:00Z","class":[{"p":1},{"p":1000}]}',
            "More digits than `decimal(5,2)` has - at `$.class[...].p`",
        ),
    ],
)
def test_a_payload_that_is_not_valid_is_null_with_its_cause(payload: bytes | None, cause: str) -> None:
    good = f'{{"at":"{AT}","id":"b","items":2}}'.encode()
    found = rows(decoded(rules(ORDER), good, payload, good))
    assert found[1] == (None, None, None, None, cause)
    assert found[0] == found[2] == ("b", 2, None, AT_MICROS, None)


@pytest.mark.parametrize(
    "start, end, cause",
    [(f'{{"at":"{AT}","other":[', b"]}", None), ("[[", b"", "Expected `object`, got `array`")],
)
def test_deep_nesting_is_found_wherever_in_a_batch_it_lies(start: str, end: bytes, cause: str | None) -> None:
    levels = [*range(60, 70)] * 40
    payloads = [
        start.encode() + b" " * (place * 7 % 65) + b"[" * (deep - 2) + (end and b"]" * (deep - 2) + end)
        for place, deep in enumerate(levels)
    ]
    causes = decoded(rules(ORDER), *payloads).cause.to_pylist()
    assert causes == [TOO_DEEP if deep > MAX_NESTING else cause for deep in levels]


def test_deep_nesting_is_found_wherever_its_last_bracket_stands() -> None:
    blank = b" " * 100
    for place in range(64):
        causes = decoded(rules(ORDER), blank, b" " * place + b"[" * (MAX_NESTING + 1), blank).cause
        assert causes[1].as_py() == TOO_DEEP


@pytest.mark.parametrize(
    "payload, id, items",
    [
        (b'{"at":"%s"}', None, None),
        (b' {"id":null,"at":"%s"}\r\n', None, None),
        (b'{"at":"%s","items":1,"items":2}', None, 2),
        (b'{"at":"%s","id":"a\\u0000b"}', "a\0b", None),
        (b'{"at":"%s","id":"\\ud83d\\ude00"}', "😀", None),
        (b'{"at":"%s","id":"' + b"x" * 900_000 + b'"}', "x" * 900_000, None),
        (b'{"at":"%s","id":"' + b'[{\\"' * 1000 + b'"}', '[{"' * 1000, None),
        (b'{"at":"%s","other":' + b"[" * 63 + b"]" * 63 + b"}", None, None),
        (b'{"at":"%s","other":[' + b"[]," * 100 + b"1]}", None, None),
        (b'{"\\u0061t":"%s","\\u0069d":"k"}', "k", None),
    ],
)
def test_a_lawful_payload_is_valid(payload: bytes, id: str | None, items: int | None) -> None:
    found = rows(decoded(rules(ORDER), payload.replace(b"%s", AT.encode())))
    assert found == [(id, items, None, AT_MICROS, None)]


@pytest.mark.parametrize(
    "type, text, value",
    [
        ("boolean", "true", True),
        ("bigint", "-9223372036854775808", -(2**63)),
        ("float", "3.4028234663852886e38", 3.4028234663852886e38),
        ("double", "3", 3.0),
        ("date", '"2026-02-28"', date(2026, 2, 28)),
        ("timestamp", '"2026-11-18T23:59:59.9999999+01:00"', datetime(2026, 11, 18, 22, 59, 59, 999999, UTC)),
        ("binary", '"AP8="', b"\x00\xff"),
        (
            "json",
            ' {"a" : [1e999, 123456789012345678901234567890] } ',
            '{"a" : [1e999, 123456789012345678901234567890] }',
        ),
        ("json", "null", None),
        ("json", '"\\u006eull"', '"\\u006eull"'),
        ("decimal(10,2)", "12345678.9", Decimal("12345678.90")),
        ("decimal(10,2)", '"-1.5e3"', Decimal("-1500.00")),
        ("decimal(10,2)", '"1.500"', Decimal("1.50")),
        ("decimal(10,2)", "0e999999", Decimal("0.00")),
        ("decimal(38,0)", "99999999999999999999999999999999999999", Decimal(10**38 - 1)),
        ("array<json>", '[1, null, {"b":2}]', ["1", None, '{"b":2}']),
        ("map<string,array<int>>", '{"a":[1,null],"b":null}', [("a", [1, None]), ("b", None)]),
        ("struct<a:struct<b:json>,c:int>", '{"c":1}', {"a": None, "c": 1}),
        (
            "array<struct<m:map<string,decimal(3,1)>>>",
            '[{"m":{"k":"1.5"}},null]',
            [{"m": [("k", Decimal("1.5"))]}, None],
        ),
        (
            "array<array<timestamp>>",
            f'[["{AT}"],[],null]',
            [[datetime(2026, 11, 18, 10, tzinfo=UTC)], [], None],
        ),
    ],
)
def test_a_value_of_its_type_is_kept_exactly(type: str, text: str, value: object) -> None:
    assert of(type, text) == (value, None)


@pytest.mark.parametrize(
    "type, text",
    [
        ("boolean", "1"),
        ("bigint", "9223372036854775808"),
        ("float", "1e39"),
        ("double", "1e400"),
        ("double", '"1"'),
        ("string", "1"),
        ("date", '"2026-02-30"'),
        ("date", '"2026-02-01T00:00:00Z"'),
        ("timestamp", '"2026-11-18T10:00:00"'),
        ("timestamp", "1700000000"),
        ("binary", '"AP8"'),
        ("decimal(10,2)", "1.005"),
        ("decimal(10,2)", "100000000"),
        ("decimal(10,2)", '"NaN"'),
        ("decimal(10,2)", '"Infinity"'),
        ("decimal(10,2)", "1e400"),
        ("decimal(10,2)", "1e-400"),
        ("decimal(10,2)", "1e99999999999999999999"),
        ("decimal(10,2)", "1e-99999999999999999999"),
        ("decimal(10,2)", '"1_0"'),
        ("decimal(10,2)", '" 1"'),
        ("decimal(10,2)", '"\uff11"'),
        ("decimal(10,2)", "true"),
        ("array<int>", "[1.5]"),
        ("array<int>", "{}"),
        ("map<string,int>", "[]"),
        ("struct<a:int>", '"a"'),
    ],
)
def test_a_value_of_another_type_makes_the_record_invalid(type: str, text: str) -> None:
    value, cause = of(type, text)
    assert value is None
    assert cause is not None
    assert cause.endswith("`") or "`$.x" in cause
    assert text not in cause.replace("`", "")


@pytest.mark.parametrize(
    "type, text, cause",
    [
        ("bigint", '"1"', "Expected `bigint`, got `string` - at `$.x`"),
        ("bigint", "9223372036854775808", "Expected `bigint` <= 9223372036854775807 - at `$.x`"),
        ("double", "true", "Expected `double`, got `boolean` - at `$.x`"),
        ("float", "1e39", "Expected `float` <= 3.4028234663852886e+38 - at `$.x`"),
        ("string", "{}", "Expected `string`, got `object` - at `$.x`"),
        ("boolean", "1", "Expected `boolean`, got `int` - at `$.x`"),
        ("timestamp", "1", "Expected `timestamp`, got `int` - at `$.x`"),
        ("date", "1", "Expected `date`, got `int` - at `$.x`"),
        ("date", '"2026-02-30"', "Not a date such as 2026-11-18 - at `$.x`"),
        ("binary", "1", "Expected `binary`, got `int` - at `$.x`"),
        ("array<bigint>", '[1,2,"3"]', "Expected `bigint`, got `string` - at `$.x[...]`"),
        ("array<bigint>", "1", "Expected `array`, got `int` - at `$.x`"),
        ("map<string,array<boolean>>", '{"a":[1]}', "Expected `boolean`, got `int` - at `$.x[...][...]`"),
        (
            "struct<`a.b`:struct<c:bigint>>",
            '{"a.b":{"c":""}}',
            "Expected `bigint`, got `string` - at `$.x.a.b.c`",
        ),
        ("struct<a:int,`a.b`:bigint>", '{"a.b":true}', "Expected `bigint`, got `boolean` - at `$.x.a.b`"),
        ("struct<ab:bigint,a:boolean>", '{"ab":"b"}', "Expected `bigint`, got `string` - at `$.x.ab`"),
    ],
)
def test_a_cause_has_the_words_of_the_config(type: str, text: str, cause: str) -> None:
    assert of(type, text) == (None, cause)


@pytest.mark.parametrize("name", ["class", "my-col", "a.b", "日本", "f0", "it's", "import", "None"])
def test_a_column_may_have_any_name(name: str) -> None:
    terms = rules({name: "int", "s": f"struct<`{name}`:int>"})
    payload = json.dumps({"at": AT, name: 1, "s": {name: 2}}).encode()
    assert rows(decoded(terms, payload)) == [(1, {name: 2}, AT_MICROS, None)]


@pytest.mark.parametrize(
    "columns, at, payload, column",
    [
        ({"n": "int"}, "at", {"at": AT}, None),
        ({"at": "string"}, "at", {"at": AT}, AT),
        ({"at": "timestamp"}, "at", {"at": AT}, datetime(2026, 11, 18, 10, tzinfo=UTC)),
        ({"n": "int"}, "meta.at", {"meta": {"at": AT}}, None),
        ({"meta": "struct<n:int>"}, "meta.at", {"meta": {"at": AT, "n": 1}}, {"n": 1}),
        ({"meta": "struct<at:string>"}, "meta.at", {"meta": {"at": AT}}, {"at": AT}),
        (
            {"meta": "struct<in:struct<at:timestamp>>"},
            "meta.in.at",
            {"meta": {"in": {"at": AT}}},
            {"in": {"at": datetime(2026, 11, 18, 10, tzinfo=UTC)}},
        ),
    ],
)
def test_the_event_time_is_found_wherever_it_stands(
    columns: dict[str, str], at: str, payload: object, column: object
) -> None:
    terms = rules(columns, at=at)
    assert rows(decoded(terms, json.dumps(payload).encode())) == [(column, AT_MICROS, None)]


@pytest.mark.parametrize("payload", [b"{}", b'{"meta":null}', b'{"meta":{}}', b'{"meta":{"at":null}}'])
def test_an_event_time_without_its_parent_is_missing(payload: bytes) -> None:
    found = decoded(rules({"meta": "struct<n:int>"}, at="meta.at"), payload)
    assert found.cause.to_pylist() == ["No event time - at `$.meta.at`"]


def test_an_event_time_below_what_is_no_object_is_invalid() -> None:
    found = decoded(rules({"n": "int"}, at="meta.at"), b'{"meta":[1]}')
    assert found.cause.to_pylist() == ["Expected `object`, got `array` - at `$.meta`"]


def test_a_zone_less_event_time_is_read_in_its_zone_also_as_a_column() -> None:
    terms = rules({"at": "timestamp"}, zone="Europe/Amsterdam")
    found = decoded(terms, b'{"at":"2026-11-18T11:00:00"}')
    assert rows(found) == [(datetime(2026, 11, 18, 10, tzinfo=UTC), AT_MICROS, None)]


@pytest.mark.parametrize(
    "type, column, expected",
    [
        ("bigint", 1794996000000, "`bigint`"),
        ("timestamp", datetime(2026, 11, 18, 10, tzinfo=UTC), "`timestamp` as epoch_ms"),
    ],
)
def test_an_epoch_is_a_whole_number_and_shares_its_column(type: str, column: object, expected: str) -> None:
    terms = rules({"at": type}, format=TimeFormat.EPOCH_MS)
    found = rows(
        decoded(terms, b'{"at":1794996000000}', b'{"at":1794996000000.5}', b'{"at":"1794996000000"}')
    )
    assert found[0] == (column, AT_MICROS, None)
    assert [row[-1] for row in found[1:]] == [
        f"Expected {expected}, got `{got}` - at `$.at`" for got in ("float", "string")
    ]


def test_seconds_in_a_milliseconds_field_are_early_in_1970() -> None:
    found = decoded(rules({"n": "int"}, format=TimeFormat.EPOCH_MS), b'{"at":1794996000}')
    assert found.event_time.to_pylist() == [1_794_996_000_000]


def test_a_count_beyond_the_years_is_invalid_and_not_an_overflow() -> None:
    found = decoded(rules({"at": "int"}, format=TimeFormat.EPOCH_S), b'{"at":2147483647}')
    assert found.cause.to_pylist() == [None]
    found = decoded(rules({"n": "int"}, format=TimeFormat.EPOCH_S), b'{"at":9223372036854775807}')
    assert found.cause.to_pylist() == ["Outside the years 1 to 9999 - at `$.at`"]


def test_kafkas_own_timestamp_is_the_event_time_where_the_rules_say_so() -> None:
    terms = rules({"n": "int"}, at="")
    assert rows(decoded(terms, b'{"n":1}')) == [(1, AT_MICROS + 7_200_000_000, None)]
    assert rows(decoded(terms, b'{"n":1}', stamp=None)) == [(None, None, "No Kafka timestamp")]
    assert rows(decoded(terms, b"{")) == [(None, None, "Malformed JSON: truncated")]


def test_a_raw_record_keeps_its_bytes_and_a_null_value_too() -> None:
    terms = rules({}, at="", record=RecordFormat.RAW)
    found = rows(decoded(terms, b"\xff", None, b""))
    assert [row[0] for row in found] == [b"\xff", None, b""]
    assert {row[1:] for row in found} == {(AT_MICROS + 7_200_000_000, None)}
    assert rows(decoded(terms, b"a", stamp=None)) == [(None, None, "No Kafka timestamp")]


@pytest.mark.parametrize("columns", [{}, {"a": "int", "m": "map<string,json>", "s": "struct<t:timestamp>"}])
def test_an_empty_batch_has_empty_columns_of_their_types(columns: dict[str, str]) -> None:
    terms = rules(columns)
    found = decoded(terms)
    assert [column.type for column in found.columns] == [*day_schema(terms).types][4:]
    assert len(found.event_time) == len(found.cause) == 0


@pytest.mark.parametrize(
    "columns, at, format",
    [
        ({"at": "bigint"}, "at", TimeFormat.ISO8601),
        ({"at": "date"}, "at", TimeFormat.ISO8601),
        ({"at": "json"}, "at", TimeFormat.ISO8601),
        ({"at": "string"}, "at", TimeFormat.EPOCH_MS),
        ({"at": "double"}, "at", TimeFormat.EPOCH_S),
        ({"at": "string"}, "at.b", TimeFormat.ISO8601),
        ({"at": "json"}, "at.b", TimeFormat.ISO8601),
        ({"at": "map<string,string>"}, "at.b", TimeFormat.ISO8601),
        ({"at": "struct<b:int>"}, "at", TimeFormat.ISO8601),
        ({"at": "struct<b:int>"}, "at.b", TimeFormat.ISO8601),
        ({"a": "int", "A": "int"}, "at", TimeFormat.ISO8601),
        ({"date": "int"}, "at", TimeFormat.ISO8601),
        ({"a": "int"}, 'a"t', TimeFormat.ISO8601),
        ({"a": "int"}, "a..t", TimeFormat.ISO8601),
    ],
)
def test_rules_by_which_nothing_can_be_decoded_are_refused(
    columns: dict[str, str], at: str, format: TimeFormat
) -> None:
    terms = rules(columns, at=at, format=format)
    with pytest.raises(ValueError, match="a"):
        Decoder(terms)


@pytest.mark.parametrize(
    "payload, levels",
    [(b"", 0), (b"{}", 1), (b'[{"a":[]},[]]', 3), (b'["[[[\\"[[["]', 1), (b'"[[[', 0), (b"]]][[", 0)],
)
def test_brackets_inside_strings_are_no_level(payload: bytes, levels: int) -> None:
    assert nesting(payload) == levels or payload.startswith(b"]")


def test_a_value_that_arrow_refuses_is_pinned_on_its_record_alone() -> None:
    make = arrays.bisect_failures(lambda values: (pa.array(values, pa.int32()), {}), parse_type("int"), "$.x")
    column, faults = make([1, None, 2**40, 3, "no", 5])
    assert column.to_pylist() == [1, None, None, 3, None, 5]
    assert faults == dict.fromkeys((2, 4), "Not a value of `int` - at `$.x`")
    assert make([])[0].to_pylist() == []


WIDE = {
    "id": "string",
    "amount": "double",
    "items": "bigint",
    "price": "decimal(6,2)",
    "tags": "array<string>",
    "address": "struct<city:string,zip:string>",
    "lines": "array<struct<sku:string,w:timestamp,x:json>>",
    "extra": "map<string,decimal(4,1)>",
    "meta": "struct<n:int>",
    "at": "timestamp",
}
TEXTS = st.text(max_size=5)
MAYBE_TIME = st.sampled_from(
    [AT, "2026-11-18T10:00:00.1234567Z", "2026-11-18T10:00:00", "2026-02-30T10:00:00Z", "", 5, None]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": TEXTS,
    "amount": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60),
    "items": st.integers(-(2**64), 2**64),
    "price": st.decimals(-20000, 20000, places=2).map(str) | st.integers(-20000, 20000),
    "tags": st.lists(st.none() | TEXTS, max_size=3),
    "address": st.fixed_dictionaries({}, optional={"city": TEXTS, "zip": st.none() | TEXTS}),
    "lines": st.lists(
        st.none() | st.fixed_dictionaries({}, optional={"sku": TEXTS, "w": MAYBE_TIME, "x": ANYTHING}),
        max_size=3,
    ),
    "extra": st.dictionaries(TEXTS, st.integers(0, 1200) | st.none(), max_size=3),
    "meta": st.fixed_dictionaries({}, optional={"n": st.integers(0, 5)}),
    "at": MAYBE_TIME,
    "other": ANYTHING,
}
GOOD = st.fixed_dictionaries(
    {"at": st.just(AT)}, optional={name: value for name, value in FIELDS.items() if name != "at"}
)
MIXED = st.fixed_dictionaries({}, optional={name: value | ANYTHING for name, value in FIELDS.items()})


def text_of(record: object) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")


def garbled(payload: bytes, at: int, byte: int) -> bytes:
    return payload[: at % (len(payload) + 1)] + bytes([byte]) + payload[at % (len(payload) + 1) :]


PAYLOADS = (
    GOOD.map(text_of)
    | MIXED.map(text_of)
    | st.builds(garbled, MIXED.map(text_of), st.integers(0, 500), st.integers(0, 255))
    | st.builds(lambda payload, end: payload[:end], GOOD.map(text_of), st.integers(0, 300))
    | st.binary(max_size=20)
    | st.none()
    | st.integers(60, 70).map(lambda deep: b'{"other":' + b"[" * deep + b"]" * deep + b"}")
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PAYLOADS, max_size=12), st.integers(1, 5), st.integers(1, 7))
def test_a_batch_decodes_as_its_records_do_one_by_one(
    payloads: list[bytes | None], chunk: int, looked_at: int
) -> None:
    decoder = Decoder(rules(WIDE))
    stamps = pa.nulls(len(payloads), pa.timestamp("us", "UTC"))
    values = pa.array([b"not ours", *payloads], pa.binary())[1:]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(payloads_of_json, "CHUNK", chunk)
        patched.setattr(payloads_of_json, "CHECKED_AT_ONCE", looked_at)
        together = rows(decoder.decode(values, stamps))
    alone = [rows(decoder.decode(pa.array([payload], pa.binary()), stamps[:1]))[0] for payload in payloads]
    assert together == alone
    for *_, time, cause in together:
        assert (time is None) == (cause is not None)


@given(
    st.fixed_dictionaries(
        {
            "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
            "i": st.none() | st.integers(-(2**31), 2**31 - 1),
            "l": st.none() | st.integers(-(2**63), 2**63 - 1),
            "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "f": st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32),
            "b": st.none() | st.booleans(),
            "y": st.none() | st.binary(max_size=9),
            "n": st.none() | st.decimals(-(10**8), 10**8, places=9, allow_nan=False),
            "a": st.none()
            | st.lists(st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3), max_size=3),
            "m": st.none() | st.dictionaries(st.text(max_size=3), st.none() | st.booleans(), max_size=3),
        }
    ),
    st.booleans(),
)
def test_what_pythons_json_writes_is_read_back_unchanged(record: dict[str, Any], ascii: bool) -> None:
    types = {
        "s": "string",
        "i": "int",
        "l": "bigint",
        "d": "double",
        "f": "float",
        "b": "boolean",
        "y": "binary",
    }
    types |= {"n": "decimal(18,9)", "a": "array<array<int>>", "m": "map<string,boolean>"}
    written = record | {"at": AT, "y": record["y"] and base64.b64encode(record["y"]).decode()}
    if record["y"] == b"":
        written["y"] = ""
    written["n"] = None if record["n"] is None else str(record["n"].quantize(Decimal("1e-9")))
    if written["n"] and "E" in written["n"]:
        written["n"] = format(record["n"], "f")
    (row,) = rows(decoded(rules(types), json.dumps(written, ensure_ascii=ascii).encode()))
    read = dict(zip(types, row, strict=False))
    read["m"] = None if read["m"] is None else dict(read["m"])
    assert row[-1] is None
    assert read == record


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_column_holds_the_nearest_float_or_the_record_is_invalid(number: float) -> None:
    value, cause = of("float", json.dumps(number))
    if abs(number) <= 3.4028234663852886e38:
        assert cause is None
        assert value == struct.unpack("f", struct.pack("f", number))[0]
        assert math.isfinite(value)
    else:
        assert cause is not None
