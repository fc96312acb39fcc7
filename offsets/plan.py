"""Choose the offsets of a day.

Pure: a survey, the ledger and the clock's answer go in, a DayPlan comes out, or the one error that says
why there can be none. Any end is correct, since what is not yet seen is settled by a later run; a wrong
start or a forgotten pending offset is not, so these come from the checkpoint alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from offsets.checkpoint import Anchor, Checkpoint, LostOffsets, PartitionCheckpoint
from offsets.commit_log import Ledger
from offsets.contract import Accepted, Contract
from offsets.day_plan import (
    DayPlan,
    Evidence,
    PartitionStart,
    Span,
    StartFrom,
    after_compaction,
    is_compacted,
)
from offsets.days import Day, day_in, midnight
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
"""Read through gaps of so many offsets together in any case: one fetch brings more."""
MOST_RANGES = 8
"""The most ranges in which one partition is read."""
IF_COMPACTED = (
    "Where compaction took it, the topic's settings must show that: give our user the right to read them "
    "(DescribeConfigs) or, if compaction was turned off since, set cleanup.policy to compact,delete for one "
    "run, while which the topic takes no record without a key."
)
"""The way on where a record is gone and no run saw that the topic was compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accept:
    """What the command line accepts for this run; a plan records what came of it as Accepted."""

    contract: bool = False
    start: bool = False
    loss: tuple[LostOffsets, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the config and the command line say about a day, as the planner needs it."""

    zone: str
    grace: timedelta
    headroom: timedelta
    future: timedelta
    contract: Contract
    accept: Accept = field(default_factory=Accept)


def bounds(day: date, zone: str, before: Manifest | None) -> Day:
    """Return a day's bounds: it begins where the day before ended, whatever the zone rules say today."""
    by_rules = day_in(zone, day)
    if before is None:
        return by_rules
    start = before.day.end
    return Day(date=day, zone=zone, start=start, end=max(start, by_rules.end))


def require_over(day: Day, grace: timedelta, now: datetime) -> None:
    """Check that a day is due.

    Raises:
        DayNotOver: it ends, with its grace, after `now`.
    """
    due = day.end + grace
    if now < due:
        raise DayNotOver(
            expected=f"{day} to be over, with a grace of {grace}, at {due:%Y-%m-%dT%H:%M:%SZ}",
            found=f"the time is {now:%Y-%m-%dT%H:%M:%SZ}",
            do="Run again after that moment.",
            due=due.isoformat(),
        )


def plan_day(*, day: Day, ledger: Ledger, found: Survey, terms: Terms, now: datetime) -> DayPlan:
    """Plan one day.

    Raises:
        DayNotOver, ContractChanged, TopicChanged, OffsetsLost, BrokerBehind: as their names say.
    """
    require_over(day, terms.grace, now)
    before = ledger.newest
    changes = _contract_changes(day, before, terms)
    _check_identity(before, found)
    policy = after_compaction(found.topic.cleanup_policy, before.cleanup_policy if before else None)
    known = {each.partition: each for each in before.next.partitions} if before else None
    first = ledger.days[0] if ledger.days else day
    starts, spans, vouched, consumed = [], [], [], []
    losses = _losses(before.next if before else None, found, terms)
    for partition, looked in sorted(found.partitions.items()):
        checkpoint = known.get(partition) if known else None
        if checkpoint:
            checkpoint = checkpoint.without(*losses)
            how, detail = _continue(checkpoint, looked, is_compacted(policy))
        else:
            checkpoint, detail, voucher = _begin(
                partition, looked, found.topic, first, known is None, terms, now
            )
            how = StartFrom.LOOKUP if known is None else StartFrom.NEW_PARTITION
            starts.append(PartitionStart(partition=partition, offset=checkpoint.seen_until))
            vouched += [voucher] if voucher else []
        consumed.append(checkpoint)
        spans.append(_span(checkpoint, how, detail, looked))
    headroom = _headroom(found, now)
    return DayPlan(
        day=day,
        topic=found.topic.identity,
        contract=terms.contract,
        accepted=Accepted(contract=changes, start=tuple(vouched), loss=tuple(losses)),
        consumed=Checkpoint(topic=found.topic.identity, partitions=tuple(consumed)),
        earlier=ledger.days,
        spans=tuple(spans),
        first_offsets=(*(before.first_offsets if before else ()), *starts),
        cleanup_policy=policy,
        headroom_hours=headroom,
        risks=tuple(_risks(found.topic, headroom, terms)),
    )


def next_checkpoint(plan: DayPlan, later: Mapping[int, Offsets], last: Mapping[int, Anchor]) -> Checkpoint:
    """Make the next checkpoint: `later` are the LATER_DAY offsets, `last` the last records delivered."""
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


def _contract_changes(day: Day, before: Manifest | None, terms: Terms) -> tuple[str, ...]:
    if before is None:
        return ()
    changes = terms.contract.changes_from(before.contract)
    by_rules = midnight(day.date, terms.zone)
    if by_rules != day.start:
        changes += (
            f"day.start: {day.start.isoformat()} recorded -> {by_rules.isoformat()} by today's zone rules",
        )
    if changes and not terms.accept.contract:
        raise ContractChanged(
            expected=f"the contract of {before.day.date}",
            found="; ".join(changes),
            do="Undo the change, or settle from this day on under the new contract with --accept-contract.",
            changes=list(changes),
        )
    return changes


def _check_identity(before: Manifest | None, found: Survey) -> None:
    if before is None:
        return
    old, new = before.next.topic, found.topic.identity
    if old != new:
        raise _changed(
            f"topic {old.name} with id {old.topic_id} in cluster {old.cluster_id}",
            f"{new.name} with id {new.topic_id} in cluster {new.cluster_id}: it was recreated or moved",
        )
    missing = [part.partition for part in before.next.partitions if part.partition not in found.partitions]
    if missing:
        raise _changed(f"partitions {missing} to exist still", f"partitions {sorted(found.partitions)}")


def _continue(
    checkpoint: PartitionCheckpoint, looked: PartitionSurvey, compacted: bool | None
) -> tuple[StartFrom, str]:
    """Check that the log is still the one that a checkpoint is of, and return how its span starts."""
    part, seen, log_offsets = checkpoint.partition, checkpoint.seen_until, looked.log_offsets
    if seen > log_offsets.high:
        raise _changed(f"partition {part} to reach offset {seen}", f"a high watermark of {log_offsets.high}")
    behind = seen > looked.stable_after
    if looked.after_anchor or not behind:  # an anchor above the LSO cannot be read yet
        check_anchor(checkpoint, log_offsets.log_start, looked.after_anchor, compacted)
    if behind:
        raise _behind(part, f"offset {seen}", looked.stable_after)
    pending = len(checkpoint.pending)
    detail = f"the checkpoint, with {pending} pending" if pending else "the checkpoint"
    return (
        StartFrom.CHECKPOINT,
        f"{detail}; {_anchor_evidence(checkpoint, log_offsets.log_start, looked.after_anchor)}",
    )


def _lost(known: Checkpoint | None, found: Survey) -> list[LostOffsets]:
    """Return what retention took before it was settled."""
    return [
        LostOffsets(partition=part.partition, from_offset=part.next_from_offset, until_offset=log_start)
        for part in (known.partitions if known else ())
        if part.next_from_offset < (log_start := found.partitions[part.partition].log_offsets.log_start)
    ]


def _losses(known: Checkpoint | None, found: Survey, terms: Terms) -> list[LostOffsets]:
    """Return what was lost, where a person accepted just that.

    The error names all of it: while one partition after the other is accepted, retention may take more.
    """
    losses = _lost(known, found)
    if lost := next((each for each in losses if each not in terms.accept.loss), None):
        accept = ",".join(map(str, losses))
        gone = sum(each.until_offset - each.from_offset for each in losses)
        raise OffsetsLost(
            expected=f"partition {lost.partition} from offset {lost.from_offset} on, "
            "which no day has settled",
            found=f"a log that starts at {lost.until_offset}: {gone} offsets are gone"
            + (f" in {len(losses)} partitions" if len(losses) > 1 else ""),
            do="What is gone cannot be settled. Raise the topic's retention; to go on without these offsets, "
            f"in a day that is marked as lossy for ever, run it with --accept-loss {accept}.",
            partition=lost.partition,
            offset=lost.from_offset,
            log_start=lost.until_offset,
            accept=accept,
        )
    _check_losses(losses, terms)
    return losses


def _check_losses(losses: list[LostOffsets], terms: Terms) -> None:
    """Check that all that was accepted is lost: a typing error must not count as a decision."""
    if left := [str(each) for each in terms.accept.loss if each not in losses]:
        raise ConfigError(
            expected="--accept-loss to name offsets that retention took before they were settled",
            found=f"{', '.join(left)}, which are not lost",
            do="Leave the option out; where something is lost, the message says what to accept.",
        )


def check_anchor(
    checkpoint: PartitionCheckpoint, log_start: int, seen: tuple[SeenRecord, ...], compacted: bool | None
) -> None:
    """Check that the log below `seen_until` still ends with the record that ended it.

    Raises:
        TopicChanged: another record is there, or one where none was.
    """
    part, anchor = checkpoint.partition, checkpoint.anchor
    records = list(seen)
    if anchor and records and anchor.is_of(records[0].anchor):
        records.pop(0)
    elif anchor and anchor.offset >= log_start and not compacted:
        raise _changed(
            f"partition {part} to hold at offset {anchor.offset} the record that was read there",
            f"another one at offset {records[0].offset}" if records else "none",
            "" if records else f" {IF_COMPACTED}",
        )
    if records:
        raise _changed(
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


def _begin(
    partition: int,
    looked: PartitionSurvey,
    topic: TopicDescription,
    first: Day,
    first_day: bool,
    terms: Terms,
    now: datetime,
) -> tuple[PartitionCheckpoint, str, str | None]:
    """Return (checkpoint, evidence, what --accept-start accepted or None) for a partition without one."""
    assert looked.start is not None, "the survey looks for the start of every unknown partition"
    start, log_start = looked.start, looked.log_offsets.log_start
    begun = PartitionCheckpoint(
        partition=partition, seen_until=start.offset, pending=Offsets(), anchor=start.anchor
    )
    wanted = (
        f"first record stamped from {first.start - terms.future:%Y-%m-%dT%H:%MZ} on"
        if first_day
        else "a new partition"
    )
    if start.offset > log_start or log_start == 0:
        return begun, wanted, None
    since = first.start - terms.future
    if topic.deletes_by_time_alone and topic.retention and now - topic.retention <= since:
        return begun, f"{wanted}; retention has taken nothing stamped since then", None
    if terms.accept.start:
        vouched = f"partition {partition} begins at its log start {log_start}"
        return begun, f"{wanted}; accepted by --accept-start", vouched
    earliest = _earliest_provable(start, topic, terms, now)
    raise OffsetsLost(
        expected=f"partition {partition} from offset {0 if not first_day else 'of ' + wanted}",
        found=f"a log that starts at offset {log_start}, and nobody can say what was there before",
        do=f"{_provable(earliest, first_day, topic, terms)}. Or, where it is known that nothing was lost, "
        "run once with --accept-start.",
        partition=partition,
        offset=0,
        log_start=log_start,
        earliest=earliest and earliest.isoformat(),
    )


def _provable(earliest: date | None, first_day: bool, topic: TopicDescription, terms: Terms) -> str:
    """Return the advice that lets a partition's start be proved."""
    if earliest:
        whose = "" if first_day else "of a new lake "
        return f"The earliest first day that can be proved is {earliest}: set day.first {whose}to it"
    return (
        f"No first day can be proved while the topic keeps its records for {topic.retention} alone: "
        f"raise its retention above {_waiting(terms)}"
    )


def _earliest_provable(
    start: FoundStart, topic: TopicDescription, terms: Terms, now: datetime
) -> date | None:
    """Return the first day that a settings' or a look-up's answer would prove.

    None where that day is still to come, and retention is so short that it will be no better proved by then.
    """
    days = []
    if topic.deletes_by_time_alone and topic.retention:
        days.append(now - topic.retention)
    if start.oldest is not None and start.oldest >= 0:
        days.append(datetime.fromtimestamp(min(start.oldest, millis(now)) / 1000, UTC))
    oldest = min(days, default=now) + terms.future
    first = oldest.astimezone(ZoneInfo(terms.zone)).date() + timedelta(days=1)
    due = midnight(first + timedelta(days=1), terms.zone) + terms.grace
    return None if topic.retention and topic.retention < _waiting(terms) and now < due else first


def _waiting(terms: Terms) -> timedelta:
    """Return how long a record must be kept that comes as early before its day as is lawful."""
    return terms.future + timedelta(days=1) + terms.grace


def _span(checkpoint: PartitionCheckpoint, how: StartFrom, detail: str, looked: PartitionSurvey) -> Span:
    part, seen = checkpoint.partition, checkpoint.seen_until
    until = max(seen, looked.end.offset)
    if until > looked.stable_after:
        raise _behind(part, f"the day's end at offset {until}", looked.stable_after)
    return Span(
        partition=part,
        from_offset=checkpoint.next_from_offset,
        seen_until=seen,
        until_offset=until,
        reads=reads_of(checkpoint.pending, seen, until),
        evidence=Evidence(start=how, start_detail=detail, end=looked.end.how, end_detail=looked.end.detail),
    )


def reads_of(pending: Offsets, seen_until: int, until: int) -> Offsets:
    """Return what is read: pending and new offsets, and the narrowest gaps between them.

    One record with a clock far ahead may be pending for years; what was settled since is not read every
    night. Gaps are read through while they add little, since every range costs a seek.
    """
    needed = pending | Offsets.between(seen_until, until)
    if not len(needed):
        return needed
    starts, ends = needed.edges()
    # between n ranges lie n - 1 gaps; all but the widest are read through in any case
    gaps = ((to - from_, from_, to) for from_, to in zip(ends, starts[1:], strict=False))
    widest = heapq.nlargest(MOST_RANGES - 1, gaps)
    others = needed.until - needed.first - len(needed) - sum(width for width, _, _ in widest)
    room = max(len(needed) * READ_OVER, READ_OVER_AT_LEAST) - others
    while widest and widest[-1][0] <= room:
        room -= widest.pop()[0]
    left = sorted((from_, to) for _, from_, to in widest)
    begins, ends_at = [needed.first, *(to for _, to in left)], [*(from_ for from_, _ in left), needed.until]
    return Offsets(zip(begins, ends_at, strict=True))


def _headroom(found: Survey, now: datetime) -> float | None:
    """Return the hours until retention may take the oldest record that this run still needs."""
    if not found.topic.retention or "delete" not in (found.topic.cleanup_policy or ""):
        return None
    stamps = [look.first[0].timestamp for look in found.partitions.values() if look.first]
    stamps = [stamp for stamp in stamps if stamp >= 0]
    if not stamps:
        return None
    # in milliseconds, since a record may be stamped beyond any calendar
    left = min(stamps) + found.topic.retention // timedelta(milliseconds=1) - millis(now)
    return round(left / 3_600_000, 1)


def _risks(topic: TopicDescription, headroom: float | None, terms: Terms) -> list[str]:
    risks = []
    if headroom is not None and headroom < terms.headroom / timedelta(hours=1):
        risks.append(
            f"retention may take the first needed record in {headroom} h (day.headroom: {terms.headroom})"
        )
    needed = _waiting(terms)
    if topic.retention and topic.retention < needed:
        risks.append(
            f"retention of {topic.retention} is shorter than the {needed} that a pending record may wait"
        )
    if topic.cleanup_policy is None:
        risks.append(
            "the broker does not show the topic's settings, so retention and compaction are not known"
        )
    return risks


def _changed(expected: str, found: str, more: str = "") -> TopicChanged:
    return TopicChanged(
        expected=expected,
        found=found,
        do="Find out what happened to the topic. A recreated topic needs a lake (lake.path) of its own."
        + more,
    )


def _behind(partition: int, wanted: str, stable: int) -> BrokerBehind:
    return BrokerBehind(
        expected=f"partition {partition} to be stable up to {wanted}",
        found=f"a last stable offset of {stable}: an open transaction may still hold records of the day",
        do="Run again when the transaction has ended; if it hangs, abort it (kafka-transactions.sh).",
        partition=partition,
        last_stable=stable,
    )
