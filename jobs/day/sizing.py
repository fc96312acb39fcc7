"""How many tasks a day is cut into, so that its files have a sensible size.

Pure arithmetic; an estimate that is off makes files smaller or one more per task, never wrong.
"""

from __future__ import annotations

import math

from offsets.day_plan import DayPlan
from offsets.manifest import Manifest
from offsets.verdict import Verdict

PACKED: float = 0.2
"""The share of a record's bytes that its row takes in Parquet, until a day has shown it."""
GUESS_IS_OFF = 10
"""A guess from sizes of records is hardly further off than this factor."""
FILES_PER_TASK = 4
MOST_TRIED = 64
ABSORBED = 0.05
"""A remainder up to this share of the target needs no file of its own: half of what a writer allows."""
PIECES_PER_TASK = 4
"""Tasks are made of several pieces of partitions, so that partitions of unequal size even out."""
ALIKE = 1.05
"""Partitions that differ by less are cut into equally many pieces; else one task would get more of them."""


def bytes_per_row(before: Manifest | None, sampled: float | None) -> float:
    """Estimate a row's bytes in Parquet: as in the newest day, else from sampled records' sizes."""
    files = before.files_of(Verdict.IN_DAY) if before else ()
    rows = sum(file.rows for file in files)
    if rows:
        return sum(file.bytes for file in files) / rows
    return (sampled or 500.0) * PACKED


def worth_a_sample(plan: DayPlan, row_bytes: float, *, minimum: int) -> bool:
    """Return whether a better estimate could change the number of tasks: a smaller day has one anyway."""
    return plan.offsets * row_bytes * GUESS_IS_OFF > minimum


def task_count(plan: DayPlan, row_bytes: float, *, target: int, minimum: int, cores: int) -> int:
    """Return the number of tasks that leaves the fewest files, and no core idle.

    A task writes files of the target size and one remainder. So tasks are few, each of several files; but
    as many for each core, and at most FILES_PER_TASK files, since a task that fails begins anew. A day of
    2.4 files on 2 cores makes 2 tasks, of a whole file and a remainder each: 3 tasks would make 3 equal
    files, in 4/3 of the time, as one core waits for the third.
    """
    expected = plan.offsets * row_bytes
    busy = max(min(cores, int(expected / minimum)), 1)
    rounds = expected / target / busy
    least = max(math.ceil(rounds / FILES_PER_TASK), 1)
    most = max(min(math.ceil(rounds), least + MOST_TRIED), least)
    return min(
        (busy * each for each in range(least, most + 1)),
        key=lambda tasks: (file_count(expected, tasks, target=target), tasks),
    )


def file_count(expected: float, tasks: int, *, target: int) -> int:
    """Return how many files tasks leave of some bytes."""
    return tasks * max(math.ceil(expected / tasks / target - ABSORBED), 1)


def piece_rows(plan: DayPlan, tasks: int) -> int:
    """Return the most offsets that one piece of a partition may hold."""
    # Spark deals pieces out by number, so small ranges far back must be few among the pieces
    small = sum(max(span.reads.range_count - 1, 0) for span in plan.spans)
    return max(math.ceil(ALIKE * plan.offsets / (PIECES_PER_TASK * max(tasks, small))), 1)
