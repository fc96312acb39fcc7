"""Where a record belongs, found a second time and in another way than by the job.

Relies on what the producer states of the record, on the spans of the runs, and on the zone database.
Never asks the job's verdict rule, day bounds or decoder.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from jobs.demo.lakefiles import History, Seen
from jobs.demo.locations import Place, Where
from jobs.demo.produced import Produced


class Belonging:
    """Where a record belongs, from what its producer states, the runs' spans and the zone alone."""

    def __init__(
        self, history: History, *, zone: str, first: date, skip_tombstones: bool, amend: bool
    ) -> None:
        """Take the runs and the spans that they saw, in order."""
        span = (history.days[-1] - first).days + 1 if history.days else 0
        self._days = [first + timedelta(days=number) for number in range(span)]
        # One more midnight ends the last day; records after it have not had their run.
        self._midnights = [_midnight(first + timedelta(days=number), zone) for number in range(span + 1)]
        self._seen: dict[int, list[Seen]] = {}
        for seen in history.seen:
            self._seen.setdefault(seen.partition, []).append(seen)
        self._skip_tombstones = skip_tombstones
        self._late = Where.AMENDED if amend else Where.LATE

    def place(self, record: Produced) -> Place:
        """Return where a record must be found after the runs so far."""
        seen = self._seen.get(record.partition, [])
        if not seen or record.offset >= seen[-1].until_offset:
            return Place(Where.NOT_READ)
        if record.offset < seen[0].from_offset:
            # Allowed only for records dated before the first day: its run need not read there.
            lawful = not record.valid or self._number(record) < 0
            return Place(Where.BEFORE_START if lawful else Where.NOWHERE)
        runs = [each.day for each in seen if each.seen_until <= record.offset < each.until_offset]
        if len(runs) != 1:
            return Place(Where.NOWHERE, path=f"(seen first by {len(runs)} runs)")
        return self._settled(record, runs[0])

    def _settled(self, record: Produced, run: date) -> Place:
        if record.kind == "tombstone" and self._skip_tombstones:
            return Place(Where.SKIPPED, run)
        if not record.valid or record.event_time is None:
            return Place(Where.INVALID, run)
        number = self._number(record)
        if number < 0:
            return Place(Where.BEFORE_FIRST, run)
        if number >= len(self._days):
            return Place(Where.PENDING)
        happened = self._days[number]
        return Place(self._late, run, happened) if happened < run else Place(Where.IN_DAY, happened)

    def _number(self, record: Produced) -> int:
        if record.event_time is None:
            raise ValueError(
                f"{record.kind} at {record.partition}/{record.offset} is valid but has no event time"
            )
        return bisect_right(self._midnights, record.event_time) - 1


def _midnight(day: date, zone: str) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).timestamp()) * 1_000_000
