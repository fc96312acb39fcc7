"""How large a batch of records is on its way to a task.

Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

BATCH_ROWS = 20_000
BATCH_BYTES = 8 << 20
"""A batch of this many rows, or bytes, is worth the work that each batch costs a task."""
LARGE_MESSAGE = 2 << 20
LARGE_RECORD = 4 << 10
"""From this size (bytes) of the largest message, or of a sampled record, on a batch is bounded in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """How many records, and how many bytes, end a batch; None where its bytes are not counted."""

    rows: int
    bytes: int | None


WEIGHED = BatchLimit(rows=BATCH_ROWS, bytes=BATCH_BYTES)
COUNTED = BatchLimit(rows=1_024, bytes=None)


def batch_limit(largest_message: int | None, sampled: Iterable[int]) -> BatchLimit:
    """Return the limit for a topic's largest message and the sizes of sampled records, in bytes.

    Spark computes the size of a batch after every record. With small records this takes more than a fifth of
    the reading thread's time. Then a count of records bounds the batch too: 1,024 of the largest messages are
    less than the 2 GiB that an Arrow column can hold.
    """
    sizes = [*sampled]
    if largest_message is None or largest_message >= LARGE_MESSAGE or not sizes:
        return WEIGHED
    return WEIGHED if max(sizes) >= LARGE_RECORD else COUNTED
