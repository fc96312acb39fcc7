"""Standard streams that never fail: a run does not depend on what it prints.

A full disk under the log, or a reader that has closed the pipe, must neither end a run between two days nor
change its exit code. Text that cannot be written is lost, and the next line is tried again.
"""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress
from typing import BinaryIO, Final, TextIO, cast

PATIENCE: Final = 10.0
"""Seconds to wait for a slow reader, where the stream does not block by itself."""


class _Unfailing(io.RawIOBase):
    """A file descriptor whose writes never fail."""

    def __init__(self, descriptor: int) -> None:
        """Take the descriptor; never close it."""
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def writable(self) -> bool:
        return True

    # typeshed allows every buffer; the text layer above passes bytes alone
    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        rest = memoryview(data)
        with suppress(OSError):
            while rest:
                rest = rest[self._written(rest) :]
        return len(data)

    def _written(self, rest: memoryview) -> int:
        """Write as much as the reader takes, and wait for a slow reader; return the number of bytes."""
        try:
            return os.write(self._descriptor, rest)
        except BlockingIOError:
            if not select.select([], [self._descriptor], [], PATIENCE)[1]:
                raise
            return 0


def never_fail() -> None:
    """Replace stdout and stderr by streams that never fail."""
    _fill()
    sys.stdout, sys.stderr = _stream(1, sys.stdout), _stream(2, sys.stderr)


def _fill() -> None:
    """Open the closed descriptors from 0 to 2; else the next file of the lake would become stdout."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _stream(descriptor: int, before: TextIO | None) -> TextIO:
    encoding = before.encoding if before else "utf-8"
    raw = cast(BinaryIO, _Unfailing(descriptor))
    return io.TextIOWrapper(raw, encoding, "backslashreplace", line_buffering=True)
