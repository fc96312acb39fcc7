"""One Spark session for all tests, pipelines that work with it, and the command line in this process.

Relies on the shared broker. A command that runs here borrows the session and never stops it; what needs a
process of its own, to be killed or signalled, starts one by `child`.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest
import structlog
import yaml
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from jobs import config as configs
from jobs.cli.commands import app
from jobs.context import Pipeline
from jobs.demo.subprocess_cli import CommandLine
from jobs.lake.posix import PosixLake
from jobs.spark.engine import SIGNALS, Engine
from offsets.kafka.client import Broker as Client
from offsets.plan import Accept
from tests.support.brokers import Broker, fixtures_of

FIRST = date(2024, 3, 30)
"""The first day in the tests; the one after it has 23 hours in Amsterdam."""
Sections = Mapping[str, Any]

SECTIONS: Sections = {
    "kafka": {"timeout": "20s"},
    "day": {"zone": "Europe/Amsterdam", "first": str(FIRST)},
    "event_time": {"field": "at"},
    "record": {"columns": {"id": "string", "n": "bigint"}},
    # so small that a few hundred records make two tasks
    "lake": {"path": "./lake", "target_file_size": "1MiB", "min_file_size": "1KiB"},
    "invalid": {"limit": "100%"},
    "spark": {"spark.master": "local[2]", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
}
_RUNS = count(1)


class Configured(Protocol):
    """Write a topic's config: the tests' own, with sections changed key by key. The lake is beside it."""

    def __call__(self, topic: str, changes: Sections | None = None) -> Path: ...


class MakePipeline(Protocol):
    """Make a pipeline for one run, with the shared session and a client of the broker of the config."""

    def __call__(
        self,
        topic: str,
        changes: Sections | None = None,
        *,
        accept: Accept | None = None,
        now: datetime | None = None,
    ) -> Pipeline: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


class Command(Protocol):
    """Run one command in this process, with the shared session."""

    def __call__(self, config: Path | None, *arguments: str) -> Ended: ...


class Borrowed(Engine):
    """Another engine's session, for jobs of its own; it is never stopped here."""

    def __init__(self, lender: pytest.FixtureRequest, kafka: Mapping[str, str]) -> None:
        super().__init__({}, kafka)
        self._lender = lender

    def __exit__(self, *_: object) -> None:
        """Leave the session to its owner."""

    @property
    def session(self) -> SparkSession:
        lender: Engine = self._lender.getfixturevalue("engine")
        return lender.session


@pytest.fixture(scope="session")
def engine(broker: Broker) -> Iterator[Engine]:
    """Share one started engine."""
    with Engine(SECTIONS["spark"], {"kafka.bootstrap.servers": broker.bootstrap_servers}) as started:
        assert started.cores == 2
        yield started


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def configured(broker: Broker, tmp_path: Path) -> Configured:
    def configure(topic: str, changes: Sections | None = None) -> Path:
        own = {"topic": topic, "kafka": {"bootstrap_servers": broker.bootstrap_servers}}
        path = tmp_path / "topic.yaml"
        path.write_text(yaml.safe_dump(merged(SECTIONS, own, changes or {}), sort_keys=False))
        return path

    return configure


def merged(*trees: Sections) -> dict[str, Any]:
    """Merge mappings key by key; replace `columns` as a whole."""
    result: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            old = result.get(key)
            deeper = isinstance(value, Mapping) and isinstance(old, Mapping) and key != "columns"
            result[key] = merged(old, value) if deeper and old is not None else value
    return result


@pytest.fixture
def pipeline(request: pytest.FixtureRequest, configured: Configured) -> Iterator[MakePipeline]:
    with ExitStack() as held:

        def make(
            topic: str,
            changes: Sections | None = None,
            *,
            accept: Accept | None = None,
            now: datetime | None = None,
        ) -> Pipeline:
            settings = configs.load(configured(topic, changes), {})
            client = Client(_revealed(settings.kafka.client), settings.kafka.timeout)
            held.callback(client.close)
            borrowed = Borrowed(request, _revealed(settings.kafka.spark))
            return Pipeline(
                settings=settings,
                lake=PosixLake(settings.lake.folder),
                broker=lambda: client,
                engine=lambda: borrowed,
                run_id=f"20260401T000000-{next(_RUNS):06x}",
                accept=accept or Accept(),
                now=(lambda: now) if now else (lambda: datetime.now(UTC)),
            )

        yield make


@pytest.fixture
def command(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    monkeypatch.setattr("jobs.spark.engine.Engine", lambda keys, kafka: Borrowed(request, kafka))
    monkeypatch.delenv(configs.CONFIG_VARIABLE, raising=False)

    def run(config: Path | None, *arguments: str) -> Ended:
        named = ["--config", str(config)] if config else []
        done = CliRunner().invoke(app, [*arguments, *named])
        for number, handler in handlers.items():  # those of a command that failed end this process
            signal.signal(number, handler)
        if done.exception and not isinstance(done.exception, SystemExit):
            pytest.fail("".join(traceback.format_exception(done.exception)), pytrace=False)
        return Ended(code=done.exit_code, out=done.stdout, err=done.stderr)

    yield run
    structlog.reset_defaults()


class Child(Protocol):
    """Makes a command line whose commands are processes of their own."""

    def __call__(self, config: Path) -> CommandLine: ...


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Child:
    monkeypatch.delenv("KAFKA_DAILY_LOG", raising=False)
    return lambda config: CommandLine(config, tmp_path / "logs", width=180)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"engine", "pipeline", "command", "child"} & fixtures_of(item):
            item.add_marker(pytest.mark.spark)


def _revealed(options: Mapping[str, Any]) -> dict[str, str]:
    return {key: value.reveal() if hasattr(value, "reveal") else value for key, value in options.items()}
