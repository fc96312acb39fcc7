"""Runs of days are the days that they were made of, whatever a zone did to their lengths."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets.days import ONE_DAY, UTC, Day, DayRun, check_runs, day_in, days_of, runs_of, with_next

ZONES = ("Europe/Amsterdam", "Pacific/Apia", "America/Havana", "Australia/Lord_Howe", "UTC")
lengths = st.sampled_from([0, 1, 82_800, 84_600, 86_400, 90_000]) | st.integers(0, 200_000)


@st.composite
def adjoining_days(draw: st.DrawFn) -> tuple[Day, ...]:
    """Draw days of any whole length in any zone, each where the one before ended."""
    first = draw(st.dates(date(1900, 1, 1), date(2200, 1, 1)))
    start = draw(st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))).replace(tzinfo=UTC)
    days: list[Day] = []
    for zone, seconds, count in draw(
        st.lists(st.tuples(st.sampled_from(ZONES), lengths, st.integers(1, 9)), max_size=8)
    ):
        for _ in range(count):
            end = start + timedelta(seconds=seconds)
            days.append(Day(date=first + len(days) * ONE_DAY, zone=zone, start=start, end=end))
            start = end
    return tuple(days)


@given(adjoining_days())
def test_adjoining_days_come_back_from_their_runs(days: tuple[Day, ...]) -> None:
    runs = runs_of(days)
    assert days_of(runs) == days
    assert runs_of(days_of(runs)) == runs
    assert len(runs) <= len(days)
    for at, day in enumerate(days):
        before = runs_of(days[:at])
        check_runs(before, day)
        assert with_next(before, day) == runs_of(days[: at + 1])


def ten_years(zone: str) -> tuple[Day, ...]:
    first = date(2011, 6, 1)  # Apia left 2011-12-30 out
    days = [day_in(zone, first)]
    for step in range(1, 3650):
        days.append(replace(day_in(zone, first + step * ONE_DAY), start=days[-1].end))
    return tuple(days)


@pytest.mark.parametrize("zone", ZONES)
def test_ten_years_are_about_forty_runs(zone: str) -> None:
    days = ten_years(zone)
    runs = runs_of(days)
    assert days_of(runs) == days
    assert len(runs) <= 43


def test_a_zone_that_changes_between_two_days_begins_a_run() -> None:
    first = day_in("Europe/Amsterdam", date(2026, 1, 1))
    second = Day(date=date(2026, 1, 2), zone="UTC", start=first.end, end=first.end + ONE_DAY)
    assert [run.zone for run in runs_of([first, second])] == ["Europe/Amsterdam", "UTC"]


DAY = day_in("UTC", date(2026, 1, 3))
RUN = DayRun(
    from_date=date(2026, 1, 1),
    zone="UTC",
    start=day_in("UTC", date(2026, 1, 1)).start,
    seconds=86_400,
    days=2,
)


@pytest.mark.parametrize(
    "runs",
    [
        (replace(RUN, days=1),),
        (replace(RUN, seconds=80_000),),
        (replace(RUN, start=RUN.start + timedelta(hours=1)),),
        (replace(RUN, from_date=date(2025, 12, 31)),),
        (replace(RUN, days=1), replace(RUN, zone="x", days=1)),
        (RUN, RUN),
    ],
    ids=["a date short", "a second short", "an hour late", "a date early", "the same date twice", "twice"],
)  # fmt: skip
def test_runs_that_do_not_lead_up_to_a_day_are_refused(runs: tuple[DayRun, ...]) -> None:
    check_runs((RUN,), DAY)
    with pytest.raises(ValueError, match="must be the day after"):
        check_runs(runs, DAY)


def test_one_run_in_two_pieces_is_refused_since_equal_days_must_be_equal_runs() -> None:
    second = next(iter(replace(RUN, from_date=date(2026, 1, 2), start=RUN.start + ONE_DAY)))
    pieces = (replace(RUN, days=1), *runs_of([second]))
    assert days_of(pieces) == days_of((RUN,))
    with pytest.raises(ValueError, match="one run, not two"):
        check_runs(pieces, DAY)


@pytest.mark.parametrize("law", [{"days": 0}, {"seconds": -1}, {"start": datetime(2026, 1, 1)}])
def test_a_run_that_breaks_its_law_cannot_be_made(law: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"are no run|must be in UTC"):
        replace(RUN, **law)


def test_a_day_that_lasts_a_fraction_of_a_second_or_lies_elsewhere_is_no_next_day() -> None:
    longer = replace(DAY, end=DAY.end + timedelta(microseconds=1))
    with pytest.raises(ValueError, match="no whole number"):
        runs_of([longer])
    with pytest.raises(ValueError, match="no whole number"):
        check_runs((RUN,), longer)
    with pytest.raises(ValueError, match="must be the day after"):
        with_next((RUN,), day_in("UTC", date(2026, 1, 4)))
