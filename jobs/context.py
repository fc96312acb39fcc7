"""Open all that a run works with, when it is needed, and close it whatever happens."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jobs import config, logs
from jobs.config import Settings
from jobs.config.secrets import Secret
from jobs.day.plan import Engine, Pipeline
from jobs.lake.posix import Lake
from offsets.kafka.reader import TopicReader
from offsets.plan import Accept


def load(path: Path | None) -> Settings:
    """Read the configuration, and name its topic and lake in every line of the log."""
    settings = config.load(path, os.environ)
    logs.bind(topic=settings.topic, lake=str(settings.lake.path))
    return settings


@contextmanager
def open_context(
    path: Path | None,
    accept: Accept | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Pipeline]:
    """Give a pipeline; broker and Spark are started by their first use."""
    settings = load(path)
    run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"
    logs.bind(run_id=run_id)
    with ExitStack() as stack:

        @cache
        def broker() -> TopicReader:
            from offsets.kafka.client import Broker

            connected = Broker(_revealed(settings.kafka.client), settings.kafka.timeout)
            stack.callback(connected.close)
            return connected

        @cache
        def engine() -> Engine:
            from jobs.spark.engine import Engine as Spark

            return stack.enter_context(Spark(settings.spark, _revealed(settings.kafka.spark)))

        yield Pipeline(
            settings=settings,
            lake=Lake(settings.lake.path),
            broker=broker,
            engine=engine,
            run_id=run_id,
            accept=accept or Accept(),
            progress=progress,
        )


def _revealed(options: Mapping[str, str | Secret]) -> dict[str, str]:
    return {name: each.reveal() if isinstance(each, Secret) else each for name, each in options.items()}
