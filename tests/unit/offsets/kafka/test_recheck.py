"""What was read was all the time of the topic that was planned, or nothing is committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from offsets.checkpoint import Anchor, Checkpoint
from offsets.commit_log import Ledger
from offsets.day_plan import DayPlan
from offsets.days import day_in
from offsets.errors import AuditFailed, OffsetsLost, TopicChanged
from offsets.kafka.offset_lookup import survey
from offsets.kafka.reader import SeenRecord, Stretch, digest_of
from offsets.kafka.recheck import NEAR, PROBES, prove_gaps, recheck
from offsets.manifest import Gaps
from offsets.plan import next_checkpoint, plan_day
from offsets.ranges import Offsets
from tests.support.memory_topic import MemoryTopic
from tests.support.planning import FIRST, NOW, TERMS, ZONE, at


def planned(topic: MemoryTopic) -> DayPlan:
    day = day_in(ZONE, FIRST)
    found = survey(topic, "orders", day, TERMS.grace, TERMS.future, None)
    return plan_day(day=day, ledger=Ledger(()), survey=found, terms=TERMS, now=NOW)


@pytest.fixture
def topic() -> MemoryTopic:
    made = MemoryTopic()
    made.produce(0, b"before", at(FIRST, -48))
    for number in range(4):
        made.produce(0, b"%d" % number, at(FIRST, number))
    made.marker(0, at(FIRST, 5))
    return made


def after_reading(topic: MemoryTopic, plan: DayPlan) -> Checkpoint:
    last = topic.logs[0].visible(0, 99)[-1]
    anchor = Anchor(offset=last.offset, timestamp=last.timestamp, digest=digest_of(last.key, last.value))
    return next_checkpoint(plan, {}, {0: anchor})


def no_gaps(plan: DayPlan) -> list[Gaps]:
    return [Gaps(partition=span.partition, offsets=Offsets()) for span in plan.spans]


def test_an_unchanged_topic_passes_and_so_does_one_that_grew(topic: MemoryTopic) -> None:
    plan = planned(topic)
    next_ = after_reading(topic, plan)
    recheck(topic, plan, no_gaps(plan), next_)
    topic.produce(0, b"more", at(FIRST, 30))
    topic.add_partitions(1)
    recheck(topic, plan, no_gaps(plan), next_)


def test_a_recreated_topic_is_noticed_though_it_holds_the_same(topic: MemoryTopic) -> None:
    plan = planned(topic)
    next_ = after_reading(topic, plan)
    topic.generation += 1
    with pytest.raises(TopicChanged, match="recreated while it was read"):
        recheck(topic, plan, no_gaps(plan), next_)


@pytest.mark.parametrize("kept", [0, 1, 4])
def test_a_refilled_log_is_noticed_by_the_old_or_the_new_anchor(topic: MemoryTopic, kept: int) -> None:
    plan = planned(topic)
    next_ = after_reading(topic, plan)
    topic.truncate(0, kept)
    for _ in range(9):
        topic.produce(0, b"other", at(FIRST, 1))
    with pytest.raises(TopicChanged):
        recheck(topic, plan, no_gaps(plan), next_)


def test_another_record_where_the_old_anchor_was_is_noticed(topic: MemoryTopic) -> None:
    """The new anchors alone would not tell: they were read from the very log that replaced the old one."""
    plan = planned(topic)
    next_ = after_reading(topic, plan)
    topic.logs[0].records[0] = replace(topic.logs[0].records[0], value=b"other")
    with pytest.raises(TopicChanged, match="hold at offset 0"):
        recheck(topic, plan, no_gaps(plan), next_)


def test_a_record_that_was_not_delivered_at_the_end_is_noticed(topic: MemoryTopic) -> None:
    plan = planned(topic)
    next_ = after_reading(topic, plan)
    short = replace(
        next_,
        partitions=(replace(next_.partitions[0], anchor=Anchor(offset=3, timestamp=0, digest="")),),
    )
    with pytest.raises(TopicChanged):
        recheck(topic, plan, no_gaps(plan), short)


@pytest.mark.parametrize("hidden, lost", [((1, 2), False), ((2, 3), True), ((3, 4), False), ((4, 5), True)])
def test_only_gaps_that_no_day_has_settled_are_losses(
    topic: MemoryTopic, hidden: tuple[int, int], lost: bool
) -> None:
    """Offset 2 is pending, 4 and 5 are new; the others were settled and are read through."""
    plan = planned(topic)
    before, (span,) = plan.consumed.partitions[0], plan.spans
    begun = replace(before, seen_until=4, pending=Offsets([(2, 3)]), anchor=None)
    again = replace(
        plan,
        consumed=replace(plan.consumed, partitions=(begun,)),
        spans=(replace(span, from_offset=2, seen_until=4, reads=Offsets([(2, span.until_offset)])),),
    )
    gaps = [Gaps(partition=0, offsets=Offsets([hidden]))]
    topic.retain_from(0, 6)
    if lost:
        with pytest.raises(OffsetsLost, match="1 offsets were not read in time"):
            recheck(topic, again, gaps, again.consumed)
        with pytest.raises(OffsetsLost, match="1 offsets were not read in time"):
            prove_gaps(topic, again, gaps, "seed")
    else:
        recheck(topic, again, gaps, again.consumed)
        assert prove_gaps(topic, again, gaps, "seed")[0].probed == 0


def test_gaps_below_a_log_start_that_moved_are_losses(topic: MemoryTopic) -> None:
    plan = planned(topic)
    next_ = after_reading(topic, plan)
    topic.retain_from(0, 3)
    recheck(topic, plan, no_gaps(plan), next_)
    with pytest.raises(OffsetsLost, match="1 offsets were not read in time"):
        recheck(topic, plan, [Gaps(partition=0, offsets=Offsets([(2, 3), (5, 6)]))], next_)


def test_anchors_that_retention_took_meanwhile_are_no_change(topic: MemoryTopic) -> None:
    plan = planned(topic)
    next_ = after_reading(topic, plan)
    topic.retain_from(0, 6)
    recheck(topic, plan, no_gaps(plan), next_)


def test_a_gap_of_markers_is_lawful_and_one_that_hides_a_record_is_not(topic: MemoryTopic) -> None:
    marker = Gaps(partition=0, offsets=Offsets([(5, 6)]))
    prove_gaps(topic, planned(topic), [marker], "seed")
    with pytest.raises(AuditFailed, match=r"no visible record in \[3, 4\)"):
        prove_gaps(topic, planned(topic), [replace(marker, offsets=Offsets([(3, 4), (5, 6)]))], "seed")


@pytest.mark.parametrize("count", [0, 1, PROBES, PROBES + 1])
def test_a_gap_says_how_many_of_its_ranges_were_looked_into(count: int) -> None:
    topic = MemoryTopic()
    topic.logs[0].high = 2 * count  # of which compaction took all
    gaps = Gaps(partition=0, offsets=Offsets([(2 * at, 2 * at + 1) for at in range(count)]))
    (proved,) = prove_gaps(topic, planned(topic), [gaps], "seed")
    assert (proved.probed, proved.offsets) == (min(count, PROBES), gaps.offsets)


def test_gaps_that_lie_near_each_other_are_looked_at_together() -> None:
    """Each took a round trip: a thousand of them, one after the other, on a topic of small transactions."""
    topic = MemoryTopic()
    for number in range(PROBES):
        topic.produce(0, b"v" * 300, at(FIRST, 1))
        topic.marker(0, at(FIRST, number % 24))
    gaps = Gaps(partition=0, offsets=Offsets([(2 * at + 1, 2 * at + 2) for at in range(PROBES)]))
    (proved,) = prove_gaps(topic, planned(topic), [gaps], "seed")
    assert proved.probed == PROBES
    assert topic.asked.count("records") < 10
    for hidden in (0, 2 * PROBES - 2):
        more = replace(gaps, offsets=gaps.offsets | Offsets.between(hidden, hidden + 1))
        with pytest.raises(AuditFailed, match=f"one at offset {hidden}"):
            prove_gaps(topic, planned(topic), [more], "seed")


def test_gaps_farther_apart_than_the_first_look_reaches_are_looked_at_together_too() -> None:
    """A look into a gap alone sees no record, and so learned for none how many a look may hold."""
    topic = MemoryTopic()
    offsets = []
    for _ in range(100):
        for _ in range(2 * NEAR):
            topic.produce(0, b"v" * 100, at(FIRST, 1))
        offsets.append(topic.marker(0, at(FIRST, 1)))
    gaps = Gaps(partition=0, offsets=Offsets([(each, each + 1) for each in offsets]))
    prove_gaps(topic, planned(topic), [gaps], "seed")
    assert topic.asked.count("records") < 10
    for hidden in (offsets[0] - 1, offsets[-1] - 1):
        more = replace(gaps, offsets=gaps.offsets | Offsets.between(hidden, hidden + 1))
        with pytest.raises(AuditFailed, match=f"one at offset {hidden}"):
            prove_gaps(topic, planned(topic), [more], "seed")


def test_gaps_among_large_records_are_looked_at_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """To read what lies between them would be to read the day again."""
    topic = MemoryTopic()
    for number in range(100):
        topic.produce(0, b"v" * 200_000, at(FIRST, 1))
        topic.marker(0, at(FIRST, number % 24))
    plan, seen = planned(topic), list[SeenRecord]()
    records_of = topic.records_of

    def noted(name: str, wanted: Mapping[int, Stretch]) -> dict[int, list[SeenRecord]]:
        found = records_of(name, wanted)
        seen.extend(found[0])
        return found

    monkeypatch.setattr(topic, "records_of", noted)
    gaps = Gaps(partition=0, offsets=Offsets([(2 * at + 1, 2 * at + 2) for at in range(100)]))
    prove_gaps(topic, plan, [gaps], "seed")
    assert len(seen) < NEAR


def test_of_very_many_gaps_a_sample_is_looked_at_that_differs_from_run_to_run(
    topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, looked = planned(topic), list[int]()

    def nothing(name: str, wanted: Mapping[int, Stretch]) -> dict[int, list[SeenRecord]]:
        looked.extend(each.from_ for each in wanted.values())
        return {partition: [] for partition in wanted}

    monkeypatch.setattr(topic, "records_of", nothing)
    many = Gaps(partition=0, offsets=Offsets([(at, at + 1) for at in range(0, 400 * PROBES, 200)]))
    prove_gaps(topic, plan, [many], "one")
    first, looked[:] = set(looked), []
    prove_gaps(topic, plan, [many], "another")
    assert len(first) == len(set(looked)) == PROBES
    assert first != set(looked)


def test_a_gap_that_was_looked_into_may_leave_together_with_a_settled_one() -> None:
    """A settled gap of one partition left, and with it the proved ones of another counted as lost."""
    topic, gaps = MemoryTopic(2), list[Gaps]()
    for partition in range(2):
        offsets = []
        for _ in range(2):
            for _ in range(2 * NEAR):
                topic.produce(partition, b"v" * 10_000, at(FIRST, 1))
            offsets.append(topic.marker(partition, at(FIRST, 1)))
        gaps.append(Gaps(partition=partition, offsets=Offsets([(each, each + 1) for each in offsets])))
    plan = planned(topic)
    (span, *spans), (part, *parts) = plan.spans, plan.consumed.partitions
    until = span.until_offset
    settled = replace(part, seen_until=until, pending=Offsets([(0, 1)]), anchor=None)
    reread = replace(span, from_offset=0, seen_until=until, reads=Offsets([(0, until)]))
    again = replace(
        plan, consumed=replace(plan.consumed, partitions=(settled, *parts)), spans=(reread, *spans)
    )
    asked = topic.asked.count("records")

    def take_a_settled_and_a_proved_gap(question: str) -> None:
        if topic.asked.count("records") == asked + 2:
            topic.retain_from(0, until)
            topic.retain_from(1, 2 * NEAR + 1)

    topic.before = take_a_settled_and_a_proved_gap
    assert [gap.probed for gap in prove_gaps(topic, again, gaps, "seed")] == [1, 2]
    assert topic.asked.count("records") == asked + 3
