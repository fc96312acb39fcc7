"""A record's key becomes columns, as a plain reading of it finds them, or the record is invalid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.record.columns import Column, parse_type
from jobs.record.decode import Decoder, day_schema
from jobs.record.rules import EventTimeRule, KeyFormat, KeyRule, RecordFormat, Rules, rules_of
from jobs.record.time_format import TimeFormat
from tests.support.local_engine import RULES

TERMS = replace(RULES, event_time=EventTimeRule(path=(), format=TimeFormat.ISO8601, zone="UTC"))


def keyed(columns: dict[str, str], format: KeyFormat = KeyFormat.TEXT) -> Rules:
    read = tuple(Column(name, parse_type(type)) for name, type in columns.items())
    return replace(TERMS, key=KeyRule(format=format, columns=read))


def read(
    rules: Rules, keys: Sequence[bytes | None], values: Sequence[bytes | None] | None = None
) -> tuple[list[tuple[Any, ...]], list[str | None]]:
    """Decode records with these keys; return the columns of the keys, and the causes."""
    stamps = pa.array([datetime(2026, 11, 18, tzinfo=UTC)] * len(keys), pa.timestamp("us", "UTC"))
    payloads = pa.array(values or [b"{}"] * len(keys), pa.binary())
    found = Decoder(rules).decode(payloads, stamps, pa.array(keys, pa.binary()))
    assert [column.type for column in found.columns] == [*day_schema(rules).types][-len(found.columns) :]
    columns = [column.to_pylist() for column in found.columns[-len(rules.key.columns) :]]
    return list(zip(*columns, strict=True)), found.cause.to_pylist()


def test_a_text_key_is_a_column_after_those_of_the_record() -> None:
    rules = keyed({"customer": "string"})
    assert day_schema(rules).names[-3:] == ["id", "n", "customer"]
    assert read(rules, [b"c-1", "ü".encode(), b"", None, b"\xff"]) == (
        [("c-1",), ("ü",), ("",), (None,), (None,)],
        [None, None, None, None, "Key: Not valid UTF-8"],
    )


@given(st.lists(st.none() | st.integers(-(2**64), 2**64).map(str) | st.from_regex(r"[-+ 0-9._x]{0,21}")))
@example(
    ["9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "0x1F"]
)
@example(["1_0", "+1", " 1", "01", "-0", "1\n", "\uff11", "", "9" * 5000])
def test_a_number_as_a_key_is_the_number_that_python_reads(texts: list[str | None]) -> None:
    values, causes = read(
        keyed({"number": "bigint"}), [None if text is None else text.encode() for text in texts]
    )
    for text, (value,), cause in zip(texts, values, causes, strict=True):
        lawful = text is not None and re.fullmatch(r"-?(0|[1-9][0-9]*)", text) and len(text) < 99
        if text is None or (lawful and -(2**63) <= int(text) < 2**63):
            assert (value, cause) == (None if text is None else int(text), None)
        else:
            assert cause == "Key: Not a whole number for `bigint`"


def test_the_columns_of_a_json_key_are_read_as_those_of_a_value() -> None:
    columns = (
        Column("customer", parse_type("bigint"), ("payload", "id")),
        Column("region", parse_type("string")),
    )
    rules = replace(TERMS, key=KeyRule(format=KeyFormat.JSON, columns=columns))
    keys = [b'{"payload":{"id":7},"region":"eu"}', None, b"{}", b'{"payload":{"id":"7"}}', b"", b"7", b"\xff"]
    values, causes = read(rules, keys)
    assert values[:3] == [(7, "eu"), (None, None), (None, None)]
    assert causes == [
        None,
        None,
        None,
        "Key: Expected `bigint`, got `string` - at `$.payload.id`",
        "Key: Malformed JSON: truncated",
        "Key: Expected `object`, got `int`",
        "Key: Not valid UTF-8",
    ]


def test_what_is_wrong_with_a_value_is_said_before_what_is_wrong_with_its_key() -> None:
    _, causes = read(keyed({"number": "bigint"}), [b"x"] * 4, [b"{", b'{"n":""}', None, b"{}"])
    assert causes == [
        "Malformed JSON: truncated",
        "Expected `bigint`, got `string` - at `$.n`",
        "No value (tombstone)",
        "Key: Not a whole number for `bigint`",
    ]


def test_a_key_that_nobody_asked_for_is_not_read() -> None:
    stamps, payloads = pa.array([datetime.now(UTC)], pa.timestamp("us", "UTC")), pa.array([b"{}"])
    assert Decoder(TERMS).decode(payloads, stamps, pa.array([b"\xff"])).cause.to_pylist() == [None]
    with pytest.raises(ValueError, match="expected the keys"):
        Decoder(keyed({"customer": "string"})).decode(payloads, stamps)


@pytest.mark.parametrize(
    "rules, said",
    [
        (keyed({"a": "string", "b": "string"}), "one column of type string or bigint"),
        (keyed({"a": "int"}), "one column of type string or bigint"),
        (keyed({"ID": "string"}), "without regard to case: `id` and `ID`"),
        (keyed({"date": "string"}), "reserved"),
        (replace(keyed({"a": "string"}), format=RecordFormat.RAW, columns=()), "raw keeps the key as bytes"),
    ],
)
def test_rules_by_which_no_key_can_be_decoded_are_refused(rules: Rules, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        Decoder(rules)


def test_the_contract_holds_the_key_only_where_it_is_decoded() -> None:
    first = date(2026, 11, 1)
    assert "key" not in str(TERMS.contract("UTC", first).terms["record"]).replace(
        "kafka_columns': ['key']", ""
    )
    rules = replace(keyed({"customer": "string"}), event_time=RULES.event_time)
    assert rules_of(rules.contract("UTC", first)) == rules
    (change, _) = rules.contract("UTC", first).changes_from(RULES.contract("UTC", first))
    assert change == 'record.key.columns.customer: (none) -> "string"'
