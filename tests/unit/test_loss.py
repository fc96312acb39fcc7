"""Offsets that Kafka lost before a day settled them: refused, and gone on without when a person says so."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import pytest

from jobs.daily import Outcome, run_day
from jobs.lake.posix import PosixLake
from offsets.checkpoint import LostOffsets
from offsets.commit_log import read_chain
from offsets.days import midnight
from offsets.errors import AuditFailed, ConfigError, OffsetsLost
from offsets.plan import Accept
from tests.support.lake import places
from tests.support.local_engine import ZONE, LocalEngine, order, pipeline
from tests.support.memory_topic import MemoryTopic, Transaction

FIRST, SECOND, THIRD = (date(2026, 3, day) for day in (28, 29, 30))
LOST = LostOffsets(partition=0, from_offset=2, until_offset=7)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def topic() -> MemoryTopic:
    """Four orders a day; the third of each day is dated two days later, thus pending."""
    topic = MemoryTopic()
    for day in (FIRST, SECOND, THIRD):
        for number in range(4):
            when = midnight(day, ZONE) + timedelta(hours=2 + number)
            topic.produce(0, order(when + timedelta(hours=23 if number == 2 else 0)), when)
    return topic


def run(lake: Path, topic: MemoryTopic, day: date, *loss: LostOffsets) -> Outcome:
    return run_day(pipeline(lake, topic, accept=Accept(loss=loss)), day)


def test_a_loss_stops_the_day_and_says_how_to_go_on(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST)
    topic.retain_from(0, 7)
    with pytest.raises(OffsetsLost, match="--accept-loss 0:2-7") as stopped:
        run(lake, topic, SECOND)
    assert stopped.value.facts["accept"] == str(LOST)


def test_an_accepted_loss_is_recorded_for_ever_and_the_chain_holds(lake: Path, topic: MemoryTopic) -> None:
    """Offset 2 was pending, 4 to 6 were never seen."""
    first = run(lake, topic, FIRST).manifest
    topic.retain_from(0, 7)
    second = run(lake, topic, SECOND, LOST).manifest
    assert (first.lossy, second.lossy, second.accepted.loss) == (False, True, (LOST,))
    assert second.consumed.partitions[0].seen_until == 7
    third = run(lake, topic, THIRD).manifest
    assert not third.lossy
    assert [each.lossy for each in read_chain(PosixLake(lake))] == [False, True, False]
    pending = {at for from_, until in third.next.partitions[0].pending for at in range(from_, until)}
    assert {offset for _, offset in places(lake)} | pending == {0, 1, 3, 7, 8, 9, 10, 11}


@pytest.mark.parametrize(
    "wrong",
    [
        LostOffsets(partition=0, from_offset=2, until_offset=8),
        LostOffsets(partition=0, from_offset=3, until_offset=7),
        LostOffsets(partition=1, from_offset=2, until_offset=7),
    ],
)
def test_only_just_what_is_lost_can_be_accepted(lake: Path, topic: MemoryTopic, wrong: LostOffsets) -> None:
    run(lake, topic, FIRST)
    topic.retain_from(0, 7)
    with pytest.raises(OffsetsLost):
        run(lake, topic, SECOND, wrong)
    with pytest.raises(ConfigError, match="are not lost"):
        run(lake, topic, SECOND, LOST, wrong)
    assert not (lake / f"date={SECOND}").exists()


def test_what_is_not_lost_cannot_be_accepted(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST)
    with pytest.raises(ConfigError, match="are not lost"):
        run(lake, topic, SECOND, LOST)


def test_a_loss_of_pending_offsets_alone_leaves_what_was_seen(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST)
    topic.retain_from(0, 3)
    lost = LostOffsets(partition=0, from_offset=2, until_offset=3)
    second = run(lake, topic, SECOND, lost).manifest
    assert (
        second.consumed.partitions[0].seen_until
        == run(lake, topic, FIRST).manifest.next.partitions[0].seen_until
    )
    assert (0, 2) not in places(lake)


# -- retention that strikes in the middle of a run


def at_a_question(topic: MemoryTopic, engine: LocalEngine, question: str, nth: int, log_start: int) -> None:
    """Let retention strike once, before the nth such question that follows the read."""
    asked = 0

    def strike(what: str) -> None:
        nonlocal asked
        asked += engine.jobs > 0 and what == question
        if asked == nth:
            topic.before = lambda _: None
            topic.retain_from(0, log_start)

    topic.before = strike


def aborted_at_once(topic: MemoryTopic, day: date) -> None:
    """Leave a gap, then one order more."""
    dropped, when = Transaction(), midnight(day, ZONE) + timedelta(hours=8)
    topic.produce(0, order(when), when, transaction=dropped)
    topic.end(dropped, commit=False, at=when)
    topic.produce(0, order(when), when)


def test_retention_during_the_plan_is_told_as_the_loss_that_it_is(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST)

    def strike(question: str) -> None:
        if question == "records":
            topic.retain_from(0, 7)

    topic.before = strike
    with pytest.raises(OffsetsLost, match="--accept-loss 0:2-7"):
        run(lake, topic, SECOND)
    run(lake, topic, SECOND, LOST)


@pytest.mark.parametrize("nth", [1, 2])
def test_retention_of_settled_records_while_anchors_are_looked_at_is_no_loss(
    lake: Path, topic: MemoryTopic, nth: int
) -> None:
    """Offset 2 was pending: all that goes has been delivered by then."""
    run(lake, topic, FIRST)
    engine = LocalEngine(topic)
    at_a_question(topic, engine, "records", nth, 6)
    run_day(pipeline(lake, topic, engine=engine), SECOND)
    assert topic.logs[0].log_start == 6
    run(lake, topic, THIRD)
    assert {offset for _, offset in places(lake)} == set(range(12)) - {10}


def test_a_pending_record_that_retention_takes_during_the_read_is_lost_and_no_failed_audit(
    lake: Path, topic: MemoryTopic
) -> None:
    run(lake, topic, FIRST)
    engine = LocalEngine(topic, dropped={0}, batch_rows=1, between=lambda: topic.retain_from(0, 3))
    with pytest.raises(OffsetsLost, match="same command again"):
        run_day(pipeline(lake, topic, engine=engine), SECOND)
    with pytest.raises(OffsetsLost, match="--accept-loss 0:2-3"):
        run(lake, topic, SECOND)
    run(lake, topic, SECOND, LostOffsets(partition=0, from_offset=2, until_offset=3))


def test_a_pending_record_that_is_dropped_though_kafka_holds_it_is_a_failed_audit(
    lake: Path, topic: MemoryTopic
) -> None:
    run(lake, topic, FIRST)
    with pytest.raises(AuditFailed, match="pending"):
        run_day(pipeline(lake, topic, engine=LocalEngine(topic, dropped={0}, batch_rows=1)), SECOND)


@pytest.mark.parametrize("question, nth", [("log_offsets", 1), ("records", 3), ("log_offsets", 2)])
def test_retention_that_passes_a_gap_before_its_proof_ends_with_advice_that_works(
    lake: Path, question: str, nth: int
) -> None:
    """Nobody can say any more whether the gap was one: it is lost, and the rerun names what to accept."""
    topic = MemoryTopic()
    for day in (FIRST, SECOND):
        when = midnight(day, ZONE) + timedelta(hours=2)
        topic.produce(0, order(when), when)
        aborted_at_once(topic, day)
    run(lake, topic, FIRST)
    engine = LocalEngine(topic)
    at_a_question(topic, engine, question, nth, 7)
    with pytest.raises(OffsetsLost, match="same command again"):
        run_day(pipeline(lake, topic, engine=engine), SECOND)
    assert topic.logs[0].log_start == 7
    with pytest.raises(OffsetsLost, match="--accept-loss 0:4-7"):
        run(lake, topic, SECOND)
    assert run(lake, topic, SECOND, LostOffsets(partition=0, from_offset=4, until_offset=7)).manifest.lossy
