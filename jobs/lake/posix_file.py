"""A new file on disk: hashed while it is written, and made durable before it is used."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from jobs.lake.files import HashedFile
from jobs.lake.refusals import store_errors
from jobs.lake.store import System


class PosixFile(HashedFile):
    """A file being written, and hashed at the same time."""

    def __init__(self, path: Path, ref: str, system: System) -> None:
        """Create the file; an existing one is an error."""
        super().__init__(ref)
        self.path, self._system, self._file = path, system, -1
        with store_errors(f"create {path}"):
            self._file = system.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def _append(self, view: memoryview) -> None:
        at = 0
        with store_errors(f"write {self.path}"):
            while at < len(view):
                at += self._system.write(self._file, view[at:])

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
