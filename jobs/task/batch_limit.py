"""How large a batch of records is on its way to a task.

Pure arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

BATCH_ROWS = 20_000
BATCH_BYTES = 8 << 20
"""A batch of this many rows, or bytes, is worth the work that each batch costs a task."""
LARGE_RECORD = 4 << 10
"""From this size (bytes) of a sampled record on, a batch is bounded in bytes."""

LACK_OF_MEMORY: Final = r"OutOf\w*Memory|OversizedAllocation"
"""Names of exceptions, of Arrow, Netty and Java, where a batch is too large for the JVM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """How many records, and how many bytes, end a batch; None where its bytes are not counted."""

    rows: int
    bytes: int | None


WEIGHED = BatchLimit(rows=BATCH_ROWS, bytes=BATCH_BYTES)
COUNTED = BatchLimit(rows=1_000, bytes=None)
ARROW_COLUMN = 1 << 30
"""The most bytes that fit into an Arrow column for certain: Arrow doubles its buffer, up to below 2 GiB."""
LARGE_MESSAGE = ARROW_COLUMN // COUNTED.rows
"""Above this size (bytes) of the largest message, a batch is bounded in bytes; Kafka's default is below."""


def batch_limit(largest_message: int | None, sampled: Iterable[int]) -> BatchLimit:
    """Return the limit for a topic's largest message and the sizes of sampled records, in bytes.

    Spark computes the size of a batch after every record. With small records this takes more than a fifth of
    the reading thread's time. Then a count of records bounds the batch too: 1,000 of the largest messages fit
    into an Arrow column. But Kafka limits a message as it is compressed, so larger records may follow the
    sampled ones: a job that fails by that is run once more, WEIGHED (jobs/day/execute.py).
    """
    sizes = [*sampled]
    if largest_message is None or largest_message > LARGE_MESSAGE or not sizes:
        return WEIGHED
    return WEIGHED if max(sizes) >= LARGE_RECORD else COUNTED
