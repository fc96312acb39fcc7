"""The only code that changes a lake: folders, new files, durable names, the lock.

Relies on a POSIX file system with atomic rename. Hadoop's `FileSystem` is never used for these steps, as
its exclusive create and its rename are not atomic on local files. It never removes what a reader may see,
and follows no symbolic link but the lake's root: any other may lead to somebody else's files.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from offsets.errors import DayExists, LakeLocked, LedgerBroken, StoreFailed
from offsets.manifest import LISTS_NAME, MANIFEST_NAME

AT_FDCWD: Final = -100
RENAME_EXCHANGE: Final = 2
LOCK_NAME: Final = "_lock"
NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EXDEV)
"""The errors of stores without hard links."""
NO_EXCHANGE: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""The errors of stores, and of systems, that cannot exchange two names."""
PROBE_NAME: Final = "links"
STAGING_NAME: Final = "_staging"
REMOVED: Final = "removed."
"""The prefix of a folder's name while it is being removed."""
DAY_PREFIX: Final = "date="
LATE_NAME: Final = re.compile(r"late-(\d{4}-\d\d-\d\d)-")
"""The beginning of a late file's name, with the day whose run brought it."""
NFS: Final = re.compile(r"\.nfs[0-9a-f]{16,}")
"""NFS's name for a file that was removed while somebody reads it; it disappears by itself."""
NEXT_STEP: Final = {
    errno.ENOSPC: "Free some space; the day can then be run again.",
    errno.EDQUOT: "Raise the quota; the day can then be run again.",
    errno.EROFS: "Make the file system writable; the day can then be run again.",
    errno.EACCES: "Give this user the right to read and write there; the day can then be run again.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """Who holds a lake, as its lock file says."""

    run_id: str
    host: str
    pid: int
    since: datetime

    def __str__(self) -> str:
        """Return the holder as text for a person."""
        return f"run {self.run_id} (pid {self.pid} on {self.host}) since {self.since:%Y-%m-%dT%H:%M:%SZ}"


class NewFile:
    """A file being written, hashed on the way, and named `.part` until the commit."""

    def __init__(self, path: Path) -> None:
        """Create the file; an existing one is an error."""
        self.path, self.size, self.closed = path, 0, False
        self._hash = hashlib.sha256()
        self._file = -1
        with store_errors(f"create {path}"):
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes."""
        view = memoryview(data).cast("B")
        self._hash.update(view)
        self.size += len(view)
        at = 0
        with store_errors(f"write {self.path}"):
            while at < len(view):
                at += os.write(self._file, view[at:])
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
            os.fsync(self._file)
            self._release()
        return self._hash.hexdigest()

    def _release(self) -> None:
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)

    def __del__(self) -> None:
        """Close a file that was abandoned half-way: a worker lives longer than an attempt."""
        with suppress(OSError):
            self._release()


class Lake:
    """The folder of one topic: reading it, and every change that can be made to it."""

    def __init__(self, root: Path) -> None:
        """Take the path of a lake, which need not exist."""
        self.root = root

    # -- reading

    def days(self) -> list[date]:
        """List the dates that have a folder, in order."""
        found = []
        with store_errors(f"list {self.root}"), suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                with suppress(ValueError):
                    day = date.fromisoformat(entry.name.removeprefix(DAY_PREFIX))
                    if entry.name == self.day_folder(day).name:  # not date=20240501, nor 2024-W18-3
                        found.append(day)
        return sorted(found)

    def day_folder(self, day: date) -> Path:
        """Return the folder of a committed day."""
        return self.root / f"{DAY_PREFIX}{day.isoformat()}"

    def manifest_place(self, day: date) -> str:
        """Return the path of a day's manifest."""
        return str(self.day_folder(day) / MANIFEST_NAME)

    def has_day(self, day: date) -> bool:
        """Return whether a date has a folder."""
        return _inode(self.day_folder(day)) is not None

    def has_manifest(self, day: date) -> bool:
        """Return whether a day's folder has a manifest, without reading it.

        Raises:
            StoreFailed: it cannot be looked at, or its folder is a symbolic link.
        """
        require_no_link(self.day_folder(day))
        return _stat(Path(self.manifest_place(day))) is not None

    def manifest_text(self, day: date) -> bytes | None:
        """Return a day's manifest, or None where the folder has none.

        Raises:
            StoreFailed: it cannot be read, or it or its folder is a symbolic link.
        """
        place = Path(self.manifest_place(day))
        require_no_link(place.parent)
        require_no_link(place)
        with store_errors(f"read {place}"), suppress(FileNotFoundError, NotADirectoryError):
            return place.read_bytes()
        return None

    def offset_lists(self, day: date, at: int, size: int) -> bytes:
        """Read bytes of the file of long sets beside a day's manifest; no bytes where it is missing."""
        place = self.day_folder(day) / LISTS_NAME
        require_no_link(place)
        with store_errors(f"read {place}"), suppress(FileNotFoundError), place.open("rb") as file:
            file.seek(at)
            return file.read(size)
        return b""

    def lock_holder(self) -> LockHolder | None:
        """Read who took the lock last, without taking it; None where the text says nothing."""
        try:
            text = json.loads((self.root / LOCK_NAME).read_bytes())
            return LockHolder(**{**text, "since": datetime.fromisoformat(text["since"])})
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def amended_by(self, day: date) -> list[Path]:
        """List the files that a day's run brought to earlier days."""
        found = (path for each in self.days() for path in self._late_in(self.day_folder(each), day))
        return sorted(path for path in found if path.name.startswith(f"late-{day.isoformat()}-"))

    def late_files(self, into: Iterable[date], by: date, since: datetime | None) -> list[Path]:
        """List late files that runs of `by` or later brought into those days that changed from `since` on."""
        # A link into a folder sets its mtime and its ctime. `cp -a`, `rsync -a` and `tar` set an mtime back,
        # even of a folder that they only add to; but that is a change too, which sets the ctime to now. So a
        # folder that was restored or copied is listed, perhaps for nothing, and none that got a file is left
        # out. The later of both counts, for stores that know no true ctime.
        found: list[Path] = []
        for folder in map(self.day_folder, into):
            seen = _stat(folder)
            if seen and (since is None or max(seen.st_ctime, seen.st_mtime) >= since.timestamp()):
                found += self._late_in(folder, by)
        return sorted(found)

    def _late_in(self, folder: Path, by: date) -> list[Path]:
        names: list[re.Match[str] | None] = []
        gone = suppress(FileNotFoundError, NotADirectoryError)
        with store_errors(f"list {folder}"), gone, os.scandir(folder) as entries:
            names = [LATE_NAME.match(entry.name) for entry in entries]
        return [folder / name.string for name in names if name and name[1] >= by.isoformat()]

    def manifest_written(self, day: date) -> datetime | None:
        """Read from the store when a day's manifest was written, by the store's own clock."""
        found = _stat(Path(self.manifest_place(day)))
        return datetime.fromtimestamp(found.st_mtime, UTC) if found else None

    def staged_runs(self) -> list[Path]:
        """List what lies in staging: the folder of a live run, or orphans.

        Raises:
            StoreFailed: it cannot be listed, or is a symbolic link.
        """
        require_no_link(self.root / STAGING_NAME)
        with store_errors(f"list {self.root / STAGING_NAME}"), suppress(FileNotFoundError):
            return sorted((self.root / STAGING_NAME).iterdir())
        return []

    # -- changing

    @contextmanager
    def lock(self, holder: LockHolder) -> Iterator[None]:
        """Hold the lake as its one writer; the kernel frees it when this process ends, however it ends.

        Raises:
            LakeLocked: another run holds it.
            StoreFailed: the store refused, or the lock is a symbolic link.
        """
        with store_errors(f"make {self.root}"):
            self._make_durable()
            require_no_link(self.root / LOCK_NAME)
            file = os.open(self.root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            self._take(file)
            with store_errors(f"write {self.root / LOCK_NAME}"):
                os.truncate(file, 0)
                os.pwrite(file, json.dumps(asdict(holder), default=datetime.isoformat).encode(), 0)
            # a dead run may have renamed a day that the disk can still lose: sync it before building on it
            sync_folder(self.root)
            try:
                yield
            finally:
                with suppress(OSError):
                    os.truncate(file, 0)
        finally:
            os.close(file)

    def _make_durable(self) -> None:
        """Make the lake's folder and all above it, each with a durable name before the next.

        A run that was killed here may have left a folder whose name is not durable: while there is no lock
        file, the deepest folder's name is synced again, unless this user cannot make one there, or something
        is mounted there: no run made that, and what lies above it may refuse a sync, as autofs does. No
        folder is made where its name cannot be made durable.
        """
        missing = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
        deepest = missing[-1].parent if missing else self.root
        ours = not os.path.ismount(deepest) and _may_hold_ours(deepest.parent)
        if ours and not (self.root / LOCK_NAME).exists():
            sync_folder(deepest.parent)
        if missing:
            sync_folder(deepest)
        for folder in reversed(missing):
            make_folder(folder)
            sync_folder(folder.parent)

    def _take(self, file: int) -> None:
        with store_errors(f"lock {self.root / LOCK_NAME}"):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LakeLocked(
                    expected=f"{self.root} to be free",
                    found=f"it is held by {self.lock_holder() or 'a run that is just starting'}",
                    do="Wait for that run to end; a dead run holds nothing, so nothing need be removed.",
                ) from None

    def stage(self, day: date, run_id: str) -> Path:
        """Make the staging folder of one run.

        Raises:
            StoreFailed: the store refused, or staging is a symbolic link.
        """
        require_no_link(self.root / STAGING_NAME)
        folder = self.root / STAGING_NAME / f"{day.isoformat()}.{run_id}"
        make_folder(folder)
        return folder

    def commit(self, staged: Path, day: date) -> Path:
        """Make a staged day visible in one step, and durable in the next.

        Raises:
            DayExists: the day has a folder already, be it an empty one.
        """
        target = self.day_folder(day)
        if os.path.lexists(target):
            raise DayExists(
                expected=f"{target} to be absent",
                found="it exists",
                do="Find out who made it; if it holds no manifest, move it away and run the day again.",
            )
        move(staged, target)
        sync_folder(self.root)
        return target

    def exchange(self, staged: Path, day: date) -> None:
        """Put a staged day in the place of a committed one, and that one into staging, in one step.

        Raises:
            StoreFailed: the store refused, or cannot do it in one step.
        """
        exchange(staged, self.day_folder(day))
        sync_folder(self.root)

    def amend(self, source: Path, target: Path) -> bool:
        """Bring a late file to the day it belongs to; return whether anything was left to do.

        Idempotent: may be repeated after a crash or power loss at any step. The file is never without a
        durable name.

        Raises:
            LedgerBroken: both names are gone, or they are two files.
        """
        require_no_link(target.parent)
        there, left = _inode(target), _inode(source)
        if left is None and there is not None:  # its name was durable before the other one went
            if source.parent.exists():  # a day that was built again has no such folder
                sync_folder(source.parent)
            return False
        if left is None or there not in (None, left):
            of = target.parent.name.removeprefix(DAY_PREFIX)
            raise LedgerBroken(
                expected=f"the late file {source}, or the same file at {target}",
                found="neither" if left is None else "two files",
                do=f"Build the day that it belongs to again (`run --date {of} --force`), or restore the file."
                if left is None
                else "Move the one that is not as the manifest says out of the lake, or, where both are "
                f"alike, {source}; then run again.",
            )
        with store_errors(f"amend {target}"):
            if there is None:
                os.link(source, target)
            sync_folder(target.parent)
            os.unlink(source)
        sync_folder(source.parent)
        return True

    def require_links(self, staged: Path) -> None:
        """Check that the store can do what amending needs, before a day is read for nothing.

        The link is removed with the staging folder that it lies in, also after a kill.

        Raises:
            StoreFailed: it cannot.
        """
        lock, probe = self.root / LOCK_NAME, staged / PROBE_NAME
        try:
            os.link(lock, probe)
        except OSError as error:
            if error.errno not in NO_LINKS:
                with store_errors(f"link {lock} to {probe}"):
                    raise
            raise StoreFailed(
                expected=f"hard links in {self.root}, by which late rows reach their day (late: amend)",
                found=error.strerror or str(error),
                do="Put the lake on a file system that has them, or set `late: set_aside`.",
            ) from error

    def require_exchange(self, staged: Path) -> None:
        """Check that the store can exchange two names, before a day is read again for nothing.

        Raises:
            StoreFailed: it cannot.
        """
        one, other = staged / "one", staged / "other"
        make_folder(one)
        make_folder(other)
        exchange(one, other)

    def discard_staging(self, staged: Path) -> None:
        """Remove what lies in staging under one name: a run's own folder, or an orphan.

        It is renamed first, so that a worker that still writes into it finds nothing there. Links are removed
        as links. What the store refuses to remove stays.
        """
        if staged.parent != self.root / STAGING_NAME:
            raise ValueError(f"{staged} is no staging folder of {self.root}")
        require_no_link(staged.parent)
        with suppress(OSError):
            gone = staged
            if not staged.name.startswith(REMOVED):
                gone = staged.with_name(f"{REMOVED}{staged.name}")
                os.rename(staged, gone)
            if stat.S_ISDIR(os.lstat(gone).st_mode):
                shutil.rmtree(gone)
            else:
                os.unlink(gone)
            os.rmdir(staged.parent)


def require_no_link(path: Path) -> None:
    """Check that a name of the lake is no symbolic link.

    Raises:
        StoreFailed: it is one, and it may lead to somebody else's files.
    """
    if os.path.islink(path):
        raise StoreFailed(
            expected=f"{path} to be a file or a folder of this lake",
            found=f"a symbolic link to {os.readlink(path)}",
            do="Nothing behind it was changed. Remove the link, or put what it leads to in its place; only "
            "the lake's own folder may be a link.",
        )


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, under the umask."""
    with store_errors(f"make {folder}"):
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            with suppress(FileExistsError):
                os.mkdir(each)


def make_inner_folder(folder: Path) -> None:
    """Make a folder in one that is there: a task that outlives its run must not make its staging anew."""
    with store_errors(f"make {folder}"), suppress(FileExistsError):
        os.mkdir(folder)


def move(source: Path, target: Path) -> None:
    """Rename within the store, in one atomic step."""
    with store_errors(f"rename {source} to {target}"):
        os.rename(source, target)


def link(source: Path, target: Path) -> None:
    """Add a second name to a file within the store; a taken name is an error."""
    with store_errors(f"link {source} to {target}"):
        os.link(source, target)


def exchange(one: Path, other: Path) -> None:
    """Exchange two names in one step.

    Raises:
        StoreFailed: the store refused, or cannot do it.
    """
    try:
        _exchange(one, other)
    except OSError as error:
        if error.errno not in NO_EXCHANGE:
            with store_errors(f"exchange {one} and {other} in one step"):
                raise
        raise StoreFailed(
            expected=f"to exchange {one} and {other} in one step, as building a day again needs",
            found=f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, '?')})",
            do="The old day stays. Copy the lake to a file system that has Linux's renameat2 with "
            "RENAME_EXCHANGE, such as ext4, XFS or Btrfs, and build the day again there.",
        ) from error


def files_below(folder: Path) -> Iterator[Path]:
    """Yield all files and links below a folder, except those removed meanwhile.

    Raises:
        StoreFailed: a folder cannot be listed, so that nobody knows what it holds.
    """

    def refuse(error: OSError) -> None:
        with store_errors(f"list {error.filename}"), suppress(FileNotFoundError):
            raise error

    for at, folders, files in os.walk(folder, onerror=refuse):
        links = (name for name in folders if os.path.islink(os.path.join(at, name)))
        yield from (Path(at, name) for name in (*files, *links))


def sha256_and_size(path: Path) -> tuple[str, int]:
    """Return a file's SHA-256 and its size in bytes.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


def _inode(path: Path) -> tuple[int, int] | None:
    with store_errors(f"look at {path}"), suppress(FileNotFoundError):
        found = os.stat(path, follow_symlinks=False)
        return found.st_dev, found.st_ino
    return None


def _stat(path: Path) -> os.stat_result | None:
    """Read the attributes of what a name leads to; None where it leads nowhere."""
    with store_errors(f"look at {path}"), suppress(FileNotFoundError, NotADirectoryError):
        return os.stat(path)
    return None


def _exchange(one: Path, other: Path) -> None:
    """Exchange two names: `renameat2(2)` with RENAME_EXCHANGE, which Linux has and Python does not show."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        raise OSError(errno.ENOSYS, "this system has no renameat2")
    if renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _may_hold_ours(folder: Path) -> bool:
    """Return whether this user may list a folder or make names in it; if neither, no name there is ours."""
    return any(os.access(folder, mode, effective_ids=True) for mode in (os.R_OK, os.W_OK | os.X_OK))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    with store_errors(f"sync {folder}"):
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


@contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Turn an operating system's refusal into a StoreFailed that says what was tried."""
    try:
        yield
    except OSError as error:
        raise StoreFailed(
            expected=f"to {what}",
            found=f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, '?')})",
            do=NEXT_STEP.get(error.errno or 0, "Look at the disk and its logs before running the day again."),
        ) from error
