"""Which columns the files of each day have, run-length encoded: a lake changes them seldom.

Pure. A day's own manifest decides which columns the day has; later ones repeat it, so that the newest tells
of all days.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumn:
    """A column of a day's files."""

    name: str
    """Its name."""
    type: str
    """Its type in Spark's DDL, such as `decimal(10,2)`."""


Columns = tuple[FileColumn, ...]
"""The columns of a file, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRun:
    """Consecutive days with the same columns."""

    from_date: date
    """The first of these days; they last until the next run, or until the manifest's own day."""
    columns: Columns
    """The columns of a day's own files, in their order."""


ColumnRuns = tuple[ColumnRun, ...]


def column_runs(days: Iterable[tuple[date, Columns]]) -> ColumnRuns:
    """Return ascending days as the fewest possible runs; days of unknown columns join the run before them."""
    runs: list[ColumnRun] = []
    for day, columns in days:
        if columns and not (runs and runs[-1].columns == columns):
            runs.append(ColumnRun(from_date=day, columns=columns))
    return tuple(runs)


def columns_on(runs: ColumnRuns, day: date) -> Columns:
    """Return the columns of a day; none if the runs begin later."""
    return next((run.columns for run in reversed(runs) if run.from_date <= day), ())


def check_column_runs(runs: ColumnRuns, day: date) -> None:
    """Check that runs ascend up to a day and cannot be merged.

    Raises:
        ValueError: they do not, or can.
    """
    for before, after in pairwise(runs):
        if before.from_date >= after.from_date or before.columns == after.columns:
            raise ValueError(f"the columns from {before.from_date} and {after.from_date} on are no two runs")
    if runs and runs[-1].from_date > day:
        raise ValueError(f"columns from {runs[-1].from_date} on, which is after {day}")


def joined_columns(of_day: Columns, today: Columns) -> Columns:
    """Return the columns of a late file: those of the day that it joins, in their order, then today's others.

    A column that both have keeps the day's name, which may differ in case, and has today's type.
    """
    types = {column.name.casefold(): column.type for column in today}
    names = {column.name.casefold() for column in of_day}
    first = (
        FileColumn(name=column.name, type=types.get(column.name.casefold(), column.type)) for column in of_day
    )
    return (*first, *(column for column in today if column.name.casefold() not in names))
