"""Transactional producers: what was aborted is not in the lake, and every offset of it is counted."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Timer

import pytest
from confluent_kafka import Consumer, TopicPartition

from jobs.daily import run_day
from offsets.errors import BrokerBehind
from tests.reference import Coordinate, Fate
from tests.support import lake as lakes
from tests.support.brokers import Broker, MakeTopic
from tests.support.engine import FIRST, Command, Configured, MakePipeline
from tests.support.judged import SentRecord, assert_exact, midnight, night, sent_records
from tests.support.produce import Record, Transactions, every, order

DAYS = [FIRST + timedelta(days=step) for step in range(3)]
SEED = 7
MINUTES = timedelta(minutes=1)


def test_aborted_records_are_not_in_the_lake_and_every_gap_is_counted(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    """Two partitions, a third of the transactions aborted; the first day's span ends with an aborted tail."""
    name, rng = topic(partitions=2), random.Random(SEED)
    producer, words = Transactions(broker.bootstrap_servers, name), list[SentRecord]()
    at = midnight(DAYS[0])
    while at < midnight(DAYS[1]) - 40 * MINUTES:
        records = [
            order(at + MINUTES * step, rng.randrange(2), n=step) for step in range(rng.randrange(1, 30))
        ]
        at += MINUTES * 30
        if rng.random() < 0.3:
            producer.abort(records)
        else:
            words += sent_records(records, producer.commit(records))
    producer.abort([order(at + MINUTES * step, step % 2) for step in range(50)])

    run_day(pipeline(name), DAYS[0])
    assert_exact(lake, words, [night(DAYS[0])])
    first = ends(broker, name, 2)
    kept = {(each.partition, each.offset) for each in words}
    assert lakes.gaps(lakes.manifest(lake, DAYS[0])) == between({0: 0, 1: 0}, first) - kept

    # a day that holds nothing visible at all
    for hour in range(4):
        producer.abort(every(MINUTES, midnight(DAYS[1]) + timedelta(hours=hour), 20, partition=hour % 2))
    began = time.monotonic()
    run_day(pipeline(name), DAYS[1])
    assert time.monotonic() - began < 25, "Spark's source waited for records that never come"
    second = ends(broker, name, 2)
    document = lakes.manifest(lake, DAYS[1])
    assert lakes.gaps(document) == between(first, second)
    assert (document["tally"], [file["rows"] for file in document["files"]]) == ([], [0])

    # and the day after it goes on
    words += sent_records(last := every(MINUTES, midnight(DAYS[2]), 30), producer.commit(last))
    run_day(pipeline(name), DAYS[2])
    assert_exact(lake, words, [night(day) for day in DAYS])
    assert lakes.gaps(lakes.manifest(lake, DAYS[2])) == {(0, ends(broker, name, 2)[0] - 1)}


def test_an_open_transaction_is_waited_for_then_refused(
    broker: Broker, topic: MakeTopic, configured: Configured, command: Command, lake: Path
) -> None:
    """What it holds may be of the day, even where the markers' clock hides where the day ends."""
    name = topic()
    start = midnight(DAYS[0])
    done, hanging = (Transactions(broker.bootstrap_servers, name) for _ in range(2))
    words = sent_records(records := every(MINUTES, start, 50), done.commit(records))
    words += sent_records(records := every(MINUTES, start + timedelta(hours=2), 10), hanging.begin(records))
    words += sent_records(
        records := every(MINUTES, midnight(DAYS[1]) + 90 * MINUTES, 60), done.commit(records)
    )

    impatient = configured(name, {"kafka": {"timeout": "1s"}})
    refused = command(impatient, "run", "--date", str(DAYS[0]))
    assert refused.code == 14, refused.err
    assert "an open transaction may still hold records of the day" in refused.err
    assert not lakes.manifests(lake)

    Timer(1.0, hanging.commit_open).start()
    patient = configured(name)
    assert command(patient, "run", "--date", str(DAYS[0])).code == 0
    assert_exact(lake, words, [night(DAYS[0])])


def test_an_open_transaction_counts_below_the_days_end_only(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    """Today, as its producers write it, settled by a clock that is two days ahead."""
    name, today = topic(), datetime.now(UTC).date()
    changes = {"day": {"zone": "UTC", "first": str(today)}, "kafka": {"timeout": "1s"}}
    start, now = midnight(today, "UTC"), datetime.now(UTC) + timedelta(days=2)
    done, hanging = (Transactions(broker.bootstrap_servers, name) for _ in range(2))
    words = sent_records(records := every(MINUTES, start, 20), done.commit(records))
    words += sent_records(records := every(MINUTES, start + timedelta(hours=1), 5), hanging.begin(records))
    words += sent_records(records := every(MINUTES, start + timedelta(hours=26), 60), done.commit(records))
    with pytest.raises(BrokerBehind) as refused:
        run_day(pipeline(name, changes, now=now), today)
    assert refused.value.exit_code == 14
    assert refused.value.facts["last_stable"] == words[20].offset

    hanging.commit_open()
    words += sent_records(records := every(MINUTES, start + timedelta(hours=27), 5), hanging.begin(records))
    run_day(pipeline(name, changes, now=now), today)
    hanging.abort_open()
    assert_exact(lake, words, [night(today, "UTC")])


def test_a_transactional_replay_of_old_data_ends_each_day_where_it_ended(
    broker: Broker, topic: MakeTopic, pipeline: MakePipeline, lake: Path
) -> None:
    """Markers bear the broker's clock of today, so that every look-up by time stops at the first of them."""
    name = topic(partitions=2)
    producer, words = Transactions(broker.bootstrap_servers, name), list[SentRecord]()
    records: list[Record] = [
        order(midnight(DAYS[0]) + step * timedelta(minutes=9), step % 2, n=step) for step in range(460)
    ]
    for at in range(0, len(records), 20):
        words += sent_records(records[at : at + 20], producer.commit(records[at : at + 20]))
    for day in DAYS:
        run_day(pipeline(name), day)
    assert {place.fate for place in lakes.places(lake).values()} == {Fate.IN_DAY}
    assert_exact(lake, words, [night(day) for day in DAYS])
    found = {span["evidence"]["end"] for document in lakes.manifests(lake)[:2] for span in document["spans"]}
    assert found == {"bisected"}


def ends(broker: Broker, topic: str, partitions: int) -> dict[int, int]:
    """Ask for the high watermarks, by a client of the test's own."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
    try:
        return {
            part: consumer.get_watermark_offsets(TopicPartition(topic, part), timeout=20)[1]
            for part in range(partitions)
        }
    finally:
        consumer.close()


def between(from_: dict[int, int], until: dict[int, int]) -> set[Coordinate]:
    return {(part, offset) for part in until for offset in range(from_[part], until[part])}
