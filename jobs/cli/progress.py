"""The progress line: on a terminal alone, below the log and the results, and gone when the work is done."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from typing import Final

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from jobs import logs
from jobs.cli.console import err, out
from jobs.stages import Stage

UNITS: Final = {Stage.TASKS: " rows"}
"""What is counted, where a stage counts it."""
BAR: Final = "cyan"
"""One of the terminal's own colours, so that it is seen on light and on dark; the rest of the bar is dim."""


@contextmanager
def progress(description: str) -> Iterator[ProgressBar]:
    """Show one line on a terminal while something long runs, and nothing elsewhere.

    Where stdout is a terminal too, the results are printed above the line.
    """
    columns = (
        SpinnerColumn(style=BAR),
        TextColumn("{task.description}"),
        BarColumn(None, "dim", BAR, BAR, BAR, table_column=Column(max_width=40)),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
    )
    both = sys.stdout.isatty()
    with Progress(
        *columns,
        console=out if both else err,
        redirect_stdout=both,
        transient=True,
        disable=not logs.for_people(),
    ) as bar:
        yield ProgressBar(bar, description)


class ProgressBar:
    """A bar that is filled by calls, or as an observer of a day's stages."""

    def __init__(self, bar: Progress, description: str) -> None:
        """Start a bar without a total, which is not known yet."""
        self._bar = bar
        self._task = self._begin(description)

    def _begin(self, description: str) -> TaskID:
        return self._bar.add_task(description, total=None, amount="")

    def __call__(self, done: int, total: int, unit: str = "") -> None:
        """Show how much is done."""
        amount = f"{done:,} of {total:,}{unit}"
        self._bar.update(self._task, completed=done, total=total, amount=amount)

    def started(self, stage: Stage, day: date) -> None:
        """Show the day and its stage, without a total yet."""
        self._bar.remove_task(self._task)  # rich keeps the total of a task that it resets
        self._task = self._begin(f"{day}: {stage.value.replace('_', ' ')}")

    def counted(self, stage: Stage, done: int, total: int) -> None:
        """Show how much of the stage is done."""
        self(done, total, UNITS.get(stage, ""))

    def ended(self, stage: Stage, day: date, seconds: float, figures: Mapping[str, object]) -> None:
        """Show nothing: the next stage begins at once."""
