"""Files of tasks without a lake: each reference is a path."""

from __future__ import annotations

from io import BufferedReader
from pathlib import Path
from typing import Final

from jobs.lake.posix_file import PosixFile
from jobs.lake.store import Store


class PlainFiles:
    """Takes any path for a reference; implements `jobs.lake.port.Files`."""

    def place(self, ref: str) -> str:
        """Return the path."""
        return ref

    def begin_attempt(self, ref: str) -> None:
        """Make the folder; what it lies in must be there."""
        Store().make_inner_folder(Path(ref), Path(ref).parent)

    def create_file(self, ref: str) -> PosixFile:
        """Begin a file; the last folder is made where it is missing."""
        self.begin_attempt(str(Path(ref).parent))
        return PosixFile(Path(ref), ref, Store().system)

    def open_file(self, ref: str) -> BufferedReader:
        """Open a file to read."""
        return Path(ref).open("rb")


FILES: Final = PlainFiles()
