"""Warn of records that Kafka stamped after the day of their event, before days are settled without them.

A run reads by Kafka's timestamps. Replays, mirrors and tests with past events are stamped when they are
written: their days are settled empty, and they come late. Relies on a few records of the largest partitions,
read by the second client, and on the verdict rule of the tasks. Never fails a plan.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from jobs.config import Late
from jobs.day.stretches import batch_of
from jobs.record.decode import Decoder
from jobs.task.classify import CODE, DayBounds, length_text, too_early
from jobs.task.task import Batch, judge
from offsets.day_plan import DayPlan, Span
from offsets.days import date_in
from offsets.errors import KafkaDailyError
from offsets.instants import from_stamp
from offsets.kafka.reader import FullRecord, TopicReader
from offsets.verdict import Verdict

if TYPE_CHECKING:
    from jobs.config import Settings

PARTITIONS: Final = 3
"""How many partitions are sampled, those with the most records."""
ROWS: Final = 100
BYTES: Final = 64 << 10
"""How many records, and bytes of them, are read of a partition at one place."""
SECONDS: Final = 0.2
"""After this time no further place is read: a slow broker makes the sample smaller, not the run later."""
ENOUGH: Final = 10
"""Fewer sampled records are worth a warning only where the plan reads fewer still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StampedLater:
    """How many of some sampled records were stamped after the day of their event, and one of them.

    `before_first` are those dated before the lake's first day, `too_old` those that `validity.past` makes
    invalid; both are counted in `later`.
    """

    sampled: int = 0
    later: int = 0
    before_first: int = 0
    too_old: int = 0
    place: str = ""
    stamped: datetime | None = None

    def __add__(self, other: StampedLater) -> StampedLater:
        """Add up two samples; the first example is kept."""
        example = self if self.later else other
        return replace(
            example,
            sampled=self.sampled + other.sampled,
            later=self.later + other.later,
            before_first=self.before_first + other.before_first,
            too_old=self.too_old + other.too_old,
        )

    def is_most(self, planned: int) -> bool:
        """Return whether most sampled records are of this kind, and enough to say so of a plan."""
        return 2 * self.later > self.sampled and (self.sampled >= ENOUGH or self.sampled > planned)


def warnings(
    reader: TopicReader, plan: DayPlan, stable: Mapping[int, int], settings: Settings
) -> tuple[str, ...]:
    """Return what a person should know of a plan before it is run; `stable` are the last stable offsets."""
    try:
        within = _sampled(reader, plan, settings, _middles(plan), _LATE)
        beyond = _sampled(reader, plan, settings, _ends(plan, stable), _NOT_LATER)
    except KafkaDailyError:  # the plan stands without a sample
        return ()
    found = [_all_before(plan)] if _ends_before(plan, stable) else []
    if within.is_most(plan.offsets):
        found.append(_of_the_span(within, plan, settings))
    if beyond.is_most(plan.offsets):
        found.append(_behind_the_end(beyond, plan, settings))
    return tuple(found)


def _ends_before(plan: DayPlan, stable: Mapping[int, int]) -> bool:
    """Return whether a lake would begin with an empty day, and all that the topic holds lies before that."""
    later = any(stable[span.partition] > span.until_offset for span in plan.spans)
    holds_records = any(span.from_offset > 0 for span in plan.spans)
    return not plan.earlier and not plan.offsets and not later and holds_records


def _all_before(plan: DayPlan) -> str:
    return (
        "This plan reads nothing, and nothing follows it: whatever the topic holds is stamped before "
        f"{plan.day.date}, too early to be of it. For a lake that has it, set day.first to an earlier day "
        "before the first run."
    )


_LATE: Final = (Verdict.LATE, Verdict.BEFORE_FIRST)
_NOT_LATER: Final = (Verdict.IN_DAY, Verdict.LATE, Verdict.BEFORE_FIRST)


def _middles(plan: DayPlan) -> list[tuple[int, int, int]]:
    """Return a place in the middle of what is new in the longest spans."""

    def new(span: Span) -> int:
        return span.until_offset - span.seen_until

    longest = sorted(plan.spans, key=new, reverse=True)[:PARTITIONS]
    middles = [(span, span.seen_until + max(new(span) - ROWS, 0) // 2) for span in longest if new(span)]
    return [(span.partition, at, min(at + ROWS, span.until_offset)) for span, at in middles]


def _ends(plan: DayPlan, stable: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """Return the places behind the ends of the spans, where most records follow."""

    def rest(span: Span) -> int:
        return stable[span.partition] - span.until_offset

    longest = [span for span in sorted(plan.spans, key=rest, reverse=True)[:PARTITIONS] if rest(span) > 0]
    return [
        (span.partition, span.until_offset, span.until_offset + min(ROWS, rest(span))) for span in longest
    ]


def _sampled(
    reader: TopicReader,
    plan: DayPlan,
    settings: Settings,
    places: Iterable[tuple[int, int, int]],
    kinds: tuple[Verdict, ...],
) -> StampedLater:
    """Count the records at some places whose verdict is one of `kinds`, or whose event is too old."""
    total, started = StampedLater(), time.monotonic()
    for partition, from_, until in places:
        if time.monotonic() - started > SECONDS:
            break
        if records := reader.sample(plan.topic.name, partition, from_, until, BYTES):
            total += _judged(plan, settings, partition, records, kinds)
    return total


def _judged(
    plan: DayPlan, settings: Settings, partition: int, records: list[FullRecord], kinds: tuple[Verdict, ...]
) -> StampedLater:
    bounds = DayBounds.of(plan, settings.rules)
    batch = Batch.of(batch_of(partition, records, headers=False))
    _, classified = judge(batch, Decoder(settings.rules), bounds)
    old = [cause == too_early(bounds) for cause in classified.cause.to_pylist()]
    codes = {int(CODE[kind]) for kind in kinds}
    later = [int(code) in codes or too_old for code, too_old in zip(classified.code, old, strict=True)]
    first = later.index(True) if any(later) else None
    return StampedLater(
        sampled=len(records),
        later=sum(later),
        before_first=int((classified.code == CODE[Verdict.BEFORE_FIRST]).sum()),
        too_old=sum(old),
        place="" if first is None else f"{partition}:{records[first].offset}",
        stamped=None if first is None else from_stamp(records[first].timestamp),
    )


def _of_the_span(found: StampedLater, plan: DayPlan, settings: Settings) -> str:
    return (
        f"{_share(found)} that this run reads were stamped after the day of their event, as replays and "
        f"mirrors are (`show {found.place}` prints one): they are not rows of {plan.day.date}. "
        + _fate(found, plan, settings)
    )


def _behind_the_end(found: StampedLater, plan: DayPlan, settings: Settings) -> str:
    return (
        f"{_share(found)} that follow this day's are events of {plan.day.date} or earlier, but stamped "
        f"later, as replays, mirrors and tests with past events are (`show {found.place}` prints one). "
        f"A run reads by Kafka's timestamps: this one does not read them, {_reading_run(found, settings)} "
        f"does. {_fate(found, plan, settings)}"
    )


def _share(found: StampedLater) -> str:
    return f"{found.later} of {found.sampled} sampled records"


def _reading_run(found: StampedLater, settings: Settings) -> str:
    if found.stamped is None:
        return "a later one"
    return f"the run for {date_in(settings.day.zone, found.stamped - settings.day.grace)}, or a later one,"


def _fate(found: StampedLater, plan: DayPlan, settings: Settings) -> str:
    """Describe what becomes of records that come after their day."""
    amend = settings.late is Late.AMEND
    kept = found.later - found.before_first - found.too_old
    parts = []
    if kept:
        where = "brought into their days" if amend else "kept in _late/, outside their days"
        parts.append(f"{kept} will be late rows, {where} (late: {settings.late})")
    if found.before_first:
        parts.append(
            f"{found.before_first} are dated before day.first ({plan.first.date}): only counted, "
            "unless a lake with an earlier one is made"
        )
    if found.too_old:
        past = length_text(settings.rules.past)
        parts.append(
            f"{found.too_old} happened more than validity.past ({past}) before their stamp: invalid, "
            "unless it is raised"
        )
    return "; ".join(parts) + "."
