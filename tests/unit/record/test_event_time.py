"""Times are read exactly, and alike on every path."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
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
    NOT_ISO8601,
    OUT_OF_YEARS,
    TimeReader,
    epochs,
    instant,
    instants,
)
from jobs.record.time_format import TimeFormat, TimePattern

UTC, AMSTERDAM = ZoneInfo("UTC"), ZoneInfo("Europe/Amsterdam")
ZONES: list[ZoneInfo | None] = [UTC, AMSTERDAM, None]
AT = "2026-11-18T10:00:00Z"
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


ISO_TIMES = st.builds(
    lambda time, form, digits, zone: time.strftime("%Y").zfill(4) + time.strftime(form) + digits + zone,
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)),
    st.sampled_from(["-%m-%dT%H:%M:%S", "-%m-%d %H:%M:%S", "-%m-%dt%H:%M:%S"]),
    st.from_regex(r"([.,][0-9]{1,9})?", fullmatch=True),
    st.sampled_from(["Z", "z", "", "+01:00", "-0130", "+14", "-00"]),
) | st.builds(
    lambda time, form, zone: (
        time.strftime("%Y").zfill(4) + time.strftime(form) + (zone if "T" in form else "")
    ),
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)),
    st.sampled_from(["-%m-%dT%H:%M", "-%m-%d"]),
    st.sampled_from(["Z", "", "+01:00", "-0130", "+14"]),
)


def lenient(zone: ZoneInfo | None) -> TimeReader:
    return TimeReader(format=TimeFormat.ISO8601_LENIENT, zone=zone)


def python_reads(text: str, zone: ZoneInfo) -> int:
    time = datetime.fromisoformat(text.upper())
    return ((time if time.tzinfo else time.replace(tzinfo=zone)) - EPOCH) // timedelta(microseconds=1)


@given(st.lists(ISO_TIMES, max_size=8), st.sampled_from([UTC, ZoneInfo("Asia/Tokyo")]))
def test_a_lenient_time_reads_as_python_reads_it(texts: list[str], zone: ZoneInfo) -> None:
    column, faults = lenient(zone).read(texts)
    assert faults == {}
    assert column.to_pylist() == [python_reads(text, zone) for text in texts]


@given(st.lists(st.none() | SHAPES | ISO_TIMES | st.text(max_size=30), max_size=12))
def test_no_lenient_time_is_read_otherwise_than_python_reads_it(texts: list[str | None]) -> None:
    column, faults = lenient(UTC).read(texts)
    strict, strict_faults = instants(pa.array(texts, pa.string()), UTC)
    for index, (text, micros) in enumerate(zip(texts, column.to_pylist(), strict=True)):
        assert (micros is None) == (text is None or index in faults)
        if text is not None and micros is not None:
            assert micros == python_reads(text, UTC)
        if index not in strict_faults:
            assert (micros, index in faults) == (strict[index].as_py(), False)


@pytest.mark.parametrize(
    "text, cause",
    [
        ("", NOT_ISO8601),
        ("2026-11", NOT_ISO8601),
        ("2026-11-18Z", NOT_ISO8601),
        ("2026-11-18T10", NOT_ISO8601),
        ("2026-11-18T10:00,5Z", NOT_ISO8601),
        ("2026-11-18T10:00:00Z00", NOT_ISO8601),
        ("2026-11-18T10:00:00,Z", NOT_ISO8601),
        ("2026-11-18T10:00:00+1", NOT_ISO8601),
        ("2026-11-18T10:00:00+010", NOT_ISO8601),
        ("2026-11-18T10:00:00+01:", NOT_ISO8601),
        ("2026-11-18\n", NOT_ISO8601),
        ("\uff12026-11-18", NOT_ISO8601),
        ("2026-02-30", NO_SUCH_TIME),
        ("2026-11-18T10:00+2400", NO_SUCH_TIME),
        ("2026-06-30T23:59:60+00", LEAP_SECOND),
        ("2026-11-18", NO_ZONE),
        ("0001-01-01T00:00+14", OUT_OF_YEARS),
    ],
)
def test_any_other_lenient_time_is_refused_with_its_cause(text: str, cause: str) -> None:
    assert lenient(None).read([text])[1] == {0: cause}


PIECES = {
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSSSSS": "%f",
    "XX": "%z",
    "'T'": "T",
    "''": "'",
    "'o''clock'": "o'clock",
    **{sign: sign for sign in "/.- ,:;()[]{}+*?^$|\\#~ü\t"},
}


OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(
    st.sets(st.sampled_from(sorted(PIECES))).flatmap(
        lambda some: st.permutations([*some, "yyyy", "MM", "dd"])
    ),
    st.datetimes(datetime(1000, 1, 2), datetime(9998, 1, 1), timezones=OFFSETS),
    st.text(max_size=3),
)
def test_a_time_in_a_pattern_reads_as_python_reads_it(pieces: list[str], time: datetime, other: str) -> None:
    same = {"yyyy": "%Y", "MM": "%m", "dd": "%d"} | PIECES
    directives = "|".join(same[piece] for piece in pieces)
    text = time.strftime(directives)
    expected = datetime.strptime(text, directives)
    expected = expected if expected.tzinfo else expected.replace(tzinfo=UTC)
    reader = TimeReader(format=TimePattern("|".join(pieces)), zone=UTC)
    column, faults = reader.read([text, None, text + other])
    micros = (expected - EPOCH) // timedelta(microseconds=1)
    assert column.to_pylist()[:2] == [micros, None]
    assert (2 in faults) == bool(other)
    assert reader.read_dates([text])[0].to_pylist() == [time.date()]


@pytest.mark.parametrize(
    "pattern, text, read",
    [
        ("dd.MM.yyyy", "18.11.2026", "2026-11-18T00:00:00+01:00"),
        ("dd.MM.yyyy HH", "18.11.2026 10", "2026-11-18T10:00:00+01:00"),
        ("yyyyMMddHHmmssSSS", "20261118100000123", "2026-11-18T10:00:00.123+01:00"),
        (
            "yyyy-MM-dd'T'HH:mm:ss.SSSSSSSSSX",
            "2026-11-18T10:00:00.123456789+02",
            "2026-11-18T10:00:00.123456+02:00",
        ),
        ("yyyy-MM-dd HH:mm XXX", "2026-11-18 10:00 Z", "2026-11-18T10:00:00+00:00"),
        ("yyyy-MM-dd HH:mm XXX", "2026-11-18 10:00 -05:30", "2026-11-18T10:00:00-05:30"),
    ],
)
def test_a_pattern_reads_what_it_says(pattern: str, text: str, read: str) -> None:
    micros = (datetime.fromisoformat(read) - EPOCH) // timedelta(microseconds=1)
    assert TimeReader(format=TimePattern(pattern), zone=AMSTERDAM).read([text])[0].to_pylist() == [micros]


@pytest.mark.parametrize(
    "pattern, text, cause",
    [
        ("dd/MM/yyyy", "2026-11-18T10:00:00Z", "Not a time as dd/MM/yyyy"),
        ("dd/MM/yyyy", "1/11/2026", "Not a time as dd/MM/yyyy"),
        ("dd/MM/yyyy", "30/02/2026", NO_SUCH_TIME),
        ("dd/MM/yyyy", "18/11/2026\n", "Not a time as dd/MM/yyyy"),
        ("dd.MM.yyyy", "18/11/2026", "Not a time as dd.MM.yyyy"),
        ("yyyyMMddXXX", "20261118+0100", "Not a time as yyyyMMddXXX"),
        ("yyyyMMddXX", "20261118+01", "Not a time as yyyyMMddXX"),
        ("yyyyMMdd", "20261118", NO_ZONE),
    ],
)
def test_a_text_in_another_pattern_is_refused(pattern: str, text: str, cause: str) -> None:
    assert TimeReader(format=TimePattern(pattern)).read([text])[1] == {0: cause}


@pytest.mark.parametrize(
    "format, written, dates",
    [
        (TimeFormat.ISO8601, ["2026-11-18T23:30:00-05:00", None], [date(2026, 11, 18), None]),
        (TimeFormat.ISO8601_LENIENT, ["2026-11-18", "2026-11-18T00:00+01"], [date(2026, 11, 18)] * 2),
        (
            TimeFormat.EPOCH_D,
            [0, -1, None, 20775],
            [date(1970, 1, 1), date(1969, 12, 31), None, date(2026, 11, 18)],
        ),
        (
            TimeFormat.EPOCH_MS,
            [-1, 86_399_999, 86_400_000],
            [date(1969, 12, 31), date(1970, 1, 1), date(1970, 1, 2)],
        ),
        (TimeFormat.EPOCH_NS, [-1, 0], [date(1969, 12, 31), date(1970, 1, 1)]),
    ],
)
def test_a_date_is_the_one_that_is_written_and_of_a_count_the_one_in_utc(
    format: TimeFormat, written: list[object], dates: list[date | None]
) -> None:
    found, faults = TimeReader(format=format).read_dates(written)
    assert (found.to_pylist(), faults) == (dates, {})


def test_a_date_that_cannot_be_read_is_refused() -> None:
    found, faults = TimeReader(format=TimeFormat.ISO8601).read_dates(
        ["2026-11-18", AT, "2026-02-30T00:00:00Z"]
    )
    assert found.to_pylist() == [None, date(2026, 11, 18), None]
    assert faults == {0: NOT_A_TIME, 2: NO_SUCH_TIME}


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
@example([-1, -1000, -1001, 999, 1000, -(2**63), 2**63 - 1])
def test_nanoseconds_are_cut_to_the_microsecond_before(counts: list[int | None]) -> None:
    column, faults = epochs(pa.array(counts, pa.int64()), TimeFormat.EPOCH_NS)
    assert column.to_pylist() == [None if count is None else count // 1000 for count in counts]
    assert faults == {}


@pytest.mark.parametrize(
    "format", [TimeFormat.EPOCH_D, TimeFormat.EPOCH_S, TimeFormat.EPOCH_MS, TimeFormat.EPOCH_US]
)
@given(counts=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**40), 2**40)))
@example(counts=[FIRST // 10**exponent + beside for exponent in (0, 3, 6) for beside in (-1, 0)])
@example(counts=[LAST // 10**exponent + beside for exponent in (0, 3, 6) for beside in (0, 1)])
@example(counts=[FIRST // 10**6, LAST // 10**6])
@example(counts=[FIRST // (86_400 * 10**6), LAST // (86_400 * 10**6), LAST // (86_400 * 10**6) + 1])
@example(counts=[FIRST // 10**3, LAST // 10**3])
@example(counts=[FIRST, LAST])
def test_a_count_is_in_range_or_refused_and_never_overflows(
    format: TimeFormat, counts: list[int | None]
) -> None:
    unit = {"epoch_d": 86_400 * 10**6, "epoch_s": 10**6, "epoch_ms": 10**3, "epoch_us": 1}[format]
    column, faults = epochs(pa.array(counts, pa.int64()), format)
    for index, count in enumerate(counts):
        inside = count is not None and FIRST <= count * unit <= LAST
        assert column[index].as_py() == (count * unit if count is not None and inside else None)
        assert faults.get(index) == (None if inside or count is None else OUT_OF_YEARS)
