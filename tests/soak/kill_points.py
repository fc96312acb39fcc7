"""Where a run is, by its log, and when to strike at it.

Relies on the lines that a run writes as JSON at each step, and on one undisturbed run as the measure.
Never asks the run itself.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from jobs.stages import Stage


class Step(StrEnum):
    """What a run is at; the value is what a table shows."""

    START = "start and plan"
    SPARK = "Spark's start"
    TASKS = "tasks"
    AUDIT = "audit"
    COMMIT = "commit"
    AMEND = "amend"
    NEXT = "next plan, or end"


BEGINS: Final[Mapping[str, Step]] = {
    Stage.PLAN: Step.SPARK,
    Stage.START_SPARK: Step.TASKS,
    Stage.TASKS: Step.AUDIT,
    Stage.AUDIT: Step.COMMIT,
    Stage.COMMIT: Step.AMEND,
    Stage.PUBLISH: Step.NEXT,
}
"""What begins where a stage has ended."""


class Mark(NamedTuple):
    """A step, and when it was seen to begin; seconds of the monotonic clock."""

    step: Step
    at: float


class Steps:
    """Follows the log of one run."""

    def __init__(self, log: Path) -> None:
        """Begin at the start of the log, and of the run."""
        self.marks = [Mark(Step.START, time.monotonic())]
        self.ended: float | None = None
        self._log, self._read, self._part = log, 0, b""

    def look(self) -> Step:
        """Read what the log has gained; give the step that the run is at."""
        with self._log.open("rb") as file:
            file.seek(self._read)
            gained = file.read()
        self._read += len(gained)
        *lines, self._part = (self._part + gained).split(b"\n")
        for line in lines:
            if step := _step_of(line):
                self.marks.append(Mark(step, time.monotonic()))
        return self.marks[-1].step

    def end(self) -> None:
        """Take down that the run has ended by itself, undisturbed."""
        self.look()
        self.ended = time.monotonic()

    def began(self, step: Step, nth: int) -> float | None:
        """Say when a step began for the n-th time, counted from 0."""
        times = [mark.at for mark in self.marks if mark.step is step]
        return times[nth] if nth < len(times) else None


def _step_of(line: bytes) -> Step | None:
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return BEGINS.get(str(said.get("stage"))) if isinstance(said, dict) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """So many seconds after a step began for the n-th time, counted from 0."""

    step: Step
    nth: int
    delay: float

    def reached(self, steps: Steps) -> bool:
        """Whether the run is there, or beyond."""
        began = steps.began(self.step, self.nth)
        return began is not None and time.monotonic() >= began + self.delay


class Pace:
    """How long a run takes, whole and by steps, as the last undisturbed run of all the days was measured."""

    def __init__(self, marks: list[Mark], ended: float) -> None:
        """Take the steps of that run, and when it ended."""
        ends = [*(mark.at for mark in marks[1:]), ended]
        self._lengths: dict[Step, list[float]] = {step: [] for step in Step}
        for mark, end in zip(marks, ends, strict=True):
            self._lengths[mark.step].append(end - mark.at)
        # After so many days the run would be over, had it had no more to do.
        over = [end - marks[0].at for mark, end in zip(marks, ends, strict=True) if mark.step is Step.AMEND]
        self._whole = [0.0, *(each + self._lengths[Step.NEXT][-1] for each in over)]

    def draw(self, rng: random.Random, days: int) -> Moment:
        """Draw a moment of a run of so many days.

        Every second one is uniform over the run's length. So few of those would hit what takes milliseconds,
        the commit above all, that the others are uniform within a step that is drawn first.
        """
        if rng.random() < 0.5:
            return Moment(step=Step.START, nth=0, delay=rng.uniform(0, self._whole[days]))
        step = rng.choice(list(Step))
        nth = rng.randrange(min(days, len(self._lengths[step])))
        return Moment(step=step, nth=nth, delay=rng.uniform(0, self._lengths[step][nth]))
