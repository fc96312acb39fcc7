"""Open all that a run works with, when it is needed, and close it whatever happens."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from jobs import config
from jobs.config.secrets import Secret
from jobs.planning import Accept, Desk, Engine
from jobs.storage import Lake
from offsets.topic import TopicReader


@contextmanager
def opened(
    path: Path | None,
    accept: Accept | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Desk]:
    """Give a desk; broker and Spark are started by their first use."""
    settings = config.load(path, os.environ)
    with ExitStack() as stack:

        @cache
        def broker() -> TopicReader:
            from offsets.broker import Broker

            connected = Broker(_revealed(settings.kafka.client), settings.kafka.timeout)
            stack.callback(connected.close)
            return connected

        @cache
        def engine() -> Engine:
            from jobs.source import Engine as Spark

            return stack.enter_context(Spark(settings.spark, _revealed(settings.kafka.spark)))

        yield Desk(
            settings=settings,
            lake=Lake(settings.lake.path),
            broker=broker,
            engine=engine,
            run_id=f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(3)}",
            accept=accept or Accept(),
            progress=progress,
        )


def _revealed(options: Mapping[str, str | Secret]) -> dict[str, str]:
    return {name: each.reveal() if isinstance(each, Secret) else each for name, each in options.items()}
