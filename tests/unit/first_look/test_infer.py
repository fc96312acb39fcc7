"""Inferred types hold for every value that they came from, and a written config says what was proposed."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from jobs import config
from jobs.first_look.config_text import config_text
from jobs.first_look.infer import infer
from jobs.first_look.propose import Proposal, decoded_objects, propose
from jobs.first_look.times import candidates
from jobs.record.columns import Column, ddl
from jobs.record.decode import Decoder
from jobs.record.rules import EventTimeRule
from jobs.record.schema import INSTANT
from jobs.record.time_format import TimeFormat
from offsets.kafka.reader import FullRecord
from tests.support.kinds_of_topics import KAFKA
from tests.support.local_engine import RULES

STAMP = 1_795_003_200_000
TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["2026-11-18", "2026-11-18T12:00:00Z", "2026-11-18T12:00:00", "1.50", "007", ""]),
    st.sampled_from(["2026-02-30", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00Z"]),
)
NAMES = st.one_of(
    st.sampled_from(["a", "b", "A", "date", "ts", "created_at", "x y", "kafka_x", "a.b", "a`b", ""]),
    st.sampled_from(["${env:HOME}", "it's", "a: b", "a #b", "<<", "yes", "~", "-", "\u2028", "\ufeff", "é"]),
    st.text(max_size=3),
)
NUMBERS = st.one_of(
    st.integers(-5, 5),
    st.integers(-(2**70), 2**70),
    st.integers(STAMP - 10**6, STAMP),
    st.floats(allow_nan=False, allow_infinity=False),
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=8,
)
OBJECTS = st.lists(st.dictionaries(NAMES, VALUES, max_size=5), min_size=1, max_size=12)


def records(objects: list[dict[str, Any]]) -> list[FullRecord]:
    return [
        FullRecord(number, STAMP, b"k", json.dumps(value).encode(), ())
        for number, value in enumerate(objects)
    ]


def causes(columns: tuple[Column, ...], found: list[FullRecord]) -> list[str | None]:
    """Return why records are invalid under some columns."""
    rules = replace(
        RULES,
        columns=columns,
        event_time=EventTimeRule(path=(), format=TimeFormat.ISO8601, zone="UTC"),
        past=timedelta(days=10**5),
    )
    values = pa.array([record.value for record in found], pa.binary())
    stamps = pa.array([STAMP * 1000] * len(found), pa.int64()).cast(INSTANT)
    read: list[str | None] = Decoder(rules).decode(values, stamps).cause.to_pylist()
    return read


@settings(max_examples=100, deadline=None)
@given(OBJECTS)
def test_every_record_of_the_sample_is_valid_under_the_types_inferred_from_it(
    objects: list[dict[str, Any]],
) -> None:
    sample = records(objects)
    found = propose(sample, "UTC", None)
    readable = len(decoded_objects(sample))
    if found is None:
        assert readable == 0
        return
    columns = tuple(Column(column.name, column.type, (column.field,)) for column in found.columns)
    if columns:
        valid = causes(columns, sample).count(None)
        assert valid >= readable


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(OBJECTS)
@example([{"a": "x", "\U000f0000": 1479643200000}])  # a character beyond U+FFFF was cut in two
@example([{"a": "x", 'q"\\\x7f': 1479643200000}])
def test_a_written_config_is_read_back_as_it_was_proposed(
    tmp_path: Path, objects: list[dict[str, Any]]
) -> None:
    found = propose(records(objects), "UTC", None)
    if found is None or not found.columns:
        return
    loaded = written(found, tmp_path)
    assert [(column.name, column.path, column.type) for column in loaded.rules.columns] == [
        (column.name, (column.field,), column.type) for column in found.columns
    ]
    assert loaded.day.first == found.first
    assert loaded.rules.event_time.path == (found.event_time.path if found.event_time else ())


def test_names_of_the_lake_and_twins_get_others_that_no_field_has() -> None:
    fields = ["ip", "IP", "Ip", "IP_2", "date", "Date", "record_date", "KAFKA_x"]
    found = propose(records([dict.fromkeys(fields, 1)]), "UTC", None)
    assert found is not None
    assert {column.field: column.name for column in found.columns} == {
        "ip": "ip",
        "IP": "IP_3",
        "Ip": "Ip_4",
        "IP_2": "IP_2",
        "date": "record_date_2",
        "Date": "record_Date_3",
        "record_date": "record_date",
        "KAFKA_x": "record_KAFKA_x",
    }


def written(found: Proposal, folder: Path) -> config.Settings:
    path = folder / "a.yaml"
    path.write_text(config_text(found, "orders", KAFKA, "./lake/orders"), encoding="utf-8")
    return config.load(path, os.environ)


@pytest.mark.parametrize(
    "values, type",
    [
        ([1, 2, None], "bigint"),
        ([1, 2.5], "double"),
        ([2**63], "decimal(38,0)"),
        ([2**60, 0.5], "json"),
        ([10**40], "json"),
        ([True, None], "boolean"),
        ([True, 1], "json"),
        (["a", 1], "json"),
        ([None], "json"),
        ([], "json"),
        (["2026-11-18T12:00:00Z", "2026-11-18t12:00:00.123456789+01:00"], "timestamp"),
        (["2026-11-18T12:00:00"], "string"),
        (["2026-11-18"], "date"),
        (["2026-02-30"], "string"),
        (["2026-11-18", ""], "string"),
        (["1.50", "2"], "string"),
        ([[], [1]], "array<bigint>"),
        ([[]], "array<json>"),
        ([{}], "json"),
        ([{"a": 1}, {"b": "x"}], "struct<a:bigint,b:string>"),
        ([{"a": 1, "A": 2}], "json"),
        ([{f"k{number}": number} for number in range(9)], "map<string,bigint>"),
        ([{f"k{number}": [number]} for number in range(9)], "map<string,array<bigint>>"),
        ([{f"k{key}": 1 for key in range(300)}], "json"),
        ([1] * 99 + ["x"], "bigint"),
        ([1] * 98 + ["x"], "json"),
        ([1.5] * 197 + [True, "x"], "json"),
        ([1] * 50 + [1.5] * 149 + [None] * 9 + [True], "double"),
        ([2**60] * 99 + [0.5], "bigint"),
        ([1] * 99 + [10**40], "bigint"),
        ([[1]] * 99 + [["x"]], "array<bigint>"),
        ([[1] * 99 + ["x"]], "array<json>"),
        ([{f"k{number}": 1} for number in range(99)] + [{"k": "x"}], "map<string,bigint>"),
        (["2026-11-18"] * 999 + [""], "date"),
        (["2026-11-18"] * 500 + [""], "string"),
    ],
)
def test_values_have_the_type_that_holds_them_all(values: list[Any], type: str) -> None:
    assert ddl(infer(values).type) == type


@pytest.mark.parametrize(
    "values, note",
    [
        ([1.25, 2.5], "decimal(18,2) would be exact, if this is money"),
        ([20.5, 21.0], ""),
        ([0.123, 1], ""),
        (["1.2", "1.3"], ""),
        (["1.50", "2.25"], "decimal(38,2) would hold these as exact numbers"),
        (["1.2", "1.25"], ""),
    ],
)
def test_decimals_are_named_for_what_may_be_money_alone(values: list[Any], note: str) -> None:
    """Any double, and a version such as 1.2, were said to be decimals."""
    assert infer(values).note == note


def test_the_event_time_is_the_best_named_field_near_kafkas_timestamp_that_all_records_have() -> None:
    base = {
        "birth": "1980-01-01T00:00:00Z",
        "updated_at": STAMP - 5,
        "meta": {"event_time": STAMP * 1000 - 7},
        "created_at": STAMP - 9,
        "days": STAMP // 86_400_000,
        "id": 7,
    }
    objects = [(STAMP, base) for _ in range(20)]
    found = candidates(objects)
    assert [".".join(candidate.path) for candidate in found] == [
        "meta.event_time",
        "created_at",
        "updated_at",
    ]
    assert found[0].format is TimeFormat.EPOCH_US
    nanoseconds = [(STAMP, {"ts_ns": STAMP * 10**6 + 5, "id": 7})] * 20
    assert [(found.path, found.format) for found in candidates(nanoseconds)] == [
        (("ts_ns",), TimeFormat.EPOCH_NS)
    ]
    rare = [(STAMP, base if number % 2 else {"created_at": STAMP}) for number in range(20)]
    assert [candidate.path for candidate in candidates(rare)] == [("created_at",)]
