"""`verify --level kafka` on a real broker: transactions, retention, a record withheld, a topic made anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import jobs.day.execute
from jobs.daily import run_day
from jobs.lake.posix import PosixLake
from jobs.verify.level import Level
from jobs.verify.result import Verified
from jobs.verify.run import verify
from offsets.errors import AuditFailed, OffsetsLost
from offsets.kafka.client import Broker as Client
from offsets.ranges import Offsets
from tests.support.brokers import Broker, MakeTopic, wait_for_leaders
from tests.support.engine import Command, Configured
from tests.support.local_engine import LocalEngine, order, pipeline
from tests.support.memory_topic import Log, MemoryTopic, Record
from tests.support.produce import Record as Sent
from tests.support.produce import Transactions, ms
from tests.support.three_days import FIRST, SECOND, at

PARTITIONS = 2


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    made = Client({"bootstrap.servers": broker.bootstrap_servers}, timedelta(seconds=20))
    yield made
    made.close()


@pytest.fixture
def name(broker: Broker, topic: MakeTopic) -> str:
    """Two days of transactions, every third aborted."""
    made = topic(partitions=PARTITIONS)
    producer = Transactions(broker.bootstrap_servers, made)
    for day in (FIRST, SECOND):
        for number in range(12):
            when = at(day, 1 + number)
            records = [Sent(step % PARTITIONS, order(when, n=step), ms(when)) for step in range(8)]
            (producer.abort if number % 3 == 2 else producer.commit)(records)
    return made


def as_a_stranger_reads(broker: Broker, name: str) -> MemoryTopic:
    """Read a topic by a client that shares nothing with the job's, into memory."""
    held = MemoryTopic(PARTITIONS, name=name)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "unused",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    for partition in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=20)
        consumer.assign([TopicPartition(name, partition, low)])
        records = []
        while not (message := consumer.consume(1, timeout=20)[0]).error():
            stamp, offset = message.timestamp()[1], message.offset()
            assert offset is not None
            records.append(Record(offset=offset, timestamp=stamp, key=message.key(), value=message.value()))
        held.logs[partition] = Log(records=records, log_start=low, high=high)
    consumer.close()
    return held


def settle(lake: Path, client: Client, topic: MemoryTopic, dropped: set[int] | None = None) -> None:
    """Run both days: planned and audited on the broker, with the records of a stranger."""
    for day in (FIRST, SECOND):
        made = pipeline(lake, topic, engine=LocalEngine(topic, batch_rows=3, dropped=dropped or set()))
        named = replace(made.settings, topic=topic.name)
        run_day(replace(made, settings=named, broker=lambda: client), day)


def look(lake: Path, client: Client) -> Verified:
    return verify(PosixLake(lake), None, lambda done, total: None, Level.KAFKA, lambda: client)


def test_a_transactional_topic_is_green_and_every_gap_is_proved(
    broker: Broker, client: Client, name: str, lake: Path
) -> None:
    held = as_a_stranger_reads(broker, name)
    settle(lake, client, held)
    found = look(lake, client)
    assert found.problems == ()
    visible = sum(len(log.records) for log in held.logs.values())
    assert visible == 2 * 12 * 8 * 2 // 3
    assert sum(day.kafka.visible for day in found.ledger if day.kafka) == visible
    markers = 2 * 12 * PARTITIONS
    assert sum(day.gaps_proved for day in found.ledger) == 2 * 12 * 8 // 3 + markers
    assert {(day.unexplained, day.gaps_sampled) for day in found.ledger} == {(0, 0)}


def test_the_broker_shows_just_what_a_stranger_reads(broker: Broker, client: Client, name: str) -> None:
    held = as_a_stranger_reads(broker, name)
    for partition, log in held.logs.items():
        for from_, until in ((0, log.high), (3, 17), (log.high - 1, log.high), (5, 5)):
            offsets = [each.offset for each in log.records if from_ <= each.offset < until]
            expected = Offsets.of((offset, offset + 1) for offset in offsets)
            assert client.present_of(name, {partition: (from_, until)}) == {partition: expected}


def test_what_retention_took_is_counted(
    broker: Broker, client: Client, admin: AdminClient, name: str, lake: Path
) -> None:
    settle(lake, client, as_a_stranger_reads(broker, name))
    admin.delete_records([TopicPartition(name, 0, 20)])[TopicPartition(name, 0, 20)].result(20)
    with pytest.raises(OffsetsLost):
        client.present_of(name, {0: (19, 30)})
    found = look(lake, client)
    assert found.problems == ()
    assert sum(day.kafka.gone for day in found.ledger if day.kafka) == 20


def test_a_batch_that_a_client_drops_is_caught_by_the_audit_and_else_by_kafka(
    broker: Broker, client: Client, name: str, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = as_a_stranger_reads(broker, name)
    with pytest.raises(AuditFailed, match="since Spark delivered none"):
        settle(lake, client, held, dropped={1})
    # a proof that finds nothing, as where the second client is blind too
    monkeypatch.setattr(jobs.day.execute, "prove_gaps", lambda reader, topic, gaps, seed: tuple(gaps))
    settle(lake, client, held, dropped={1})
    problems = look(lake, client).problems
    assert problems
    assert all("which the run was not given" in each for each in problems)


def test_the_command_tells_of_a_topic_made_anew(
    broker: Broker,
    client: Client,
    admin: AdminClient,
    name: str,
    lake: Path,
    configured: Configured,
    command: Command,
) -> None:
    settle(lake, client, as_a_stranger_reads(broker, name))
    config = configured(name)
    green = command(config, "verify", "--level", "kafka", "--json")
    assert green.code == 0, green.err
    told = json.loads(green.out)
    assert (told["level"], told["problems"], len(told["ledger"])) == ("kafka", [], 2)
    admin.delete_topics([name])[name].result(20)
    admin.create_topics([NewTopic(name, num_partitions=PARTITIONS, replication_factor=1)])[name].result(20)
    wait_for_leaders(admin, name, PARTITIONS)
    anew = command(config, "verify", "--level", "kafka")
    assert anew.code == 28
    assert "was recreated" in anew.err
    assert "unexplained" in anew.out
    assert command(config, "verify", "--level", "records").code == 0
