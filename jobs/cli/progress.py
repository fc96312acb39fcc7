"""The progress bar: on a terminal alone, on stderr, and gone when the work is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from jobs import logs
from jobs.cli.console import err
from jobs.stages import Stage


@contextmanager
def progress(description: str) -> Iterator[ProgressBar]:
    """Show a bar on a terminal while something long runs, and nothing elsewhere."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not logs.for_people()) as bar:
        yield ProgressBar(bar, description)


class ProgressBar:
    """A bar that is filled by calls, or as an observer of a day's stages."""

    def __init__(self, bar: Progress, description: str) -> None:
        """Start a bar without a total, which is not known yet."""
        self._bar, self._task = bar, bar.add_task(description, total=None)

    def __call__(self, done: int, total: int) -> None:
        """Show how much is done."""
        self._bar.update(self._task, completed=done, total=total)

    def started(self, stage: Stage, day: date) -> None:
        """Show the day and its stage, without a total yet."""
        description = f"{day}: {stage.value.replace('_', ' ')}"
        self._bar.update(self._task, description=description, completed=0, total=None)

    def counted(self, stage: Stage, done: int, total: int) -> None:
        """Show how much of the stage is done."""
        self(done, total)

    def ended(self, stage: Stage, day: date, seconds: float, figures: Mapping[str, object]) -> None:
        """Show nothing: the next stage begins at once."""
