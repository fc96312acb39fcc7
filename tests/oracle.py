"""Where every record must lie, worked out from what was produced and from nothing else.

Relies on each record's maker for when it happened and whether it is valid. A night sees, in each partition,
what lies before the first record that is stamped past its day and grace. Imports nothing of the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from tests.lake import Coordinate, Place, pending, places
from tests.produce import Record, ms

GRACE = timedelta(hours=1)
FUTURE = timedelta(days=1)
AMSTERDAM = "Europe/Amsterdam"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One record with its maker's word: when it happened, None where it is not valid; what it is called."""

    partition: int
    offset: int
    stamp: int
    happened: datetime | None
    name: str = ""
    counted: bool = False
    """Whether it is only counted, such as a tombstone under `tombstones: skip`."""
    stray: bool = False
    """Whether its stamp comes from a wrong clock, and tells nothing about where a day ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The run of one day: its bounds in UTC, and what its contract changes about a record's validity."""

    day: date
    start: datetime
    end: datetime
    happened: Callable[[Said], datetime | None] = field(default=lambda said: said.happened)
    sees: Callable[[Said], bool] = field(default=lambda said: True)
    """Whether Kafka held the record by then, or shows it at all."""


def night(day: date, zone: str = AMSTERDAM) -> Night:
    """Give the night of a calendar day in a zone."""
    return Night(day=day, start=midnight(day, zone), end=midnight(day + timedelta(days=1), zone))


def midnight(day: date, zone: str = AMSTERDAM) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def said(records: Iterable[Record], offsets: Iterable[int], happened: datetime | None = None) -> list[Said]:
    """Say of records that they are valid and happened when they were stamped, unless told otherwise."""
    return [
        Said(
            partition=record.partition,
            offset=offset,
            stamp=record.stamp,
            happened=happened or datetime.fromtimestamp(record.stamp / 1000, UTC),
        )
        for record, offset in zip(records, offsets, strict=True)
    ]


def judged(
    produced: Sequence[Said], nights: Sequence[Night]
) -> tuple[dict[Coordinate, Place], set[Coordinate]]:
    """Give the place of every record that must lie in the lake, and what must be pending in the end."""
    first = nights[0]
    begins = _begins(produced, ms(first.start - FUTURE))
    lie: dict[Coordinate, Place] = {}
    seen: set[Coordinate] = set()
    waiting: set[Coordinate] = set()
    for run in nights:
        over = ms(run.end + GRACE)
        stops: set[int] = set()
        for record in sorted(produced, key=lambda each: (each.partition, each.offset)):
            here = (record.partition, record.offset)
            if record.stamp >= over and run.sees(record) and not record.stray:
                stops.add(record.partition)
            new = here not in seen and record.partition not in stops and run.sees(record)
            if record.offset < begins.get(record.partition, 0) or not (new or here in waiting):
                continue
            seen.add(here)
            waiting.discard(here)
            happened = run.happened(record)
            if record.counted:
                continue
            if happened is None:
                lie[here] = Place("invalid", run.day)
            elif happened >= run.end:
                waiting.add(here)
            elif happened >= run.start:
                lie[here] = Place("day", run.day)
            elif happened >= first.start:
                dated = next(each.day for each in nights if each.start <= happened < each.end)
                lie[here] = Place("late", run.day, dated)
    return lie, waiting


def assert_exact(lake: Path, produced: Sequence[Said], nights: Sequence[Night]) -> None:
    """Hold a lake against what was produced: every record in its one place, and none but those."""
    expected, waiting = judged(produced, nights)
    found, names = places(lake), {(each.partition, each.offset): each for each in produced}
    lost = [(names[each], expected[each]) for each in sorted(expected.keys() - found.keys())]
    assert not lost, f"{len(lost)} are not in the lake, such as {lost[:3]}"
    more = [(names.get(each, each), found[each]) for each in sorted(found.keys() - expected.keys())]
    assert not more, f"{len(more)} should not be in the lake, such as {more[:3]}"
    astray = [
        (names[each], f"found in {found[each]}, not in {place}")
        for each, place in expected.items()
        if found[each] != place
    ]
    assert not astray, f"{len(astray)} lie in a wrong place, such as {astray[:3]}"
    assert pending(lake) == waiting


def _begins(produced: Iterable[Said], since: int) -> dict[int, int]:
    """Give the first offset of each partition that is stamped since an instant (ms)."""
    begins: dict[int, int] = {}
    for record in produced:
        if record.stamp >= since:
            begins[record.partition] = min(begins.get(record.partition, record.offset), record.offset)
    return begins
