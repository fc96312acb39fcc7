"""How many tasks a day is cut into, so that its files have a sensible size, and how its batches are bounded.

Pure arithmetic; an estimate that is off makes files smaller or one more per task, never wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from offsets.model import DayPlan, Manifest, Verdict

PACKED: float = 0.2
"""The share of a record's bytes that its row takes in Parquet, where no day has told yet."""
PIECES_PER_TASK = 4
"""Tasks are made of several pieces of partitions, so that partitions of unequal size even out."""
BATCH_ROWS = 20_000
BATCH_BYTES = 8 << 20
"""A batch of so much, by one or the other, is worth the work that each costs a task."""
LARGE_MESSAGE = 2 << 20
LARGE_RECORD = 4 << 10
"""Topics that take such messages (bytes), or hold such records, have their batches weighed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """What ends a batch on its way to a task: records, and bytes; None where nobody weighs it."""

    rows: int
    bytes: int | None


WEIGHED = BatchLimit(rows=BATCH_ROWS, bytes=BATCH_BYTES)
COUNTED = BatchLimit(rows=1_024, bytes=None)


def batch_limit(largest_message: int | None, sampled: Iterable[int]) -> BatchLimit:
    """Bound a batch by what its topic takes at most, and by the sizes of sampled records, in bytes.

    Spark weighs a batch after every record, which takes more than a fifth of the time of the thread that
    reads small ones. Where they are small, a count bounds it too, at worst by 1,024 of the largest messages:
    below the 2 GiB that an Arrow column can hold.
    """
    sizes = [*sampled]
    if largest_message is None or largest_message >= LARGE_MESSAGE or not sizes:
        return WEIGHED
    return WEIGHED if max(sizes) >= LARGE_RECORD else COUNTED


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
    small = sum(max(span.reads.range_count - 1, 0) for span in plan.spans)
    return max(math.ceil(plan.offsets / (PIECES_PER_TASK * max(tasks, small))), 1)
