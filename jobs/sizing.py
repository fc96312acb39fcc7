"""How many tasks a day is cut into, so that its files have a sensible size.

Pure arithmetic; an estimate that is off makes files smaller or one more per task, never wrong.
"""

from __future__ import annotations

import math

from offsets.model import DayPlan, Manifest, Verdict

PACKED: float = 0.2
"""The share of a record's bytes that its row takes in Parquet, where no day has told yet."""
PIECES_PER_TASK = 4
"""Tasks are made of several pieces of partitions, so that partitions of unequal size even out."""


def bytes_per_row(before: Manifest | None, sampled: float | None) -> float:
    """Estimate a row's bytes in Parquet: as in the newest day, else from sampled records' sizes."""
    files = before.files_of(Verdict.IN_DAY) if before else ()
    rows = sum(file.rows for file in files)
    if rows:
        return sum(file.bytes for file in files) / rows
    return (sampled or 500.0) * PACKED


def task_count(plan: DayPlan, row_bytes: float, *, target: int, minimum: int, cores: int) -> int:
    """Give a task about one file, and each core a task while files stay above the minimum."""
    expected = plan.offsets * row_bytes
    return max(math.ceil(expected / target), min(cores, int(expected / minimum)), 1)


def piece_rows(plan: DayPlan, tasks: int) -> int:
    """Give the most offsets that one piece of a partition may hold."""
    # Spark deals pieces out by number, so small ranges far back must be few among the pieces
    small = sum(max(len(span.reads.ranges) - 1, 0) for span in plan.spans)
    return max(math.ceil(plan.offsets / (PIECES_PER_TASK * max(tasks, small))), 1)
