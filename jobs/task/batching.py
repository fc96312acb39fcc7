"""Rows that wait in memory, and the memory that they keep.

Pure. A slice of an Arrow array keeps the whole array: ten rows of a batch may keep the batch's 8 MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

MUCH_MORE: Final = 2
"""Views are copied where they keep more than this many times their own size."""
CRUMBS: Final = 256
"""This many waiting batches are joined: a batch of a few rows takes kilobytes of its own."""


class Waiting:
    """Batches of rows that wait to be written, and how many bytes of rows they are."""

    def __init__(self) -> None:
        """Start empty."""
        self.batches: list[pa.RecordBatch] = []
        self.bytes = self._joined = 0

    def add(self, *views: pa.RecordBatch) -> None:
        """Take rows, all of one batch."""
        self.batches += owned([rows for rows in views if rows.num_rows])
        self.bytes += sum(rows.nbytes for rows in views if rows.num_rows)
        if len(self.batches) - self._joined >= CRUMBS:
            self.batches[self._joined :] = joined(self.batches[self._joined :])
            self._joined = len(self.batches)

    def take(self) -> list[pa.RecordBatch]:
        """Return all batches, and keep none."""
        batches, self.batches = self.batches, []
        self.bytes = self._joined = 0
        return batches


def owned(views: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return views of one batch; copy the columns that keep much more memory than their own size."""
    columns = [_owned([view.column(number) for view in views]) for number in range(_width(views))]
    return [
        pa.RecordBatch.from_arrays([column[number] for column in columns], schema=view.schema)
        for number, view in enumerate(views)
    ]


def _owned(views: list[pa.Array]) -> list[pa.Array]:
    """Return slices of one array as they are, or as copies."""
    if held_bytes(views) <= MUCH_MORE * sum(view.nbytes for view in views):
        return views
    return [pa.concat_arrays([view]) for view in views]


def _width(views: Sequence[pa.RecordBatch]) -> int:
    return views[0].num_columns if views else 0


def held_bytes(arrays: Iterable[pa.Array]) -> int:
    """Count the bytes that arrays keep, each buffer once: a part of a message keeps all of it."""
    memories: dict[int, int] = {}
    for array in arrays:
        for buffer in array.buffers():
            if buffer is not None:
                while buffer.parent is not None:
                    buffer = buffer.parent
                memories[buffer.address] = buffer.size
    return sum(memories.values())


def joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Join batches by copying them into one; return a single batch as it is."""
    if len(batches) < 2:
        return batches
    one: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return one
