"""Reading and numbering files of any kind of lake."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from io import SEEK_END, BufferedIOBase
from itertools import count

from jobs.lake.port import Files, Lake, NewFile


def numbered_files(lake: Files, folder: str) -> Callable[[], NewFile]:
    """Return a function that creates numbered files, one a call, in a folder of staging."""
    numbers = count()
    return lambda: lake.create_file(f"{folder}/{next(numbers):05d}.parquet.part")


def is_link(lake: Lake, ref: str) -> bool:
    """Return whether a symbolic link lies at a reference.

    Raises:
        StoreFailed: it cannot be looked at.
    """
    entry = lake.stat(ref)
    return bool(entry and entry.is_link)


def sha256_and_size(file: BufferedIOBase) -> tuple[str, int]:
    """Return the SHA-256 of an open file, from its current position, and its size in bytes.

    Raises:
        OSError: the file cannot be read.
    """
    return hashlib.file_digest(file, "sha256").hexdigest(), file.seek(0, SEEK_END)
