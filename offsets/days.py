"""The bounds of a calendar day, and run-length encoding of a lake's adjoining days.

Pure. Ten years of days make about forty runs, since clock changes alter the length of a day twice a year.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from offsets.errors import ConfigError

UTC = ZoneInfo("UTC")
ONE_DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A calendar date in a zone, and its instants `[start, end)`; usually 23 to 25 hours long."""

    date: date
    """The calendar date."""
    zone: str
    """The time zone of the date."""
    start: datetime
    """Its first instant."""
    end: datetime
    """The first instant after it."""

    def __post_init__(self) -> None:
        for instant in (self.start, self.end):
            _require_utc(instant)
        if self.end < self.start:
            raise ValueError(f"day {self.date} ends at {self.end}, before its start {self.start}")

    def __str__(self) -> str:
        """Return the date and its zone."""
        return f"{self.date} ({self.zone})"


def midnight(day: date, zone: str) -> datetime:
    """Return the first instant of a date in a zone, in UTC.

    If a clock change skips midnight, the result is the moment of the change (PEP 495, fold=0).
    """
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def date_in(zone: str, instant: datetime) -> date:
    """Return the date that a zone has at an instant, or UTC's where the zone's lies outside the calendar."""
    try:
        return instant.astimezone(ZoneInfo(zone)).date()
    except OverflowError:  # sentinels of many programs: 0001-01-01T00:00Z and 9999-12-31T23:59Z
        return instant.date()


def day_in(zone: str, day: date) -> Day:
    """Return a date's bounds by today's zone database.

    Raises:
        ConfigError: the bounds do not lie in the years 1 to 9999.
    """
    try:
        return Day(date=day, zone=zone, start=midnight(day, zone), end=midnight(day + ONE_DAY, zone))
    except OverflowError:
        raise ConfigError(
            expected=f"a day whose hours all lie in the years 1 to 9999, as UTC counts them, in {zone}",
            found=f"{day}",
            do="Name another day.",
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayRun:
    """Consecutive days of equal length."""

    from_date: date
    """The date of the first day."""
    zone: str
    """The zone of the days."""
    start: datetime
    """The first instant of the first day."""
    seconds: int
    """How long each day is."""
    days: int
    """How many days follow each other."""

    def __post_init__(self) -> None:
        _require_utc(self.start)
        if self.seconds < 0 or self.days < 1:
            raise ValueError(f"{self.days} days of {self.seconds} s from {self.from_date} on are no run")

    @property
    def until_date(self) -> date:
        """The date after the last."""
        return self.from_date + self.days * ONE_DAY

    @property
    def end(self) -> datetime:
        """The instant at which the last day ends."""
        return self.start + self.days * self.seconds * SECOND

    def __iter__(self) -> Iterator[Day]:
        """Yield each day."""
        start, length = self.start, self.seconds * SECOND
        for number in range(self.days):
            end = start + length
            yield Day(date=self.from_date + number * ONE_DAY, zone=self.zone, start=start, end=end)
            start = end


Runs = tuple[DayRun, ...]
"""Adjoining runs, merged where possible, so that the same days always make the same runs."""


def with_next(runs: Runs, day: Day) -> Runs:
    """Return the runs with the next day added.

    Raises:
        ValueError: the day does not begin where the runs end, or is not a whole number of seconds long.
    """
    seconds, rest = divmod(day.end - day.start, SECOND)
    if rest:
        raise ValueError(f"{day.date} lasts {day.end - day.start}, no whole number of seconds")
    _require_next(runs, day)
    if runs and _same_length(runs[-1], day.zone, seconds):
        return (*runs[:-1], replace(runs[-1], days=runs[-1].days + 1))
    return (*runs, DayRun(from_date=day.date, zone=day.zone, start=day.start, seconds=seconds, days=1))


def runs_of(days: Iterable[Day]) -> Runs:
    """Return adjoining days as the fewest possible runs.

    Raises:
        ValueError: a day does not begin where the one before ended.
    """
    runs: Runs = ()
    for day in days:
        runs = with_next(runs, day)
    return runs


def days_of(runs: Runs) -> tuple[Day, ...]:
    """Return each day of runs."""
    return tuple(day for run in runs for day in run)


def check_runs(runs: Runs, day: Day) -> None:
    """Check that runs adjoin and cannot be merged, and that a day can follow them.

    Raises:
        ValueError: they do not.
    """
    for before, after in pairwise(runs):
        _require_next((before,), next(iter(after)))
        if _same_length(before, after.zone, after.seconds):
            raise ValueError(f"the days on both sides of {after.from_date} are one run, not two")
    with_next(runs, day)


def _require_next(runs: Runs, day: Day) -> None:
    if runs and (runs[-1].until_date, runs[-1].end) != (day.date, day.start):
        raise ValueError(
            f"{day.date} must be the day after {runs[-1].until_date - ONE_DAY}, from {runs[-1].end} on"
        )


def _same_length(run: DayRun, zone: str, seconds: int) -> bool:
    return (run.zone, run.seconds) == (zone, seconds)


def _require_utc(instant: datetime) -> None:
    if instant.utcoffset() != timedelta(0):
        raise ValueError(f"an instant of a day must be in UTC: {instant}")
