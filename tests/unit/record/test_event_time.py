"""Times are read exactly, and alike on every path."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobs.record.event_time import (
    FIRST,
    LAST,
    LEAP_SECOND,
    NO_SUCH_TIME,
    NO_ZONE,
    NOT_A_TIME,
    OUT_OF_YEARS,
    epochs,
    instant,
    instants,
)
from jobs.record.rules import TimeFormat

UTC, AMSTERDAM = ZoneInfo("UTC"), ZoneInfo("Europe/Amsterdam")
ZONES: list[ZoneInfo | None] = [UTC, AMSTERDAM, None]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


LOCALS = st.datetimes(datetime(1850, 1, 1), datetime(2040, 1, 1))
CHANGES = st.sampled_from([datetime(2026, 3, 29, 2), datetime(2026, 10, 25, 2), datetime(1940, 5, 16)])
NEAR = st.builds(
    lambda change, off: change + off, CHANGES, st.timedeltas(-timedelta(hours=2), timedelta(hours=3))
)


def one_by_one(texts: list[str | None], zone: ZoneInfo | None) -> tuple[list[int | None], dict[int, str]]:
    values: list[int | None] = [None] * len(texts)
    faults = {}
    for index, text in enumerate(texts):
        if text is not None:
            try:
                values[index] = instant(text, zone)
            except ValueError as wrong:
                faults[index] = str(wrong)
    return values, faults


DIGITS = "0123456789"
SHAPES = st.from_regex(
    r"[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-6][0-9](:[0-6][0-9])?"
    r"([.,][0-9]{0,10})?(Z|z|[+-][0-2][0-9](:?[0-6][0-9])?)?",
    fullmatch=True,
)
TIMES = st.builds(
    lambda time, digits, zone: (
        time.strftime("%Y").zfill(4) + time.strftime("-%m-%dT%H:%M:%S") + digits + zone
    ),
    st.datetimes(),
    st.integers(0, 10)
    .flatmap(lambda n: st.text(DIGITS, min_size=n, max_size=n))
    .map(lambda d: d and "." + d),
    st.sampled_from(["Z", "+00:00", "-00:00", "+14:00", "-23:59", ""]),
)


@pytest.mark.parametrize("zone", ZONES)
@given(texts=st.lists(st.none() | TIMES | SHAPES | st.text(max_size=30), max_size=80))
@example(texts=["2026-11-18T10:00Z", "2026-11-18T10:00:00Z"])
@example(texts=["2026-11-18T10:00:00.1234567890Z", "2026-11-18T10:00:00+0100", "2026-11-18T10:00:00+01"])
@example(
    texts=["2026-11-18T10:00:00,5Z", "2026-W47-3T10:00:00Z", "2026-11-18T24:00:00Z", "20261118T100000.000Z"]
)
@example(texts=["2026-11-18T10:00:00Z", "2026-02-30T10:00:00Z", *["2026-11-18T10:00:00Z"] * 70])
@example(texts=["0000-01-01T00:00:00Z", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59.9999999Z"])
def test_the_fast_path_reads_what_the_slow_path_reads(zone: ZoneInfo | None, texts: list[str | None]) -> None:
    column, faults = instants(pa.array(texts, pa.string()), zone)
    assert (column.to_pylist(), faults) == one_by_one(texts, zone)


@given(
    st.lists(LOCALS | NEAR, max_size=30),
    st.sampled_from(["Europe/Amsterdam", "Asia/Kolkata", "Australia/Lord_Howe"]),
)
def test_a_local_time_has_the_offset_of_its_zone_at_any_moment(times: list[datetime], key: str) -> None:
    texts: list[str | None] = [time.isoformat() for time in times]
    column, faults = instants(pa.array(texts, pa.string()), ZoneInfo(key))
    assert (column.to_pylist(), faults) == one_by_one(texts, ZoneInfo(key))
    zoned = [time.replace(tzinfo=ZoneInfo(key)) for time in times]
    assert column.to_pylist() == [(time - EPOCH) // timedelta(microseconds=1) for time in zoned]


@given(st.datetimes(timezones=st.just(UTC)), st.integers(-23 * 60, 23 * 60))
def test_a_time_reads_as_python_reads_it(time: datetime, minutes: int) -> None:
    try:
        text = time.astimezone(timezone(timedelta(minutes=minutes))).isoformat()
    except OverflowError:
        return
    assert instant(text, None) == (time - EPOCH) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text, read",
    [
        ("2026-11-18T23:59:59.999999999Z", "2026-11-18T23:59:59.999999+00:00"),
        ("2026-11-18 23:59:59Z", "2026-11-18T23:59:59+00:00"),
        ("2026-11-18t23:59:59z", "2026-11-18T23:59:59+00:00"),
        ("2026-11-18T23:59:59-00:00", "2026-11-18T23:59:59+00:00"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999+00:00"),
        ("2026-03-29T02:30:00", "2026-03-29T01:30:00+00:00"),  # a gap: the offset before it holds
        ("2026-10-25T02:30:00", "2026-10-25T00:30:00+00:00"),  # twice: the first
    ],
)
def test_a_lawful_time_keeps_its_instant(text: str, read: str) -> None:
    micros = (datetime.fromisoformat(read) - EPOCH) // timedelta(microseconds=1)
    assert instants(pa.array([text]), AMSTERDAM)[0].to_pylist() == [micros]


@pytest.mark.parametrize(
    "text, cause",
    [
        ("", NOT_A_TIME),
        ("2026-11-18", NOT_A_TIME),
        ("2026-11-18T10:00Z", NOT_A_TIME),
        ("2026-11-18T10:00:00+0100", NOT_A_TIME),
        ("2026-11-18T10:00:00Z\n", NOT_A_TIME),
        ("\uff12026-11-18T10:00:00Z", NOT_A_TIME),
        ("2026-02-30T10:00:00Z", NO_SUCH_TIME),
        ("2026-11-18T24:00:00Z", NO_SUCH_TIME),
        ("2026-11-18T10:00:00+24:00", NO_SUCH_TIME),
        ("2026-06-30T23:59:60Z", LEAP_SECOND),
        ("2026-11-18T10:00:00", NO_ZONE),
        ("0000-12-31T23:59:59Z", OUT_OF_YEARS),
        ("0001-01-01T00:00:00+14:00", OUT_OF_YEARS),
        ("9999-12-31T23:59:59-00:01", OUT_OF_YEARS),
    ],
)
def test_any_other_time_is_refused_with_its_cause(text: str, cause: str) -> None:
    assert instants(pa.array([text]), None)[1] == {0: cause}


@pytest.mark.parametrize("format", [TimeFormat.EPOCH_S, TimeFormat.EPOCH_MS, TimeFormat.EPOCH_US])
@given(counts=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**40), 2**40)))
@example(counts=[FIRST // 10**exponent + beside for exponent in (0, 3, 6) for beside in (-1, 0)])
@example(counts=[LAST // 10**exponent + beside for exponent in (0, 3, 6) for beside in (0, 1)])
@example(counts=[FIRST // 10**6, LAST // 10**6])
@example(counts=[FIRST // 10**3, LAST // 10**3])
@example(counts=[FIRST, LAST])
def test_a_count_is_in_range_or_refused_and_never_overflows(
    format: TimeFormat, counts: list[int | None]
) -> None:
    unit = {"epoch_s": 10**6, "epoch_ms": 10**3, "epoch_us": 1}[format]
    column, faults = epochs(pa.array(counts, pa.int64()), format)
    for index, count in enumerate(counts):
        inside = count is not None and FIRST <= count * unit <= LAST
        assert column[index].as_py() == (count * unit if count is not None and inside else None)
        assert faults.get(index) == (None if inside or count is None else OUT_OF_YEARS)
