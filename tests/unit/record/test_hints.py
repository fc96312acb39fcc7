"""A hint names what is wrong with a record, and never repeats what the record holds."""

from __future__ import annotations

import gzip
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.record.hints import hint_of, unit_near
from jobs.record.rules import EventTimeRule, RecordFormat
from jobs.record.time_format import TimeForm, TimeFormat, TimePattern
from offsets.instants import millis
from tests.support.local_engine import RULES

STAMP = millis(datetime(2026, 11, 18, 12, tzinfo=UTC))
MILLISECONDS = {
    TimeFormat.EPOCH_S: 1_000,
    TimeFormat.EPOCH_MS: 1,
    TimeFormat.EPOCH_US: 1 / 1_000,
    TimeFormat.EPOCH_NS: 1 / 1_000_000,
}
SECRET = "hunter2"


def hint(value: bytes | None, format: TimeForm = TimeFormat.ISO8601) -> str | None:
    rules = replace(RULES, event_time=EventTimeRule(path=("meta", "at"), format=format, zone="UTC"))
    return hint_of(value, STAMP, rules)


@pytest.mark.parametrize(
    "value, words",
    [
        (b"\0\0\0\0\7" + SECRET.encode(), "schema registry"),
        (gzip.compress(SECRET.encode()), "gzip"),
        (b"\x28\xb5\x2f\xfd" + SECRET.encode(), "zstd"),
        (SECRET.encode("utf-16"), "UTF-16"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a":"caf\xe9 hunter2"}', "not UTF-8"),
        (b'"{\\"a\\":\\"hunter2\\"}"', "encoded it twice"),
        (b'[{"a":"hunter2"}]', "array"),
        (b'{"schema":{},"payload":{"a":"hunter2"}}', "envelope"),
        (b'{"meta":{"at":1795003200000,"a":"hunter2"}}', "milliseconds since 1970; set event_time.format"),
        (b'{"meta":{"at":1795003200000000}}', "set event_time.format: epoch_us"),
        (b'{"meta":{"at":1795003200}}', "set event_time.format: epoch_s"),
        (b'{"meta":{"at":1795003200000000000}}', "nanoseconds since 1970; set event_time.format: epoch_ns"),
        (b'{"meta":{"at":20775}}', "days since 1970; set event_time.format: epoch_d"),
        (b'{"meta":{"at":1795003200.5}}', "seconds since 1970, written with a point"),
        (b'{"meta":{"at":"1795003200000"}}', "written as a text"),
    ],
)  # fmt: skip
def test_an_invalid_record_has_a_hint_that_holds_no_value(value: bytes, words: str) -> None:
    found = hint(value)
    assert found is not None
    assert words in found
    assert SECRET not in found
    assert "1795003200" not in found


@pytest.mark.parametrize("value", [None, b"", b"{", b"{}", b"7", b'{"meta":7}', b'{"meta":{"at":true}}'])
def test_a_record_without_a_known_fault_has_no_hint(value: bytes | None) -> None:
    assert hint(value) is None


def test_a_time_that_is_written_as_the_config_reads_it_has_no_hint() -> None:
    assert hint(b'{"meta":{"at":1795003200000}}', TimeFormat.EPOCH_MS) is None
    assert hint(b'{"meta":{"at":"2026-11-18"}}') is None
    assert "iso8601 reads texts" in (hint(b'{"meta":{"at":"2026-11-18"}}', TimeFormat.EPOCH_MS) or "")
    assert "epoch_us" in (hint(b'{"meta":{"at":1795003200000000}}', TimeFormat.EPOCH_MS) or "")
    assert hint(b'{"meta":{"at":1795003200000000000}}', TimeFormat.EPOCH_NS) is None


@pytest.mark.parametrize(
    "form", [TimeFormat.ISO8601_LENIENT, TimePattern("dd/MM/yyyy"), TimePattern("yyyyMMdd")]
)
def test_a_format_of_texts_is_not_taken_for_one_of_numbers(form: TimeForm) -> None:
    """Every format but iso8601 was called a number, with the advice to read texts by another one."""
    assert hint(b'{"meta":{"at":"2026-11-18 10h"}}', form) is None
    assert hint(b'{"meta":{"at":"20261118"}}', form) is None
    assert "set event_time.format: epoch_ms" in (hint(b'{"meta":{"at":1795003200000}}', form) or "")


def test_raw_records_have_no_hint() -> None:
    assert hint_of(b"\0" * 9, STAMP, replace(RULES, format=RecordFormat.RAW)) is None


@given(st.integers(946_684_800_000, 4_102_444_800_000), st.sampled_from(sorted(MILLISECONDS)))
def test_the_unit_of_a_time_near_kafkas_timestamp_is_found(stamp: int, unit: TimeFormat) -> None:
    assert unit_near(round(stamp / MILLISECONDS[unit]), stamp) is unit


@given(st.binary(), st.integers(-1, 1 << 62), st.sampled_from(TimeFormat))
def test_no_bytes_end_in_an_error(value: bytes, stamp: int, format: TimeFormat) -> None:
    rules = replace(RULES, event_time=EventTimeRule(path=("at",), format=format, zone="UTC"))
    hint_of(value, stamp, rules)
    hint_of(b'{"at":%d}' % (stamp * 10**9), stamp, rules)
