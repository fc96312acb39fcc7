"""What the protocol asks of a lake, in the protocol's words; each kind of lake is a module beside this one.

Files are named by references: paths below the lake with `/` between names, such as
`date=2026-03-28/part-r1-00000.parquet`. Where a reference lies (a folder, a bucket) the lake alone knows.
Nothing outside this room knows a path.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, datetime
from io import BufferedIOBase
from typing import Protocol

from offsets.commit_log import LedgerReader


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """Who holds a lake, as its lock says."""

    run_id: str
    host: str
    pid: int
    since: datetime

    def __str__(self) -> str:
        """Return the holder as text for a person."""
        return f"run {self.run_id} (pid {self.pid} on {self.host}) since {self.since:%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What lies under a reference; two references of one file have the same `identity`."""

    identity: object
    is_link: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """What one run has in staging: whose it is, what it takes (bytes), and when it last changed (UTC)."""

    name: str
    day: str
    run_id: str
    files: int
    bytes: int
    changed: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DayContents:
    """What a day is to hold, by name below it.

    `moved` are files of staging, which leave it; `shared` are files that keep their other name as well;
    `texts` come last, in this order, the manifest at the end.
    """

    moved: Mapping[str, str]
    shared: Mapping[str, str]
    texts: Mapping[str, bytes]


class NewFile(Protocol):
    """A file being written, hashed on the way; it counts once it is durable."""

    ref: str
    size: int

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes."""
        ...

    def make_durable(self) -> str:
        """Make it last through a loss of power, close it, and return the SHA-256 of its contents."""
        ...


class Files(Protocol):
    """What a task needs of a lake. It is pickled, and used in another process."""

    def place(self, ref: str) -> str:
        """Return where a reference lies, for a person."""
        ...

    def begin_attempt(self, ref: str) -> None:
        """Begin one attempt of a task, which writes below a reference in the staging of its run.

        Raises:
            StoreFailed: the store refused, or the run's staging is gone.
        """
        ...

    def create_file(self, ref: str) -> NewFile:
        """Begin a file in the staging of a run that was not discarded; a name that is taken is an error.

        Raises:
            StoreFailed: the store refused, or the run's staging is gone.
        """
        ...

    def open_file(self, ref: str) -> BufferedIOBase:
        """Open a file to read, from any place in it.

        Raises:
            OSError: it cannot be opened.
        """
        ...


class Lake(LedgerReader, Files, Protocol):
    """One topic's days: reading them, and each change that a run can make."""

    # -- reading

    def exists(self) -> bool:
        """Return whether there is anything where the lake should be."""
        ...

    def manifest_written(self, day: date) -> datetime | None:
        """Return when a day's manifest was written, by the store's own clock."""
        ...

    def day_names(self) -> list[str]:
        """List all names at the top that readers of `date=*` take for a day, in order."""
        ...

    def stat(self, ref: str) -> Entry | None:
        """Look at what lies under a reference, be it a file or a folder; None where nothing does.

        Raises:
            StoreFailed: it cannot be looked at.
        """
        ...

    def files_below(self, ref: str) -> Iterator[str]:
        """Yield all files and links below a reference, except those removed meanwhile.

        Raises:
            StoreFailed: a folder cannot be listed, so that nobody knows what it holds.
        """
        ...

    def require_no_link(self, ref: str) -> None:
        """Check that neither a reference nor what it lies in is a symbolic link.

        Raises:
            StoreFailed: it is one, and it may lead to somebody else's files.
        """
        ...

    def amended_by(self, day: date) -> list[str]:
        """List the files that a day's run brought to earlier days."""
        ...

    def late_files(self, into: Iterable[date], by: date, since: datetime | None) -> list[str]:
        """List late files that runs of `by` or later brought into those days that changed from `since` on."""
        ...

    def lock_holder(self) -> LockHolder | None:
        """Read who took the lock last, without taking it; None where nobody says."""
        ...

    def orphans(self) -> list[Orphan]:
        """List what lies in staging: what a live run has there, and what dead ones left.

        Raises:
            StoreFailed: it cannot be looked at.
        """
        ...

    # -- changing

    def lock(self, holder: LockHolder) -> AbstractContextManager[None]:
        """Hold the lake as its one writer.

        Raises:
            LakeLocked: another run holds it.
            StoreFailed: the store refused.
        """
        ...

    def make_days_durable(self) -> None:
        """Make sure that the days that are seen outlast a loss of power."""
        ...

    def stage(self, day: date, run_id: str) -> str:
        """Make the staging of one run, and return its reference."""
        ...

    def require_late_moves(self, staged: str) -> None:
        """Check that late files can be brought to their days here, before a day is read for nothing.

        Raises:
            StoreFailed: they cannot.
        """
        ...

    def require_replace(self, staged: str) -> None:
        """Check that a day can be replaced here, before it is read again for nothing.

        Raises:
            StoreFailed: it cannot.
        """
        ...

    def commit(self, staged: str, day: date, contents: DayContents) -> None:
        """Make a day, its counts and the next offsets true together, in one step.

        Raises:
            DayExists: there is something under the day's name already.
            StoreFailed: the store refused; if the day is there all the same, it is committed.
        """
        ...

    def replace(self, staged: str, day: date, contents: DayContents) -> None:
        """Put a day in the place of a committed one in one step; that one goes to `day` in the staging.

        Raises:
            StoreFailed: the store refused; the old day stays unless the new one is seen.
        """
        ...

    def bring(self, source: str, target: str) -> bool:
        """Bring a late file to the day it belongs to; return whether anything was left to do.

        Idempotent: may be repeated after a crash or power loss at any step. The file is never without a
        durable name.

        Raises:
            LedgerBroken: both names are gone, or they are two files.
            StoreFailed: the store refused.
        """
        ...

    def discard(self, staged: str) -> None:
        """Remove what lies in staging under one name; what the store refuses to remove stays.

        Whoever still writes there finds it gone.
        """
        ...
