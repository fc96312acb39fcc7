"""The verdict rule, on columns.

Pure: coordinates, event times and causes go in, one verdict a record comes out. Whether a record is settled
already is asked first, of the committed checkpoint alone (`Seen.settled`), and such a record is not even
decoded. If that were asked of its event time, a record would be settled twice, or never, as soon as the
contract or the zone rules change between two runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.record.rules import Rules, Tombstones
from jobs.report import Longs
from offsets.model import MICROSECOND, DayPlan, PartitionCheckpoint, Verdict, micros

Codes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

VERDICTS: Final = tuple(Verdict)
CODE: Final = {verdict: np.uint8(code) for code, verdict in enumerate(VERDICTS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a checkpoint says of one partition; the pending ranges as their two edges."""

    until: int
    pending_from: Longs
    pending_until: Longs

    @classmethod
    def of(cls, part: PartitionCheckpoint) -> Seen:
        """Take what a checkpoint says."""
        starts, ends = (np.frombuffer(edges, np.uint64).astype(np.int64) for edges in part.pending.edges())
        return cls(until=part.seen_until, pending_from=starts, pending_until=ends)

    def settled(self, offsets: Longs) -> Mask:
        """Tell which offsets an earlier commit holds."""
        below = offsets < self.until
        if not len(self.pending_from) or not below.any():
            return below
        at = np.searchsorted(self.pending_from, offsets, side="right") - 1
        pending: Mask = (at >= 0) & (offsets < self.pending_until[at])
        return below & ~pending


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """All that gives a record its verdict, apart from the record; instants in microseconds, UTC.

    `starts` are the starts of the lake's days up to and with the day itself, `days` their dates.
    """

    starts: Longs
    end: int
    days: tuple[date, ...]
    past: int
    future: int
    past_text: str
    future_text: str
    skip_tombstones: bool
    seen: dict[int, Seen]

    @classmethod
    def of(cls, plan: DayPlan, rules: Rules) -> Bounds:
        """Take a plan's bounds and a contract's rules."""
        days = (*plan.earlier, plan.day)
        return cls(
            starts=np.array([micros(day.start) for day in days], dtype=np.int64),
            end=micros(plan.day.end),
            days=tuple(day.date for day in days),
            past=rules.past // MICROSECOND,
            future=rules.future // MICROSECOND,
            past_text=_text(rules.past),
            future_text=_text(rules.future),
            skip_tombstones=rules.tombstones is Tombstones.SKIP and rules.format.value != "raw",
            seen={part.partition: Seen.of(part) for part in plan.consumed.partitions},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """One batch with its verdicts: `code` indexes VERDICTS, `day` the bounds' days (of LATE rows only)."""

    code: Codes
    day: Longs
    cause: pa.Array


def settle(
    *, tombstone: Mask, event_time: pa.Array, kafka_timestamp: pa.Array, cause: pa.Array, bounds: Bounds
) -> Settled:
    """Give each record its verdict; none of them is settled already.

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
    return Settled(code=code.astype(np.uint8, copy=False), day=day, cause=cause)


def _judge_window(
    event_time: pa.Array, kafka_timestamp: pa.Array, cause: pa.Array, bounds: Bounds
) -> pa.Array:
    """Add two causes: Kafka's timestamp is missing, or the event time is too far from it."""
    ahead = pc.subtract(event_time, kafka_timestamp)
    early, late = pc.less(ahead, -bounds.past), pc.greater(ahead, bounds.future)
    if kafka_timestamp.null_count or pc.any(pc.or_kleene(early, late)).as_py():
        window = pc.case_when(
            pc.make_struct(pc.is_null(kafka_timestamp), early, late),
            pa.scalar("No Kafka timestamp"),
            pa.scalar(f"Event time more than {bounds.past_text} before Kafka's timestamp"),
            pa.scalar(f"Event time more than {bounds.future_text} after Kafka's timestamp"),
        )
        return pc.coalesce(cause, window)
    return cause


def _text(length: timedelta) -> str:
    return f"{length.days} d" if length == timedelta(days=length.days) else str(length)
