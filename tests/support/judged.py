"""What the reference says of a real topic: where every record must lie, from what was produced alone.

Relies on each record's maker for when it happened and whether it is valid, and on `tests/reference.py` for
the rest. A night sees, in each partition, what lies before the first record stamped past its day and grace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from tests import reference
from tests.reference import (
    Coordinate,
    Fate,
    Lake,
    Partition,
    Place,
    Request,
    Rules,
    Topic,
    ZoneDatabase,
    micros,
)
from tests.support.lake import IN_FILES, pending, places
from tests.support.produce import Record

GRACE = timedelta(hours=1)
PAST = timedelta(days=30)
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
    """Whether it is a tombstone that is only counted, under `tombstones: skip`."""
    number: bool = True
    """Whether it is valid where the contract has a column for its number."""
    stray: bool = False
    """Whether its stamp comes from a wrong clock, and tells nothing about where a day ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The run of one day, and what its contract says."""

    day: date
    zone: str
    number_column: bool = True
    sees: Callable[[Said], bool] = field(default=lambda said: True)
    """Whether Kafka held the record by then, or shows it at all."""

    @property
    def start(self) -> datetime:
        return midnight(self.day, self.zone)

    @property
    def end(self) -> datetime:
        return midnight(self.day + timedelta(days=1), self.zone)


def night(day: date, zone: str = AMSTERDAM) -> Night:
    """Give the night of a calendar day in a zone."""
    return Night(day=day, zone=zone)


def midnight(day: date, zone: str = AMSTERDAM) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def said(records: Iterable[Record], offsets: Iterable[int]) -> list[Said]:
    """Say of records that they are valid and happened when they were stamped."""
    return [
        Said(
            partition=record.partition,
            offset=offset,
            stamp=record.stamp,
            happened=datetime.fromtimestamp(record.stamp / 1000, UTC),
        )
        for record, offset in zip(records, offsets, strict=True)
    ]


def judged(
    produced: Sequence[Said], nights: Sequence[Night]
) -> tuple[dict[Coordinate, Place], set[Coordinate]]:
    """Give the place of every record that must lie in the lake, and what must be pending in the end."""
    lake = Lake()
    for run in nights:
        seen = [each for each in produced if run.sees(each)]
        request = _request(run)
        lake = lake.settle(_topic(seen), request, _ends(seen, lake, lake.over(request)))
    lie = {at: place for at, place in lake.places.items() if place.fate in IN_FILES}
    return lie, {at for at, place in lake.places.items() if place.fate is Fate.PENDING}


def _request(run: Night) -> Request:
    rules = Rules(
        zone=run.zone, past=PAST, future=FUTURE, skip_tombstones=True, number_column=run.number_column
    )
    return Request(day=run.day, rules=rules, zones=ZoneDatabase(), grace=GRACE, amend=True)


def _topic(seen: Iterable[Said]) -> Topic:
    """Make the topic that a night sees; what nobody vouches for is not there."""
    topic = Topic(compacted=False)
    for each in seen:
        log = topic.partitions.setdefault(each.partition, Partition())
        log.high = max(log.high, each.offset + 1)
        log.records[each.offset] = reference.Record(
            stamp=each.stamp,
            event_time=micros(each.happened) if each.happened else None,
            tombstone=each.counted,
            number=each.number,
        )
    return topic


def _ends(seen: Iterable[Said], lake: Lake, over: int) -> dict[int, int]:
    """Give where a night ends in each partition: at the first stamp from `over` on, else at the end."""
    ends: dict[int, int] = {}
    for each in sorted(seen, key=lambda each: (each.partition, -each.offset)):
        stops = each.stamp >= over and not each.stray
        ends[each.partition] = each.offset if stops else ends.get(each.partition, each.offset + 1)
    return {part: max(end, lake.seen_until.get(part, 0)) for part, end in ends.items()}


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
