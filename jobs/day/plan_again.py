"""The plan of a day that is built again: the recorded spans once more, or those that its files show.

Relies on what is recorded of the day, on its files and on the broker; changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date

from jobs.context import Pipeline
from jobs.day.columns import with_columns
from jobs.day.contract import accepted_changes, warn_of_changes
from jobs.day.old_day import OldDay
from jobs.day.plan import PlannedRun, plan_with_retries
from jobs.day.sizing import bytes_per_row
from jobs.lake.names import DAY_PREFIX, entry_ref
from offsets.contract import Contract
from offsets.day_plan import EndFrom, Span, after_compaction, is_compacted
from offsets.errors import OffsetsLost, TopicChanged
from offsets.plan import offsets_to_read
from offsets.ranges import Offsets


def plan_again(pipeline: Pipeline, old_day: OldDay, contract: Contract | None) -> PlannedRun:
    """Return a plan that reads a day's offsets again, under a contract or under that of the config.

    Raises:
        LedgerBroken: the day's own manifest is gone, and its neighbours do not record what it held.
        TopicChanged: it is another topic, or one that ends before the day's files do.
        OffsetsLost: retention removed some of the day's records, or compaction may have.
        ContractChanged: nobody accepts how the config's contract differs from the recorded one.
    """
    history = old_day.history
    if not history.known:
        return _plan_anew(pipeline, old_day)
    recorded = history.recorded()
    old = recorded.plan
    described = pipeline.broker().describe(pipeline.settings.topic)
    if described.identity != old.topic:
        raise TopicChanged(
            expected=f"topic {old.topic.name} with id {old.topic.topic_id} in cluster {old.topic.cluster_id}",
            found=f"id {described.identity.topic_id} in cluster {described.identity.cluster_id}",
            do="The old day stays. What the old topic held cannot be read again: restore it from a backup.",
        )
    policy = after_compaction(described.cleanup_policy, history.policy)
    if recorded.manifest is None and is_compacted(policy) is not False:
        raise _compacted(policy)
    require_retained(pipeline, old.spans)
    contract = contract or pipeline.settings.rules.contract(pipeline.settings.day.zone, old.first.date)
    changes = accepted_changes(
        pipeline,
        old.contract,
        contract,
        expected=f"the contract of {old.day.date}, under which that day was built",
        do="Undo the change, or decode the day again under the new contract with --accept-contract.",
    )
    warn_of_changes(changes, old.day.date)
    new = [change.text for change in changes if change.text not in old.accepted.contract]
    accepted = replace(old.accepted, contract=(*old.accepted.contract, *new))
    plan = replace(old, contract=contract, accepted=accepted, cleanup_policy=policy)
    plan = with_columns(plan, pipeline.lake, history.newest, pipeline.settings.rules)
    return PlannedRun(plan=plan, row_bytes=bytes_per_row(recorded.manifest, None))


def require_retained(pipeline: Pipeline, spans: Sequence[Span]) -> None:
    """Check that Kafka still holds the offsets that recorded spans read.

    Raises:
        OffsetsLost: retention removed some of them.
    """
    log_offsets = pipeline.broker().log_offsets(pipeline.settings.topic, [span.partition for span in spans])
    for span in spans:
        log_start = log_offsets[span.partition].log_start
        if len(span.reads) and span.reads.first < log_start:
            raise OffsetsLost(
                expected=f"partition {span.partition} from offset {span.reads.first} on",
                found=f"a log that starts at {log_start}",
                do="The old day stays: retention took what it was made of. Restore the day from a backup.",
                partition=span.partition,
                offset=span.from_offset,
                log_start=log_start,
            )


def _plan_anew(pipeline: Pipeline, old: OldDay) -> PlannedRun:
    """Return a plan for the newest day, whose manifest is gone; it ends where its files end, or later."""
    day = old.history.date
    try:
        planned = plan_with_retries(pipeline, old.history.ledger, day, again=True)
    except OffsetsLost as lost:
        raise _lost_for_good(lost, day) from None
    plan = planned.plan
    if plan.compacted is not False:
        raise _compacted(plan.cleanup_policy)
    held = old.offset_bounds()
    log_offsets = pipeline.broker().log_offsets(plan.topic.name, [span.partition for span in plan.spans])
    spans = [
        _extend(span, part.pending, held[span.partition], log_offsets[span.partition].last_stable)
        if span.partition in held
        else span
        for span, part in zip(plan.spans, plan.consumed.partitions, strict=True)
    ]
    return replace(planned, plan=replace(plan, spans=tuple(spans)))


def _lost_for_good(lost: OffsetsLost, day: date) -> OffsetsLost:
    """Return the error with the advice that keeps the lost offsets which the old folder still holds."""
    if "accept" not in lost.facts:  # a new partition's start, which --accept-start vouches for
        return lost
    return OffsetsLost(
        expected=lost.expected,
        found=lost.found,
        do=f"The old folder stays. Restore its manifest from a backup. Without one, move {DAY_PREFIX}{day}, "
        f"{entry_ref(day)} and all {DAY_PREFIX}*/*late-{day}-* out of the lake, and run the day without "
        "--force: it says what to accept as lost. What the moved files hold of that is then there alone.",
        **{key: fact for key, fact in lost.facts.items() if key != "accept"},
    )


def _compacted(policy: str | None) -> OffsetsLost:
    return OffsetsLost(
        expected="a topic that is not compacted, to settle again a day whose manifest is gone",
        found=f"cleanup.policy {policy or 'that the broker does not show'}",
        do="Nobody can say what compaction has taken since: restore the day's folder from a backup.",
    )


def _extend(span: Span, pending: Offsets, held: tuple[int, int], last_stable: int) -> Span:
    """Return a span that reaches as far as the day's files; it must begin where they do, or before."""
    held_from, held_until = held
    if held_from < span.from_offset:
        raise OffsetsLost(
            expected=f"partition {span.partition} from offset {held_from} on, as the day's files hold",
            found=f"a plan from {span.from_offset} on",
            do="The old folder stays. Restore its manifest from a backup.",
        )
    if held_until <= span.until_offset:
        return span
    if held_until > last_stable:
        raise TopicChanged(
            expected=f"partition {span.partition} to reach offset {held_until}, as the day's files do",
            found=f"{last_stable} is the last stable offset",
            do="The old folder stays. Restore its manifest from a backup.",
        )
    detail = "as far as the day's files reach, whose manifest is gone"
    return replace(
        span,
        until_offset=held_until,
        reads=offsets_to_read(pending, span.seen_until, held_until),
        evidence=replace(span.evidence, end=EndFrom.RECORDED, end_detail=detail),
    )
