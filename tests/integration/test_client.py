"""The client on a real broker: settings at their limits, and what it does when things move or drag."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import date, timedelta
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewTopic

import jobs.demo.broker
import offsets.kafka.client
from jobs.demo.broker import BrokerProcess, free_ports
from offsets.commit_log import Ledger
from offsets.days import day_in
from offsets.errors import BrokerUnavailable, OffsetsLost
from offsets.kafka.client import Broker as Client
from offsets.kafka.offset_lookup import survey
from offsets.kafka.reader import Stretch, digest_of
from offsets.plan import plan_day
from offsets.ranges import Offsets
from tests.support.brokers import Broker, MakeTopic
from tests.support.planning import FIRST, NOW, TERMS, at
from tests.support.produce import Record, Transactions, ms, send

LONG_MAX = str(2**63 - 1)
DAY = day_in(TERMS.zone, FIRST)


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    made = Client({"bootstrap.servers": broker.bootstrap_servers}, timedelta(seconds=20))
    yield made
    made.close()


@pytest.mark.parametrize("retention", ["-1", "3153600000000", "86400000000000001", LONG_MAX])
def test_every_retention_that_kafka_takes_can_be_planned(
    broker: Broker, topic: MakeTopic, client: Client, retention: str
) -> None:
    """retention.ms = Long.MAX_VALUE, which some use for "for ever", was a bug of ours at each command."""
    limits = dict.fromkeys(("retention.bytes", "segment.ms", "delete.retention.ms"), LONG_MAX)
    name = topic(config={"cleanup.policy": "delete", "retention.ms": retention, **limits})
    send(broker.bootstrap_servers, name, [Record(0, b"v", ms(at(date(2026, 5, 2), 3)))])
    found = survey(client, name, DAY, TERMS.grace, TERMS.future, None)
    plan = plan_day(day=DAY, ledger=Ledger(()), survey=found, terms=TERMS, now=NOW)
    assert (plan.headroom_hours is None) == (retention != "3153600000000")


class Racing(Client):
    """A client whose topic loses records right after it was asked for its edges."""

    def __init__(self, broker: Broker, strike: Callable[[], None]) -> None:
        super().__init__({"bootstrap.servers": broker.bootstrap_servers}, timedelta(seconds=20))
        self._strike = strike

    def offsets_at(self, topic: str, instants: Mapping[int, int]) -> dict[int, int | None]:
        found = super().offsets_at(topic, instants)
        self._strike()
        return found


def test_retention_between_two_questions_begins_the_survey_anew(
    broker: Broker, admin: AdminClient, topic: MakeTopic
) -> None:
    """The broker's "offset out of range" escaped as it was, exit 70."""
    name = topic(partitions=2)
    send(broker.bootstrap_servers, name, [Record(part, b"v", ms(at(FIRST, 3))) for part in (0, 1) * 100])
    where = TopicPartition(name, 1, 50)

    def strike() -> None:
        admin.delete_records([where])[where].result(30)

    racing = Racing(broker, strike)
    found = survey(racing, name, DAY, TERMS.grace, TERMS.future, None)
    assert found.partitions[1].log_offsets.log_start == 50
    with pytest.raises(OffsetsLost) as lost:
        racing.records_of(name, {part: Stretch(from_=0, until=100, limit=1) for part in range(2)})
    assert lost.value.facts["partition"] == 1
    racing.close()


class Lagging(Client):
    """A client of a broker that ends the log sooner than it said before, as a new leader may for a while."""

    def __init__(self, broker: Broker, timeout: int, stable: Callable[[], int]) -> None:
        super().__init__({"bootstrap.servers": broker.bootstrap_servers}, timedelta(seconds=timeout))
        self._stable = stable

    def _list_offsets(self, topic: str, *_: object) -> dict[int, int]:
        return {0: self._stable()}


READS: Mapping[str, Callable[[Client, str], list[int]]] = {
    "records": lambda client, name: [
        each.offset for each in client.records_of(name, {0: Stretch(from_=0, until=10, limit=50)})[0]
    ],
    "present": lambda client, name: [
        at for range_ in client.present_of(name, {0: (0, 10)})[0] for at in range(*range_)
    ],
    "stream": lambda client, name: [each.offset for each in client.stream(name, 0, 0, 10)],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_an_end_below_the_known_one_is_no_end(
    broker: Broker, topic: MakeTopic, read: Callable[[Client, str], list[int]]
) -> None:
    """What a lagging leader did not show yet counted as absent, and a gap there as proved."""
    name = topic()
    five = [Record(0, b"v", ms(at(FIRST, 3)))] * 5
    send(broker.bootstrap_servers, name, five)

    def caught_up() -> int:
        send(broker.bootstrap_servers, name, five)
        return 10

    lagging = Lagging(broker, 20, caught_up)
    assert read(lagging, name) == [*range(10)]
    lagging.close()


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_leader_that_lags_for_ever_is_a_broker_that_does_not_answer(
    broker: Broker, topic: MakeTopic, read: Callable[[Client, str], list[int]]
) -> None:
    name = topic()
    send(broker.bootstrap_servers, name, [Record(0, b"v", ms(at(FIRST, 3)))] * 5)
    lagging = Lagging(broker, 2, lambda: 10)
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable, match="ends at offset 5, though offset 9 was readable"):
        read(lagging, name)
    assert 2 <= time.monotonic() - began < 10
    lagging.close()


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_a_log_that_lost_its_end_is_a_loss(
    client: Client, broker: Broker, topic: MakeTopic, read: Callable[[Client, str], list[int]]
) -> None:
    name = topic()
    send(broker.bootstrap_servers, name, [Record(0, b"v", ms(at(FIRST, 3)))] * 5)
    with pytest.raises(OffsetsLost) as lost:
        read(client, name)
    assert (lost.value.facts["partition"], lost.value.facts["offset"]) == (0, 5)


@pytest.mark.parametrize("code", ["OFFSET_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE", "KAFKA_STORAGE_ERROR"])
def test_a_leader_that_cannot_answer_yet_is_asked_again(
    broker: Broker, topic: MakeTopic, client: Client, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """As before a new leader has caught up (KIP-207): a bare KafkaException, and so a bug (70)."""
    name = topic()
    errors, result = [KafkaException(KafkaError(getattr(KafkaError, code)))], client._result

    def once(answer: Any) -> Any:
        if errors:
            raise errors.pop()
        return result(answer)

    monkeypatch.setattr(client, "_result", once)
    assert client.log_offsets(name, [0])[0].high == 0
    assert not errors


def test_many_partitions_are_read_at_once(broker: Broker, topic: MakeTopic, client: Client) -> None:
    """Each stretch ends by its limit or by its end, which may be that of the log."""
    count = 300
    name = topic(partitions=count)
    send(
        broker.bootstrap_servers,
        name,
        [Record(part, b"%d" % part, ms(at(FIRST, 3))) for part in range(count) for _ in range(part % 4)],
    )
    wanted = {part: Stretch(from_=0, until=part % 4, limit=1 + part % 3) for part in range(count)}
    found = client.records_of(name, wanted)
    assert {part: [each.offset for each in seen] for part, seen in found.items()} == {
        part: list(range(min(part % 4, 1 + part % 3))) for part in range(count)
    }
    assert {each.digest for part in range(3, count, 4) for each in found[part]} == {
        digest_of(None, b"%d" % part) for part in range(3, count, 4)
    }
    present = client.present_of(name, {part: (0, part % 4) for part in range(count)})
    assert present == {part: Offsets.between(0, part % 4) for part in range(count)}


CARRIED: Counter[int] = Counter()
REPLACED: dict[bytes, bytes] = {}


def narrow_line(port: int, to: int, bytes_per_second: float) -> None:
    """Serve a port that leads to another one, by a line that carries so much; note and change the bytes."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                CARRIED[port] += len(data)
                await asyncio.sleep(len(data) / bytes_per_second)
                for old, new in REPLACED.items():
                    data = data.replace(old, new)
                writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, there[1]), pump(there[0], writer))

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
            await server.serve_forever()

    asyncio.run(run())


@pytest.fixture(scope="module")
def distant() -> Iterator[tuple[str, str]]:
    """Start a broker, and give its address near by and behind a line of 5 MB a second."""
    near, controller, behind, far = free_ports(4)
    here = "127.0.0.1"
    listeners = f"PLAINTEXT://{here}:{near},FAR://{here}:{behind}"
    settings = {
        "listeners": f"{listeners},CONTROLLER://{here}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{here}:{near},FAR://{here}:{far}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FAR:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    Thread(target=narrow_line, args=(far, behind, 5e6), daemon=True).start()
    with ExitStack() as held:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(jobs.demo.broker, "free_ports", lambda count: (near, controller))
            made = held.enter_context(BrokerProcess(settings=settings))
        yield made.bootstrap_servers, f"{here}:{far}"


def test_a_large_aborted_transaction_goes_by_however_long_it_takes(
    distant: tuple[str, str],
) -> None:
    """What took longer than a third of kafka.timeout ended as "the broker does not answer" at each run."""
    near, far = distant
    count = 1_500
    admin = AdminClient({"bootstrap.servers": near})
    admin.create_topics([NewTopic("aborted", 1, 1)])["aborted"].result(30)
    producer = Transactions(near, "aborted")
    producer.abort([Record(0, random.Random(7).randbytes(10_000), ms(at(FIRST, 3)))] * count)
    producer.commit([Record(0, b"v", ms(at(FIRST, 3)))])
    # its 15 MB take 3 seconds
    impatient = Client({"bootstrap.servers": far}, timedelta(seconds=6))
    found = survey(impatient, "aborted", DAY, TERMS.grace, TERMS.future, None).partitions[0]
    assert [each.offset for each in found.first] == [count + 1]
    began = time.monotonic()
    impatient.records_of("aborted", {0: Stretch(from_=0, until=count, limit=1)})
    assert time.monotonic() - began < 1, "what is known to be invisible is read again"
    assert impatient.present_of("aborted", {0: (0, count + 2)}) == {0: Offsets([(count + 1, count + 2)])}
    impatient.close()


def test_a_broker_that_restarts_between_two_questions_is_asked_again() -> None:
    """It fences who asks by the epoch of before: a bare KafkaException, and so a bug (70)."""
    with BrokerProcess() as own:
        admin = AdminClient({"bootstrap.servers": own.bootstrap_servers, "log_level": "0"})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        client = Client({"bootstrap.servers": own.bootstrap_servers, "log_level": "0"}, timedelta(seconds=30))
        client.describe("orders")
        before = client.log_offsets("orders", [0])
        own.restart()
        assert client.log_offsets("orders", [0]) == before
        assert client.offsets_at("orders", {0: 0}) == {0: None}
        client.close()


def test_a_stream_is_fetched_once(distant: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the client had fetched ahead was thrown away with each piece, and fetched again."""
    near, far = distant
    count, size = 400, 20_000
    admin = AdminClient({"bootstrap.servers": near})
    admin.create_topics([NewTopic("fetched", 1, 1)])["fetched"].result(30)
    send(near, "fetched", [Record(0, random.Random(7).randbytes(size), ms(at(FIRST, 3)))] * count)
    monkeypatch.setattr(offsets.kafka.client, "AT_ONCE", 40)
    client = Client({"bootstrap.servers": far}, timedelta(seconds=20))
    client.log_offsets("fetched", [0])
    port = int(far.rpartition(":")[2])
    before = CARRIED[port]
    assert [each.offset for each in client.stream("fetched", 0, 0, count)] == [*range(count)]
    assert CARRIED[port] - before < 1.2 * count * size
    assert [each.offset for each in client.stream("fetched", 0, 3, 60)] == [*range(3, 60)]
    client.close()


def test_a_controller_that_was_not_known_is_asked_for_again(
    distant: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who first asked a broker that was just coming back never learnt of its controller, and gave up (12)."""
    near, far = distant
    admin = AdminClient({"bootstrap.servers": near})
    admin.create_topics([NewTopic("known", 1, 1)])["known"].result(30)
    cluster = str(admin.list_topics(timeout=20).cluster_id).encode()
    client = Client({"bootstrap.servers": far}, timedelta(seconds=6))
    metadata = client._metadata
    asked: list[float] = []

    def ready() -> ClusterMetadata:
        if asked:
            REPLACED.clear()
        asked.append(time.monotonic())
        return metadata()

    monkeypatch.setattr(client, "_metadata", ready)
    # in an answer about the cluster, its controller follows its id
    REPLACED[cluster + (1).to_bytes(4)] = cluster + (-1).to_bytes(4, signed=True)
    assert client.describe("known").cleanup_policy == "delete"
    client.close()
