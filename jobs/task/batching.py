"""Rows that wait in memory, and what they keep alive.

A slice of an Arrow array keeps the whole of it: ten rows of a batch may hold the batch's 8 MiB. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

MUCH_MORE: Final = 2
"""Views are copied where they keep more than so many times what they show."""
CRUMBS: Final = 256
"""So many batches that wait are joined: one of a few rows takes kilobytes, whatever it shows."""


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
        """Return all of them, and keep none."""
        batches, self.batches = self.batches, []
        self.bytes = self._joined = 0
        return batches


def owned(views: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return views of one batch; columns that keep much more memory than they show are copied."""
    columns = [_owned([view.column(number) for view in views]) for number in range(_width(views))]
    return [
        pa.RecordBatch.from_arrays([column[number] for column in columns], schema=view.schema)
        for number, view in enumerate(views)
    ]


def _owned(views: list[pa.Array]) -> list[pa.Array]:
    """Return slices of one array as they are, or as copies of what they show."""
    if held_bytes(views) <= MUCH_MORE * sum(view.nbytes for view in views):
        return views
    return [pa.concat_arrays([view]) for view in views]


def _width(views: Sequence[pa.RecordBatch]) -> int:
    return views[0].num_columns if views else 0


def held_bytes(arrays: Iterable[pa.Array]) -> int:
    """Count the bytes that arrays keep alive, each memory once: a part of a message keeps all of it."""
    memories: dict[int, int] = {}
    for array in arrays:
        for buffer in array.buffers():
            if buffer is not None:
                while buffer.parent is not None:
                    buffer = buffer.parent
                memories[buffer.address] = buffer.size
    return sum(memories.values())


def joined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Join batches by copying them into one; a single one stays as it is."""
    if len(batches) < 2:
        return batches
    one: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return one
