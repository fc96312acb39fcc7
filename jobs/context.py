"""What a run works with: a process has one `Runtime`, each topic one `Pipeline`.

Opens each part when it is first needed, and closes it whatever happens. Decides nothing.
"""

from __future__ import annotations

import os
import platform
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from jobs import config, logs
from jobs.config import KafkaSettings, LakeSettings, Late, Settings
from jobs.config.secrets import Secret
from jobs.lake.port import Lake, LockHolder
from jobs.lake.posix import PosixLake
from jobs.stages import Observer
from offsets.kafka.reader import TopicReader
from offsets.plan import Accept
from offsets.ranges import Offsets

if TYPE_CHECKING:
    from jobs.config.bucket import BucketSettings
    from jobs.lake.objects.bucket import Bucket
    from jobs.spark.engine import Engine as Spark
    from jobs.task.batch_limit import BatchLimit
    from jobs.task.result import TaskResult
    from jobs.task.task import TaskSpec


class Engine(Protocol):
    """What a day needs of Spark."""

    @property
    def cores(self) -> int:
        """How many tasks run at once."""
        ...

    def run_tasks(
        self,
        topic: str,
        reads: Mapping[int, Offsets],
        spec: TaskSpec,
        *,
        tasks: int,
        piece: int,
        batches: BatchLimit,
        progress: Callable[[int, int], None],
    ) -> list[TaskResult]:
        """Run one job over these offsets of each partition."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStamp:
    """Which run writes a manifest, when it began, when its audit passed, and the versions that it ran."""

    run_id: str
    started: datetime
    audited: datetime
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One topic on its way into its lake, and what one run of it works with."""

    settings: Settings
    lake: Lake
    broker: Callable[[], TopicReader]
    engine: Callable[[], Engine]
    run_id: str
    accept: Accept = field(default_factory=Accept)
    observers: tuple[Observer, ...] = ()
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    @property
    def amends(self) -> bool:
        """Whether late rows are brought to their days."""
        return self.settings.late is Late.AMEND

    def lock_lake(self) -> AbstractContextManager[None]:
        """Lock the lake for this run, and release it at the end."""
        return self.lake.lock(LockHolder.here(self.run_id, self.now()))

    def stamp(self, started: datetime) -> RunStamp:
        """Return the stamp of this run for its manifest, with the current time as the time of the audit."""
        return RunStamp(run_id=self.run_id, started=started, audited=self.now(), versions=_versions())


class Runtime:
    """What a process has once, however many topics it runs: one Spark session, started by its first use."""

    def __init__(self) -> None:
        """Start nothing yet."""
        self._stack, self._lock = ExitStack(), threading.Lock()
        self._spark: Spark | None = None

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop Spark."""
        self._stack.__exit__(kind, error, trace)

    def engine(self, settings: Settings) -> Engine:
        """Return Spark for one topic; the first one's `spark` section starts it."""
        kafka = _revealed(settings.kafka.spark)
        with self._lock:
            if self._spark is not None:
                return self._spark.lent(kafka)
            from jobs.spark.engine import Engine as Spark

            self._spark = self._stack.enter_context(Spark(settings.spark, kafka))
            return self._spark

    def cancel(self) -> None:
        """Cancel all Spark jobs; their topics then fail."""
        if self._spark is not None:
            self._spark.cancel()

    @contextmanager
    def pipeline(
        self, settings: Settings, accept: Accept | None = None, observers: tuple[Observer, ...] = ()
    ) -> Iterator[Pipeline]:
        """Open a topic's pipeline; the log names its run from here on."""
        run_id = new_run_id()
        logs.bind(run_id=run_id)
        with ExitStack() as stack:

            @cache
            def broker() -> TopicReader:
                return stack.enter_context(open_broker(settings.kafka))

            yield Pipeline(
                settings=settings,
                lake=open_lake(settings.lake),
                broker=broker,
                engine=cache(lambda: self.engine(settings)),
                run_id=run_id,
                accept=accept or Accept(),
                observers=observers,
            )


def load(path: Path | None) -> Settings:
    """Read the configuration, and name its topic and lake in every line of the log."""
    settings = config.load(path, os.environ)
    logs.bind(topic=settings.topic, lake=settings.lake.place)
    return settings


def new_run_id() -> str:
    """Return an id that no other run has; ids sort by the second in which they were made."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def open_lake(settings: LakeSettings) -> Lake:
    """Open a lake of any kind; nothing is asked yet."""
    path = settings.path
    if isinstance(path, Path):
        return PosixLake(path)
    from jobs.lake.objects.lake import ObjectLake

    return ObjectLake(open_bucket(path))


def open_bucket(settings: BucketSettings) -> Bucket:
    """Open the objects of a lake in a bucket; nothing is asked yet."""
    from jobs.lake.objects.bucket import Bucket

    options: dict[str, str | bool] = _revealed(settings.options)
    return Bucket(settings.url, options, settings.allow_http, settings.ca, settings.timeout)


@contextmanager
def open_context(
    path: Path | None, accept: Accept | None = None, observers: tuple[Observer, ...] = ()
) -> Iterator[Pipeline]:
    """Open the pipeline of one topic, and all that it needs."""
    settings = load(path)
    with Runtime() as runtime, runtime.pipeline(settings, accept, observers) as pipeline:
        yield pipeline


@contextmanager
def open_broker(kafka: KafkaSettings) -> Iterator[TopicReader]:
    """Connect to a cluster without a configuration of a topic."""
    from offsets.kafka.client import Broker

    connected = Broker(_revealed(kafka.client), kafka.timeout)
    try:
        yield connected
    finally:
        connected.close()


Plain = TypeVar("Plain", str, str | bool)


@cache
def _versions() -> Mapping[str, str]:
    packages = ("kafka-daily", "pyspark", "pyarrow", "msgspec", "confluent-kafka")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _revealed(options: Mapping[str, Plain | Secret]) -> dict[str, Plain]:
    return {name: value.reveal() if isinstance(value, Secret) else value for name, value in options.items()}
