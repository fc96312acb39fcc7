"""The days of several topics, in one process and one Spark session.

Topics run at the same time, the days of one topic one after another. Relies on a lake of its own for each
topic. A topic that fails does not stop the others.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final, TypeVar

import structlog

from jobs import config, logs
from jobs.config import Settings
from jobs.context import Pipeline, Runtime
from jobs.daily import Outcome
from offsets.errors import BUG, ConfigError, Interrupted, KafkaDailyError

log = structlog.get_logger(__name__)
T = TypeVar("T")
SUFFIXES: Final = (".yaml", ".yml")
AT_ONCE: Final = 4
"""How many topics run at once: while the tasks of one fill the cores, others plan, audit and commit."""
PATIENCE: Final = 20.0
"""How many seconds topics have to tidy up after a signal."""
CANCEL_SECONDS: Final = 0.2
"""Seconds between two cancellations meanwhile: a job may begin after the signal, if Spark only starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicResult:
    """What became of one topic: the days that ended well, and why it went no further."""

    config: Path
    topic: str | None = None
    outcomes: tuple[Outcome, ...] = ()
    failure: KafkaDailyError | None = None
    bug: bool = False

    @property
    def exit_code(self) -> int:
        """The code that a run of this topic alone would end with."""
        if self.bug:
            return BUG
        return self.failure.exit_code if self.failure else 0


def worst(codes: Iterable[int]) -> int:
    """Return the code that asks most of a person: a bug, 20 to 29, a wrong config, 10 to 19, then 0."""
    return max(codes, key=lambda code: (code == BUG, 20 <= code < 30, code == 2, code), default=0)


def configs_in(given: Sequence[Path]) -> list[Path]:
    """List the config files that are given; a folder stands for the YAML files in it.

    Raises:
        ConfigError: a folder holds none, or cannot be listed.
    """
    configs: list[Path] = []
    for path in given:
        configs += _yaml_files(path) if is_folder(path) else [path]
    return configs


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder; False where that is not known: reading it fails with the cause."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _yaml_files(folder: Path) -> list[Path]:
    try:
        files = (path for path in folder.iterdir() if path.suffix in SUFFIXES)
        configs = sorted(path for path in files if not path.name.startswith("."))  # editors' swap files
    except OSError as error:
        raise ConfigError(
            expected=f"to list the configs in {folder}",
            found=str(error),
            do="Correct its rights, or --config.",
        ) from None
    if not configs:
        raise ConfigError(
            expected=f"a config in {folder}, one *.yaml for each topic",
            found="none",
            do="Name the folder that holds them, or the files themselves.",
        )
    return configs


def run_topics(
    runtime: Runtime,
    configs: Sequence[Path],
    days_of: Callable[[Pipeline], Iterable[date]],
    run_day: Callable[[Pipeline, date], Outcome],
    ended: Callable[[TopicResult], None],
) -> list[TopicResult]:
    """Run the days of each topic; call `ended` with each result as it comes, from any thread.

    Returns:
        One result for each config, in their order.
    """
    waiting = deque(enumerate(_loaded(configs)))
    results = dict[int, TopicResult]()

    def run_one(number: int, path: Path, loaded: Settings | KafkaDailyError) -> None:
        if isinstance(loaded, Settings):
            results[number] = _run(runtime, path, loaded, days_of, run_day, stopping)
        else:
            results[number] = TopicResult(config=path, failure=loaded)
        ended(results[number])

    def work(done: threading.Event) -> None:
        try:
            for number, (path, loaded) in _take(waiting):
                logs.scoped(run_one)(number, path, loaded)
        finally:
            done.set()

    stopping = threading.Event()
    # events, not join(): after a signal during join() Python before 3.13 takes the thread for ended
    ends = [threading.Event() for _ in range(min(AT_ONCE, len(waiting)))]
    threads = [threading.Thread(target=work, args=(end,), daemon=True) for end in ends]
    try:
        for thread in threads:
            thread.start()
        for end in ends:
            end.wait()
    except KeyboardInterrupt:
        stopping.set()
        waiting.clear()
        started = [end for end, thread in zip(ends, threads, strict=True) if thread.ident]
        _cancel_until_ended(runtime, started)
        raise
    return [results[number] for number in range(len(configs))]


def _cancel_until_ended(runtime: Runtime, ends: Sequence[threading.Event]) -> None:
    deadline = time.monotonic() + PATIENCE
    for end in ends:
        while not end.is_set() and time.monotonic() < deadline:
            runtime.cancel()
            end.wait(CANCEL_SECONDS)


def _take(waiting: deque[T]) -> Iterator[T]:
    """Take one item after another; other threads may take from the same queue."""
    with suppress(IndexError):
        while True:
            yield waiting.popleft()


def _loaded(configs: Sequence[Path]) -> Iterator[tuple[Path, Settings | KafkaDailyError]]:
    """Load each config; yield an error for one that is wrong, or cannot run beside those before it."""
    lakes = dict[str, Path]()
    first: Settings | None = None
    for path in configs:
        try:
            settings = config.load(path, os.environ)
            lake = settings.lake.identity
            _require_own_lake(lake, lakes.get(lake))
            lakes[lake] = path
            first = first or settings
            _require_same_spark(settings, first)
            yield path, settings
        except KafkaDailyError as error:
            yield path, error


def _require_own_lake(lake: str, other: Path | None) -> None:
    if other is not None:
        raise ConfigError(
            expected="a lake of its own for each topic",
            found=f"{lake}, which is that of {other} too",
            do="Correct lake.path in one of them.",
        )


def _require_same_spark(settings: Settings, first: Settings) -> None:
    if settings.spark != first.spark:
        raise ConfigError(
            expected=f"the same `spark` section as in {first.path}, since the topics share one session",
            found=f"another one in {settings.path}",
            do="Make them the same, or run this topic by a command of its own.",
        )


def _run(
    runtime: Runtime,
    path: Path,
    settings: Settings,
    days_of: Callable[[Pipeline], Iterable[date]],
    run_day: Callable[[Pipeline, date], Outcome],
    stopping: threading.Event,
) -> TopicResult:
    logs.bind(topic=settings.topic, lake=settings.lake.place)
    result = TopicResult(config=path, topic=settings.topic)
    outcomes: list[Outcome] = []
    try:
        with runtime.pipeline(settings) as pipeline:
            for day in days_of(pipeline):
                if stopping.is_set():
                    raise _stopped()
                outcomes.append(run_day(pipeline, day))
    except KafkaDailyError as failure:
        result = replace(result, failure=_stopped() if stopping.is_set() else failure)
    except Exception:
        log.critical("this is a bug in kafka-daily; the other topics go on", exc_info=True, exit_code=BUG)
        result = replace(result, bug=True)
    return replace(result, outcomes=tuple(outcomes))


def _stopped() -> Interrupted:
    return Interrupted(
        expected="to run to the end", found="a signal", do="What is committed stays: run the topic again."
    )
