"""What happens to a topic between two runs: it grows, is cut, made again, compacted, or has a wrong clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from jobs.daily import run_day
from offsets.errors import ConfigError, OffsetsLost, TopicChanged
from offsets.plan import Accept
from tests.reference import Fate, Place
from tests.support import lake as lakes
from tests.support.brokers import Broker, MakeTopic, wait_for_leaders
from tests.support.engine import FIRST, MakePipeline
from tests.support.judged import SentRecord, assert_exact, midnight, night, sent_records
from tests.support.produce import Record, every, ms, order, send
from tests.support.retention import delete_before

DAYS = [FIRST + timedelta(days=step) for step in range(3)]
STEP = timedelta(minutes=10)
NIGHTS = [night(day) for day in DAYS]


@pytest.fixture
def put(broker: Broker) -> Callable[[str, list[Record]], list[SentRecord]]:
    return lambda name, records: sent_records(records, send(broker.bootstrap_servers, name, records))


Put = Callable[[str, list[Record]], list[SentRecord]]


def test_three_partitions_added_between_days_lose_nothing(
    admin: AdminClient, topic: MakeTopic, put: Put, pipeline: MakePipeline, lake: Path
) -> None:
    """Their records may be of the day that is already committed, of the day itself, or of the next."""
    name = topic(partitions=2)
    words = put(name, [*every(STEP, midnight(DAYS[0]), 50, 0), *every(STEP, midnight(DAYS[0]), 50, 1)])
    run_day(pipeline(name), DAYS[0])
    admin.create_partitions([NewPartitions(name, 5)])[name].result(30)
    wait_for_leaders(admin, name, 5)
    for part in range(5):
        words += put(name, every(STEP * 6, midnight(DAYS[0]) + STEP * 60, 60, part))
    for day in DAYS[1:]:
        run_day(pipeline(name), day)
    first = replace(NIGHTS[0], sees=lambda word: word in words[:100])
    assert_exact(lake, words, [first, *NIGHTS[1:]])
    assert {place.fate for place in lakes.places(lake).values()} == {Fate.IN_DAY, Fate.AMENDED}
    document = lakes.manifest(lake, DAYS[1])
    assert [span["evidence"]["start"] for span in document["spans"]] == ["checkpoint"] * 2 + [
        "new_partition"
    ] * 3
    assert [start["partition"] for start in document["first_offsets"]] == [0, 1, 2, 3, 4]


def test_an_unknown_topic_is_refused_and_not_created(
    admin: AdminClient, pipeline: MakePipeline, lake: Path
) -> None:
    """The broker of the tests creates topics that are asked for in passing."""
    with pytest.raises(ConfigError, match="no such topic"):
        run_day(pipeline("never-made"), FIRST)
    assert "never-made" not in admin.list_topics(timeout=20).topics
    assert ConfigError.exit_code == 2


@pytest.mark.parametrize("records", [20, 80], ids=["fewer records", "more records"])
def test_a_topic_made_again_is_refused(
    records: int,
    broker: Broker,
    admin: AdminClient,
    topic: MakeTopic,
    put: Put,
    pipeline: MakePipeline,
    lake: Path,
) -> None:
    name = topic()
    words = put(name, every(STEP, midnight(DAYS[0]), 50))
    run_day(pipeline(name), DAYS[0])
    admin.delete_topics([name])[name].result(30)
    recreate(admin, name)
    put(name, every(STEP, midnight(DAYS[0]), records))
    with pytest.raises(TopicChanged, match="recreated") as refused:
        run_day(pipeline(name), DAYS[1])
    assert refused.value.exit_code == 21
    assert_exact(lake, words, NIGHTS[:1])


def test_records_deleted_before_they_were_settled_are_an_error(
    admin: AdminClient, topic: MakeTopic, put: Put, pipeline: MakePipeline, lake: Path
) -> None:
    name = topic(partitions=2)
    words = put(name, [*every(STEP, midnight(DAYS[0]), 50, 0), *every(STEP, midnight(DAYS[0]), 50, 1)])
    run_day(pipeline(name), DAYS[0])
    put(name, every(STEP, midnight(DAYS[1]), 50, 1))
    delete_before(admin, name, 1, 53)
    with pytest.raises(OffsetsLost) as refused:
        run_day(pipeline(name), DAYS[1])
    assert refused.value.exit_code == 20
    where = {"partition": 1, "offset": 50, "log_start": 53}
    assert refused.value.facts == {**where, "lost_offsets": 3, "accept": "1:50-53"}
    assert "partition 1 to hold what no day has settled, from offset 50 on" in str(refused.value)
    assert "starts at 53" in str(refused.value)
    assert_exact(lake, words, NIGHTS[:1])


def test_records_deleted_after_they_were_settled_are_not_missed(
    admin: AdminClient, topic: MakeTopic, put: Put, pipeline: MakePipeline, lake: Path
) -> None:
    """Not even the anchor is needed, where retention took it."""
    name = topic()
    words = put(name, every(STEP, midnight(DAYS[0]), 50))
    run_day(pipeline(name), DAYS[0])
    delete_before(admin, name, 0, 50)
    words += put(name, every(STEP, midnight(DAYS[1]), 50))
    run_day(pipeline(name), DAYS[1])
    assert_exact(lake, words, NIGHTS[:2])
    [span] = lakes.manifest(lake, DAYS[1])["spans"]
    assert "taken by retention" in span["evidence"]["start_detail"]


def test_a_first_day_whose_log_was_cut_needs_somebodys_word(
    admin: AdminClient, topic: MakeTopic, put: Put, pipeline: MakePipeline, lake: Path
) -> None:
    name = topic()
    words = put(name, every(STEP * 6, midnight(DAYS[0]), 30))
    delete_before(admin, name, 0, 5)
    with pytest.raises(OffsetsLost) as refused:
        run_day(pipeline(name), DAYS[0])
    # the oldest record left is of the first day, 05:00; a valid one may be dated a day ahead of its stamp
    earliest = DAYS[0] + timedelta(days=2)
    assert refused.value.facts["earliest"] == str(earliest)
    assert f"earliest first day that can be proved is {earliest}" in str(refused.value)
    assert not lakes.manifests(lake)

    run_day(pipeline(name, accept=Accept(start=True)), DAYS[0])
    assert_exact(lake, words[5:], NIGHTS[:1])
    assert lakes.manifest(lake, DAYS[0])["accepted"]["start"] == ["partition 0 begins at its log start 5"]
    run_day(pipeline(name), DAYS[1])
    assert_exact(lake, words[5:], NIGHTS[:2])


def test_a_new_partition_whose_log_was_cut_needs_somebodys_word(
    admin: AdminClient, topic: MakeTopic, put: Put, pipeline: MakePipeline, lake: Path
) -> None:
    name = topic()
    words = put(name, every(STEP, midnight(DAYS[0]), 50))
    run_day(pipeline(name), DAYS[0])
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    wait_for_leaders(admin, name, 2)
    added = put(name, every(STEP, midnight(DAYS[1]), 50, 1))
    delete_before(admin, name, 1, 3)
    with pytest.raises(OffsetsLost) as refused:
        run_day(pipeline(name), DAYS[1])
    facts = refused.value.facts
    assert (facts["partition"], facts["offset"], facts["log_start"]) == (1, 0, 3)
    assert "earliest" in facts
    assert_exact(lake, words, NIGHTS[:1])

    run_day(pipeline(name, accept=Accept(start=True)), DAYS[1])
    assert_exact(lake, words + added[3:], NIGHTS[:2])
    assert lakes.manifest(lake, DAYS[1])["accepted"]["start"] == ["partition 1 begins at its log start 3"]


def test_the_day_that_can_be_proved_is_proved(
    admin: AdminClient, topic: MakeTopic, put: Put, pipeline: MakePipeline, lake: Path
) -> None:
    """The day that a refusal names really is one that runs without anybody's word."""
    name = topic()
    put(name, every(STEP * 6, midnight(DAYS[0]), 30))
    delete_before(admin, name, 0, 5)
    with pytest.raises(OffsetsLost) as refused:
        run_day(pipeline(name), DAYS[0])
    earliest = str(refused.value.facts["earliest"])
    run_day(pipeline(name, {"day": {"first": earliest}}), datetime.fromisoformat(earliest).date())


def test_a_compacted_topic_counts_what_vanished_pending_records_too(
    broker: Broker, admin: AdminClient, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    name = topic(
        config={
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.0001",
            "max.compaction.lag.ms": "100",
        }
    )
    hurried(admin)
    at = midnight(DAYS[0])
    # keys 0..9 ten times each, then three orders of tomorrow under keys a, b, c
    records = [order(at + STEP * n, n=n)._replace(key=b"%d" % (n % 10)) for n in range(100)]
    ahead = [
        order(midnight(DAYS[1]) + STEP, stamp=at + STEP * 100, n=n)._replace(key=b"key %d" % n)
        for n in range(3)
    ]
    offsets = send(broker.bootstrap_servers, name, [*records, *ahead])
    compacted(broker, name, at + STEP * 101, lambda left: len(left & set(offsets[:100])) <= 10)
    kept = shown(broker, name)
    run_day(pipeline(name), DAYS[0])
    document = lakes.manifest(lake, DAYS[0])
    begin, until = document["spans"][0]["seen_until"], document["spans"][0]["until_offset"]
    assert document["cleanup_policy"] == "compact"
    assert lakes.gaps(document) >= {(0, each) for each in set(offsets) - kept if begin <= each < until}
    assert lakes.pending(lake) == {(0, each) for each in offsets[100:]}

    # two of the pending ones are overwritten, by orders of the next day, and compacted away
    again = [order(midnight(DAYS[1]) + STEP * 2, n=n)._replace(key=b"key %d" % n) for n in range(2)]
    more = send(broker.bootstrap_servers, name, again)
    gone = {offsets[100], offsets[101]}
    compacted(broker, name, midnight(DAYS[1]) + STEP * 3, lambda left: not left & gone)
    run_day(pipeline(name), DAYS[1])
    document = lakes.manifest(lake, DAYS[1])
    assert document["missing_pending"] == 2
    found = lakes.places(lake)
    assert {offset for (_, offset), place in found.items() if place.day == DAYS[1]} >= {offsets[102], *more}
    assert not {(0, each) for each in gone} & found.keys()
    assert {each for each, place in found.items() if place == Place(Fate.IN_DAY, DAYS[0])} == {
        (0, offset) for offset in offsets[:100] if offset in kept
    }


def test_a_record_years_ahead_stays_pending_and_costs_later_days_nothing(
    topic: MakeTopic, put: Put, pipeline: MakePipeline, lake: Path
) -> None:
    name = topic()
    far = datetime(2099, 1, 1, tzinfo=UTC)
    words = put(name, every(STEP, midnight(DAYS[0]), 5))
    words += [replace(word, stray=True) for word in put(name, [order(far)])]
    words += put(name, every(timedelta(seconds=4), midnight(DAYS[0]) + STEP * 5, 15_000))
    words += put(name, every(STEP, midnight(DAYS[1]), 200))
    for day in DAYS:
        run_day(pipeline(name), day)
        assert (0, 5) in lakes.pending(lake)
    assert_exact(lake, words, NIGHTS)
    for document in lakes.manifests(lake)[1:]:
        [span], needed = document["spans"], pending_before(lake, document)
        needed += span["until_offset"] - span["seen_until"]
        read = sum(until - from_ for from_, until in span["reads"])
        assert span["reads"][0] == [5, 6]
        assert span["from_offset"] == 5
        assert read <= needed * 1.1 + 1_000, "what was settled is read again"


def test_a_partition_whose_log_ends_with_the_day_is_not_waited_for(
    topic: MakeTopic, put: Put, pipeline: MakePipeline
) -> None:
    """Each cost half a second: the broker held the fetch that follows the last record."""
    partitions = 30
    name = topic(partitions=partitions)
    for day in DAYS[:2]:
        put(name, [order(midnight(day) + STEP, partition) for partition in range(partitions)])
    seconds = [run_day(pipeline(name), day).seconds["tasks"] for day in DAYS[:2]]
    assert seconds[1] < partitions * 0.5 / 2, "two tasks waited 15 times each"


def pending_before(lake: Path, document: dict[str, object]) -> int:
    before = next(
        each
        for each in reversed(lakes.manifests(lake))
        if each["day"]["end"] == document["day"]["start"]  # type: ignore[index]
    )
    return sum(until - from_ for part in before["next"]["partitions"] for from_, until in part["pending"])


def recreate(admin: AdminClient, name: str) -> None:
    """Create a topic as soon as the broker has really deleted the one of that name."""
    deadline = time.monotonic() + 30
    while True:
        made = admin.create_topics([NewTopic(name, 1, 1)])[name].exception(30)
        if made is None:
            return
        assert time.monotonic() < deadline, made
        time.sleep(0.1)


def hurried(admin: AdminClient) -> None:
    """Let the broker's cleaner look for work all the time."""
    entry = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(30)


def compacted(broker: Broker, name: str, at: datetime, enough: Callable[[set[int]], bool]) -> None:
    """Roll the active segment, which is never compacted, until the cleaner has done enough."""
    deadline = time.monotonic() + 60
    while not enough(shown(broker, name)):
        assert time.monotonic() < deadline, "the broker did not compact the topic"
        send(broker.bootstrap_servers, name, [Record(0, b"{}", ms(at), b"roller")])
        time.sleep(0.3)


def shown(broker: Broker, name: str) -> set[int]:
    """Read the offsets that are left, by a client of the test's own."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", "enable.partition.eof": True}
    )
    left: set[int] = set()
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        while (message := consumer.poll(20)) is not None and message.error() is None:
            left.add(message.offset() or 0)
    finally:
        consumer.close()
    return left
