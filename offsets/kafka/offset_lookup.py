"""Ask the broker all that the planner needs, and nothing that changes it.

Relies on a TopicReader: the broker, or a topic in memory in a test. The answers are frozen;
what they mean for a day is decided in `plan`. Look-ups by time are never trusted blindly: one stray
stamp, or a transaction marker with the broker's own clock, pins them (KIP-79 answers the *first* offset
stamped at or after an instant), so the records that follow are looked at.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from offsets.checkpoint import Anchor, Checkpoint, PartitionCheckpoint
from offsets.day_plan import EndFrom, LogOffsets
from offsets.days import Day
from offsets.errors import OffsetsLost
from offsets.instants import millis
from offsets.kafka.reader import Look, SeenRecord, Stretch, TopicDescription, TopicReader, look_together

NARROW = 1_000
"""How many offsets a stretch may have whose records are held in memory."""
SAMPLE = 50
"""How many records one sample has."""
TRIES = 5
"""How often a survey is tried when retention moves a log in the middle of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEnd:
    """Where a day ends in one partition, before it is compared with `seen_until` and the LSO."""

    offset: int
    how: EndFrom
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStart:
    """Where a partition that no checkpoint knows begins; `oldest` is the stamp at its log start (ms)."""

    offset: int
    oldest: int | None
    anchor: Anchor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSurvey:
    """What the broker says of one partition.

    The ends of `log_offsets` were read before any look-up, their log start and `stable_after` (the LSO) after
    them.
    `start` is None where a checkpoint knows the partition. `after_anchor` are the first visible records from
    the checkpoint's anchor up to `seen_until`: all is well when there is just the anchor. `first` are some
    records at the span's start, for sizes and headroom.
    """

    log_offsets: LogOffsets
    stable_after: int
    end: FoundEnd
    start: FoundStart | None
    after_anchor: tuple[SeenRecord, ...]
    first: tuple[SeenRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What the broker says of the topic."""

    topic: TopicDescription
    partitions: Mapping[int, PartitionSurvey]


def survey(
    reader: TopicReader, topic: str, day: Day, grace: timedelta, future: timedelta, known: Checkpoint | None
) -> Survey:
    """Look at every partition of a topic for one day; start again where retention moves a log meanwhile.

    Raises:
        OffsetsLost: retention moves a log in each try.
    """
    for _ in range(TRIES - 1):
        with suppress(OffsetsLost):
            return _survey(reader, topic, day, grace, future, known)
    return _survey(reader, topic, day, grace, future, known)


def _survey(
    reader: TopicReader, topic: str, day: Day, grace: timedelta, future: timedelta, known: Checkpoint | None
) -> Survey:
    described = reader.describe(topic)
    parts = described.partitions
    log_offsets = reader.log_offsets(topic, parts)
    checkpoints = {each.partition: each for each in known.partitions} if known else {}
    new = [part for part in parts if part not in checkpoints]
    first_day = known is None
    starts = reader.offsets_at(topic, dict.fromkeys(new, millis(day.start - future))) if first_day else {}
    over = millis(day.end + grace)
    founds = reader.offsets_at(topic, dict.fromkeys(parts, over))
    after = reader.log_offsets(topic, parts)
    # retention may have moved a log since the first answer: what is read and what is judged begin alike
    log_offsets = {part: replace(log_offsets[part], log_start=after[part].log_start) for part in parts}
    looks = {
        part: _look(
            log_offsets[part],
            after[part],
            checkpoints.get(part),
            _start(log_offsets[part], after[part].last_stable, starts.get(part), first_day),
            find_end(log_offsets[part], founds[part], after[part].last_stable, over),
        )
        for part in parts
    }
    return Survey(topic=described, partitions=look_together(reader, topic, looks))


def _look(
    log_offsets: LogOffsets,
    after: LogOffsets,
    checkpoint: PartitionCheckpoint | None,
    start: Look[FoundStart],
    end: Look[FoundEnd],
) -> Look[PartitionSurvey]:
    """Look at one partition: at its start where no checkpoint knows it, its end, its anchor, its sizes."""
    begun = None if checkpoint else (yield from start)
    from_ = checkpoint.next_from_offset if checkpoint else begun.offset if begun else 0
    return PartitionSurvey(
        log_offsets=log_offsets,
        stable_after=after.last_stable,
        end=(yield from end),
        start=begun,
        after_anchor=(yield from read_anchor(checkpoint, after)) if checkpoint else (),
        first=tuple(
            (yield Stretch(from_=max(from_, log_offsets.log_start), until=after.last_stable, limit=SAMPLE))
        ),
    )


def find_end(log_offsets: LogOffsets, found: int | None, stable: int, over: int) -> Look[FoundEnd]:
    """Find the offset from which on records, stray stamps apart, are stamped at or after `over` (ms)."""
    if found is None:
        return FoundEnd(
            offset=log_offsets.high,
            how=EndFrom.IDLE,
            detail="no record is stamped past the day's end and grace",
        )
    sample = (yield Stretch(from_=found, until=stable, limit=SAMPLE)) if found < stable else []
    if found >= stable or _past(sample, over):
        end = _after_the_day(found, sample, over)
        return FoundEnd(offset=end, how=EndFrom.STAMPED_PAST, detail=f"offset {end} is stamped past it")
    if not sample:
        # what an open transaction holds above the LSO may be of the day too
        return FoundEnd(
            offset=max(stable, log_offsets.high),
            how=EndFrom.IDLE,
            detail=f"no record follows the marker at offset {found}",
        )
    return (yield from _bisect(log_offsets, found, stable, over))


def _bisect(log_offsets: LogOffsets, found: int, stable: int, over: int) -> Look[FoundEnd]:
    """Find the end between a stray stamp and the LSO, by bisection on the median stamp of samples."""
    before, past = found, stable
    while past - before > 1:
        middle = (before + past) // 2
        sample = yield Stretch(from_=middle, until=past, limit=SAMPLE)
        if not sample or _past(sample, over):
            past = middle
        else:
            before = middle
    stray = f"the look-up stopped at a stray stamp or marker at offset {found}"
    sample = yield Stretch(from_=past, until=stable, limit=SAMPLE)
    if not sample:
        return FoundEnd(
            offset=max(stable, log_offsets.high),
            how=EndFrom.IDLE,
            detail=f"{stray}; no record after it is stamped past the day",
        )
    end = _after_the_day(past, sample, over)
    return FoundEnd(
        offset=end, how=EndFrom.BISECTED, detail=f"{stray}; most records from {past} on are past it"
    )


def _after_the_day(end: int, sample: list[SeenRecord], over: int) -> int:
    """Move an end behind the sample's last record of the day: a median may be past it where some are not."""
    return max([end, *(record.offset + 1 for record in sample if record.timestamp < over)])


def _past(sample: list[SeenRecord], over: int) -> bool:
    return bool(sample) and statistics.median_low([record.timestamp for record in sample]) >= over


def _start(log_offsets: LogOffsets, stable: int, found: int | None, first_day: bool) -> Look[FoundStart]:
    """Find where to start: at the look-up's answer on the lake's first day, else at the log's beginning."""
    offset = (found if found is not None else log_offsets.last_stable) if first_day else 0
    oldest = yield Stretch(from_=log_offsets.log_start, until=log_offsets.last_stable, limit=1)
    return FoundStart(
        offset=max(offset, log_offsets.log_start),
        oldest=oldest[0].timestamp if oldest else None,
        anchor=(yield from _last_before(log_offsets, min(offset, stable))),
    )


def _last_before(log_offsets: LogOffsets, offset: int) -> Look[Anchor | None]:
    """Find the last visible record before an offset, looking back further each time."""
    width, until = 100, offset
    while until > log_offsets.log_start:
        from_ = max(log_offsets.log_start, until - width)
        if (yield Stretch(from_=from_, until=until, limit=1)):
            return (yield from _last_within(from_, until))
        until, width = from_, width * 10
    return None


def _last_within(from_: int, until: int) -> Look[Anchor | None]:
    """Find the last visible record of a stretch that has one; only a narrow one is read whole."""
    while until - from_ > NARROW:
        middle = (from_ + until) // 2
        if (yield Stretch(from_=middle, until=until, limit=1)):
            from_ = middle
        else:
            until = middle
    records = yield Stretch(from_=from_, until=until, limit=NARROW)
    return records[-1].anchor if records else None


def read_anchor(checkpoint: PartitionCheckpoint, log_offsets: LogOffsets) -> Look[tuple[SeenRecord, ...]]:
    """Read the first two visible records, or fewer, from a checkpoint's anchor up to its `seen_until`."""
    until = min(checkpoint.seen_until, log_offsets.last_stable)
    from_ = max(checkpoint.anchor.offset if checkpoint.anchor else 0, log_offsets.log_start)
    return tuple((yield Stretch(from_=from_, until=until, limit=2)))
