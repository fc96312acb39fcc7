"""Spans and a plan of them."""

from __future__ import annotations

from offsets.checkpoint import Checkpoint, PartitionCheckpoint, TopicIdentity
from offsets.contract import Accepted, Contract
from offsets.day_plan import DayPlan, EndFrom, Evidence, Span, StartFrom
from offsets.days import Day
from offsets.ranges import Offsets

TOPIC = TopicIdentity(name="orders", topic_id="t", cluster_id="c")
EVIDENCE = Evidence(start=StartFrom.CHECKPOINT, start_detail="", end=EndFrom.IDLE, end_detail="")


def span(from_: int, seen: int, until: int, reads: Offsets | None = None, partition: int = 0) -> Span:
    read = Offsets.between(from_, until) if reads is None else reads
    return Span(
        partition=partition,
        from_offset=from_,
        seen_until=seen,
        until_offset=until,
        reads=read,
        evidence=EVIDENCE,
    )


def plan(
    day: Day, spans: list[Span], parts: list[PartitionCheckpoint], earlier: tuple[Day, ...] = ()
) -> DayPlan:
    return DayPlan(
        day=day,
        topic=TOPIC,
        contract=Contract({}),
        accepted=Accepted(),
        consumed=Checkpoint(topic=TOPIC, partitions=tuple(parts)),
        earlier=earlier,
        spans=tuple(spans),
        first_offsets=(),
        cleanup_policy="delete",
        headroom_hours=None,
        risks=(),
    )
