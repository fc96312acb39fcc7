"""A day and those before it, and the bounds by which tasks classify."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

from jobs.record.rules import RecordFormat, Tombstones
from jobs.task.classify import DayBounds
from offsets.checkpoint import Checkpoint, PartitionCheckpoint
from offsets.contract import Accepted, Contract
from offsets.day_plan import DayPlan
from offsets.days import Day, day_in
from offsets.plan import offsets_to_read
from offsets.ranges import Offsets
from tests.support.local_engine import RULES
from tests.support.manifests import TOPIC
from tests.support.spans import span

FIRST = date(2026, 3, 27)
DAYS = [day_in("Europe/Amsterdam", FIRST + timedelta(days=step)) for step in range(4)]
DAY = DAYS[-1]  # 2026-03-30; 23 hours lie between the starts before it


def bounds_of(
    earlier: list[Day],
    day: Day,
    *,
    skip: bool = False,
    seen_until: int = 0,
    pending: Offsets | None = None,
    format: RecordFormat = RecordFormat.JSON,
) -> DayBounds:
    pending = pending or Offsets()
    part = PartitionCheckpoint(partition=0, seen_until=seen_until, pending=pending, anchor=None)
    read = replace(
        span(part.next_from_offset, seen_until, seen_until + 9),
        reads=offsets_to_read(pending, seen_until, seen_until + 9),
    )
    plan = DayPlan(
        day=day,
        topic=TOPIC,
        contract=Contract({}),
        accepted=Accepted(),
        consumed=Checkpoint(topic=TOPIC, partitions=(part,)),
        earlier=tuple(earlier),
        spans=(read,),
        first_offsets=(),
        cleanup_policy="delete",
        headroom_hours=None,
        risks=(),
    )
    tombstones = Tombstones.SKIP if skip else Tombstones.QUARANTINE
    return DayBounds.of(plan, replace(RULES, tombstones=tombstones, format=format))


BOUNDS = bounds_of(DAYS[:-1], DAY)
