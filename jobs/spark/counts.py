"""How many records the tasks that run have read, which Spark tells of a task only once it has ended.

Tasks write into memory of the driver that is open there as a file, which Linux shows below `/proc`. Tasks on
another machine, or of another user, find no such file and tell nothing. Only the progress line uses these
counts.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

import pyarrow as pa

WIDTH: Final = 8
"""How many bytes a task's count takes."""


class Place(NamedTuple):
    """Where tasks find the driver's memory: the path of an open file, and the file's name."""

    path: str
    name: str

    def open(self) -> int | None:
        """Open the memory; None where it is not to be found, and where another file is open there by now.

        What is not the memory is not opened: on another machine that may be a pipe, and would wait.
        """
        with suppress(OSError):
            if self._is_at(self.path):
                file = os.open(self.path, os.O_WRONLY)
                if self._is_at(f"/proc/self/fd/{file}"):
                    return file
                os.close(file)
        return None

    def _is_at(self, path: str) -> bool:
        return str(Path(path).readlink()) == f"/memfd:{self.name} (deleted)"


class ReadCounts:
    """The number of records that each task has read; a task that is tried again begins at 0."""

    def __enter__(self) -> Self:
        """Make the memory; where the system refuses it, as `vm.memfd_noexec=2` does, nothing is counted.

        Nor is it in a Python that was built against an old C library, which has no such call.
        """
        name = f"kafka-daily-{secrets.token_hex(8)}"
        self._file: int | None = None
        with suppress(OSError, AttributeError):
            self._file = os.memfd_create(name)
        self.place = Place(f"/proc/{os.getpid()}/fd/{self._file}", name)
        return self

    def __exit__(self, *_: object) -> None:
        """Free the memory."""
        if self._file is not None:
            os.close(self._file)

    def total(self) -> int:
        """Return the number of records that all tasks have read so far."""
        if self._file is None:
            return 0
        counts = os.pread(self._file, os.fstat(self._file).st_size, 0)
        return sum(int.from_bytes(counts[at : at + WIDTH], "little") for at in range(0, len(counts), WIDTH))


def counted(batches: Iterable[pa.RecordBatch], place: Place, task: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches, and write into the driver's memory how many records the task has taken so far."""
    file = place.open()
    if file is None:
        yield from batches
        return
    try:
        read = 0
        for batch in batches:
            yield batch
            read += batch.num_rows
            with suppress(OSError):
                os.pwrite(file, read.to_bytes(WIDTH, "little"), task * WIDTH)
    finally:
        os.close(file)
