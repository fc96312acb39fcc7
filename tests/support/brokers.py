"""The broker that the tests share: in a container where Docker answers, else a process of our own.

`KAFKA_DAILY_TEST_BROKER` says otherwise: `containers` fails without Docker, `process` never asks for it.
Which it was, and how many tests ran on it, stands at the head and the end of the test run, and in the
file that `KAFKA_DAILY_TEST_REPORT` names.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.demo.broker import BrokerProcess
from tests.support.broker_container import BrokerContainer, docker_answers, remove_leftovers
from tests.support.docker_image import kafka_image
from tests.support.processes import until


class Broker(Protocol):
    """What a test may do with a broker, in a container or a process."""

    bootstrap_servers: str

    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def restart(self) -> None: ...


class MakeTopic(Protocol):
    """Make a topic with a name of its own, and return the name."""

    def __call__(self, *, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


class MakeBroker(Protocol):
    """Start a broker for one test alone, of the same kind as the shared one."""

    def __call__(self, *, settings: Mapping[str, str] | None = None) -> Broker: ...


class Kind(StrEnum):
    CONTAINERS = "containers"
    PROCESS = "process"


PASSED: list[str] = []
USED: list[str] = []


@cache
def kind() -> Kind:
    """Choose between containers and processes for the brokers of this test run."""
    match os.environ.get("KAFKA_DAILY_TEST_BROKER", "auto"):
        case "containers":
            return Kind.CONTAINERS
        case "process":
            return Kind.PROCESS
        case "auto":
            return Kind.CONTAINERS if docker_answers() else Kind.PROCESS
        case other:
            raise pytest.UsageError(
                f"KAFKA_DAILY_TEST_BROKER is {other!r}; it may be containers, process or auto"
            )


@cache
def image() -> str:
    """Find the image once for all brokers of this test run."""
    if not docker_answers():
        pytest.fail("KAFKA_DAILY_TEST_BROKER=containers, but no Docker daemon answers", pytrace=False)
    remove_leftovers()
    return kafka_image()


def start(held: ExitStack, settings: Mapping[str, str] | None = None) -> Broker:
    """Start a broker that ends when `held` is closed."""
    match kind():
        case Kind.CONTAINERS:
            USED.append(image())
            return held.enter_context(BrokerContainer(image(), settings=settings))
        case Kind.PROCESS:
            USED.append("a process of our own")
            return held.enter_context(BrokerProcess(settings=settings))


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """Share one broker; it keeps records of any stamp, and creates a topic that a client asks for."""
    with ExitStack() as held:
        yield start(held)


@pytest.fixture
def make_broker() -> Iterator[MakeBroker]:
    with ExitStack() as held:

        def make(*, settings: Mapping[str, str] | None = None) -> Broker:
            return start(held, settings)

        yield make


@pytest.fixture(scope="session")
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


@pytest.fixture
def topic(admin: AdminClient) -> Iterator[MakeTopic]:
    """Make topics, and delete them after the test."""
    made: list[str] = []

    def make(*, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"test-{uuid.uuid4().hex[:12]}"
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        admin.create_topics([new])[name].result(30)
        made.append(name)
        until(
            lambda: admin.list_topics(name, 10).topics[name].error is None
        )  # a busy broker learns of it later
        return name

    yield make
    if made:
        for deleted in admin.delete_topics(made).values():
            deleted.exception(30)


def wait_for_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
    """Wait until all partitions of a topic can be asked: a busy broker learns of new ones later."""

    def led() -> bool:
        known = admin.list_topics(topic, 10).topics[topic].partitions.values()
        return len(known) == partitions and all(partition.leader >= 0 for partition in known)

    until(led)


def pytest_report_header() -> str:
    return f"broker for the tests: {_DESCRIPTIONS[kind()]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"broker", "make_broker"} & fixtures_of(item):
            item.add_marker(pytest.mark.broker)


def fixtures_of(item: pytest.Item) -> set[str]:
    """Return the names of a test's fixtures, without its parameters, which may have the same names."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return {*getattr(item, "fixturenames", ())} - parameters.keys()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed and "broker" in report.keywords:
        PASSED.append(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if USED:
        terminalreporter.write_line(
            f"broker: {len(PASSED)} tests passed on {kind()} ({', '.join(sorted(set(USED)))})"
        )
    if report := os.environ.get("KAFKA_DAILY_TEST_REPORT"):
        Path(report).write_text(f"kind={kind()} passed={len(PASSED)}\n")


_DESCRIPTIONS: Mapping[Kind, str] = {
    Kind.CONTAINERS: "containers, by testcontainers",
    Kind.PROCESS: "a process of our own (no Docker daemon answers, or it was asked for)",
}
