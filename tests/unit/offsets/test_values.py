"""A value that breaks its law cannot be made, and days meet without a gap in every zone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets.checkpoint import Anchor, Checkpoint, PartitionCheckpoint
from offsets.contract import Contract
from offsets.days import Day, day_in, midnight
from offsets.instants import micros, millis
from offsets.manifest import DataFile, FileOffsets, Tally
from offsets.ranges import Offsets
from offsets.verdict import Verdict
from tests.support.spans import TOPIC, plan, span

HOUR = timedelta(hours=1)
ZONES = sorted(
    zone for zone in available_timezones() if "/" in zone and not zone.startswith(("posix", "right"))
)


def part(seen_until: int, pending: Offsets | None = None, partition: int = 0) -> PartitionCheckpoint:
    return PartitionCheckpoint(
        partition=partition, seen_until=seen_until, pending=pending or Offsets(), anchor=None
    )


# -- days


@given(st.sampled_from(ZONES), st.dates(date(1970, 1, 2), date(2100, 1, 1)))
def test_a_day_ends_where_the_next_begins_and_holds_its_own_date(zone: str, day: date) -> None:
    here = day_in(zone, day)
    assert here.end == day_in(zone, day + timedelta(days=1)).start
    assert (here.start - timedelta(microseconds=1)).astimezone(ZoneInfo(zone)).date() < day
    if here.start < here.end:
        assert here.start.astimezone(ZoneInfo(zone)).date() == day


@pytest.mark.parametrize(
    "zone, day, start, hours",
    [
        ("UTC", date(2026, 5, 1), "2026-05-01T00:00", 24),
        ("Europe/Amsterdam", date(2026, 3, 29), "2026-03-28T23:00", 23),
        ("Europe/Amsterdam", date(2026, 10, 25), "2026-10-24T22:00", 25),
        # the clock skips midnight: the day begins at the moment of the change
        ("Africa/Cairo", date(2026, 4, 24), "2026-04-23T22:00", 23),
        ("America/Asuncion", date(2023, 10, 1), "2023-10-01T04:00", 23),
        # midnight comes twice, and the first one counts
        ("America/Havana", date(2026, 11, 1), "2026-11-01T04:00", 25),
        ("Australia/Lord_Howe", date(2026, 4, 5), "2026-04-04T13:00", 24.5),
        # a date that no clock ever showed has no instant
        ("Pacific/Apia", date(2011, 12, 29), "2011-12-29T10:00", 24),
        ("Pacific/Apia", date(2011, 12, 30), "2011-12-30T10:00", 0),
        ("Pacific/Apia", date(2011, 12, 31), "2011-12-30T10:00", 24),
    ],
)
def test_a_day_is_as_long_as_its_clock_says(zone: str, day: date, start: str, hours: float) -> None:
    found = day_in(zone, day)
    assert found.start == datetime.fromisoformat(start).replace(tzinfo=UTC)
    assert found.end - found.start == timedelta(hours=hours)


def test_a_day_has_instants_in_utc_in_order() -> None:
    start = midnight(date(2026, 5, 1), "UTC")
    with pytest.raises(ValueError, match="before its start"):
        Day(date=date(2026, 5, 1), zone="UTC", start=start, end=start - HOUR)
    for wrong in (start.replace(tzinfo=None), start.astimezone(timezone(HOUR))):
        with pytest.raises(ValueError, match="UTC"):
            Day(date=date(2026, 5, 1), zone="UTC", start=wrong, end=wrong)


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)))
def test_instants_are_counted_exactly(naive: datetime) -> None:
    instant = naive.replace(tzinfo=UTC)
    count = micros(instant)
    assert datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=count) == instant
    assert (millis(instant) - 1) * 1000 < count <= millis(instant) * 1000, "a look-up never rounds down"


# -- checkpoints and spans


def test_pending_offsets_and_the_anchor_lie_below_seen_until() -> None:
    assert part(5, Offsets([(3, 5)])).next_from_offset == 3
    assert part(5).next_from_offset == 5
    with pytest.raises(ValueError, match="pending beyond"):
        part(5, Offsets([(3, 6)]))
    for offset in (5, 6):
        with pytest.raises(ValueError, match="anchor"):
            replace(part(5), anchor=Anchor(offset=offset, timestamp=0, digest=""))


def test_a_checkpoint_names_each_partition_once_in_order() -> None:
    for wrong in ([part(1, partition=1), part(1, partition=0)], [part(1), part(2)]):
        with pytest.raises(ValueError, match="ascend"):
            Checkpoint(topic=TOPIC, partitions=tuple(wrong))


def test_a_checkpoint_goes_on_from_an_older_one_that_it_holds_unchanged() -> None:
    old = Checkpoint(topic=TOPIC, partitions=(part(4),))
    more = Checkpoint(topic=TOPIC, partitions=(part(4), part(0, partition=1)))
    assert more.continues(old)
    assert not old.continues(more)
    for other in (part(5), part(4, Offsets([(2, 3)]))):
        assert not Checkpoint(topic=TOPIC, partitions=(other,)).continues(old)
    assert not replace(more, topic=replace(TOPIC, topic_id="other")).continues(old)


@pytest.mark.parametrize("from_, seen, until", [(-1, 0, 0), (3, 2, 4), (0, 5, 4)])
def test_a_span_runs_forward(from_: int, seen: int, until: int) -> None:
    with pytest.raises(ValueError, match="span"):
        span(from_, seen, until, Offsets())


def test_a_span_reads_all_that_is_new_and_nothing_outside_itself() -> None:
    span(0, 5, 9, Offsets([(0, 1), (5, 9)]))
    for reads in (Offsets([(0, 8)]), Offsets([(5, 10)]), Offsets()):
        with pytest.raises(ValueError, match="read all"):
            span(0, 5, 9, reads)


def test_a_plan_reads_what_the_checkpoint_left() -> None:
    day = day_in("UTC", date(2026, 5, 2))
    pending = Offsets([(1, 2), (3, 4)])
    plan(day, [span(1, 5, 9)], [part(5, pending)])
    for spans in ([span(5, 5, 9)], [span(1, 6, 9)], [], [span(1, 5, 9, partition=1)]):
        with pytest.raises(ValueError, match="checkpoint"):
            plan(day, spans, [part(5, pending)])
    with pytest.raises(ValueError, match="pending"):
        plan(day, [span(1, 5, 9, Offsets([(1, 2), (5, 9)]))], [part(5, pending)])


def test_a_plan_begins_where_the_day_before_ended() -> None:
    day = day_in("UTC", date(2026, 5, 2))
    before = day_in("UTC", date(2026, 5, 1))
    assert plan(day, [], [], (before,)).first == before
    assert plan(day, [], []).first == day
    with pytest.raises(ValueError, match="begin"):
        plan(day, [], [], (day_in("Europe/Amsterdam", date(2026, 5, 1)),))


def test_more_rows_than_offsets_cannot_be_counted() -> None:
    Tally(partition=0, verdict=Verdict.IN_DAY, rows=2, from_offset=4, until_offset=6)
    for rows in (0, 3):
        with pytest.raises(ValueError, match="rows"):
            Tally(partition=0, verdict=Verdict.IN_DAY, rows=rows, from_offset=4, until_offset=6)


def test_a_files_rows_are_the_sum_of_its_partitions() -> None:
    offsets = (FileOffsets(partition=0, rows=2, from_offset=0, until_offset=2),)
    with pytest.raises(ValueError, match="3 rows"):
        DataFile(path="p", verdict=Verdict.IN_DAY, rows=3, bytes=1, sha256="", offsets=offsets)


# -- contracts


def test_the_order_of_a_contracts_keys_plays_no_part() -> None:
    assert Contract({"a": 1, "b": {"c": 2, "d": 3}}) == Contract({"b": {"d": 3, "c": 2}, "a": 1})
    assert len({Contract({"a": 1, "b": 2}), Contract({"b": 2, "a": 1})}) == 1


def test_a_changed_contract_lists_each_key_that_differs() -> None:
    old = Contract({"day": {"zone": "UTC"}, "columns": {"a": "string", "b": "int"}, "same": [1]})
    new = Contract({"day": {"zone": "Asia/Tokyo"}, "columns": {"a": "string", "c": "int"}, "same": [1]})
    assert new.changes_from(old) == (
        'columns.b: "int" -> (none)',
        'columns.c: (none) -> "int"',
        'day.zone: "UTC" -> "Asia/Tokyo"',
    )
    assert old.changes_from(old) == ()


def test_a_name_with_a_dot_hides_no_change() -> None:
    """Columns `a.type` and `a.from` of a key had the terms of a column `a` with `from`."""
    nested, flat = Contract({"key": {"a": {"from": "x"}}}), Contract({"key": {"a.from": "x"}})
    assert flat.changes_from(nested) == ('key.a.from: "x" -> (none)', 'key.`a.from`: (none) -> "x"')
