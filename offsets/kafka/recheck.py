"""Check after the reading that the topic was the planned one all the time.

Relies on a TopicReader. Consumers do not notice that a topic was deleted and created again while they read
it; its id, its log starts and its anchors show it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from offsets.checkpoint import Checkpoint
from offsets.day_plan import DayPlan, LogOffsets, Span
from offsets.errors import AuditFailed, BrokerUnavailable, OffsetsLost, TopicChanged
from offsets.kafka.offset_lookup import NARROW, TRIES, read_anchor
from offsets.kafka.reader import Look, Stretch, TopicReader, look_together
from offsets.manifest import Gaps
from offsets.plan import check_anchor
from offsets.ranges import Offsets, Range

PROBES: Final = 1_000
"""The most gaps of a partition that are probed."""
NEAR: Final = 16
ANSWER: Final = 128 << 10
"""Gaps within NEAR offsets are probed together, and, once record sizes are known, gaps within ANSWER bytes:
one answer brings that much anyway, and each request takes a round trip."""


def recheck(reader: TopicReader, plan: DayPlan, gaps: Sequence[Gaps], next_: Checkpoint) -> None:
    """Check the topic's identity, and the anchors of the plan and of the next checkpoint.

    `gaps` must be in the log still; those that an earlier day settled, and those not given, need not.

    Raises:
        TopicChanged: the topic was recreated, or its records have changed.
        OffsetsLost: retention removed unsettled gaps, so perhaps records before they were read.
    """
    identity = reader.describe(plan.topic.name).identity
    if identity != plan.topic:
        raise TopicChanged(
            expected=f"topic id {plan.topic.topic_id}, as when the day was planned",
            found=f"{identity.topic_id}: it was recreated while it was read",
            do="Nothing was committed. A recreated topic needs a lake (lake.path) of its own.",
        )
    for attempt in range(TRIES):
        try:
            _check_logs(reader, plan, gaps, next_)
            return
        except OffsetsLost as lost:
            # a log start moved between the reads of log offsets and anchors: read both again
            if "log_start" in lost.facts or attempt == TRIES - 1:
                raise


def recheck_pending(reader: TopicReader, plan: DayPlan, delivered: Mapping[int, Offsets]) -> None:
    """Recheck the topic if pending offsets were not delivered: its error explains more than the audit's."""
    missing = [
        Gaps(partition=part.partition, offsets=part.pending - delivered.get(part.partition, Offsets()))
        for part in plan.consumed.partitions
    ]
    if any(len(gap.offsets) for gap in missing):
        with suppress(BrokerUnavailable):
            recheck(reader, plan, missing, plan.consumed)


def _check_logs(reader: TopicReader, plan: DayPlan, gaps: Sequence[Gaps], next_: Checkpoint) -> None:
    topic = plan.topic.name
    log_offsets = reader.log_offsets(topic, [span.partition for span in plan.spans])
    _check_read_in_time(plan, {gap.partition: gap.offsets for gap in gaps}, log_offsets)
    for checkpoint in (plan.consumed, next_):
        looks = {
            part.partition: read_anchor(part, log_offsets[part.partition]) for part in checkpoint.partitions
        }
        seen = look_together(reader, topic, looks)
        for part in checkpoint.partitions:
            check_anchor(part, log_offsets[part.partition].log_start, seen[part.partition], plan.compacted)


def _check_read_in_time(
    plan: DayPlan, gaps: Mapping[int, Offsets], log_offsets: Mapping[int, LogOffsets]
) -> None:
    """Check that the logs still hold the gaps, but for offsets that an earlier day settled."""
    for span, part in zip(plan.spans, plan.consumed.partitions, strict=True):
        log_start = log_offsets[span.partition].log_start
        gone = gaps.get(span.partition, Offsets()).within(0, log_start) & part.unsettled(span.until_offset)
        if len(gone):
            raise _not_in_time(span, len(gone), log_start)


def _not_in_time(span: Span, offset_count: int, log_start: int) -> OffsetsLost:
    return OffsetsLost(
        expected=f"partition {span.partition} from offset {span.from_offset} on",
        found=f"a log that starts at {log_start} now; {offset_count} offsets were not read in time",
        do="Nothing was committed. Raise the topic's retention, then run the same command again: it "
        "looks at the topic anew, and says what is lost and how to go on.",
        partition=span.partition,
        offset=span.from_offset,
        log_start=log_start,
    )


def prove_gaps(reader: TopicReader, plan: DayPlan, gaps: Sequence[Gaps], seed: str) -> tuple[Gaps, ...]:
    """Check with a second client that offsets which Spark did not deliver hold no visible record.

    Transaction markers, aborted and compacted records are invisible; a record that was dropped on its way is
    not. All ranges of a partition are probed, or a random sample if there are more than PROBES, but none that
    an earlier day settled and retention has removed. None is probed twice: retention may remove what was. The
    gaps returned hold how many were probed.

    Raises:
        AuditFailed: a gap holds a visible record.
        OffsetsLost: retention removed a gap before it was probed.
    """
    rng = random.Random(seed)
    unseen = {gap.partition: deque(_choose_ranges(gap.offsets, rng)) for gap in gaps}
    probed = {partition: len(ranges) for partition, ranges in unseen.items()}
    while True:
        looks = {partition: _probe(partition, ranges) for partition, ranges in unseen.items()}
        try:
            look_together(reader, plan.topic.name, looks)
        except OffsetsLost:
            left = {partition: Offsets(ranges) for partition, ranges in unseen.items()}
            still_held = _still_held(reader, plan, left)
            if still_held == left:
                raise
            for partition, ranges in still_held.items():
                probed[partition] -= left[partition].range_count - ranges.range_count
                unseen[partition] = deque(ranges)
        else:
            return tuple(replace(gap, probed=probed[gap.partition]) for gap in gaps)


def _still_held(reader: TopicReader, plan: DayPlan, gaps: Mapping[int, Offsets]) -> dict[int, Offsets]:
    """Return the gaps that the logs still hold; only settled ones may be gone."""
    log_offsets = reader.log_offsets(plan.topic.name, list(gaps))
    _check_read_in_time(plan, gaps, log_offsets)
    ends = {span.partition: span.until_offset for span in plan.spans}
    return {part: gap.within(log_offsets[part].log_start, ends[part]) for part, gap in gaps.items()}


def _choose_ranges(offsets: Offsets, rng: random.Random) -> list[Range]:
    """Choose the ranges to probe, without a list of all ranges."""
    starts, ends = offsets.edges()
    every = range(len(starts))
    chosen = every if len(every) <= PROBES else sorted(rng.sample(every, PROBES))
    return [(starts[at], ends[at]) for at in chosen]


def _probe(partition: int, unseen: deque[Range]) -> Look[None]:
    """Look into ranges, and take each away once it was looked into."""
    width, sized = NEAR, False
    while unseen:
        group = _first_group(unseen, width)
        from_, until = group[0][0], group[-1][1]
        limit = until - from_ if len(group) > 1 else 1
        if not sized and len(group) < len(unseen):
            # read on to the first record after the gap: it shows how large records are
            until = min(unseen[len(group)][0], until + NARROW)
        seen = yield Stretch(from_=from_, until=until, limit=limit)
        for record in seen:
            _require_between(partition, group, record.offset)
        if seen:
            sized, width = True, min(NARROW, ANSWER * len(seen) // (1 + sum(record.size for record in seen)))
        for _ in group:
            unseen.popleft()


def _first_group(ranges: Iterable[Range], width: int) -> list[Range]:
    """Return the first range, and those after it that end at most `width` offsets after its start."""
    group: list[Range] = []
    for range_ in ranges:
        if group and range_[1] - group[0][0] > width:
            break
        group.append(range_)
    return group


def _require_between(partition: int, gaps: Sequence[Range], offset: int) -> None:
    for from_, until in gaps:
        if from_ <= offset < until:
            raise AuditFailed(
                expected=f"no visible record in [{from_}, {until}) of partition {partition}, "
                "since Spark delivered none",
                found=f"one at offset {offset}",
                do="Nothing was committed. Run the day again; if it recurs, report it.",
            )
