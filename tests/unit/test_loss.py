"""Offsets that Kafka lost before a day settled them: refused, and gone on without when a person says so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from jobs.cli import tables
from jobs.daily import Outcome, run_day
from jobs.day.plan import preview
from jobs.lake.expiry import expire
from jobs.lake.posix import PosixLake
from jobs.lake.status import status
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from jobs.verify.result import Verified
from jobs.verify.run import verify
from offsets.checkpoint import LostOffsets
from offsets.commit_log import read_chain, read_ledger
from offsets.days import midnight
from offsets.errors import AuditFailed, ConfigError, OffsetsLost
from offsets.kafka.recheck import PROBES
from offsets.manifest_text import MANIFEST_NAME
from offsets.plan import Accept
from offsets.ranges import Offsets
from tests.support.lake import places
from tests.support.local_engine import ZONE, LocalEngine, order, pipeline
from tests.support.memory_topic import MemoryTopic, Transaction

FIRST, SECOND, THIRD = (date(2026, 3, day) for day in (28, 29, 30))
NOW = datetime(2026, 4, 10, tzinfo=UTC)
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
    assert (first.accepted.lost_offsets, second.accepted.lost_offsets) == (0, 4)
    assert second.consumed.partitions[0].seen_until == 7
    third = run(lake, topic, THIRD).manifest
    assert not third.lossy
    assert [each.lossy for each in read_chain(PosixLake(lake))] == [False, True, False]
    pending = {at for from_, until in third.next.partitions[0].pending for at in range(from_, until)}
    assert {offset for _, offset in places(lake)} | pending == {0, 1, 3, 7, 8, 9, 10, 11}


def test_a_day_with_a_damaged_manifest_expires_before_a_lossy_one_and_the_chain_holds(
    lake: Path, topic: MemoryTopic
) -> None:
    """Where a lossy day went on does not tell where the day before it ended."""
    run(lake, topic, FIRST)
    topic.retain_from(0, 7)
    run(lake, topic, SECOND, LOST)
    run(lake, topic, THIRD)
    manifest = lake / f"date={FIRST}" / MANIFEST_NAME
    manifest.write_bytes(manifest.read_bytes()[:-9])  # its entry is the same file
    there = pipeline(lake, topic)
    with there.lock_lake():
        expire(there.lake, read_ledger(there.lake), SECOND, there.now(), there.run_id, "a test")
    assert [each.day.date for each in read_chain(PosixLake(lake))] == [SECOND, THIRD]
    assert verify(PosixLake(lake), None, lambda *_: None, Level.RECORDS).problems == ()


@pytest.mark.parametrize("gone", [shutil.rmtree, lambda folder: (folder / MANIFEST_NAME).unlink()])
def test_a_lossy_day_that_is_gone_is_built_again_without_what_was_lost(
    lake: Path, topic: MemoryTopic, gone: Callable[[Path], object]
) -> None:
    """Its entry says what was accepted; its neighbours do not."""
    run(lake, topic, FIRST)
    topic.retain_from(0, 7)
    second = run(lake, topic, SECOND, LOST).manifest
    run(lake, topic, THIRD)
    before = places(lake)
    gone(lake / f"date={SECOND}")
    again = rebuild_day(pipeline(lake, topic), SECOND).manifest
    assert places(lake) == before
    assert (again.accepted, again.consumed, again.next) == (second.accepted, second.consumed, second.next)
    assert verify(PosixLake(lake), None, lambda *_: None, Level.KAFKA, lambda: topic).problems == ()


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


def test_the_loss_of_a_pending_record_is_not_told_as_the_loss_of_all_that_is_settled_behind_it(
    lake: Path, topic: MemoryTopic, capsys: pytest.CaptureFixture[str]
) -> None:
    """One record was lost, and two were told and recorded for ever, in a larger topic 900."""
    run(lake, topic, FIRST)
    topic.retain_from(0, 4)
    with pytest.raises(OffsetsLost, match="starts at 4: one such offset is gone, 2") as stopped:
        run(lake, topic, SECOND)
    assert (stopped.value.facts["accept"], stopped.value.facts["lost_offsets"]) == ("0:2-4", 1)
    lost = LostOffsets(partition=0, from_offset=2, until_offset=4)
    tables.preview(preview(pipeline(lake, topic, accept=Accept(loss=(lost,))), SECOND), 1)
    second = run(lake, topic, SECOND, lost)
    tables.outcome(second)
    tables.status(status(PosixLake(lake), FIRST, lambda *_: NOW, NOW))
    tables.verified(verified(lake, topic))
    shown = capsys.readouterr().out
    assert shown.count(f"lossy {SECOND}: Kafka lost 1 offset(s) in 0:2-4 before they were settled") == 4
    assert [each.unsettled for each in second.manifest.accepted.loss] == [1]
    assert {offset for _, offset in places(lake)} == {0, 1, 3, 4, 5, 7}


def test_a_loss_of_pending_and_new_offsets_is_told_between_its_edges(lake: Path, topic: MemoryTopic) -> None:
    run(lake, topic, FIRST)
    topic.retain_from(0, 7)
    with pytest.raises(OffsetsLost, match="4 such offsets are gone, between 2 and 6"):
        run(lake, topic, SECOND)


def verified(lake: Path, topic: MemoryTopic) -> Verified:
    return verify(PosixLake(lake), None, lambda *_: None, Level.KAFKA, lambda: topic)


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


@pytest.mark.parametrize("question, nth", [("describe", 1), ("log_offsets", 1), ("records", 3)])
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


@pytest.mark.parametrize("question", ["describe", "log_offsets"])
def test_retention_that_passes_a_gap_after_its_proof_is_no_loss(lake: Path, question: str) -> None:
    """All had been read and looked into; the day was refused, and the rerun found its rows gone."""
    topic = MemoryTopic()
    when = midnight(FIRST, ZONE) + timedelta(hours=2)
    topic.produce(0, order(when), when)
    aborted_at_once(topic, FIRST)
    topic.produce(0, order(when + timedelta(days=1)), when + timedelta(days=1))
    engine = LocalEngine(topic)
    at_a_question(topic, engine, question, 2, 4)
    (gap,) = run_day(pipeline(lake, topic, engine=engine), FIRST).manifest.gaps
    assert (topic.logs[0].log_start, gap.offsets, gap.probed) == (4, Offsets([(1, 3)]), 1)
    assert set(places(lake)) == {(0, 0), (0, 3)}
    assert not run(lake, topic, SECOND).manifest.lossy


def sampled_gaps(topic: MemoryTopic, lake: Path, log_start: int, question: str, nth: int) -> Outcome:
    """Settle a day of twice as many gaps as are looked into, while retention passes some of them."""
    when = midnight(FIRST, ZONE) + timedelta(hours=2)
    for _ in range(2 * PROBES):
        topic.produce(0, order(when), when)
        topic.marker(0, when)
    engine = LocalEngine(topic)
    at_a_question(topic, engine, question, nth, log_start)
    return run_day(pipeline(lake, topic, engine=engine), FIRST)


def test_retention_after_the_sample_of_the_gaps_is_no_loss(lake: Path) -> None:
    """Nobody will look into the other gaps anyway: they were in Kafka when the sample was drawn."""
    topic = MemoryTopic()
    (gap,) = sampled_gaps(topic, lake, 3 * PROBES, "describe", 2).manifest.gaps
    assert (topic.logs[0].log_start, gap.probed, gap.offsets.range_count) == (3 * PROBES, PROBES, 2 * PROBES)


@pytest.mark.parametrize("question", ["describe", "log_offsets"])
def test_retention_before_the_sample_of_the_gaps_is_drawn_is_a_loss(lake: Path, question: str) -> None:
    with pytest.raises(OffsetsLost, match="1 offsets were not read in time"):
        sampled_gaps(MemoryTopic(), lake, 2, question, 1)


def test_retention_that_passes_a_sampled_gap_before_its_proof_is_a_loss(lake: Path) -> None:
    with pytest.raises(OffsetsLost, match="same command again"):
        sampled_gaps(MemoryTopic(), lake, 3 * PROBES, "records", 3)


@pytest.mark.parametrize("question, nth", [("describe", 1), ("log_offsets", 1), ("records", 3)])
@pytest.mark.parametrize("log_start", [4, 6])
def test_a_gap_that_an_earlier_day_settled_may_leave_kafka(
    lake: Path, question: str, nth: int, log_start: int
) -> None:
    """It lay between a pending offset and the new ones, and was read through: the day was refused for it."""
    topic = MemoryTopic()
    when = midnight(FIRST, ZONE) + timedelta(hours=2)
    topic.produce(0, order(when), when)
    topic.produce(0, order(when + timedelta(days=1)), when)  # pending
    topic.marker(0, when)
    topic.marker(0, when)
    for hours in (1, 2, 24):
        topic.produce(0, order(when + timedelta(hours=hours)), when + timedelta(hours=hours))
    topic.marker(0, when + timedelta(hours=24))
    run(lake, topic, FIRST)
    engine = LocalEngine(topic)
    at_a_question(topic, engine, question, nth, log_start)
    second = run_day(pipeline(lake, topic, engine=engine), SECOND).manifest
    assert topic.logs[0].log_start == log_start
    assert (second.gaps[0].offsets, second.gaps[0].probed) == (Offsets([(2, 4), (7, 8)]), 1)
    assert {offset for _, offset in places(lake)} == {0, 1, 4, 5, 6}
