"""Choose the offsets of a day.

Pure: turns a survey, the ledger and the current time into a DayPlan, or raises the one error that says why
there is none. Any end is correct, since a later run settles what lies beyond it. A wrong start or a forgotten
pending offset would lose records, so both come from the checkpoint alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from offsets.checkpoint import Anchor, Checkpoint, LostOffsets, PartitionCheckpoint
from offsets.commit_log import Ledger
from offsets.contract import Accepted, Contract
from offsets.day_plan import (
    DayPlan,
    EndFrom,
    Evidence,
    PartitionStart,
    Span,
    StartFrom,
    after_compaction,
    is_compacted,
)
from offsets.days import Day, date_in, day_in, midnight
from offsets.errors import (
    BrokerBehind,
    ConfigError,
    ContractChanged,
    DayNotOver,
    OffsetsLost,
    TopicChanged,
)
from offsets.instants import millis
from offsets.kafka.offset_lookup import FoundStart, PartitionSurvey, Survey
from offsets.kafka.reader import SeenRecord, TopicDescription
from offsets.manifest import Manifest
from offsets.ranges import Offsets

READ_OVER = 0.05
"""Read through gaps while they add at most this share of the needed offsets: a seek costs more."""
READ_OVER_AT_LEAST = 1_000
"""Read through gaps of up to this many offsets in total in any case: one fetch brings more."""
MOST_RANGES = 8
"""The most ranges in which one partition is read."""
IF_COMPACTED = (
    "Where compaction took it, the topic's settings must show that: give our user the right to read them "
    "(DescribeConfigs) or, if compaction was turned off since, set cleanup.policy to compact,delete for one "
    "run, while which the topic takes no record without a key."
)
"""The advice if a record is gone and no run saw that the topic was compacted."""


OVERLAP = (
    "If none hangs and a later one is open at each run, transactions overlap: abort none. The day is settled "
    "in a pause of their producers, or once a record here is stamped past the day and day.grace."
)
"""The advice if the end of a day is the end of the log, which may never be stable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """What the command line accepts for this run; a plan records the part that was needed as Accepted."""

    contract: bool = False
    start: bool = False
    loss: tuple[LostOffsets, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the planner needs of the config and the command line."""

    zone: str
    grace: timedelta
    headroom: timedelta
    future: timedelta
    contract: Contract
    changes: tuple[str, ...] = ()
    """How the contract differs from that of the day before, each as `term: old -> new`; all accepted."""
    accept: Accept = field(default_factory=Accept)


def bounds(day: date, zone: str, before: Manifest | None) -> Day:
    """Return a day's bounds; it begins where the day before ended, even if the zone rules changed since."""
    return day_in(zone, day) if before is None else day_behind(before.day.end, day, zone)


def day_behind(start: datetime, day: date, zone: str) -> Day:
    """Return a day that begins where the one before it ended."""
    return Day(date=day, zone=zone, start=start, end=max(start, day_in(zone, day).end))


def require_over(day: Day, grace: timedelta, now: datetime) -> None:
    """Check that a day and its grace are over.

    Raises:
        DayNotOver: they end after `now`.
    """
    due = day.end + grace
    if now < due:
        raise DayNotOver(
            expected=f"{day} to be over, with a grace of {grace}, at {due:%Y-%m-%dT%H:%M:%SZ}",
            found=f"the time is {now:%Y-%m-%dT%H:%M:%SZ}",
            do="Run again after that moment.",
            due=due.isoformat(),
        )


def plan_day(*, day: Day, ledger: Ledger, survey: Survey, terms: Terms, now: datetime) -> DayPlan:
    """Plan one day.

    Raises:
        DayNotOver, ContractChanged, TopicChanged, OffsetsLost, BrokerBehind: as their names say.
    """
    require_over(day, terms.grace, now)
    before = ledger.newest
    changes = terms.changes + _changed_start(day, before, terms)
    _check_identity(before, survey)
    policy = after_compaction(survey.topic.cleanup_policy, before.cleanup_policy if before else None)
    checkpoints = {part.partition: part for part in before.next.partitions} if before else None
    first = ledger.days[0] if ledger.days else day
    starts, spans, accepted, consumed = [], [], [], []
    losses = _accepted_losses(day.date, before.next if before else None, survey, terms)
    for partition, surveyed in sorted(survey.partitions.items()):
        checkpoint = checkpoints.get(partition) if checkpoints else None
        if checkpoint:
            checkpoint = checkpoint.without(*losses)
            how, detail = _continue(checkpoint, surveyed, is_compacted(policy))
        else:
            checkpoint, detail, accepted_start = _begin_partition(
                partition, surveyed, survey.topic, first, checkpoints is None, terms, now
            )
            how = StartFrom.LOOKUP if checkpoints is None else StartFrom.NEW_PARTITION
            starts.append(PartitionStart(partition=partition, offset=checkpoint.seen_until))
            accepted += [accepted_start] if accepted_start else []
        consumed.append(checkpoint)
        spans.append(_span(checkpoint, how, detail, surveyed))
    headroom = _headroom(survey, now)
    return DayPlan(
        day=day,
        topic=survey.topic.identity,
        contract=terms.contract,
        accepted=Accepted(contract=changes, start=tuple(accepted), loss=tuple(losses)),
        consumed=Checkpoint(topic=survey.topic.identity, partitions=tuple(consumed)),
        earlier=ledger.days,
        spans=tuple(spans),
        first_offsets=(*(before.first_offsets if before else ()), *starts),
        cleanup_policy=policy,
        headroom_hours=headroom,
        risks=tuple(_risks(survey.topic, headroom, terms)),
    )


def next_checkpoint(plan: DayPlan, later: Mapping[int, Offsets], last: Mapping[int, Anchor]) -> Checkpoint:
    """Return the next checkpoint; `later` are the LATER_DAY offsets, `last` the last delivered records."""
    parts = []
    for span, old in zip(plan.spans, plan.consumed.partitions, strict=True):
        new = last.get(span.partition)
        anchors = [anchor for anchor in (old.anchor, new) if anchor]
        parts.append(
            PartitionCheckpoint(
                partition=span.partition,
                seen_until=span.until_offset,
                pending=later.get(span.partition, Offsets()),
                anchor=max(anchors, key=lambda anchor: anchor.offset, default=None),
            )
        )
    return Checkpoint(topic=plan.topic, partitions=tuple(parts))


def _changed_start(day: Day, before: Manifest | None, terms: Terms) -> tuple[str, ...]:
    by_rules = midnight(day.date, terms.zone)
    if before is None or by_rules == day.start:
        return ()
    change = f"day.start: {day.start.isoformat()} recorded -> {by_rules.isoformat()} by today's zone rules"
    if not terms.accept.contract:
        raise ContractChanged(
            expected=f"the contract of {before.day.date}",
            found=change,
            do="Undo the change, or settle from this day on under the new contract with --accept-contract.",
            changes=[change],
        )
    return (change,)


def _check_identity(before: Manifest | None, survey: Survey) -> None:
    if before is None:
        return
    old, new = before.next.topic, survey.topic.identity
    if old != new:
        raise _topic_changed(
            f"topic {old.name} with id {old.topic_id} in cluster {old.cluster_id}",
            f"{new.name} with id {new.topic_id} in cluster {new.cluster_id}: it was recreated or moved",
        )
    missing = [part.partition for part in before.next.partitions if part.partition not in survey.partitions]
    if missing:
        raise _topic_changed(
            f"partitions {missing} to exist still", f"partitions {sorted(survey.partitions)}"
        )


def _continue(
    checkpoint: PartitionCheckpoint, surveyed: PartitionSurvey, compacted: bool | None
) -> tuple[StartFrom, str]:
    """Check that the log is still the one of a checkpoint, and return how its span starts."""
    part, seen, log_offsets = checkpoint.partition, checkpoint.seen_until, surveyed.log_offsets
    if seen > log_offsets.high:
        raise _topic_changed(
            f"partition {part} to reach offset {seen}", f"a high watermark of {log_offsets.high}"
        )
    behind = seen > surveyed.stable_after
    if surveyed.after_anchor or not behind:  # an anchor above the LSO cannot be read yet
        check_anchor(checkpoint, log_offsets.log_start, surveyed.after_anchor, compacted)
    if behind:
        raise _not_stable(part, f"offset {seen}", surveyed.stable_after)
    pending = len(checkpoint.pending)
    detail = f"the checkpoint, with {pending} pending" if pending else "the checkpoint"
    return (
        StartFrom.CHECKPOINT,
        f"{detail}; {_anchor_evidence(checkpoint, log_offsets.log_start, surveyed.after_anchor)}",
    )


def _find_losses(checkpoint: Checkpoint | None, survey: Survey) -> list[LostOffsets]:
    """Return the offsets that retention removed before they were settled."""
    return [
        LostOffsets(
            partition=part.partition,
            from_offset=part.next_from_offset,
            until_offset=log_start,
            unsettled=len(part.unsettled(log_start)),
        )
        for part in (checkpoint.partitions if checkpoint else ())
        if part.next_from_offset < (log_start := survey.partitions[part.partition].log_offsets.log_start)
    ]


def _accepted_losses(
    day: date, checkpoint: Checkpoint | None, survey: Survey, terms: Terms
) -> list[LostOffsets]:
    """Return the lost offsets, if a person accepted exactly these.

    The error names all losses at once: retention may remove more while they are accepted one by one.
    """
    losses = _find_losses(checkpoint, survey)
    if lost := next((loss for loss in losses if loss not in terms.accept.loss), None):
        accept = ",".join(map(str, losses))
        raise OffsetsLost(
            expected=f"partition {lost.partition} to hold what no day has settled, "
            f"from offset {lost.from_offset} on",
            found=f"a log that starts at {lost.until_offset}: {_gone(checkpoint, losses)}",
            do="What is gone cannot be settled. Raise the topic's retention; to go on without these offsets, "
            f"in a day that is marked as lossy for ever, run `--date {day} --accept-loss {accept}`.",
            partition=lost.partition,
            offset=lost.from_offset,
            log_start=lost.until_offset,
            accept=accept,
            lost_offsets=sum(loss.unsettled or 0 for loss in losses),
        )
    _check_losses(losses, terms)
    return losses


def _gone(checkpoint: Checkpoint | None, losses: list[LostOffsets]) -> str:
    """Return how many unsettled offsets are gone, and of a single partition between which."""
    count = sum(loss.unsettled or 0 for loss in losses)
    what = f"{count:,} such offsets are gone"
    if len(losses) > 1:
        return f"{what} in {len(losses)} partitions"
    part = checkpoint.of(losses[0].partition) if checkpoint else None
    assert part is not None, "only a known partition can have lost anything"
    gone = part.unsettled(losses[0].until_offset)
    last = gone.until - 1
    return f"one such offset is gone, {last}" if count == 1 else f"{what}, between {gone.first} and {last}"


def _check_losses(losses: list[LostOffsets], terms: Terms) -> None:
    """Check that all accepted losses are real: a typing error must not count as a decision."""
    if not_lost := [str(loss) for loss in terms.accept.loss if loss not in losses]:
        raise ConfigError(
            expected="--accept-loss to name offsets that retention took before they were settled",
            found=f"{', '.join(not_lost)}, which are not lost",
            do="Leave the option out; where something is lost, the message says what to accept.",
        )


def check_anchor(
    checkpoint: PartitionCheckpoint, log_start: int, seen: tuple[SeenRecord, ...], compacted: bool | None
) -> None:
    """Check that the anchor is still the last record below `seen_until`.

    Raises:
        TopicChanged: another record is at its offset, or a record follows it.
    """
    part, anchor = checkpoint.partition, checkpoint.anchor
    records = list(seen)
    if anchor and records and anchor.is_same_record(records[0].anchor):
        records.pop(0)
    elif anchor and anchor.offset >= log_start and not compacted:
        raise _topic_changed(
            f"partition {part} to hold at offset {anchor.offset} the record that was read there",
            f"another one at offset {records[0].offset}" if records else "none",
            "" if records else f" {IF_COMPACTED}",
        )
    if records:
        raise _topic_changed(
            f"nothing in partition {part} between the last record read and offset {checkpoint.seen_until}",
            f"a record at offset {records[0].offset}: the topic was truncated and filled again",
        )


def _anchor_evidence(checkpoint: PartitionCheckpoint, log_start: int, seen: tuple[SeenRecord, ...]) -> str:
    if checkpoint.anchor is None:
        return "no record before it, then and now"
    if seen:
        return f"the record at {checkpoint.anchor.offset} is the one that was read"
    taken = "retention" if checkpoint.anchor.offset < log_start else "compaction"
    return f"the record at {checkpoint.anchor.offset} was taken by {taken}"


def _begin_partition(
    partition: int,
    surveyed: PartitionSurvey,
    topic: TopicDescription,
    first: Day,
    first_day: bool,
    terms: Terms,
    now: datetime,
) -> tuple[PartitionCheckpoint, str, str | None]:
    """Return (checkpoint, evidence, what --accept-start accepted or None) for a new partition."""
    assert surveyed.start is not None, "the survey looks for the start of every unknown partition"
    start, log_start = surveyed.start, surveyed.log_offsets.log_start
    checkpoint = PartitionCheckpoint(
        partition=partition, seen_until=start.offset, pending=Offsets(), anchor=start.anchor
    )
    wanted = (
        f"first record stamped from {first.start - terms.future:%Y-%m-%dT%H:%MZ} on"
        if first_day
        else "a new partition"
    )
    if start.offset > log_start or log_start == 0:
        return checkpoint, wanted, None
    since = first.start - terms.future
    if topic.deletes_by_time_alone and topic.retention and now - topic.retention <= since:
        return checkpoint, f"{wanted}; retention has taken nothing stamped since then", None
    if terms.accept.start:
        accepted = f"partition {partition} begins at its log start {log_start}"
        return checkpoint, f"{wanted}; accepted by --accept-start", accepted
    earliest = _earliest_provable(start, topic, terms, now)
    raise OffsetsLost(
        expected=f"partition {partition} from offset {0 if not first_day else 'of ' + wanted}",
        found=f"a log that starts at offset {log_start}, and nobody can say what was there before",
        do=f"{_start_advice(earliest, first_day, topic, terms)}. Or, where it is known that nothing was "
        "lost, run once with --accept-start.",
        partition=partition,
        offset=0,
        log_start=log_start,
        earliest=earliest and earliest.isoformat(),
    )


def _start_advice(earliest: date | None, first_day: bool, topic: TopicDescription, terms: Terms) -> str:
    """Return how a person can make the start of a partition provable."""
    if earliest:
        whose = "" if first_day else "of a new lake "
        return f"The earliest first day that can be proved is {earliest}: set day.first {whose}to it"
    return (
        f"No first day can be proved while the topic keeps its records for {topic.retention} alone: "
        f"raise its retention above {_longest_wait(terms)}"
    )


def _earliest_provable(
    start: FoundStart, topic: TopicDescription, terms: Terms, now: datetime
) -> date | None:
    """Return the earliest first day whose start the topic's settings or the oldest record would prove.

    None if retention is so short that even this day can no longer be proved when it is due.
    """
    days = []
    if topic.deletes_by_time_alone and topic.retention:
        days.append(now - topic.retention)
    if start.oldest is not None and start.oldest >= 0:
        days.append(datetime.fromtimestamp(min(start.oldest, millis(now)) / 1000, UTC))
    oldest = min(days, default=now) + terms.future
    first = date_in(terms.zone, oldest) + timedelta(days=1)
    due = midnight(first + timedelta(days=1), terms.zone) + terms.grace
    return None if topic.retention and topic.retention < _longest_wait(terms) and now < due else first


def _longest_wait(terms: Terms) -> timedelta:
    """Return how long Kafka must keep the earliest valid record of a day, until the day is due."""
    return terms.future + timedelta(days=1) + terms.grace


def _span(checkpoint: PartitionCheckpoint, how: StartFrom, detail: str, surveyed: PartitionSurvey) -> Span:
    part, seen = checkpoint.partition, checkpoint.seen_until
    until = max(seen, surveyed.end.offset)
    if until > surveyed.stable_after:
        idle = surveyed.end.how is EndFrom.IDLE
        raise _not_stable(part, f"the day's end at offset {until}", surveyed.stable_after, idle=idle)
    return Span(
        partition=part,
        from_offset=checkpoint.next_from_offset,
        seen_until=seen,
        until_offset=until,
        reads=offsets_to_read(checkpoint.pending, seen, until),
        evidence=Evidence(
            start=how, start_detail=detail, end=surveyed.end.how, end_detail=surveyed.end.detail
        ),
    )


def offsets_to_read(pending: Offsets, seen_until: int, until: int) -> Offsets:
    """Return the offsets to read: pending and new ones, and the narrowest gaps between them.

    One record with a clock far ahead may be pending for years, and the settled offsets after it must not be
    read every night. Narrow gaps are read through, since every further range costs a seek.
    """
    needed = pending | Offsets.between(seen_until, until)
    if not len(needed):
        return needed
    starts, ends = needed.edges()
    # n ranges have n - 1 gaps between them; all but the widest gaps are read through in any case
    gaps = ((to - from_, from_, to) for from_, to in zip(ends, starts[1:], strict=False))
    widest = heapq.nlargest(MOST_RANGES - 1, gaps)
    narrow = needed.until - needed.first - len(needed) - sum(width for width, _, _ in widest)
    room = max(len(needed) * READ_OVER, READ_OVER_AT_LEAST) - narrow
    while widest and widest[-1][0] <= room:
        room -= widest.pop()[0]
    skipped = sorted((from_, to) for _, from_, to in widest)
    begins, ends_at = (
        [needed.first, *(to for _, to in skipped)],
        [*(from_ for from_, _ in skipped), needed.until],
    )
    return Offsets(zip(begins, ends_at, strict=True))


def _headroom(survey: Survey, now: datetime) -> float | None:
    """Return the hours until retention may remove the oldest record that this run needs."""
    if not survey.topic.retention or "delete" not in (survey.topic.cleanup_policy or ""):
        return None
    stamps = [surveyed.first[0].timestamp for surveyed in survey.partitions.values() if surveyed.first]
    stamps = [stamp for stamp in stamps if stamp >= 0]
    if not stamps:
        return None
    # in milliseconds, since a record's timestamp may be too large for a datetime
    milliseconds_left = min(stamps) + survey.topic.retention // timedelta(milliseconds=1) - millis(now)
    return round(milliseconds_left / 3_600_000, 1)


def _risks(topic: TopicDescription, headroom: float | None, terms: Terms) -> list[str]:
    risks = []
    if headroom is not None and headroom < terms.headroom / timedelta(hours=1):
        risks.append(
            f"retention may take the first needed record in {headroom} h (day.headroom: {terms.headroom})"
        )
    needed = _longest_wait(terms)
    if topic.retention and topic.retention < needed:
        risks.append(
            f"retention of {topic.retention} is shorter than the {needed} that a pending record may wait"
        )
    if topic.cleanup_policy is None:
        risks.append(
            "the broker does not show the topic's settings, so retention and compaction are not known"
        )
    return risks


def _topic_changed(expected: str, found: str, more: str = "") -> TopicChanged:
    return TopicChanged(
        expected=expected,
        found=found,
        do="Find out what happened to the topic. A recreated topic needs a lake (lake.path) of its own."
        + more,
    )


def _not_stable(partition: int, wanted: str, stable: int, *, idle: bool = False) -> BrokerBehind:
    """Return the error; the log of an `idle` partition has no record past the day, so its end moves on."""
    return BrokerBehind(
        expected=f"partition {partition} to be stable up to {wanted}",
        found=f"a last stable offset of {stable}: an open transaction may still hold records of the day",
        do="Run again when the transaction has ended; if it hangs, abort it (kafka-transactions.sh)."
        + (f" {OVERLAP}" if idle else ""),
        partition=partition,
        last_stable=stable,
    )
