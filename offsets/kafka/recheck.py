"""Check after the reading that the topic was the planned one all the time.

Relies on a TopicReader. Consumers do not notice that a topic was deleted and created again while they read
it; its id, its log starts and its anchors show it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from offsets.checkpoint import Checkpoint
from offsets.day_plan import DayPlan, Span
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
    """Check the topic's identity and log starts, and the anchors of the plan and of the next checkpoint.

    Raises:
        TopicChanged: the topic was recreated, or its records have changed.
        OffsetsLost: retention removed offsets before they were read.
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
    for span, missed in zip(plan.spans, gaps, strict=True):
        _check_read_in_time(span, missed.offsets, log_offsets[span.partition].log_start)
    for checkpoint in (plan.consumed, next_):
        looks = {
            part.partition: read_anchor(part, log_offsets[part.partition]) for part in checkpoint.partitions
        }
        seen = look_together(reader, topic, looks)
        for part in checkpoint.partitions:
            check_anchor(part, log_offsets[part.partition].log_start, seen[part.partition], plan.compacted)


def _check_read_in_time(span: Span, missed: Offsets, log_start: int) -> None:
    lost = missed.within(0, log_start)
    if len(lost):
        raise OffsetsLost(
            expected=f"partition {span.partition} from offset {span.from_offset} on",
            found=f"a log that starts at {log_start} now; {len(lost)} offsets were not read in time",
            do="Nothing was committed. Raise the topic's retention, then run the same command again: it "
            "looks at the topic anew, and says what is lost and how to go on.",
            partition=span.partition,
            offset=span.from_offset,
            log_start=log_start,
        )


def prove_gaps(reader: TopicReader, topic: str, gaps: Sequence[Gaps], seed: str) -> tuple[Gaps, ...]:
    """Check with a second client that offsets which Spark did not deliver hold no visible record.

    Transaction markers, aborted and compacted records are invisible; a record that was dropped on its way is
    not. All ranges of a partition are probed, or a random sample if there are more than PROBES. The gaps
    returned hold how many were probed.

    Raises:
        AuditFailed: a gap holds a visible record.
        OffsetsLost: retention removed a gap before it was probed.
    """
    rng = random.Random(seed)
    chosen = {gap.partition: _choose_ranges(gap.offsets, rng) for gap in gaps}
    look_together(reader, topic, {part: _probe(part, ranges) for part, ranges in chosen.items()})
    return tuple(replace(gap, probed=len(chosen[gap.partition])) for gap in gaps)


def _choose_ranges(offsets: Offsets, rng: random.Random) -> list[Range]:
    """Choose the ranges to probe, without a list of all ranges."""
    starts, ends = offsets.edges()
    every = range(len(starts))
    chosen = every if len(every) <= PROBES else sorted(rng.sample(every, PROBES))
    return [(starts[at], ends[at]) for at in chosen]


def _probe(partition: int, ranges: list[Range]) -> Look[None]:
    remaining, width, sized = deque(ranges), NEAR, False
    while remaining:
        group = _take_group(remaining, width)
        from_, until = group[0][0], group[-1][1]
        limit = until - from_ if len(group) > 1 else 1
        if not sized and remaining:
            # read on to the first record after the gap: it shows how large records are
            until = min(remaining[0][0], until + NARROW)
        seen = yield Stretch(from_=from_, until=until, limit=limit)
        for record in seen:
            _require_between(partition, group, record.offset)
        if seen:
            sized, width = True, min(NARROW, ANSWER * len(seen) // (1 + sum(record.size for record in seen)))


def _take_group(remaining: deque[Range], width: int) -> list[Range]:
    """Take the next range, and those after it that end at most `width` offsets after its start."""
    group = [remaining.popleft()]
    while remaining and remaining[0][1] - group[0][0] <= width:
        group.append(remaining.popleft())
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
