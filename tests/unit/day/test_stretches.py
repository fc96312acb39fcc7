"""Records with stamps that Spark cannot take, or tells otherwise than Kafka: settled like all others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.daily import run_day
from jobs.day import stretches
from jobs.day.plan import make_plan
from jobs.lake.posix import PosixLake
from jobs.rebuild import rebuild_day
from jobs.verify.level import Level
from jobs.verify.run import verify
from offsets.commit_log import Ledger, read_chain
from offsets.errors import RunFailed
from offsets.instants import LAST_STAMP
from offsets.verdict import Verdict
from tests.reference import Fate
from tests.support.lake import places
from tests.support.local_engine import RULES, LocalEngine, order, pipeline
from tests.support.memory_topic import MemoryTopic, Transaction
from tests.support.three_days import FIRST, SECOND, THIRD, at, orders


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


__all__ = ["lake"]

NANOSECONDS = 1_774_652_400_000_000_000


@pytest.mark.parametrize("stamp", [-2, -86_400_000, -4_000_000_000_000, 5_000_000_000_000_000])
def test_an_odd_stamp_at_a_partitions_end_does_not_stop_the_lake(lake: Path, stamp: int) -> None:
    topic = MemoryTopic(1)
    orders(topic, FIRST)
    odd = topic.produce(0, order(at(FIRST, 22)), stamp)
    run_day(pipeline(lake, topic), FIRST)
    orders(topic, SECOND)
    run_day(pipeline(lake, topic), SECOND)
    run_day(pipeline(lake, topic), THIRD)
    assert places(lake)[0, odd].fate is Fate.INVALID
    assert len(places(lake)) == len(topic.logs[0].records)


# -- stamps on which Spark's arithmetic overflows: any job that meets one fails, as LocalEngine does


def poisoned(where: str) -> MemoryTopic:
    """Make two days of two partitions, with stamps in nanoseconds among those of the first day."""
    topic = MemoryTopic(2)
    stamps_at = {"one": [3], "first": [1], "last": [10], "both ends": [1, 10], "all": range(1, 11)}[where]
    for number in range(11):  # the first one is where the look-up begins the lake
        when = at(FIRST, 1 + number)
        topic.produce(0, order(when), NANOSECONDS if number in stamps_at else when)
        topic.produce(1, order(when), when)
    ending = Transaction()
    topic.produce(0, order(at(SECOND, 2)), at(FIRST, 20), transaction=ending)  # pending, beside the stretch
    topic.end(ending, commit=True, at=at(FIRST, 21))
    orders(topic, SECOND)
    return topic


def found_in(lake: Path, topic: MemoryTopic) -> dict[Fate, set[int]]:
    """Give the offsets of partition 0 by their fate; everything must lie somewhere."""
    held = places(lake)
    every = {(part, each.offset) for part, log in topic.logs.items() for each in log.visible(0, log.high)}
    assert held.keys() == every
    fates = {place.fate for place in held.values()}
    return {
        fate: {at for (part, at), place in held.items() if part == 0 and place.fate is fate} for fate in fates
    }


@pytest.mark.parametrize("where", ["one", "first", "last", "both ends", "all"])
@pytest.mark.parametrize("stamp", [NANOSECONDS, -NANOSECONDS, (1 << 63) - 1, -(1 << 63)])
def test_records_that_spark_cannot_take_are_settled_by_the_second_client(
    lake: Path, where: str, stamp: int
) -> None:
    topic = poisoned(where)
    for number, each in enumerate(log := topic.logs[0].records):
        log[number] = replace(each, timestamp=stamp) if each.timestamp == NANOSECONDS else each
    bad = {each.offset for each in log if each.timestamp == stamp}
    for day in (FIRST, SECOND, THIRD):
        run_day(pipeline(lake, topic, invalid_limit=1.0), day)
    found = found_in(lake, topic)
    assert found[Fate.INVALID] == bad
    assert found.keys() == {Fate.IN_DAY, Fate.INVALID}
    assert verify(PosixLake(lake), None, lambda done, total: None, Level.KAFKA, lambda: topic).problems == ()


def test_records_beside_the_stretch_are_left_to_spark(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = poisoned("both ends")
    read: list[tuple[int, int, int]] = []
    stream = topic.stream

    def counted(name: str, partition: int, from_: int, until: int, **asked: Any) -> Any:
        read.append((partition, from_, until))
        return stream(name, partition, from_, until, **asked)

    monkeypatch.setattr(topic, "stream", counted)
    engine = LocalEngine(topic)
    manifest = run_day(pipeline(lake, topic, engine=engine, invalid_limit=1.0), FIRST).manifest
    assert engine.jobs == 2
    assert read[-1] == (0, 1, 11), "the stretch alone is read here"
    assert {part for part, _, _ in read[:-1]} == {0, 1}
    assert manifest.rows(Verdict.IN_DAY) == 20


def test_a_settled_poison_that_is_read_over_stops_no_later_day(lake: Path) -> None:
    """Between two pending offsets, so few are skipped by nobody; it is settled once."""
    topic = MemoryTopic(1)
    topic.produce(0, order(at(SECOND, 3)), at(FIRST, 3))
    poison = topic.produce(0, order(at(FIRST, 4)), NANOSECONDS)
    topic.produce(0, order(at(SECOND, 4)), at(FIRST, 5))
    orders(topic, SECOND)
    run_day(pipeline(lake, topic), FIRST)
    manifest = run_day(pipeline(lake, topic), SECOND).manifest
    assert manifest.rows(Verdict.ALREADY_SETTLED) == 1
    assert found_in(lake, topic) == {Fate.IN_DAY: {0, 2, *range(3, 9)}, Fate.INVALID: {poison}}


def test_a_poisoned_day_can_be_built_again(lake: Path) -> None:
    topic = poisoned("both ends")
    for day in (FIRST, SECOND):
        run_day(pipeline(lake, topic, invalid_limit=1.0), day)
    before, manifest = places(lake), next(read_chain(PosixLake(lake)))
    (lake / f"date={FIRST}" / manifest.files[0].path).unlink()
    rebuild_day(pipeline(lake, topic), FIRST)
    assert places(lake) == before


@pytest.mark.parametrize("source", ["field", "kafka"])
def test_a_poisoned_record_is_invalid_by_its_window_or_its_years(lake: Path, source: str) -> None:
    rule = RULES.event_time if source == "field" else replace(RULES.event_time, path=())
    topic = poisoned("one")
    headers = (("trace", b"1"), ("none", None))
    topic.logs[0].records[3] = replace(topic.logs[0].records[3], key=b"k", headers=headers)
    rules = replace(RULES, event_time=rule, kafka_columns=frozenset({"key", "headers"}))
    run_day(pipeline(lake, topic, rules=rules), FIRST)
    (file,) = lake.glob(f"date={FIRST}/_invalid/*.rows")
    table = pq.read_table(file)
    (row,) = table.drop_columns(["kafka_timestamp"]).to_pylist()
    wanted = "Event time more than 30 d before Kafka's timestamp"
    assert row["cause"] == wanted if source == "field" else row["cause"].startswith("Outside the years")
    assert (row["kafka_offset"], row["key"]) == (3, b"k")
    assert row["headers"] == [{"key": "trace", "value": b"1"}, {"key": "none", "value": None}]
    assert table["kafka_timestamp"].cast(pa.int64()).to_pylist() == [1 << 62]


def test_a_job_that_fails_for_another_reason_says_so_still(lake: Path) -> None:
    topic = poisoned("one")
    topic.logs[0].records[3] = replace(topic.logs[0].records[3], timestamp=LAST_STAMP)
    with pytest.raises(RunFailed, match="it did not"):
        run_day(pipeline(lake, topic, engine=LocalEngine(topic, dies=True)), FIRST)
    assert not list(lake.glob("date=*"))


def test_a_job_that_fails_once_more_beside_the_stretch_commits_nothing(lake: Path) -> None:
    topic = poisoned("one")
    with pytest.raises(RunFailed, match="it did not"):
        run_day(pipeline(lake, topic, engine=LocalEngine(topic, dies=True)), FIRST)
    assert not list(lake.glob("date=*"))


def test_the_stretch_is_sent_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = MemoryTopic(1)
    for size in (10, 10, 10, 400, 10, 10):
        topic.produce(0, bytes(size), NANOSECONDS)
    monkeypatch.setattr(stretches, "BATCH_ROWS", 3)
    monkeypatch.setattr(stretches, "BATCH_BYTES", 400)
    batches = list(stretches.batches(topic, "orders", 0, (1, 6), headers=False))
    assert [batch["offset"].to_pylist() for batch in batches] == [[1, 2, 3], [4, 5]]
    assert batches[0].schema.names == ["partition", "offset", "timestamp", "key", "value"]


def test_a_plan_over_stray_stamps_keeps_its_figures(lake: Path) -> None:
    """Look-ups by time are pinned by such stamps, and the oldest record may bear one."""
    topic = poisoned("both ends")
    topic.retention, topic.cleanup_policy = timedelta(days=7), "delete"
    plan = make_plan(pipeline(lake, topic, now=at(SECOND, 3)), Ledger(()), FIRST).plan
    assert [(span.from_offset, span.until_offset) for span in plan.spans] == [(0, 12), (0, 11)]
    assert plan.headroom_hours is not None
    assert 0 < plan.headroom_hours < 7 * 24
    for number, each in enumerate(log := topic.logs[0].records):
        log[number] = replace(each, timestamp=-NANOSECONDS) if each.timestamp == NANOSECONDS else each
    again = make_plan(pipeline(lake, topic, now=at(SECOND, 3)), Ledger(()), FIRST).plan
    assert again.headroom_hours == plan.headroom_hours
