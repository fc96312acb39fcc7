"""The stages of one day, and their observers: the log, the progress bar, and the count of seconds.

Relies on the clock of the process alone. Decides nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from enum import StrEnum
from typing import Protocol

import structlog

log = structlog.get_logger(__name__)


class Stage(StrEnum):
    """A step of one day's run; log, JSON and progress bar use these words."""

    PLAN = "plan"
    START_SPARK = "start_spark"
    TASKS = "tasks"
    AUDIT = "audit"
    COMMIT = "commit"
    PUBLISH = "publish"


class Observer(Protocol):
    """What follows the stages of a run."""

    def started(self, stage: Stage, day: date) -> None:
        """Note that a stage begins."""
        ...

    def counted(self, stage: Stage, done: int, total: int) -> None:
        """Note how much of a stage is done; of `tasks` in offsets of the plan."""
        ...

    def ended(self, stage: Stage, day: date, seconds: float, figures: Mapping[str, object]) -> None:
        """Note that a stage ended well, its seconds and its figures."""
        ...


class LogStages:
    """An observer that logs one line for each stage that ended well."""

    def started(self, stage: Stage, day: date) -> None:
        """Write nothing: the line of the stage before shows that this one begins."""

    def counted(self, stage: Stage, done: int, total: int) -> None:
        """Write nothing: a log is read afterwards."""

    def ended(self, stage: Stage, day: date, seconds: float, figures: Mapping[str, object]) -> None:
        """Write the stage, its seconds and its figures."""
        log.info("stage ended", stage=stage.value, day=str(day), seconds=round(seconds, 3), **figures)


class DayStages:
    """The stages of one day: their observers, and the seconds of each stage that ended."""

    def __init__(self, day: date, observers: Sequence[Observer] = ()) -> None:
        """Take the observers beside the log."""
        self.seconds: dict[str, float] = {}
        self._day, self._observers = day, (LogStages(), *observers)

    @contextmanager
    def observed(self, stage: Stage) -> Iterator[dict[str, object]]:
        """Report the begin and the end of a stage; yield the dict that its figures are put into."""
        began, figures = time.monotonic(), dict[str, object]()
        for observer in self._observers:
            observer.started(stage, self._day)
        yield figures
        seconds = time.monotonic() - began
        self.seconds[stage.value] = round(seconds, 3)
        for observer in self._observers:
            observer.ended(stage, self._day, seconds, figures)

    def counted(self, stage: Stage, done: int, total: int) -> None:
        """Report how much of a stage is done."""
        for observer in self._observers:
            observer.counted(stage, done, total)
