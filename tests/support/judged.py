"""Where every record of a real topic must lie, by the reference, from what was produced alone.

Relies on the test that made a record for its event time and validity, and on `tests/reference.py` for the
rest. A night sees, in each partition, what lies before the first record stamped past its day and grace.
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
class SentRecord:
    """One record that was sent; `happened` is its event time, None where it is not valid."""

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
    """Whether its stamp comes from a wrong clock, so that it does not end a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The run of one day, and its contract."""

    day: date
    zone: str
    number_column: bool = True
    sees: Callable[[SentRecord], bool] = field(default=lambda record: True)
    """Whether Kafka held the record by then, or shows it at all."""

    @property
    def start(self) -> datetime:
        return midnight(self.day, self.zone)

    @property
    def end(self) -> datetime:
        return midnight(self.day + timedelta(days=1), self.zone)


def night(day: date, zone: str = AMSTERDAM) -> Night:
    """Return the night of a calendar day in a zone."""
    return Night(day=day, zone=zone)


def midnight(day: date, zone: str = AMSTERDAM) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def sent_records(records: Iterable[Record], offsets: Iterable[int]) -> list[SentRecord]:
    """Return records as sent, valid, and with their stamps as event times."""
    return [
        SentRecord(
            partition=record.partition,
            offset=offset,
            stamp=record.stamp,
            happened=datetime.fromtimestamp(record.stamp / 1000, UTC),
        )
        for record, offset in zip(records, offsets, strict=True)
    ]


def judged(
    produced: Sequence[SentRecord], nights: Sequence[Night]
) -> tuple[dict[Coordinate, Place], set[Coordinate]]:
    """Return the place of every record that must lie in the lake, and what must be pending in the end."""
    lake = Lake()
    for run in nights:
        seen = [record for record in produced if run.sees(record)]
        request = _request(run)
        lake = lake.settle(_topic(seen), request, _ends(seen, lake, lake.over(request)))
    lie = {at: place for at, place in lake.places.items() if place.fate in IN_FILES}
    return lie, {at for at, place in lake.places.items() if place.fate is Fate.PENDING}


def _request(run: Night) -> Request:
    rules = Rules(
        zone=run.zone, past=PAST, future=FUTURE, skip_tombstones=True, number_column=run.number_column
    )
    return Request(day=run.day, rules=rules, zones=ZoneDatabase(), grace=GRACE, amend=True)


def _topic(seen: Iterable[SentRecord]) -> Topic:
    """Make the topic that a night sees, from the given records alone."""
    topic = Topic(compacted=False)
    for record in seen:
        log = topic.partitions.setdefault(record.partition, Partition())
        log.high = max(log.high, record.offset + 1)
        log.records[record.offset] = reference.Record(
            stamp=record.stamp,
            event_time=micros(record.happened) if record.happened else None,
            tombstone=record.counted,
            number=record.number,
        )
    return topic


def _ends(seen: Iterable[SentRecord], lake: Lake, over: int) -> dict[int, int]:
    """Return where a night ends in each partition: at the first stamp from `over` on, else at the end."""
    ends: dict[int, int] = {}
    for record in sorted(seen, key=lambda record: (record.partition, -record.offset)):
        stops = record.stamp >= over and not record.stray
        ends[record.partition] = record.offset if stops else ends.get(record.partition, record.offset + 1)
    return {part: max(end, lake.seen_until.get(part, 0)) for part, end in ends.items()}


def assert_exact(lake: Path, produced: Sequence[SentRecord], nights: Sequence[Night]) -> None:
    """Check that a lake holds every produced record in its one place, and no other record."""
    expected, waiting = judged(produced, nights)
    actual, sent = places(lake), {(record.partition, record.offset): record for record in produced}
    lost = [(sent[at], expected[at]) for at in sorted(expected.keys() - actual.keys())]
    assert not lost, f"{len(lost)} are not in the lake, such as {lost[:3]}"
    more = [(sent.get(at, at), actual[at]) for at in sorted(actual.keys() - expected.keys())]
    assert not more, f"{len(more)} should not be in the lake, such as {more[:3]}"
    astray = [
        (sent[at], f"found in {actual[at]}, not in {place}")
        for at, place in expected.items()
        if actual[at] != place
    ]
    assert not astray, f"{len(astray)} lie in a wrong place, such as {astray[:3]}"
    assert pending(lake) == waiting
