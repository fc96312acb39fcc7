"""The number of tasks of a day, chosen so that its files have a sensible size.

Pure arithmetic; a wrong estimate changes the size and number of files, never their contents.
"""

from __future__ import annotations

import math

from offsets.day_plan import DayPlan
from offsets.manifest import Manifest
from offsets.verdict import Verdict

PACKED: float = 0.2
"""The assumed size of a row in Parquet relative to its record, until a committed day shows it."""
GUESS_IS_OFF = 10
"""An estimate from the sizes of records is hardly ever wrong by more than this factor."""
FILES_PER_TASK = 4
MOST_TRIED = 64
ABSORBED = 0.05
"""A remainder of up to this share of the target gets no file of its own: half of what a writer allows."""
PIECES_PER_TASK = 4
"""Each task gets several pieces of partitions, so that tasks are equal though partitions are not."""
ALIKE = 1.05
"""Partitions that differ by less are cut into the same number of pieces; else one task would get more."""


def bytes_per_row(before: Manifest | None, sampled: float | None) -> float:
    """Estimate the bytes of a row in Parquet, from the newest day, else from the sizes of sampled records."""
    files = before.files_of(Verdict.IN_DAY) if before else ()
    rows = sum(file.rows for file in files)
    if rows:
        return sum(file.bytes for file in files) / rows
    return (sampled or 500.0) * PACKED


def sample_is_useful(plan: DayPlan, row_bytes: float, *, minimum: int) -> bool:
    """Return whether a better estimate could change the number of tasks: a small day always has one task."""
    return plan.offsets * row_bytes * GUESS_IS_OFF > minimum


def task_count(plan: DayPlan, row_bytes: float, *, target: int, minimum: int, cores: int) -> int:
    """Return the number of tasks that makes the fewest files and leaves no core idle.

    A task writes files of the target size and one remainder, so few tasks make few remainders. Each core gets
    the same number of tasks, and a task makes at most FILES_PER_TASK files, since a failed task starts from
    its beginning. Example: 2.4 files on 2 cores make 2 tasks, each with a whole file and a remainder. 3 tasks
    would make 3 equal files, but take 4/3 of the time, as one core waits during the third.
    """
    expected = plan.offsets * row_bytes
    busy = max(min(cores, int(expected / minimum)), 1)
    rounds = expected / target / busy
    least = max(math.ceil(rounds / FILES_PER_TASK), 1)
    most = max(min(math.ceil(rounds), least + MOST_TRIED), least)
    return min(
        (busy * rounds_ for rounds_ in range(least, most + 1)),
        key=lambda tasks: (file_count(expected, tasks, target=target), tasks),
    )


def file_count(expected: float, tasks: int, *, target: int) -> int:
    """Return how many files the tasks write for the expected bytes."""
    return tasks * max(math.ceil(expected / tasks / target - ABSORBED), 1)


def piece_rows(plan: DayPlan, tasks: int) -> int:
    """Return the most offsets that one piece of a partition may hold."""
    # Spark deals pieces out by number, not by size, so small old ranges must be few among the pieces
    small = sum(max(span.reads.range_count - 1, 0) for span in plan.spans)
    return max(math.ceil(ALIKE * plan.offsets / (PIECES_PER_TASK * max(tasks, small))), 1)
