"""A new file on disk: hashed while it is written, and made durable before it is used."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from jobs.lake.refusals import store_errors
from jobs.lake.store import System


class PosixFile:
    """A file being written, and hashed at the same time."""

    def __init__(self, path: Path, ref: str, system: System) -> None:
        """Create the file; an existing one is an error."""
        self.path, self.ref, self.size, self.closed = path, ref, 0, False
        self._hash, self._system = hashlib.sha256(), system
        self._file = -1
        with store_errors(f"create {path}"):
            self._file = system.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes."""
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.size += len(view)
        at = 0
        with store_errors(f"write {self.path}"):
            while at < len(view):
                at += self._system.write(self._file, view[at:])
        return len(view)

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self.size

    def flush(self) -> None:
        """Do nothing: nothing is buffered here."""

    def close(self) -> None:
        """Mark the file closed, for pyarrow alone; `make_durable` closes it."""
        self.closed = True

    def make_durable(self) -> str:
        """Sync to the disk, close, and return the SHA-256 of the contents."""
        with store_errors(f"sync {self.path}"):
            self._system.fsync(self._file)
            self._release()
        return self._hash.hexdigest()

    def _release(self) -> None:
        if self._file >= 0:
            file, self._file = self._file, -1
            self._system.close(file)

    def __del__(self) -> None:
        """Close a file that a failed attempt left open: the worker process lives on."""
        with suppress(OSError):
            self._release()
