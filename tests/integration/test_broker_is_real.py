"""The brokers that all other integration tests trust: real ones, that leave nothing behind.

Here is only what no other test needs in order to pass.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import docker
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from jobs.demo.broker import BrokerProcess, answers
from tests.support.broker_container import OWNER, remove_leftovers
from tests.support.brokers import Broker, Kind, MakeBroker, image, kind


def test_the_broker_would_create_a_topic_that_is_asked_for_in_passing(broker: Broker) -> None:
    name = f"never-made-{os.getpid()}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "allow.auto.create.topics": True})
    admin.list_topics(name, timeout=10)
    assert within(20, lambda: name in admin.list_topics(timeout=10).topics)
    admin.delete_topics([name])[name].result(10)


def test_a_paused_broker_hangs_and_a_restarted_one_keeps_port_and_records(make_broker: MakeBroker) -> None:
    own = make_broker(settings={"num.partitions": "2"})
    produce(own, "kept", partition=1, value=b"before", timestamp=1)
    own.pause()
    assert not answers(own.bootstrap_servers)
    own.resume()
    own.restart()
    assert [record.value() for record in read(own, "kept", partition=1)] == [b"before"]


def test_a_stopped_broker_leaves_neither_process_nor_folder() -> None:
    with BrokerProcess() as own:
        assert own.folder.is_dir()
        assert running(own.pid)
    assert not own.folder.exists()
    assert not running(own.pid)


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGINT])
def test_a_broker_dies_with_its_parent(kill: signal.Signals) -> None:
    program = (
        "import signal, time\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores it
        "from jobs.demo.broker import BrokerProcess\n"
        "with BrokerProcess() as own:\n"
        "    print(own.pid, own.folder, flush=True)\n"
        "    time.sleep(300)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().decode().split()
        parent.send_signal(kill)
    assert within(20, lambda: not running(int(pid)) and not Path(folder).exists())


def test_a_kept_broker_outlives_its_parent_and_its_pid_stops_it() -> None:
    program = (
        "from jobs.demo.broker import BrokerProcess\n"
        "with BrokerProcess(keep=True) as own:\n"
        "    print(own.bootstrap_servers, own.folder)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    servers, folder = done.stdout.split()
    pid = int((Path(folder) / "broker.pid").read_text())
    try:
        assert answers(servers)
    finally:
        os.kill(pid, signal.SIGTERM)
        assert within(20, lambda: not running(pid))
        subprocess.run(["rm", "-rf", folder], check=True)


@pytest.mark.skipif(kind() is not Kind.CONTAINERS, reason="no Docker daemon, or it was not asked for")
def test_two_runs_may_remove_what_a_killed_one_left_at_once() -> None:
    """The one that came second took what was already gone, or just going, for an error of its broker."""
    with subprocess.Popen(["true"]) as killed:
        pass
    client = docker.from_env()
    for _ in range(4):
        client.containers.create(image(), labels={OWNER: str(killed.pid)})
    with ThreadPoolExecutor(4) as runs:
        for run in [runs.submit(remove_leftovers) for _ in range(4)]:
            run.result()
    mark = {"label": f"{OWNER}={killed.pid}"}
    assert within(20, lambda: not client.containers.list(all=True, filters=mark, ignore_removed=True))
    client.close()


def produce(broker: Broker, name: str, *, partition: int, value: bytes, timestamp: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    failures: list[object] = []
    producer.produce(
        name,
        value,
        partition=partition,
        timestamp=timestamp,
        on_delivery=lambda error, _: failures.append(error),
    )
    assert producer.flush(30) == 0
    assert failures == [None]


def read(broker: Broker, name: str, *, partition: int) -> list[Message]:
    """Read the partition to its end."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(name, partition), timeout=10)
        consumer.assign([TopicPartition(name, partition, 0)])
        records = consumer.consume(end, timeout=20)
    finally:
        consumer.close()
    assert len(records) == end
    return records


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()
