"""How large a batch of records is on its way to a task.

Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

BATCH_ROWS = 20_000
BATCH_BYTES = 8 << 20
"""A batch of so many rows, or so many bytes, is worth the work that each batch costs a task."""
LARGE_MESSAGE = 2 << 20
LARGE_RECORD = 4 << 10
"""Batches are weighed where the topic takes messages, or holds records, of this size (bytes) or larger."""


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
