"""The verdict rule, on columns.

Pure: coordinates, event times and causes go in, one verdict per record comes out. First of all the committed
checkpoint alone decides whether a record is settled already (`SettledOffsets.settled`); such a record is not
even decoded. If the event time decided that, a record would be settled twice, or never, when the contract or
the zone rules change between two runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.record.formats import DECODERS
from jobs.record.rules import Rules, Tombstones
from jobs.task.result import Longs
from offsets.day_plan import DayPlan
from offsets.days import Day
from offsets.instants import MICROSECOND, micros
from offsets.ranges import Offsets
from offsets.verdict import Verdict

Codes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

VERDICTS: Final = tuple(Verdict)
CODE: Final = {verdict: np.uint8(code) for code, verdict in enumerate(VERDICTS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledOffsets:
    """What a checkpoint has settled of one partition; `edges` are starts and ends of the pending ranges."""

    until: int
    pending: Offsets
    edges: tuple[Longs, Longs] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts, ends = (np.frombuffer(edge, np.uint64).astype(np.int64) for edge in self.pending.edges())
        object.__setattr__(self, "edges", (starts, ends))

    def __reduce__(self) -> tuple[Callable[[int, Offsets], SettledOffsets], tuple[int, Offsets]]:
        """Pickle the set without its edges, which take 16 bytes a range."""
        return _settled_offsets, (self.until, self.pending)

    def settled(self, offsets: Longs) -> Mask:
        """Return which offsets an earlier commit holds."""
        below = offsets < self.until
        starts, ends = self.edges
        if not len(starts) or not below.any():
            return below
        at = np.searchsorted(starts, offsets, side="right") - 1
        pending: Mask = (at >= 0) & (offsets < ends[at])
        return below & ~pending


def _settled_offsets(until: int, pending: Offsets) -> SettledOffsets:
    return SettledOffsets(until=until, pending=pending)


@dataclass(frozen=True, slots=True, kw_only=True)
class DayBounds:
    """All that decides a record's verdict, beside the record; instants in microseconds, UTC.

    `starts` are the starts of the lake's days up to and including the day itself, `days` their dates.
    """

    starts: Longs
    end: int
    days: tuple[date, ...]
    past: int
    future: int
    past_text: str
    future_text: str
    skip_tombstones: bool
    seen: dict[int, SettledOffsets]

    @classmethod
    def of(cls, plan: DayPlan, rules: Rules) -> DayBounds:
        """Make the bounds from a plan and a contract's rules."""
        seen = {
            part.partition: _settled_offsets(part.seen_until, part.pending)
            for part in plan.consumed.partitions
        }
        return cls.through((*plan.earlier, plan.day), rules, seen)

    @classmethod
    def through(
        cls, days: Sequence[Day], rules: Rules, seen: dict[int, SettledOffsets] | None = None
    ) -> DayBounds:
        """Make the bounds of the last of a lake's days from the first on."""
        return cls(
            starts=np.array([micros(day.start) for day in days], dtype=np.int64),
            end=micros(days[-1].end),
            days=tuple(day.date for day in days),
            past=rules.past // MICROSECOND,
            future=rules.future // MICROSECOND,
            past_text=length_text(rules.past),
            future_text=length_text(rules.future),
            skip_tombstones=rules.tombstones is Tombstones.SKIP
            and not DECODERS[rules.format].keeps_null_values,
            seen=seen or {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Classified:
    """One batch with its verdicts: `code` indexes VERDICTS; `day` indexes the days, for LATE rows only."""

    code: Codes
    day: Longs
    cause: pa.Array


def classify(
    *, tombstone: Mask, event_time: pa.Array, kafka_timestamp: pa.Array, cause: pa.Array, bounds: DayBounds
) -> Classified:
    """Return each record's verdict; none of the records may be settled already.

    `event_time` is null where `cause` is not; `kafka_timestamp` (microseconds) is null where there is none.
    """
    cause = _judge_window(event_time, kafka_timestamp, cause, bounds)
    invalid = pc.is_valid(cause).to_numpy(zero_copy_only=False)
    times = event_time.fill_null(0).to_numpy(zero_copy_only=False)
    skipped = tombstone if bounds.skip_tombstones else np.zeros(len(times), dtype=bool)
    code = np.select(
        [
            skipped,
            invalid,
            times < bounds.starts[0],
            times >= bounds.end,
            times < bounds.starts[-1],
        ],
        [
            CODE[Verdict.SKIPPED],
            CODE[Verdict.INVALID],
            CODE[Verdict.BEFORE_FIRST],
            CODE[Verdict.LATER_DAY],
            CODE[Verdict.LATE],
        ],
        default=CODE[Verdict.IN_DAY],
    )
    day = np.searchsorted(bounds.starts, times, side="right") - 1
    return Classified(code=code.astype(np.uint8, copy=False), day=day, cause=cause)


def _judge_window(
    event_time: pa.Array, kafka_timestamp: pa.Array, cause: pa.Array, bounds: DayBounds
) -> pa.Array:
    """Add two causes: Kafka's timestamp is missing, or the event time is too far from it."""
    ahead = pc.subtract(event_time, kafka_timestamp)
    early, late = pc.less(ahead, -bounds.past), pc.greater(ahead, bounds.future)
    if kafka_timestamp.null_count or pc.any(pc.or_kleene(early, late)).as_py():
        window = pc.case_when(
            pc.make_struct(pc.is_null(kafka_timestamp), early, late),
            pa.scalar("No Kafka timestamp"),
            pa.scalar(too_early(bounds)),
            pa.scalar(f"Event time more than {bounds.future_text} after Kafka's timestamp"),
        )
        return pc.coalesce(cause, window)
    return cause


def too_early(bounds: DayBounds) -> str:
    """Return the cause of a record that happened too long before Kafka's timestamp."""
    return f"Event time more than {bounds.past_text} before Kafka's timestamp"


def length_text(length: timedelta) -> str:
    """Return a duration as messages show it."""
    return f"{length.days} d" if length == timedelta(days=length.days) else str(length)
