"""What a broker gives for a sample: visible records with all they hold, and no more than is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from offsets.errors import ConfigError
from offsets.kafka.client import Broker as Client
from offsets.ranges import Offsets
from tests.support.brokers import Broker, MakeTopic
from tests.support.header_keys import send_header_keys
from tests.support.produce import Transactions, every, ms, send

AT = datetime(2026, 11, 18, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    made = Client({"bootstrap.servers": broker.bootstrap_servers, "log_level": "0"}, timedelta(seconds=20))
    yield made
    made.close()


def test_a_sample_holds_what_a_record_holds(broker: Broker, topic: MakeTopic, client: Client) -> None:
    name = topic()
    (plain,) = every(SECOND, AT, 1)
    full = plain._replace(key=b"k", headers=(("a", b"1"), ("b", None)))
    send(broker.bootstrap_servers, name, [full, plain._replace(value=None, key=b"gone")])
    first, second = client.sample(name, 0, 0, 2, 1 << 20, headers=True)
    assert (first.offset, first.timestamp, first.key, first.value) == (0, ms(AT), b"k", plain.value)
    assert first.headers == full.headers
    assert (second.offset, second.key, second.value, second.headers) == (1, b"gone", None, ())


def test_a_sample_ends_where_it_is_told_to(broker: Broker, topic: MakeTopic, client: Client) -> None:
    name = topic(partitions=2)
    records = every(SECOND, AT, 3_000, partition=1)
    send(broker.bootstrap_servers, name, records)
    assert [each.offset for each in client.sample(name, 1, 700, 2_100, 1 << 20)] == [*range(700, 2_100)]
    size = len(records[0].value or b"")
    assert len(client.sample(name, 1, 0, 3_000, 10 * size)) == 10
    assert [each.offset for each in client.sample(name, 1, 2_990, 9_999, 1 << 20)] == [*range(2_990, 3_000)]
    assert client.sample(name, 0, 0, 9, 1 << 20) == []


def test_a_header_key_that_is_no_text_ends_no_sample_that_needs_none(
    broker: Broker, topic: MakeTopic, client: Client
) -> None:
    """Java and Spark take such a record; the sample made a bug (70) of it, every night."""
    name = topic()
    send_header_keys(broker.bootstrap_servers, name, [b"ok", b"\xff\xfe", b"ok"], ms(AT))
    assert [each.offset for each in client.sample(name, 0, 0, 3, 1 << 20)] == [0, 1, 2]
    with pytest.raises(ConfigError, match="other bytes at offset 1 of partition 0"):
        client.sample(name, 0, 0, 3, 1 << 20, headers=True)
    with pytest.raises(ConfigError, match="other bytes at offset 1 of partition 0"):
        list(client.stream(name, 0, 0, 3, headers=True))
    assert [each.offset for each in client.stream(name, 0, 0, 3)] == [0, 1, 2]


def test_a_client_at_rest_holds_nothing_and_answers_again(
    broker: Broker, topic: MakeTopic, client: Client
) -> None:
    """Statistics that nobody took in piled up while Spark worked: 0.4 MiB a second for 300 partitions."""
    name = topic()
    send(broker.bootstrap_servers, name, every(SECOND, AT, 5))
    for _ in range(2):
        assert client.present_of(name, {0: (0, 5)}) == {0: Offsets.between(0, 5)}
        client.release()
        assert client._small is client._large is None


def test_aborted_records_are_in_no_sample(broker: Broker, topic: MakeTopic, client: Client) -> None:
    name = topic()
    producer = Transactions(broker.bootstrap_servers, name)
    kept = producer.commit(every(SECOND, AT, 20))
    producer.abort(every(SECOND, AT, 20))
    assert [each.offset for each in client.sample(name, 0, 0, 42, 1 << 20)] == kept


def test_what_retention_took_is_no_sample_and_no_error(
    broker: Broker, topic: MakeTopic, client: Client, admin: AdminClient
) -> None:
    name = topic()
    send(broker.bootstrap_servers, name, every(SECOND, AT, 9))
    for answer in admin.delete_records([TopicPartition(name, 0, 6)]).values():
        answer.result(30)
    assert client.sample(name, 0, 0, 9, 1 << 20) == []
    assert len(client.sample(name, 0, 6, 9, 1 << 20)) == 3
