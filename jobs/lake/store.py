"""The operations that change a folder on disk, and that raise StoreFailed with the reason if refused.

Relies on a POSIX file system with atomic rename. Hadoop's `FileSystem` is never used for these operations,
since its exclusive create and its rename are not atomic on local files.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from jobs.lake.refusals import store_errors
from offsets.errors import StoreFailed

AT_FDCWD: Final = -100
RENAME_EXCHANGE: Final = 2
NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)
"""The errors of stores without hard links."""
NO_EXCHANGE: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""The errors of stores, and of systems, that cannot exchange two names."""


class System:
    """The system calls that change a lake; tests pass another one, in which each of them can fail."""

    def mkdir(self, path: Path) -> None:
        """Make a folder, under the umask."""
        os.mkdir(path)

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        """Open a file or a folder."""
        return os.open(path, flags, mode)

    def close(self, file: int) -> None:
        """Close an open file."""
        os.close(file)

    def write(self, file: int, data: bytes | memoryview) -> int:
        """Append bytes; return how many were written."""
        return os.write(file, data)

    def pwrite(self, file: int, data: bytes, at: int) -> int:
        """Write bytes at a position; return how many were written."""
        return os.pwrite(file, data, at)

    def truncate(self, file: int, size: int) -> None:
        """Set the size of an open file."""
        os.truncate(file, size)

    def fsync(self, file: int) -> None:
        """Make an open file, or the names in a folder, durable."""
        os.fsync(file)

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file or a folder."""
        os.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Add a second name to a file."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        """Remove one name of a file."""
        os.unlink(path)

    def rmdir(self, path: Path) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def rmtree(self, path: Path) -> None:
        """Remove a folder with all its contents."""
        shutil.rmtree(path)

    def exchange(self, first: Path, second: Path) -> None:
        """Exchange two names by Linux's `renameat2(2)`, which Python's os module does not offer."""
        renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
        if renameat2 is None:
            raise OSError(errno.ENOSYS, "this system has no renameat2")
        if renameat2(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Store:
    """The changes of names and folders that the protocol consists of."""

    def __init__(self, system: System | None = None) -> None:
        """Take the system calls to use."""
        self.system = system or System()

    def make_folder(self, folder: Path) -> None:
        """Make a folder and its parents, under the umask."""
        self.make_inner_folder(folder, folder.parents[-1])

    def make_inner_folder(self, folder: Path, outer: Path) -> None:
        """Make a folder below an existing one; a task that outlives its run must not make staging again."""
        inner = [folder, *folder.parents]
        with store_errors(f"make {folder}"):
            missing = [path for path in inner[: inner.index(outer)] if not path.exists()]
            for path in reversed(missing):
                with suppress(FileExistsError):
                    self.system.mkdir(path)

    def move(self, source: Path, target: Path) -> None:
        """Rename, in one atomic step."""
        with store_errors(f"rename {source} to {target}"):
            self.system.rename(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Add a second name to a file; a taken name is an error."""
        with store_errors(f"link {source} to {target}"):
            self.system.link(source, target)

    def try_link(self, source: Path, target: Path) -> OSError | None:
        """Add a second name to a file; return the error of a store without hard links."""
        with store_errors(f"link {source} to {target}"):
            try:
                self.system.link(source, target)
            except OSError as error:
                if error.errno in NO_LINKS:
                    return error
                raise
        return None

    def unlink(self, path: Path) -> None:
        """Remove one name of a file."""
        with store_errors(f"unlink {path}"):
            self.system.unlink(path)

    def exchange(self, first: Path, second: Path) -> None:
        """Exchange two names in one step.

        Raises:
            StoreFailed: the store refused, or cannot do it.
        """
        try:
            self.system.exchange(first, second)
        except OSError as error:
            if error.errno not in NO_EXCHANGE:
                with store_errors(f"exchange {first} and {second} in one step"):
                    raise
            raise StoreFailed(
                expected=f"to exchange {first} and {second} in one step, as building a day again needs",
                found=f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, '?')})",
                do="The old day stays. Copy the lake to a file system that has Linux's renameat2 with "
                "RENAME_EXCHANGE, such as ext4, XFS or Btrfs, and build the day again there.",
            ) from error

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        with store_errors(f"sync {folder}"):
            file = self.system.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                self.system.fsync(file)
            finally:
                self.system.close(file)

    def sync_all(self, folder: Path) -> None:
        """Make all names below a folder durable, from the bottom up."""
        for inner in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
            self.sync_folder(inner)
        self.sync_folder(folder)
