"""Look at the topic once more, after it was read: was it all the time the one that was planned?

Relies on a TopicReader. A topic that is deleted and made again while it is read is not noticed by its
readers; its id, its log starts and its anchors tell.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from offsets.errors import AuditFailed, OffsetsLost, TopicChanged
from offsets.model import Checkpoint, DayPlan, Gaps
from offsets.plan import check_anchor
from offsets.ranges import Offsets, Range
from offsets.survey import anchored
from offsets.topic import TopicReader

PROBES: Final = 1_000
"""So many gaps of a partition are looked at."""


def recheck(reader: TopicReader, plan: DayPlan, gaps: Sequence[Gaps], next_: Checkpoint) -> None:
    """Check identity, log starts and anchors, those of the plan and those of the next checkpoint.

    Raises:
        TopicChanged: the topic is another one now, or its records are others.
        OffsetsLost: retention took offsets before they were read.
    """
    identity = reader.describe(plan.topic.name).identity
    if identity != plan.topic:
        raise TopicChanged(
            expected=f"topic id {plan.topic.topic_id}, as when the day was planned",
            found=f"{identity.topic_id}: it was recreated while it was read",
            do="Nothing was committed. A recreated topic needs a lake (lake.path) of its own.",
        )
    edges = reader.watermarks(plan.topic.name, [span.partition for span in plan.spans])
    for span, missed in zip(plan.spans, gaps, strict=True):
        log_start = edges[span.partition].log_start
        lost = missed.offsets.within(0, log_start)
        if len(lost):
            raise OffsetsLost(
                expected=f"partition {span.partition} from offset {span.from_offset} on",
                found=f"a log that starts at {log_start} now; {len(lost)} offsets were not read in time",
                do="Nothing was committed. Raise the topic's retention.",
                partition=span.partition,
                offset=span.from_offset,
                log_start=log_start,
            )
    for checkpoint in (plan.consumed, next_):
        for part in checkpoint.partitions:
            edge = edges[part.partition]
            seen = anchored(reader, plan.topic.name, part, edge)
            check_anchor(part, edge.log_start, seen, plan.compacted)


def prove_gaps(reader: TopicReader, topic: str, gaps: Sequence[Gaps], seed: str) -> tuple[Gaps, ...]:
    """Check by another client that what Spark did not deliver is invisible to readers.

    Transaction markers, aborted and compacted records are; a record that was dropped on its way is not.
    Up to PROBES ranges of a partition are all looked at, of more a random sample; the gaps returned say how
    many were.

    Raises:
        AuditFailed: a record is there.
    """
    pick = random.Random(seed)
    proved = []
    for gap in gaps:
        chosen = _some(gap.offsets, pick)
        proved.append(replace(gap, probed=len(chosen)))
        for from_, until in chosen:
            if seen := reader.records(topic, gap.partition, from_, until, 1):
                raise AuditFailed(
                    expected=f"no visible record in [{from_}, {until}) of partition {gap.partition}, "
                    "since Spark delivered none",
                    found=f"one at offset {seen[0].offset}",
                    do="Nothing was committed. Run the day again; if it recurs, report it.",
                )
    return tuple(proved)


def _some(offsets: Offsets, pick: random.Random) -> list[Range]:
    """Choose the ranges to look at, without making a list of all."""
    starts, ends = offsets.edges()
    numbers = range(len(starts))
    return [
        (starts[at], ends[at]) for at in (numbers if len(numbers) <= PROBES else pick.sample(numbers, PROBES))
    ]
