"""A plan is right or refused, and each refusal says what was expected, what was found, what to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets.checkpoint import Anchor, Checkpoint, LostOffsets, PartitionCheckpoint, TopicIdentity
from offsets.commit_log import Ledger
from offsets.contract import Contract
from offsets.day_plan import DayPlan, EndFrom, StartFrom
from offsets.days import day_in
from offsets.errors import (
    BrokerBehind,
    ContractChanged,
    DayNotOver,
    KafkaDailyError,
    OffsetsLost,
    TopicChanged,
)
from offsets.kafka.offset_lookup import survey
from offsets.kafka.reader import digest_of
from offsets.manifest import Manifest
from offsets.plan import (
    MOST_RANGES,
    Accept,
    Terms,
    bounds,
    next_checkpoint,
    offsets_to_read,
    plan_day,
    require_over,
)
from offsets.ranges import Offsets
from tests.support.manifests import CONTRACT, TOPIC, empty
from tests.support.memory_topic import MemoryTopic, Transaction
from tests.support.planning import FIRST, NOW, SECOND, TERMS, ZONE, at


def first_plan(topic: MemoryTopic, terms: Terms = TERMS, now: datetime = NOW) -> DayPlan:
    day = day_in(terms.zone, FIRST)
    found = survey(topic, "orders", day, terms.grace, terms.future, None)
    return plan_day(day=day, ledger=Ledger(()), survey=found, terms=terms, now=now)


def second_plan(
    topic: MemoryTopic, known: Checkpoint | None = None, terms: Terms = TERMS, now: datetime = NOW
) -> DayPlan:
    before = committed(topic, known)
    day = bounds(SECOND, terms.zone, before)
    found = survey(topic, "orders", day, terms.grace, terms.future, before.next)
    return plan_day(day=day, ledger=Ledger((before.day,), before), survey=found, terms=terms, now=now)


def committed(topic: MemoryTopic, known: Checkpoint | None = None) -> Manifest:
    """Give the manifest of the first day: all that the topic holds up to now is seen."""
    known = known or seen_all(topic)
    return replace(empty(FIRST), topic=known.topic, next=known, consumed=known)


def seen_all(topic: MemoryTopic, pending: Offsets | None = None) -> Checkpoint:
    parts = []
    for number, log in topic.logs.items():
        visible = log.visible(0, log.high)
        anchor = (
            Anchor(
                offset=visible[-1].offset,
                timestamp=visible[-1].timestamp,
                digest=digest_of(visible[-1].key, visible[-1].value),
            )
            if visible
            else None
        )
        parts.append(
            PartitionCheckpoint(
                partition=number, seen_until=log.high, pending=pending or Offsets(), anchor=anchor
            )
        )
    return Checkpoint(topic=topic.identity, partitions=tuple(parts))


def topic_of(records: int, partitions: int = 1, **settings: Any) -> MemoryTopic:
    topic = MemoryTopic(partitions, **settings)
    for partition in range(partitions):
        for number in range(records):
            topic.produce(partition, b"%d" % number, at(FIRST, 1))
    return topic


def says(stopped: pytest.ExceptionInfo[KafkaDailyError], *words: str) -> None:
    for word in words:
        assert word in str(stopped.value)
    assert stopped.value.do


# -- what is planned


def test_a_first_day_without_records_starts_and_ends_at_nothing() -> None:
    (span,) = first_plan(MemoryTopic()).spans
    assert (span.from_offset, span.until_offset) == (0, 0)
    assert span.evidence.start is StartFrom.LOOKUP
    assert span.evidence.end is EndFrom.IDLE


def test_a_day_goes_on_from_the_checkpoint_alone() -> None:
    topic = topic_of(10, partitions=2)
    known = seen_all(topic, Offsets([(3, 4), (7, 9)]))
    topic.produce(0, b"next", at(SECOND, 3))
    plan = second_plan(topic, known)
    assert [(s.from_offset, s.seen_until, s.until_offset) for s in plan.spans] == [(3, 10, 11), (3, 10, 10)]
    assert plan.consumed == known
    assert "with 3 pending" in plan.spans[0].evidence.start_detail
    assert "the record at 9 is the one that was read" in plan.spans[0].evidence.start_detail


def test_an_end_never_lies_below_what_was_seen() -> None:
    """Where the look-up answers below `seen_until`, the span holds the pending offsets only."""
    topic = topic_of(3)
    topic.produce(0, b"ahead", at(SECOND, 30))
    topic.produce(0, b"ahead", at(SECOND, 30))
    (span,) = second_plan(topic, seen_all(topic, Offsets([(1, 2)]))).spans
    assert (span.from_offset, span.seen_until, span.until_offset) == (1, 5, 5)
    assert span.reads == Offsets([(1, 2)])


def test_a_new_partition_starts_at_zero() -> None:
    topic = topic_of(3)
    known = seen_all(topic)
    topic.add_partitions(1)
    topic.produce(1, b"v", at(SECOND, 1))
    plan = second_plan(topic, known)
    assert (plan.spans[1].from_offset, plan.spans[1].until_offset) == (0, 1)
    assert plan.spans[1].evidence.start is StartFrom.NEW_PARTITION
    assert [start.partition for start in plan.first_offsets] == [0, 1]
    assert plan.consumed.continues(known)


def test_headroom_tells_when_the_first_needed_record_goes() -> None:
    topic = topic_of(1, retention=timedelta(days=4))
    plan = first_plan(topic, now=at(FIRST, 73))
    assert plan.headroom_hours == 24.0
    assert plan.risks == ()
    (risk,) = first_plan(topic, now=at(FIRST, 74)).risks
    assert "23.0 h" in risk


def test_headroom_is_that_of_the_oldest_needed_record_of_all_partitions() -> None:
    topic = MemoryTopic(3, retention=timedelta(days=4))
    for partition, hours in enumerate((9, 1, 5)):
        topic.produce(partition, b"v", at(FIRST, hours))
    assert first_plan(topic, now=at(FIRST, 73)).headroom_hours == 24.0


def test_headroom_is_that_of_a_pending_record_where_one_still_waits() -> None:
    topic = topic_of(2, retention=timedelta(days=4))
    known = seen_all(topic, Offsets([(0, 1)]))
    topic.produce(0, b"new", at(SECOND, 1))
    assert second_plan(topic, known, now=at(FIRST, 73)).headroom_hours == 24.0
    assert second_plan(topic, seen_all(topic), now=at(FIRST, 73)).headroom_hours is None


def test_short_retention_and_hidden_settings_are_risks() -> None:
    assert "shorter" in first_plan(MemoryTopic(retention=timedelta(days=2))).risks[0]
    assert "settings" in first_plan(MemoryTopic(cleanup_policy=None)).risks[0]


@pytest.mark.parametrize("stamp", [-1, 0, 2**62])
def test_a_stamp_that_no_calendar_holds_stops_no_plan(stamp: int) -> None:
    topic = MemoryTopic(retention=timedelta(days=400))
    topic.produce(0, b"v", stamp)
    topic.produce(0, b"v", at(FIRST, 1))
    first_plan(topic)


def test_a_log_that_begins_with_such_a_stamp_still_names_an_earliest_day() -> None:
    topic = MemoryTopic()
    topic.produce(0, b"v", at(FIRST, 1))
    topic.produce(0, b"v", 2**62)
    topic.retain_from(0, 1)
    with pytest.raises(OffsetsLost, match="2026-05-06"):
        first_plan(topic)


@given(st.frozensets(st.integers(0, 400)), st.integers(0, 50), st.integers(0, 300))
def test_what_is_read_holds_all_that_is_needed_and_little_more(
    numbers: frozenset[int], above: int, new: int
) -> None:
    pending = Offsets.of((number, number + 1) for number in numbers)
    seen = max(numbers, default=0) + 1 + above
    reads = offsets_to_read(pending, seen, seen + new)
    needed = numbers | set(range(seen, seen + new))
    held = {number for from_, until in reads for number in range(from_, until)}
    assert needed <= held
    assert len(reads.ranges) <= MOST_RANGES
    if needed:
        assert min(held) == min(needed)
        assert max(held) == max(needed)


@pytest.mark.parametrize("needed", range(MOST_RANGES - 1, MOST_RANGES + 3))
def test_no_more_ranges_are_read_than_may_be_and_no_fewer_than_are_far_apart(needed: int) -> None:
    """Each pending record is ten times farther from the next: the nearest are read over, the others not."""
    pending = Offsets.of((at, at + 1) for at in (10**power for power in range(4, 4 + needed - 1)))
    seen = 10 ** (4 + needed)
    reads = offsets_to_read(pending, seen, seen + 5)
    assert len(reads.ranges) == min(needed, MOST_RANGES)
    over = max(needed - MOST_RANGES, 0)
    assert len(reads) == needed - 1 + 5 + (10 ** (4 + over) - 10**4 - over if over else 0)


def test_one_record_pending_for_long_does_not_make_every_day_be_read_again() -> None:
    pending, seen, until = Offsets([(5, 6)]), 10_000_000, 10_100_000
    assert len(offsets_to_read(pending, seen, until)) == 100_001


# -- when a day may run


def test_a_day_is_due_when_its_grace_has_passed_and_not_a_moment_sooner() -> None:
    day = day_in(ZONE, FIRST)
    require_over(day, TERMS.grace, day.end + TERMS.grace)
    with pytest.raises(DayNotOver) as stopped:
        require_over(day, TERMS.grace, day.end + TERMS.grace - timedelta(microseconds=1))
    says(stopped, "2026-05-01", "2026-05-01T23:00:00Z", "Run again after")
    with pytest.raises(DayNotOver):
        first_plan(MemoryTopic(), now=day.end)


# -- what changed


def test_accepted_changes_of_the_contract_are_recorded() -> None:
    changed = replace(
        TERMS, contract=Contract({**CONTRACT.terms, "decoder": 2}), changes=("decoder: 1 -> 2",)
    )
    plan = second_plan(topic_of(3), terms=changed)
    assert plan.accepted.contract == ("decoder: 1 -> 2",)
    assert plan.contract == changed.contract


def test_zone_rules_that_moved_midnight_are_a_change_and_the_recorded_end_holds() -> None:
    topic = topic_of(3)
    before = committed(topic)
    moved = replace(before, day=replace(before.day, end=before.day.end - timedelta(hours=1)))
    day = bounds(SECOND, ZONE, moved)
    found = survey(topic, "orders", day, TERMS.grace, TERMS.future, moved.next)
    with pytest.raises(ContractChanged) as stopped:
        plan_day(day=day, ledger=Ledger((moved.day,), moved), survey=found, terms=TERMS, now=NOW)
    says(stopped, "day.start", "zone rules", "--accept-contract")
    accepting = replace(TERMS, accept=Accept(contract=True))
    plan = plan_day(day=day, ledger=Ledger((moved.day,), moved), survey=found, terms=accepting, now=NOW)
    assert plan.day.start == moved.day.end
    assert plan.day.end == day_in(ZONE, SECOND).end
    assert len(plan.accepted.contract) == 1


def test_a_day_that_the_new_zone_has_over_already_is_empty_and_never_runs_backwards() -> None:
    before = empty(FIRST)
    before = replace(before, day=day_in("Pacific/Midway", FIRST))
    day = bounds(SECOND, "Pacific/Kiritimati", before)
    assert day.start == day.end == before.day.end


@pytest.mark.parametrize("change", ["id", "cluster", "name"])
def test_another_topic_is_refused(change: str) -> None:
    topic = topic_of(3)
    known = seen_all(topic)
    other: TopicIdentity = {
        "id": replace(known.topic, topic_id="other"),
        "cluster": replace(known.topic, cluster_id="other"),
        "name": replace(known.topic, name="other"),
    }[change]
    with pytest.raises(TopicChanged) as stopped:
        second_plan(topic, replace(known, topic=other))
    says(stopped, "topic-1", "other", "recreated")


def test_fewer_partitions_are_refused() -> None:
    topic = topic_of(3, partitions=2)
    known = seen_all(topic)
    del topic.logs[1]
    with pytest.raises(TopicChanged) as stopped:
        second_plan(topic, known)
    says(stopped, "[1]", "[0]")


def test_a_log_shorter_than_what_was_seen_is_refused() -> None:
    topic = topic_of(5)
    known = seen_all(topic)
    topic.truncate(0, 4)
    with pytest.raises(TopicChanged) as stopped:
        second_plan(topic, known)
    says(stopped, "partition 0", "offset 5", "high watermark of 4")


@pytest.mark.parametrize("kept", [0, 3, 4])
def test_a_log_refilled_beyond_what_was_seen_is_refused(kept: int) -> None:
    topic = topic_of(5)
    known = seen_all(topic)
    topic.truncate(0, kept)
    for _ in range(5):
        topic.produce(0, b"other", at(FIRST, 1))
    with pytest.raises(TopicChanged) as stopped:
        second_plan(topic, known)
    says(stopped, "partition 0", "offset 4")


def test_an_anchor_with_another_stamp_or_another_key_is_another_record() -> None:
    topic = topic_of(5)
    known = seen_all(topic)
    for key, stamp in ((b"k", at(FIRST, 1)), (None, at(FIRST, 2))):
        topic.truncate(0, 4)
        topic.produce(0, b"4", stamp, key=key)
        with pytest.raises(TopicChanged, match="another one at offset 4"):
            second_plan(topic, known)


LIMIT = 4_611_686_018_427_387


@pytest.mark.parametrize(
    "kept, read, same",
    [
        (-1, -86_400_000, True),  # manifests before today's say -1 of any stamp below zero
        (-4_000_000_000_000, -4_000_172_800_000, True),
        (LIMIT, 1 << 62, True),
        (LIMIT, LIMIT - 1, False),
        (-1, 0, False),
        (5, 6, False),
    ],
)
def test_an_anchor_is_compared_by_its_stamp_only_where_all_clients_tell_the_same(
    kept: int, read: int, same: bool
) -> None:
    anchor = Anchor(offset=3, timestamp=kept, digest="d")
    assert anchor.is_same_record(Anchor(offset=3, timestamp=read, digest="d")) is same
    assert not anchor.is_same_record(Anchor(offset=4, timestamp=kept, digest="d"))
    assert not anchor.is_same_record(Anchor(offset=3, timestamp=kept, digest="e"))


def test_a_record_where_there_was_a_gap_is_refused() -> None:
    topic = topic_of(5)
    topic.marker(0, NOW)
    known = seen_all(topic)
    topic.truncate(0, 5)
    topic.produce(0, b"not a marker", at(FIRST, 1))
    with pytest.raises(TopicChanged) as stopped:
        second_plan(topic, known)
    says(stopped, "between the last record read and offset 6", "a record at offset 5", "truncated")


def test_a_record_where_there_was_none_at_all_is_refused() -> None:
    topic = MemoryTopic()
    topic.marker(0, NOW)
    known = seen_all(topic)
    topic.truncate(0, 0)
    topic.produce(0, b"v", at(FIRST, 1))
    with pytest.raises(TopicChanged):
        second_plan(topic, known)


def test_an_anchor_that_retention_or_compaction_took_is_stated() -> None:
    topic = topic_of(5)
    known = seen_all(topic)
    topic.retain_from(0, 5)
    (span,) = second_plan(topic, known).spans
    assert "taken by retention" in span.evidence.start_detail
    topic = topic_of(5, cleanup_policy="compact")
    known = seen_all(topic)
    topic.compact(0, [4])
    (span,) = second_plan(topic, known).spans
    assert "taken by compaction" in span.evidence.start_detail


def test_an_anchor_that_retention_takes_between_two_answers_is_no_other_topic() -> None:
    """It was sought from the new log start on, and missed by the old one (exit 21)."""
    topic = topic_of(5)
    known = seen_all(topic)

    def strike(question: str) -> None:
        if topic.asked.count("log_offsets") == 2:
            topic.retain_from(0, 5)

    topic.before = strike
    evidence = second_plan(topic, known).spans[0].evidence
    assert "taken by retention" in evidence.start_detail


def test_an_anchor_that_vanished_from_an_uncompacted_topic_is_refused() -> None:
    topic = topic_of(5)
    known = seen_all(topic)
    topic.compact(0, [4])
    with pytest.raises(TopicChanged, match="found none"):
        second_plan(topic, known)


# -- what is gone


def test_a_checkpoint_below_the_log_start_is_lost() -> None:
    topic = topic_of(5)
    known = seen_all(topic)
    for _ in range(5):
        topic.produce(0, b"next", at(SECOND, 1))
    topic.retain_from(0, 7)
    with pytest.raises(OffsetsLost) as stopped:
        second_plan(topic, known)
    says(stopped, "partition 0", "offset 5", "starts at 7", "2 such offsets are gone, between 5 and 6")
    assert {key: stopped.value.facts[key] for key in ("partition", "offset", "log_start")} == {
        "partition": 0,
        "offset": 5,
        "log_start": 7,
    }


def test_what_many_partitions_lost_is_told_at_once_and_accepted_as_it_is_told() -> None:
    """Each rerun named the loss of one partition more, while retention went on."""
    topic = topic_of(5, partitions=3)
    known = seen_all(topic)
    for partition in range(3):
        topic.produce(partition, b"next", at(SECOND, 1))
    topic.retain_from(0, 6)
    topic.retain_from(2, 6)
    lost = tuple(LostOffsets(partition=part, from_offset=5, until_offset=6) for part in (0, 2))
    for some in ((), lost[:1], lost[1:]):
        with pytest.raises(OffsetsLost) as stopped:
            second_plan(topic, known, replace(TERMS, accept=Accept(loss=some)))
        says(stopped, "2 such offsets are gone in 2 partitions", "--accept-loss 0:5-6,2:5-6`.")
    assert second_plan(topic, known, replace(TERMS, accept=Accept(loss=lost))).accepted.loss == lost


def test_a_pending_offset_below_the_log_start_is_lost() -> None:
    topic = topic_of(5)
    known = seen_all(topic, Offsets([(2, 3)]))
    topic.retain_from(0, 3)
    with pytest.raises(OffsetsLost, match="offset 2"):
        second_plan(topic, known)


def test_a_first_day_whose_log_start_moved_is_refused_and_names_the_earliest_day() -> None:
    topic = topic_of(5)
    topic.retain_from(0, 2)
    with pytest.raises(OffsetsLost) as stopped:
        first_plan(topic)
    says(stopped, "partition 0", "offset 2", "2026-05-03", "--accept-start")
    assert stopped.value.facts["earliest"] == "2026-05-03"
    later = day_in(ZONE, date(2026, 5, 3))
    for record in range(3):
        topic.produce(0, b"%d" % record, later.start)
    found = survey(topic, "orders", later, TERMS.grace, TERMS.future, None)
    plan_day(day=later, ledger=Ledger(()), survey=found, terms=TERMS, now=NOW + timedelta(days=9))


@pytest.mark.parametrize(
    "retention, earliest",
    [(timedelta(days=1), "2026-05-03"), (timedelta(days=4), "2026-05-02")],
    ids=["the oldest record", "retention"],
)
def test_the_earliest_day_is_the_one_that_either_proof_gives(retention: timedelta, earliest: str) -> None:
    topic = topic_of(5, retention=retention)
    topic.retain_from(0, 2)
    with pytest.raises(OffsetsLost) as stopped:
        first_plan(topic)
    assert stopped.value.facts["earliest"] == earliest


def test_no_first_day_is_named_that_a_short_retention_will_have_overtaken_when_it_is_due() -> None:
    """Each rerun on the day that was named named a later one."""
    topic = MemoryTopic(retention=timedelta(days=2))
    for hours in range(48):
        topic.produce(0, b"v", NOW - timedelta(hours=48 - hours))
    topic.retain_from(0, 2)
    with pytest.raises(OffsetsLost) as stopped:
        first_plan(topic)
    says(stopped, "No first day can be proved", "above 2 days, 1:00:00", "--accept-start")
    assert stopped.value.facts["earliest"] is None


def test_a_moved_log_start_is_accepted_by_a_person_and_recorded() -> None:
    topic = topic_of(5)
    topic.retain_from(0, 2)
    plan = first_plan(topic, replace(TERMS, accept=Accept(start=True)))
    assert plan.accepted.start == ("partition 0 begins at its log start 2",)
    assert plan.spans[0].from_offset == 2
    assert "--accept-start" in plan.spans[0].evidence.start_detail


def test_a_log_start_is_proved_by_retention_that_reaches_further_back() -> None:
    reach = timedelta(days=10)
    topic = topic_of(5, retention=reach)
    topic.retain_from(0, 2)
    since = day_in(ZONE, FIRST).start - TERMS.future
    plan = first_plan(topic, now=since + reach)
    assert plan.accepted.start == ()
    assert "retention has taken nothing" in plan.spans[0].evidence.start_detail
    with pytest.raises(OffsetsLost):
        first_plan(topic, now=since + reach + timedelta(microseconds=1))


@pytest.mark.parametrize(
    "settings",
    [
        {"retention_bytes": 10**9},
        {"retention_bytes": None},
        {"cleanup_policy": None},
        {"cleanup_policy": "compact"},
    ],
)
def test_retention_by_size_or_unknown_settings_prove_nothing(settings: dict[str, Any]) -> None:
    topic = topic_of(5, **({"retention": timedelta(days=999)} | settings))
    topic.retain_from(0, 2)
    with pytest.raises(OffsetsLost):
        first_plan(topic)


def test_a_new_partition_whose_log_start_moved_is_lost_and_no_first_day_helps() -> None:
    topic = topic_of(3)
    known = seen_all(topic)
    topic.add_partitions(1)
    for _ in range(4):
        topic.produce(1, b"v", at(SECOND, 1))
    topic.retain_from(1, 2)
    with pytest.raises(OffsetsLost) as stopped:
        second_plan(topic, known)
    says(stopped, "partition 1", "offset 0", "offset 2", "--accept-start")
    plan = second_plan(topic, known, replace(TERMS, accept=Accept(start=True)))
    assert plan.spans[1].from_offset == 2


# -- what is not there yet


def test_an_open_transaction_below_the_end_holds_the_day_back() -> None:
    topic = topic_of(3)
    topic.produce(0, b"v", at(FIRST, 2), transaction=Transaction())
    topic.produce(0, b"v", at(SECOND, 2))
    with pytest.raises(BrokerBehind) as stopped:
        first_plan(topic)
    says(stopped, "partition 0", "last stable offset of 3", "Run again")
    assert stopped.value.facts == {"partition": 0, "last_stable": 3}


def test_an_open_transaction_of_the_next_day_does_not() -> None:
    topic = topic_of(3)
    topic.produce(0, b"v", at(SECOND, 2), transaction=Transaction())
    assert first_plan(topic).spans[0].until_offset == 3


@pytest.mark.parametrize("anchor_is_stable", [True, False])
def test_a_stable_offset_that_went_back_below_what_was_seen_is_waited_for(anchor_is_stable: bool) -> None:
    """The anchor may lie above it, where a read_committed reader sees nothing: that proves no other topic."""
    topic = topic_of(5)
    if anchor_is_stable:
        topic.marker(0, NOW)
    known = seen_all(topic)
    if anchor_is_stable:
        topic.truncate(0, 5)
        topic.produce(0, b"?", at(FIRST, 1), transaction=Transaction())
    else:
        topic.truncate(0, 4)
        topic.produce(0, b"4", at(FIRST, 1), transaction=Transaction())
    with pytest.raises(BrokerBehind):
        second_plan(topic, known)


# -- the next checkpoint


def test_the_next_checkpoint_keeps_pending_offsets_and_the_newest_anchor() -> None:
    topic = topic_of(10, partitions=2)
    known = seen_all(topic, Offsets([(3, 5)]))
    topic.produce(0, b"next", at(SECOND, 3))
    plan = second_plan(topic, known)
    new = Anchor(offset=10, timestamp=1, digest="d")
    low = Anchor(offset=4, timestamp=1, digest="d")
    next_ = next_checkpoint(plan, {0: Offsets([(3, 4), (10, 11)])}, {0: new, 1: low})
    first, second = next_.partitions
    assert (first.seen_until, first.pending, first.anchor) == (11, Offsets([(3, 4), (10, 11)]), new)
    assert (second.seen_until, second.pending) == (10, Offsets())
    assert second.anchor == known.partitions[1].anchor, "an empty span carries the old one on"
    assert next_.topic == topic.identity
    assert topic.identity != TOPIC
