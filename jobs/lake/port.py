"""The port to a lake: what the protocol needs of it. Each kind of lake is a module beside this one.

Files are named by references: paths below the lake with `/` between names, such as
`date=2026-03-28/part-r1-00000.parquet`. Only the lake knows where a reference lies (a folder, a bucket). No
module outside this package knows a path.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from datetime import date, datetime
from io import BufferedIOBase
from typing import Protocol, Self

from offsets.commit_log import LedgerReader


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """The run that holds a lake, as its lock names it."""

    run_id: str
    host: str
    pid: int
    since: datetime

    @classmethod
    def here(cls, run_id: str, since: datetime) -> Self:
        """Return this process as the holder."""
        return cls(run_id=run_id, host=socket.gethostname(), pid=os.getpid(), since=since)

    @classmethod
    def read(cls, text: bytes) -> Self | None:
        """Return the holder that `to_text` wrote; None if the text is no such thing."""
        with suppress(ValueError, TypeError, KeyError):
            held = json.loads(text)
            return cls(**{**held, "since": datetime.fromisoformat(held["since"])})
        return None

    def to_text(self) -> bytes:
        """Return the holder as a lock keeps it."""
        return json.dumps(asdict(self), default=datetime.isoformat).encode()

    def __str__(self) -> str:
        """Return the holder as text for a person."""
        return f"run {self.run_id} (pid {self.pid} on {self.host}) since {self.since:%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The file or folder at a reference; two references of one file have the same `identity`."""

    identity: object
    is_link: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """The folder of one run in staging, with its size in bytes and its last change (UTC).

    `live` is whether that run is at work; None where it is on another host, and may be.
    """

    name: str
    day: str
    run_id: str
    files: int
    bytes: int
    changed: datetime
    live: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DayContents:
    """The files of a day that is put together, by their names below it.

    `moved` are files that are moved out of staging. `shared` are files that keep their other name as well.
    `texts` are written last, in this order, with the manifest at the end. `withdrawn` are damaged late files
    that the day brought to others, by the references from which it brought them.
    """

    moved: Mapping[str, str]
    shared: Mapping[str, str]
    texts: Mapping[str, bytes]
    withdrawn: Mapping[str, str] = field(default_factory=dict)


class NewFile(Protocol):
    """A file being written, and hashed at the same time; it may be used once it is durable."""

    ref: str
    size: int

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes."""
        ...

    def make_durable(self) -> str:
        """Make the file survive a loss of power, close it, and return the SHA-256 of its contents."""
        ...


class Files(Protocol):
    """The part of a lake that a task uses; it is pickled, and used in another process."""

    def place(self, ref: str) -> str:
        """Return the place of a reference, for messages."""
        ...

    def begin_attempt(self, ref: str) -> None:
        """Prepare a reference in the staging of a run, below which one attempt of a task writes.

        Raises:
            StoreFailed: the store refused, or the run's staging is gone.
        """
        ...

    def create_file(self, ref: str) -> NewFile:
        """Create a file in the staging of a run that was not discarded; an existing name is an error.

        Raises:
            StoreFailed: the store refused, or the run's staging is gone.
        """
        ...

    def open_file(self, ref: str) -> BufferedIOBase:
        """Open a file for reading at any position.

        Raises:
            OSError: the file cannot be opened.
        """
        ...


class Lake(LedgerReader, Files, Protocol):
    """The days of one topic: reading them, and each change that a run can make."""

    # -- reading

    def exists(self) -> bool:
        """Return whether the place of the lake exists."""
        ...

    def manifest_written(self, day: date) -> datetime | None:
        """Return when a day's manifest was written, by the store's own clock."""
        ...

    def day_names(self) -> list[str]:
        """List all top-level names that readers of `date=*` take for a day, in order."""
        ...

    def is_entered(self, day: date) -> bool:
        """Return whether nothing is left to do for a committed day but for its late files.

        In a folder on disk its entry in the ledger is its manifest; in a bucket its files are in place.

        Raises:
            StoreFailed: the store refused.
        """
        ...

    def entry_problem(self, day: date) -> str:
        """Return what is wrong with a committed day that is not entered, and what to do about it."""
        ...

    def stat(self, ref: str) -> Entry | None:
        """Return the file or folder at a reference; None if there is none.

        Raises:
            StoreFailed: the store refused.
        """
        ...

    def files_below(self, ref: str) -> Iterator[str]:
        """Yield all files and links below a reference, except those removed meanwhile.

        Raises:
            StoreFailed: a folder cannot be listed.
        """
        ...

    def require_no_link(self, ref: str) -> None:
        """Check that neither a reference nor a folder that it lies in is a symbolic link.

        Raises:
            StoreFailed: there is a link, which may lead to somebody else's files.
        """
        ...

    def late_files(self, into: Iterable[date], by: date, since: datetime | None) -> list[str]:
        """List late files that runs of `by` or later brought into those days that changed from `since` on."""
        ...

    def lock_holder(self) -> LockHolder | None:
        """Return who took the lock last, without taking it; None if that is not known."""
        ...

    def staged_names(self) -> list[str]:
        """List the names in staging, of live runs and of orphans, without looking into them.

        Raises:
            StoreFailed: staging cannot be listed.
        """
        ...

    def orphans(self) -> list[Orphan]:
        """List the folders in staging, of a live run and of dead ones.

        Raises:
            StoreFailed: staging cannot be read.
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
        """Make sure that all days that are visible now survive a loss of power, with their entries."""
        ...

    def enter(self, days: Iterable[date]) -> None:
        """Do for committed days what is left after their commit, but for late files; may be repeated.

        In a folder on disk their manifests become their entries in the ledger, durably, in one step for each
        reader; in a bucket their files are copied to their places. Needs the lock.

        Raises:
            StoreFailed: the store refused, or a symbolic link is in the way.
        """
        ...

    def put(self, ref: str, text: bytes) -> None:
        """Write a small file beside the days durably: a reader sees its old contents or the new ones.

        Needs the lock. A lost answer leaves either, and the call may be repeated.

        Raises:
            StoreFailed: the store refused, or a symbolic link is in the way.
        """
        ...

    def stage(self, day: date, run_id: str) -> str:
        """Make the staging folder of one run, and return its reference."""
        ...

    def require_late_moves(self, staged: str) -> None:
        """Check that late files can be brought to their days here, before a day is read in vain.

        Raises:
            StoreFailed: they cannot.
        """
        ...

    def settle(self, day: date) -> None:
        """Bring a day to rest before it is replaced: nothing is left to do for it, or will be done.

        In a folder on disk it always is.

        Raises:
            StoreFailed: the store refused.
        """
        ...

    def require_replace(self, staged: str) -> None:
        """Check that a day can be replaced here, before it is read again in vain.

        Raises:
            StoreFailed: it cannot.
        """
        ...

    def commit(self, staged: str, day: date, contents: DayContents) -> None:
        """Make a day, its counts and the next offsets visible together, in one step.

        Raises:
            DayExists: the day's name is taken already.
            StoreFailed: the store refused; if the day exists nevertheless, it is committed.
        """
        ...

    def replace(self, staged: str, day: date, contents: DayContents) -> None:
        """Exchange a day for the committed one in one step; the old day moves to `day` in the staging.

        What it withdraws is taken back just before: from the days to where `bring` finds it again.

        Raises:
            StoreFailed: the store refused; the old day stays unless the new one is visible.
        """
        ...

    def bring(self, source: str, target: str) -> bool:
        """Bring a late file to the day that it belongs to; return whether it still had to be brought.

        Idempotent: may be repeated after a crash or power loss at any step. The file is never without a
        durable name. A file that lies in its day under its earlier name is renamed there, in one step.

        Raises:
            LedgerBroken: both names are gone, or they are two different files.
            StoreFailed: the store refused.
        """
        ...

    def finish(self, day: date) -> None:
        """Record of a committed day that nothing is left to do for it; may be repeated.

        In a folder on disk there is nothing to say; in a bucket `_SUCCESS` says it. Needs the lock.

        Raises:
            LedgerBroken: a file of the day is nowhere.
            StoreFailed: the store refused.
        """
        ...

    def require_removal(self) -> None:
        """Check that days can leave this lake.

        Raises:
            ConfigError: a lake of this kind keeps all its days.
        """
        ...

    def remove(self, staged: str, day: date) -> None:
        """Take a day out of readers' sight in one step, durably: it moves to `day` in the staging.

        If a dead run has moved it there already, that is made durable.

        Raises:
            StoreFailed: the store refused; the day is where it was, or in the staging.
        """
        ...

    def discard(self, staged: str) -> None:
        """Remove a folder of staging; files that the store refuses to remove stay.

        A task that still writes there fails, since the folder is gone.
        """
        ...
