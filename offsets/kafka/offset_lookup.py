"""Read from the broker all that the planner needs, and change nothing.

Relies on a TopicReader: the broker, or a topic in memory in a test. `plan` decides what the answers mean for
a day. Look-ups by time are always verified: KIP-79 returns the *first* offset stamped at or after an instant,
which may be one stray stamp, or a transaction marker with the broker's own clock. So the records after it
are sampled.
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
"""The most offsets of a stretch whose records are held in memory."""
SAMPLE = 50
"""How many records one sample has."""
TRIES = 5
"""How often a survey is tried if retention moves a log start during it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundEnd:
    """Where a day ends in one partition, before the plan compares it with `seen_until` and the LSO."""

    offset: int
    how: EndFrom
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStart:
    """Where a partition without a checkpoint begins; `oldest` is the stamp at its log start (ms)."""

    offset: int
    oldest: int | None
    anchor: Anchor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSurvey:
    """What the broker says of one partition.

    The last stable offset and high watermark of `log_offsets` were read before all look-ups; its log start
    and `stable_after` (the LSO) were read after them. `start` is None if the partition has a checkpoint.
    `after_anchor` are the first visible records from the checkpoint's anchor up to `seen_until`; there should
    be only the anchor. `first` are some records at the span's start, for sizes and headroom.
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
    """Read what the planner needs of each partition for one day; start again if retention moves a log start.

    Raises:
        OffsetsLost: retention moved a log start in every try.
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
    checkpoints = {part.partition: part for part in known.partitions} if known else {}
    new = [part for part in parts if part not in checkpoints]
    first_day = known is None
    starts = reader.offsets_at(topic, dict.fromkeys(new, millis(day.start - future))) if first_day else {}
    over = millis(day.end + grace)
    ends = reader.offsets_at(topic, dict.fromkeys(parts, over))
    after = reader.log_offsets(topic, parts)
    # retention may have moved a log start since the first answer: the later one holds for all that follows
    log_offsets = {part: replace(log_offsets[part], log_start=after[part].log_start) for part in parts}
    looks = {
        part: _survey_partition(
            log_offsets[part],
            after[part],
            checkpoints.get(part),
            _start(log_offsets[part], after[part].last_stable, starts.get(part), first_day),
            find_end(log_offsets[part], ends[part], after[part].last_stable, over),
        )
        for part in parts
    }
    return Survey(topic=described, partitions=look_together(reader, topic, looks))


def _survey_partition(
    log_offsets: LogOffsets,
    after: LogOffsets,
    checkpoint: PartitionCheckpoint | None,
    start: Look[FoundStart],
    end: Look[FoundEnd],
) -> Look[PartitionSurvey]:
    """Look up one partition's end, its anchor, some records, and its start if it has no checkpoint."""
    new_start = None if checkpoint else (yield from start)
    from_ = checkpoint.next_from_offset if checkpoint else new_start.offset if new_start else 0
    return PartitionSurvey(
        log_offsets=log_offsets,
        stable_after=after.last_stable,
        end=(yield from end),
        start=new_start,
        after_anchor=(yield from read_anchor(checkpoint, after)) if checkpoint else (),
        first=tuple(
            (yield Stretch(from_=max(from_, log_offsets.log_start), until=after.last_stable, limit=SAMPLE))
        ),
    )


def find_end(log_offsets: LogOffsets, looked_up: int | None, stable: int, over: int) -> Look[FoundEnd]:
    """Find the offset from which on records are stamped at or after `over` (ms), except for stray stamps."""
    if looked_up is None:
        return FoundEnd(
            offset=log_offsets.high,
            how=EndFrom.IDLE,
            detail="no record is stamped past the day's end and grace",
        )
    sample = (yield Stretch(from_=looked_up, until=stable, limit=SAMPLE)) if looked_up < stable else []
    if looked_up >= stable or _is_past(sample, over):
        end = _end_after_day(looked_up, sample, over)
        return FoundEnd(offset=end, how=EndFrom.STAMPED_PAST, detail=f"offset {end} is stamped past it")
    if not sample:
        # records of an open transaction above the LSO may belong to the day too
        return FoundEnd(
            offset=max(stable, log_offsets.high),
            how=EndFrom.IDLE,
            detail=f"no record follows the marker at offset {looked_up}",
        )
    return (yield from _bisect(log_offsets, looked_up, stable, over))


def _bisect(log_offsets: LogOffsets, looked_up: int, stable: int, over: int) -> Look[FoundEnd]:
    """Find the end between a stray stamp and the LSO, by bisection on the median stamp of samples."""
    before, past = looked_up, stable
    while past - before > 1:
        middle = (before + past) // 2
        sample = yield Stretch(from_=middle, until=past, limit=SAMPLE)
        if not sample or _is_past(sample, over):
            past = middle
        else:
            before = middle
    detail = f"the look-up stopped at a stray stamp or marker at offset {looked_up}"
    sample = yield Stretch(from_=past, until=stable, limit=SAMPLE)
    if not sample:
        return FoundEnd(
            offset=max(stable, log_offsets.high),
            how=EndFrom.IDLE,
            detail=f"{detail}; no record after it is stamped past the day",
        )
    end = _end_after_day(past, sample, over)
    return FoundEnd(
        offset=end, how=EndFrom.BISECTED, detail=f"{detail}; most records from {past} on are past it"
    )


def _end_after_day(end: int, sample: list[SeenRecord], over: int) -> int:
    """Return the end after the sample's last record of the day: only the sample's median is past the day."""
    return max([end, *(record.offset + 1 for record in sample if record.timestamp < over)])


def _is_past(sample: list[SeenRecord], over: int) -> bool:
    return bool(sample) and statistics.median_low([record.timestamp for record in sample]) >= over


def _start(log_offsets: LogOffsets, stable: int, looked_up: int | None, first_day: bool) -> Look[FoundStart]:
    """Find where to start: at the offset looked up on the lake's first day, else at the log start."""
    offset = (looked_up if looked_up is not None else log_offsets.last_stable) if first_day else 0
    oldest = yield Stretch(from_=log_offsets.log_start, until=log_offsets.last_stable, limit=1)
    return FoundStart(
        offset=max(offset, log_offsets.log_start),
        oldest=oldest[0].timestamp if oldest else None,
        anchor=(yield from last_before(log_offsets, min(offset, stable))),
    )


def last_before(log_offsets: LogOffsets, offset: int) -> Look[Anchor | None]:
    """Find the last visible record before an offset, in ranges that grow tenfold backwards."""
    width, until = 100, offset
    while until > log_offsets.log_start:
        from_ = max(log_offsets.log_start, until - width)
        if (yield Stretch(from_=from_, until=until, limit=1)):
            return (yield from _last_within(from_, until))
        until, width = from_, width * 10
    return None


def _last_within(from_: int, until: int) -> Look[Anchor | None]:
    """Find the last visible record of a range that has one, by bisection until it is narrow."""
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
