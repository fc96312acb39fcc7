"""The verdict rule: its order, its edges, and that it agrees with the reference."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.record.rules import RecordFormat
from jobs.task.classify import CODE, VERDICTS, DayBounds, SettledOffsets, classify
from offsets.days import day_in
from offsets.instants import micros
from offsets.ranges import Offsets
from offsets.verdict import Verdict
from tests import reference
from tests.reference import Fate
from tests.support.bounds import BOUNDS, DAY, DAYS, bounds_of

HOUR, DAY_LONG = 3_600_000_000, 86_400_000_000
PAST, FUTURE = 30 * DAY_LONG, DAY_LONG
START, END, LAKE = micros(DAY.start), micros(DAY.end), micros(DAYS[0].start)


def judge(
    event_time: int | None,
    *,
    stamp: int | None = None,
    cause: str | None = None,
    tombstone: bool = False,
    bounds: DayBounds = BOUNDS,
    no_stamp: bool = False,
) -> tuple[Verdict, str | None, date | None]:
    """Settle one record; without a stamp of its own it has that of its event."""
    kafka = (
        None if no_stamp else stamp if stamp is not None else event_time if event_time is not None else START
    )
    settled = classify(
        tombstone=np.array([tombstone]),
        event_time=pa.array([event_time], pa.int64()),
        kafka_timestamp=pa.array([kafka], pa.int64()),
        cause=pa.array([cause], pa.string()),
        bounds=bounds,
    )
    verdict = VERDICTS[settled.code[0]]
    day = bounds.days[settled.day[0]] if verdict is Verdict.LATE else None
    return verdict, settled.cause[0].as_py(), day


@pytest.mark.parametrize(
    "event_time, verdict, day",
    [
        (LAKE - 1, Verdict.BEFORE_FIRST, None),
        (LAKE, Verdict.LATE, DAYS[0].date),
        (micros(DAYS[1].start) - 1, Verdict.LATE, DAYS[0].date),
        (micros(DAYS[1].start), Verdict.LATE, DAYS[1].date),
        (micros(DAYS[2].start), Verdict.LATE, DAYS[2].date),
        (START - 1, Verdict.LATE, DAYS[2].date),
        (START, Verdict.IN_DAY, None),
        (END - 1, Verdict.IN_DAY, None),
        (END, Verdict.LATER_DAY, None),
        (0, Verdict.BEFORE_FIRST, None),
        (-62_135_596_800_000_000, Verdict.BEFORE_FIRST, None),
    ],
)
def test_a_record_belongs_to_the_day_whose_half_open_bounds_hold_its_event(
    event_time: int, verdict: Verdict, day: date | None
) -> None:
    stamp = max(event_time, 0)
    wide = replace(BOUNDS, past=1 << 62, future=1 << 62)
    assert judge(event_time, stamp=stamp, bounds=wide) == (verdict, None, day)


@pytest.mark.parametrize("beyond, valid", [(0, True), (1, False)])
def test_the_window_of_validity_includes_both_its_edges(beyond: int, valid: bool) -> None:
    early = judge(START, stamp=START + PAST + beyond)
    late = judge(START, stamp=START - FUTURE - beyond)
    if valid:
        assert early == late == (Verdict.IN_DAY, None, None)
    else:
        assert early == (Verdict.INVALID, "Event time more than 30 d before Kafka's timestamp", None)
        assert late == (Verdict.INVALID, "Event time more than 1 d after Kafka's timestamp", None)


def test_a_record_without_a_kafka_timestamp_is_invalid() -> None:
    assert judge(START, no_stamp=True) == (Verdict.INVALID, "No Kafka timestamp", None)


def test_the_decoders_cause_stands_before_the_windows() -> None:
    assert judge(None, cause="Malformed", no_stamp=True) == (Verdict.INVALID, "Malformed", None)


def test_skipped_comes_before_invalid_and_only_where_tombstones_are_skipped() -> None:
    skipping = bounds_of([], DAY, skip=True)
    dead = {"tombstone": True, "cause": "No value (tombstone)"}
    assert judge(None, bounds=skipping, **dead)[0] is Verdict.SKIPPED  # type: ignore[arg-type]
    assert judge(None, **dead)[0] is Verdict.INVALID  # type: ignore[arg-type]
    assert judge(None, cause="Malformed", bounds=skipping)[0] is Verdict.INVALID


def test_a_raw_record_without_a_value_is_never_skipped() -> None:
    raw = bounds_of([], DAY, skip=True, format=RecordFormat.RAW)
    assert judge(START, tombstone=True, bounds=raw)[0] is Verdict.IN_DAY


def test_invalid_comes_before_the_day() -> None:
    assert judge(LAKE - 1, stamp=LAKE + 2 * PAST)[0] is Verdict.INVALID
    assert judge(END, stamp=END - 2 * FUTURE)[0] is Verdict.INVALID


def test_before_the_first_day_comes_before_late_and_a_first_day_has_nothing_late() -> None:
    alone = bounds_of([], DAY)
    assert judge(START - 1, bounds=alone)[0] is Verdict.BEFORE_FIRST
    assert judge(START, bounds=alone)[0] is Verdict.IN_DAY


def test_an_empty_day_takes_nothing_and_its_neighbours_take_all() -> None:
    """The 30th of December 2011 does not exist in Apia."""
    days = [day_in("Pacific/Apia", date(2011, 12, 29) + timedelta(days=step)) for step in range(4)]
    instant = micros(days[1].start)
    on_it, after_it, later = (bounds_of(days[:count], days[count]) for count in (1, 2, 3))
    assert judge(instant, bounds=on_it)[0] is Verdict.LATER_DAY
    assert judge(instant - 1, bounds=on_it) == (Verdict.LATE, None, days[0].date)
    assert judge(instant, bounds=after_it)[0] is Verdict.IN_DAY
    assert judge(instant - 1, bounds=after_it) == (Verdict.LATE, None, days[0].date)
    assert judge(instant, bounds=later) == (Verdict.LATE, None, days[2].date)


def test_an_extreme_stamp_does_not_wrap_round_into_validity() -> None:
    for stamp in (0, 2**63 - 1):
        for event_time in (-62_135_596_800_000_000, 253_402_300_799_999_999):
            assert judge(event_time, stamp=stamp)[0] is Verdict.INVALID


# -- settled already


@given(st.frozensets(st.integers(0, 40)), st.integers(41, 50), st.lists(st.integers(0, 60), unique=True))
def test_settled_is_what_lies_below_seen_until_and_is_not_pending(
    pending: frozenset[int], until: int, offsets: list[int]
) -> None:
    ranges = Offsets.of((at, at + 1) for at in pending)
    seen = SettledOffsets(until=until, pending=ranges)
    for each in (seen, pickle.loads(pickle.dumps(seen))):
        found = each.settled(np.array(offsets, dtype=np.int64)).tolist()
        assert found == [at < until and at not in pending for at in offsets]


def test_many_pending_ranges_are_sent_to_a_task_as_a_compressed_set() -> None:
    """Each cost 16 bytes, in every task."""
    pending = Offsets((at, at + 1) for at in range(0, 200_000, 2))
    sent = pickle.dumps(bounds_of(DAYS[:-1], DAY, seen_until=200_000, pending=pending))
    assert len(sent) < 50_000
    assert pickle.loads(sent).seen[0].settled(np.array([0, 1, 2, 199_999])).tolist() == [False, True] * 2


def test_what_is_settled_depends_on_the_checkpoint_and_on_no_day() -> None:
    pending = Offsets([(3, 5)])
    one = bounds_of(DAYS[:-1], DAY, seen_until=9, pending=pending)
    other = bounds_of([], DAYS[0], seen_until=9, pending=pending)
    offsets = np.arange(12)
    assert one.seen[0].settled(offsets).tolist() == other.seen[0].settled(offsets).tolist()
    assert np.flatnonzero(~one.seen[0].settled(offsets)).tolist() == [3, 4, 9, 10, 11]


# -- against a reference


FATES = {
    Fate.SKIPPED: Verdict.SKIPPED,
    Fate.INVALID: Verdict.INVALID,
    Fate.BEFORE_FIRST: Verdict.BEFORE_FIRST,
    Fate.PENDING: Verdict.LATER_DAY,
    Fate.SET_ASIDE: Verdict.LATE,
    Fate.IN_DAY: Verdict.IN_DAY,
}
REFERENCE_DAYS = [reference.Day(day.date, micros(day.start), micros(day.end)) for day in DAYS]
REFERENCE_RULES = reference.Rules(
    zone="Europe/Amsterdam",
    past=timedelta(microseconds=PAST),
    future=timedelta(microseconds=FUTURE),
    skip_tombstones=True,
    number_column=False,
)


def expected(
    event_time: int | None, stamp: int | None, cause: str | None, tombstone: bool
) -> tuple[Verdict, date | None]:
    """Give a record's verdict by the reference, and the day of a late one."""
    record = reference.Record(
        stamp=None if stamp is None else stamp // 1000,
        event_time=None if cause else event_time,
        tombstone=tombstone,
    )
    place = reference.place_of(record, REFERENCE_RULES, REFERENCE_DAYS, amend=False)
    return FATES[place.fate], place.of


edges = [LAKE, START, END, *(micros(day.start) for day in DAYS)]
times = st.builds(
    lambda edge, by: edge + by,
    st.sampled_from(edges),
    st.integers(-2, 2) | st.integers(-3 * DAY_LONG, 3 * DAY_LONG),
)
ahead = st.sampled_from([-PAST - 1, -PAST, 0, FUTURE, FUTURE + 1]) | st.integers(-2 * PAST, 2 * FUTURE)


@st.composite
def some_records(draw: st.DrawFn) -> tuple[int | None, int | None, str | None, bool]:
    if draw(st.integers(0, 9)) == 0:
        return None, draw(st.none() | times), "broken", draw(st.booleans())
    event_time, by = draw(times), draw(ahead)
    stamp = (event_time - by) // 1000 * 1000  # Kafka stamps milliseconds
    return draw(st.sampled_from([event_time, stamp + by])), draw(st.sampled_from([stamp, None])), None, False


@given(st.lists(some_records(), max_size=30))
def test_a_batch_is_settled_as_the_reference_settles_its_records_one_by_one(
    records: list[tuple[int | None, int | None, str | None, bool]],
) -> None:
    times_, stamps, causes, dead = zip(*records, strict=True) if records else ((), (), (), ())
    skipping = replace(BOUNDS, skip_tombstones=True)
    settled = classify(
        tombstone=np.array(dead, dtype=bool),
        event_time=pa.array(times_, pa.int64()),
        kafka_timestamp=pa.array(stamps, pa.int64()),
        cause=pa.array(causes, pa.string()),
        bounds=skipping,
    )
    found = [
        (VERDICTS[code], skipping.days[day] if code == CODE[Verdict.LATE] else None)
        for code, day in zip(settled.code, settled.day, strict=True)
    ]
    assert found == [expected(*record) for record in records]
    causes_ = zip(found, settled.cause.to_pylist(), strict=True)
    assert all(cause for (verdict, _), cause in causes_ if verdict is Verdict.INVALID)
