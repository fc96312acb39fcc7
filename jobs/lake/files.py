"""Reading, writing and numbering files of any kind of lake."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Iterator
from io import SEEK_END, BufferedIOBase
from itertools import count

from jobs.lake.names import NFS, SUCCESS_NAME, below, earlier_name, last
from jobs.lake.port import Files, Lake, NewFile
from jobs.lake.refusals import store_errors


class HashedFile:
    """A file being written to any kind of lake: counts and hashes its bytes, and is what Arrow writes to."""

    closed = False

    def __init__(self, ref: str) -> None:
        """Begin with no bytes."""
        self.ref, self.size = ref, 0
        self._hash = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes."""
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.size += len(view)
        self._append(view)
        return len(view)

    def _append(self, view: memoryview) -> None:
        raise NotImplementedError  # each kind of lake stores bytes in its own way

    def tell(self) -> int:
        """Return the number of bytes written so far."""
        return self.size

    def flush(self) -> None:
        """Do nothing: nothing is buffered here."""

    def close(self) -> None:
        """Mark the file closed, for Arrow alone: `make_durable` ends it."""
        self.closed = True


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


def is_success_file(lake: Lake, ref: str, folder: str) -> bool:
    """Return whether a reference is the empty `_SUCCESS` of a day; one with contents is somebody else's.

    Raises:
        StoreFailed: it cannot be looked at.
    """
    if ref != f"{folder}/{SUCCESS_NAME}" or is_link(lake, ref):
        return False
    with store_errors(f"read {lake.place(ref)}"), lake.open_file(ref) as file:
        return not file.read(1)


def unnamed_files(lake: Lake, folder: str, refs: Iterable[str], named: Container[str]) -> Iterator[str]:
    """Yield those references in a day's folder whose paths below it are not named, nor left by programs.

    NFS's own files and an empty `_SUCCESS` are left by programs.
    """
    for ref in refs:
        if below(ref, folder) in named or NFS.fullmatch(last(ref)) or is_success_file(lake, ref, folder):
            continue
        yield ref


def earlier_place(lake: Lake, target: str) -> str | None:
    """Return the reference at which a day has a late file under its earlier name; None if it has none.

    Raises:
        StoreFailed: it cannot be looked at.
    """
    earlier = earlier_name(target)
    return earlier if earlier != target and lake.stat(earlier) else None


def awaits_rename(lake: Lake, source: str, target: str) -> bool:
    """Return whether a late file still lies in its day under its earlier name: an upgrade died before that.

    In a copy of a lake both names may be files of their own, of which somebody may have moved `source` away.

    Raises:
        StoreFailed: one of them cannot be looked at, or read.
    """
    earlier, at_source = earlier_place(lake, target), lake.stat(source)
    if earlier is None or is_link(lake, earlier):
        return False
    if at_source is None:
        return lake.stat(target) is None
    return at_source == lake.stat(earlier) or _sha256(lake, source) == _sha256(lake, earlier)


def _sha256(lake: Lake, ref: str) -> str:
    with store_errors(f"read {lake.place(ref)}"), lake.open_file(ref) as file:
        return sha256_and_size(file)[0]


def sha256_and_size(file: BufferedIOBase) -> tuple[str, int]:
    """Return the SHA-256 of an open file, from its current position, and its size in bytes.

    Raises:
        OSError: the file cannot be read.
    """
    return hashlib.file_digest(file, "sha256").hexdigest(), file.seek(0, SEEK_END)
