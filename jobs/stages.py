"""The stages of one day, and who is told of them: the log, the progress bar, and whoever counts seconds.

Relies on the clock of the process alone. Never decides anything.
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
    """What a run of one day is at; log, JSON and progress bar use these words."""

    PLAN = "plan"
    START_SPARK = "start_spark"
    TASKS = "tasks"
    AUDIT = "audit"
    COMMIT = "commit"
    PUBLISH = "publish"


class Observer(Protocol):
    """Whoever wants to know what a run is at."""

    def started(self, stage: Stage, day: date) -> None:
        """Learn that a stage begins."""
        ...

    def counted(self, stage: Stage, done: int, total: int) -> None:
        """Learn how much of a stage is done; tasks, or pieces of work of about one size."""
        ...

    def ended(self, stage: Stage, day: date, seconds: float, figures: Mapping[str, object]) -> None:
        """Learn that a stage ended well, how long it took, and what it found."""
        ...


class LogStages:
    """Writes one line for each stage that ended well."""

    def started(self, stage: Stage, day: date) -> None:
        """Write nothing: the line of the stage before tells that it ended."""

    def counted(self, stage: Stage, done: int, total: int) -> None:
        """Write nothing: a log is read afterwards."""

    def ended(self, stage: Stage, day: date, seconds: float, figures: Mapping[str, object]) -> None:
        """Write the stage, its seconds and its figures."""
        log.info("stage ended", stage=stage.value, day=str(day), seconds=round(seconds, 3), **figures)


class DayStages:
    """The stages of one day: who is told, and the seconds of each that ended."""

    def __init__(self, day: date, observers: Sequence[Observer] = ()) -> None:
        """Take who is told, beside the log."""
        self.seconds: dict[str, float] = {}
        self._day, self._observers = day, (LogStages(), *observers)

    @contextmanager
    def observed(self, stage: Stage) -> Iterator[dict[str, object]]:
        """Report a stage's begin and end; what is put into the result are its figures."""
        began, figures = time.monotonic(), dict[str, object]()
        for each in self._observers:
            each.started(stage, self._day)
        yield figures
        seconds = time.monotonic() - began
        self.seconds[stage.value] = round(seconds, 3)
        for each in self._observers:
            each.ended(stage, self._day, seconds, figures)

    def counted(self, stage: Stage, done: int, total: int) -> None:
        """Report how much of a stage is done."""
        for each in self._observers:
            each.counted(stage, done, total)
