"""A lake in a folder on disk: its days are folders, and its commit is one rename.

Relies on a POSIX file system with atomic rename, and changes it only through a `Store`. It never removes a
file that a reader may see, but for a damaged one that another replaces. Only the lake's root may be a
symbolic link: any other may lead to somebody else's files.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from io import BufferedReader
from pathlib import Path
from typing import Final

from jobs.lake.files import awaits_rename, earlier_place
from jobs.lake.names import (
    DAY_PREFIX,
    LATE_NAME,
    LEDGER_NAME,
    PUT,
    STAGED_DAY,
    STAGING_NAME,
    day_ref,
    entry_day,
    entry_ref,
    in_day,
    last,
    parent,
    staged_day,
)
from jobs.lake.port import DayContents, Entry, LockHolder, Orphan
from jobs.lake.posix_file import PosixFile
from jobs.lake.posix_staging import BARRIER, BARRIER_NAME, PROBE_NAME, describe_orphan, discard
from jobs.lake.refusals import store_errors
from jobs.lake.store import Store
from offsets.errors import DayExists, LakeLocked, LedgerBroken, StoreFailed
from offsets.manifest_text import LISTS_NAME, MANIFEST_NAME

LOCK_NAME: Final = "_lock"


class PosixLake:
    """The folder of one topic: reading it, and each change that a run can make."""

    def __init__(self, root: Path, store: Store | None = None) -> None:
        """Take the path of a lake, which need not exist yet, and the store that changes it."""
        self.root, self._store = root, store or Store()

    def __getstate__(self) -> dict[str, object]:
        """Pickle with an absolute path: a task runs in another folder."""
        return {**self.__dict__, "root": self.root.absolute()}

    # -- reading

    def days(self) -> list[date]:
        """List the dates that have a folder, in order."""
        days = []
        with store_errors(f"list {self.root}"), suppress(FileNotFoundError), os.scandir(self.root) as entries:
            for entry in entries:
                with suppress(ValueError):
                    day = date.fromisoformat(entry.name.removeprefix(DAY_PREFIX))
                    if entry.name == day_ref(day):  # not date=20240501, nor 2024-W18-3
                        days.append(day)
        return sorted(days)

    def day_folder(self, day: date) -> Path:
        """Return the folder of a committed day."""
        return self.root / day_ref(day)

    def manifest_place(self, day: date) -> str:
        """Return the path of a day's manifest."""
        return str(self.day_folder(day) / MANIFEST_NAME)

    def has_day(self, day: date) -> bool:
        """Return whether a date has a folder."""
        return self.stat(day_ref(day)) is not None

    def has_manifest(self, day: date) -> bool:
        """Return whether a day's folder has a manifest, without reading it.

        Raises:
            StoreFailed: the store refused, or the folder is a symbolic link.
        """
        self.require_no_link(day_ref(day))
        return _stat(Path(self.manifest_place(day))) is not None

    def manifest_text(self, day: date) -> bytes | None:
        """Return a day's manifest, or None if the folder has none.

        Raises:
            StoreFailed: it cannot be read, or it or its folder is a symbolic link.
        """
        return self._text(in_day(day, MANIFEST_NAME))

    def _text(self, ref: str) -> bytes | None:
        self.require_no_link(ref)
        place = self.root / ref
        with store_errors(f"read {place}"), suppress(FileNotFoundError, NotADirectoryError):
            return place.read_bytes()
        return None

    def offset_lists(self, day: date, at: int, size: int) -> bytes:
        """Read bytes of the file of long sets beside a day's manifest; no bytes if it is missing."""
        place = self.day_folder(day) / LISTS_NAME
        self.require_no_link(in_day(day, LISTS_NAME))
        with store_errors(f"read {place}"), suppress(FileNotFoundError), place.open("rb") as file:
            file.seek(at)
            return file.read(size)
        return b""

    def entries(self) -> list[date]:
        """List the dates that have an entry in the ledger, in order."""
        folder = self.root / LEDGER_NAME
        with store_errors(f"list {folder}"), suppress(FileNotFoundError):
            return sorted(filter(None, map(entry_day, os.listdir(folder))))
        return []

    def entry_place(self, day: date) -> str:
        """Return the path of a day's entry in the ledger."""
        return str(self.root / entry_ref(day))

    def entry_text(self, day: date) -> bytes | None:
        """Return a day's entry in the ledger, or None if it has none."""
        return self._text(entry_ref(day))

    def is_entered(self, day: date) -> bool:
        """Return whether a day's entry is its manifest, by another name or as a copy."""
        entry, manifest = self.stat(entry_ref(day)), self.stat(in_day(day, MANIFEST_NAME))
        if entry is None or manifest is None:
            return False
        return entry.identity == manifest.identity or self.entry_text(day) == self.manifest_text(day)

    def entry_problem(self, day: date) -> str:
        """Return that a day's entry is of other contents than its manifest, and what to do about it."""
        advice = "If that one is right, remove this entry: the next run makes it again"
        return f"{self.entry_place(day)}: other contents than {self.manifest_place(day)}. {advice}"

    def replaced_place(self, day: date) -> str | None:
        """Return the path of a day's folder in staging, as long as its manifest is the day's entry."""
        entry = self.entry_text(day)
        for name in self.staged_names() if entry else ():
            folder = f"{STAGING_NAME}/{name}/{STAGED_DAY}"
            with suppress(StoreFailed):  # a link there is nobody's day
                if staged_day(name) == day and self._text(f"{folder}/{MANIFEST_NAME}") == entry:
                    return self.place(folder)
        return None

    def late_since_replaced(self, day: date) -> list[str]:
        """Return the paths of late files that a day's folder has, and that the one before it had not."""
        before = self.replaced_place(day)
        known = {path.name for path in self._late_in(Path(before), day)} if before else set()
        late = self._late_in(self.day_folder(day), day) if before else []
        return sorted(str(path) for path in late if path.name not in known)

    def lock_holder(self) -> LockHolder | None:
        """Return who took the lock last, without taking it; None if the lock file cannot be read."""
        with suppress(OSError):
            return LockHolder.read((self.root / LOCK_NAME).read_bytes())
        return None

    def exists(self) -> bool:
        """Return whether the lake's folder exists."""
        return self.root.exists()

    def place(self, ref: str) -> str:
        """Return the path of a reference."""
        return str(self.root / ref)

    def day_names(self) -> list[str]:
        """List all names that readers of `date=*` take for a day, in order."""
        return sorted(path.name for path in self.root.glob(f"{DAY_PREFIX}*"))

    def stat(self, ref: str) -> Entry | None:
        """Return the file or folder at a reference; a symbolic link is not followed."""
        with store_errors(f"look at {self.root / ref}"), suppress(FileNotFoundError, NotADirectoryError):
            path = self.root / ref
            attributes = path.lstat()
            return Entry(identity=(attributes.st_dev, attributes.st_ino), is_link=path.is_symlink())
        return None

    def open_file(self, ref: str) -> BufferedReader:
        """Open a file for reading."""
        return (self.root / ref).open("rb")

    def files_below(self, ref: str) -> Iterator[str]:
        """Yield all files and links below a reference, except those removed meanwhile."""

        def refuse(error: OSError) -> None:
            with store_errors(f"list {error.filename}"), suppress(FileNotFoundError):
                raise error

        for at, folders, files in os.walk(self.root / ref, onerror=refuse):
            links = (name for name in folders if os.path.islink(os.path.join(at, name)))
            yield from (Path(at, name).relative_to(self.root).as_posix() for name in (*files, *links))

    def require_no_link(self, ref: str) -> None:
        """Check that neither a reference nor a folder that it lies in is a symbolic link."""
        steps = [self.root / ref, *(self.root / ref).parents]
        for path in reversed(steps[: steps.index(self.root)]):
            if os.path.islink(path):
                raise StoreFailed(
                    expected=f"{path} to be a file or a folder of this lake",
                    found=f"a symbolic link to {os.readlink(path)}",
                    do="Nothing behind it was changed. Remove the link, or put what it leads to in its "
                    "place; only the lake's own folder may be a link.",
                )

    def late_files(self, into: Iterable[date], by: date, since: datetime | None) -> list[str]:
        """List late files that runs of `by` or later brought into those days that changed from `since` on."""
        # A new link in a folder sets its mtime and its ctime. `cp -a`, `rsync -a` and `tar` set an mtime
        # back, even of a folder that they only add to, but that itself sets the ctime to now. So a folder
        # that was restored or copied is listed, perhaps in vain, and no folder that got a file is left out.
        # The later of both times counts, for stores without a true ctime.
        paths: list[Path] = []
        for folder in map(self.day_folder, into):
            stats = _stat(folder)
            if stats and (since is None or max(stats.st_ctime, stats.st_mtime) >= since.timestamp()):
                paths += self._late_in(folder, by)
        return sorted(path.relative_to(self.root).as_posix() for path in paths)

    def _late_in(self, folder: Path, by: date) -> list[Path]:
        names: list[re.Match[str] | None] = []
        if_missing = suppress(FileNotFoundError, NotADirectoryError)
        with store_errors(f"list {folder}"), if_missing, os.scandir(folder) as entries:
            names = [LATE_NAME.match(entry.name) for entry in entries]
        return [folder / name.string for name in names if name and name[1] >= by.isoformat()]

    def manifest_written(self, day: date) -> datetime | None:
        """Read from the store when a day's manifest was written, by the store's own clock."""
        attributes = _stat(Path(self.manifest_place(day)))
        return datetime.fromtimestamp(attributes.st_mtime, UTC) if attributes else None

    def staged_names(self) -> list[str]:
        """List the names in staging, in order."""
        staging = self.root / STAGING_NAME
        self.require_no_link(STAGING_NAME)
        with store_errors(f"list {staging}"), suppress(FileNotFoundError):
            return sorted(path.name for path in staging.iterdir())
        return []

    def orphans(self) -> list[Orphan]:
        """List the folders in staging, except those that a run removes meanwhile."""
        paths = (self.root / STAGING_NAME / name for name in self.staged_names())
        return [orphan for path in paths if (orphan := describe_orphan(path))]

    # -- changing

    @contextmanager
    def lock(self, holder: LockHolder) -> Iterator[None]:
        """Hold the lake as its one writer; the kernel frees it when this process ends, however it ends.

        Raises:
            LakeLocked: another run holds it.
            StoreFailed: the store refused, or the lock is a symbolic link.
        """
        with store_errors(f"make {self.root}"):
            self._make_root()
            self.require_no_link(LOCK_NAME)
            file = self._store.system.open(
                self.root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666
            )
        try:
            self._take_lock(file)
            with store_errors(f"write {self.root / LOCK_NAME}"):
                self._store.system.truncate(file, 0)
                self._store.system.pwrite(file, holder.to_text(), 0)
            # a dead run may have renamed a day without a sync: sync before this run continues from that day
            self.make_days_durable()
            try:
                yield
            finally:
                with suppress(OSError):
                    self._store.system.truncate(file, 0)
        finally:
            self._store.system.close(file)

    def _make_root(self) -> None:
        """Make the lake's folder and its parents, each with a durable name before the next.

        A run that was killed here may have left a folder whose name is not durable. So, while there is no
        lock file, the name of the deepest existing folder is synced again. This is skipped if no run can have
        made that folder: if this user may not write beside it, or if it is a mount point, whose parent may
        refuse a sync, as autofs does. No folder is made if its name cannot be made durable.
        """
        root = self.root.absolute()  # a relative path ends before the folders that it lies in
        missing = [folder for folder in (root, *root.parents) if not folder.exists()]
        deepest = missing[-1].parent if missing else root
        ours = not os.path.ismount(deepest) and _may_hold_ours(deepest.parent)
        if ours and not (self.root / LOCK_NAME).exists():
            self._store.sync_folder(deepest.parent)
        if missing:
            self._store.sync_folder(deepest)
        for folder in reversed(missing):
            self._store.make_folder(folder)
            self._store.sync_folder(folder.parent)

    def _take_lock(self, file: int) -> None:
        with store_errors(f"lock {self.root / LOCK_NAME}"):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                nameless = "a run that is just starting, or by another program, such as a backup"
                raise LakeLocked(
                    expected=f"{self.root} to be free",
                    found=f"it is held by {self.lock_holder() or nameless}",
                    do="Wait for that to end; a dead run holds nothing, so nothing need be removed.",
                ) from None

    def make_days_durable(self) -> None:
        """Make sure that all days that are visible now survive a loss of power, with their entries."""
        self._store.sync_folder(self.root)
        ledger = self.root / LEDGER_NAME
        if ledger.is_dir() and not ledger.is_symlink():
            self._store.sync_folder(ledger)

    def enter(self, days: Iterable[date]) -> None:
        """Link the manifests of days into the ledger; a store without links gets copies."""
        self.require_no_link(LEDGER_NAME)
        folder = self.root / LEDGER_NAME
        self._make_beside_days(folder)
        for day in days:
            self._enter(Path(self.manifest_place(day)), Path(self.entry_place(day)))
        self._store.sync_folder(folder)

    def _enter(self, manifest: Path, entry: Path) -> None:
        if os.path.lexists(entry) and os.path.samestat(manifest.lstat(), entry.lstat()):
            return  # a rename of one name of a file to another one of it would leave both
        with self._new_name(entry.name) as ref:
            if self._store.try_link(manifest, self.root / ref):
                self._write_text(ref, manifest.read_bytes())
            self._store.move(self.root / ref, entry)

    def put(self, ref: str, text: bytes) -> None:
        """Write a small file: durable in staging, then renamed over the old one, then synced."""
        self.require_no_link(ref)
        target = self.root / ref
        self._make_beside_days(target.parent)
        with self._new_name(last(ref)) as new:
            self._write_text(new, text)
            self._store.move(self.root / new, target)
        self._store.sync_folder(target.parent)

    def _make_beside_days(self, folder: Path) -> None:
        """Make a folder beside the days, with a durable name."""
        if not folder.exists():
            self._store.make_inner_folder(folder, self.root)
            self._store.sync_folder(folder.parent)

    @contextmanager
    def _new_name(self, name: str) -> Iterator[str]:
        """Yield a free name in staging for a small file, and remove what is left of it in the end."""
        self.require_no_link(STAGING_NAME)
        new = self.root / STAGING_NAME / f"{PUT}{name}"
        makes_staging = not new.parent.exists()
        self._store.make_inner_folder(new.parent, self.root)
        if os.path.lexists(new):  # a run that was killed left it
            self._store.unlink(new)
        try:
            yield f"{STAGING_NAME}/{new.name}"
        finally:
            with suppress(OSError):
                if os.path.lexists(new):
                    self._store.system.unlink(new)
                if makes_staging:
                    self._store.system.rmdir(new.parent)

    def stage(self, day: date, run_id: str) -> str:
        """Make the staging folder of one run, and return its reference.

        Raises:
            StoreFailed: the store refused, or staging is a symbolic link.
        """
        self.require_no_link(STAGING_NAME)
        ref = f"{STAGING_NAME}/{day}.{run_id}"
        self._store.make_folder(self.root / ref)
        return ref

    def begin_attempt(self, ref: str) -> None:
        """Make the folder of a task's attempt; the folder of its run must exist."""
        self._store.make_inner_folder(self.root / ref, self.root.joinpath(*Path(ref).parts[:2]))

    def create_file(self, ref: str) -> PosixFile:
        """Create a file in the staging of a run; folders between are made, but not the run's own folder."""
        self.begin_attempt(parent(ref))
        return PosixFile(self.root / ref, ref, self._store.system)

    def commit(self, staged: str, day: date, contents: DayContents) -> None:
        """Make a staged day visible by one rename, made durable by one sync of the lake's folder."""
        folder, target = self._put_together(staged, contents), self.day_folder(day)
        if os.path.lexists(target):
            raise DayExists(
                expected=f"{target} to be absent",
                found="it exists",
                do="Find out who made it; if it holds no manifest, move it away and run the day again.",
            )
        self._store.move(folder, target)
        self._store.sync_folder(self.root)

    def replace(self, staged: str, day: date, contents: DayContents) -> None:
        """Exchange a staged day for a committed one, which goes into staging."""
        folder = self._put_together(staged, contents)
        for source, target in contents.withdrawn.items():
            self._withdraw(source, target)
        self._store.exchange(folder, self.day_folder(day))
        self._store.sync_folder(self.root)

    def require_removal(self) -> None:
        """Do nothing: a rename removes a day."""

    def remove(self, staged: str, day: date) -> None:
        """Rename a day into staging, beside a barrier for readers that search all folders."""
        self.require_no_link(day_ref(day))
        outer = self.root / staged
        if self.has_day(day):
            self._write_text(f"{staged}/{BARRIER_NAME}", BARRIER)
            self._store.sync_folder(outer)
            for folder in (outer.parent, self.root):  # they may have to keep a file of somebody else
                self._store.sync_folder(folder)
            self._store.move(self.day_folder(day), outer / STAGED_DAY)
        # not a link, a file, or a folder closed to us, that somebody put there
        if outer.is_dir() and not outer.is_symlink() and os.access(outer, os.R_OK, effective_ids=True):
            self._store.sync_folder(outer)
        self._store.sync_folder(self.root)

    def _withdraw(self, source: str, target: str) -> None:
        """Take a late file out of its day: link, sync, unlink, sync. If the run is killed, `bring` undoes it.

        A file that lies at `source` stays.
        """
        self.require_no_link(parent(target))
        self.require_no_link(parent(source))
        from_, to = self.root / source, self.root / target
        if self.stat(target) is None:
            return
        if self.stat(source) is None:
            self._store.make_folder(from_.parent)
            self._store.link(to, from_)
            for folder in from_.parents[: len(Path(source).parts) - 1]:
                self._store.sync_folder(folder)
        self._store.unlink(to)
        self._store.sync_folder(to.parent)

    def _put_together(self, staged: str, contents: DayContents) -> Path:
        """Make the folder of a day in staging, durable from the bottom up."""
        outer = self.root / staged
        folder = outer / STAGED_DAY
        self._store.make_folder(folder)
        # from here on names in staging end in .parquet, since the commit is one rename of the whole folder
        self._write_text(f"{staged}/{BARRIER_NAME}", BARRIER)
        self._store.sync_folder(outer)
        # by this folder's name the next run knows which day was replaced, if this one dies before the entry
        self._store.sync_folder(outer.parent)
        self._store.sync_folder(self.root)
        for name, ref in contents.moved.items():
            self._store.make_inner_folder((folder / name).parent, outer)
            self._store.move(self.root / ref, folder / name)
        for name, ref in contents.shared.items():
            self._store.make_inner_folder((folder / name).parent, outer)
            self._store.link(self.root / ref, folder / name)
        for name, text in contents.texts.items():
            self._write_text(f"{staged}/{STAGED_DAY}/{name}", text)
        self._store.sync_all(folder)
        return folder

    def _write_text(self, ref: str, text: bytes) -> None:
        """Write a small file, and make its contents durable."""
        file = PosixFile(self.root / ref, ref, self._store.system)
        file.write(text)
        file.make_durable()

    def bring(self, source: str, target: str) -> bool:
        """Bring a late file to its day: link, sync the day's folder, unlink, sync; each step is idempotent.

        The file is never without a durable name. Where its day has it under its earlier name, which readers
        see, a rename comes in the place of the link.
        """
        self.require_no_link(parent(target))
        at_target, at_source = self.stat(target), self.stat(source)
        from_, to = self.root / source, self.root / target
        if at_source is None and at_target is not None:  # the target was durable before the source went
            if from_.parent.exists():  # a rebuilt day has no such folder, nor one whose files have all gone
                self._store.sync_folder(from_.parent)
                self._leave(from_.parent)
            return False
        earlier, renamed = earlier_place(self, target), awaits_rename(self, source, target)
        if at_target not in (None, at_source) or (at_source is None and not renamed):
            raise _not_one_file(from_, to, found="neither" if at_source is None else "two files")
        if earlier and not renamed:
            raise _not_one_file(from_, self.root / earlier, found="two files")
        if earlier and at_target is None:
            self._store.move(self.root / earlier, to)
        elif earlier:  # a loss of power left both names of a rename
            self._store.unlink(self.root / earlier)
        elif at_target is None:
            self._store.link(from_, to)
        self._store.sync_folder(to.parent)
        if at_source:
            self._store.unlink(from_)
            self._store.sync_folder(from_.parent)
            self._leave(from_.parent)
        return not renamed

    def finish(self, day: date) -> None:
        """Do nothing: a folder shows by itself whether anything is left to do."""

    def _leave(self, folder: Path) -> None:
        """Remove the folder of a day's late files, and the one around it, once nothing lies in them."""
        with suppress(OSError):  # it holds another file; or it stays, and nobody reads an empty folder
            self._store.system.rmdir(folder)
            self._store.system.rmdir(folder.parent)

    def require_late_moves(self, staged: str) -> None:
        """Check that the store has hard links, which bringing late files needs.

        The probe is a link in the run's staging folder, and is removed with it, also after a kill.
        """
        if error := self._store.try_link(self.root / LOCK_NAME, self.root / staged / PROBE_NAME):
            raise StoreFailed(
                expected=f"hard links in {self.root}, by which late rows reach their day (late: amend)",
                found=error.strerror or str(error),
                do="Put the lake on a file system that has them, or set `late: set_aside`.",
            ) from error

    def settle(self, day: date) -> None:
        """Do nothing: what a dead run left to do is known from the folder."""

    def require_replace(self, staged: str) -> None:
        """Check that the store can exchange two names."""
        first, second = self.root / staged / "one", self.root / staged / "other"
        self._store.make_folder(first)
        self._store.make_folder(second)
        self._store.exchange(first, second)

    def discard(self, staged: str) -> None:
        """Remove a folder of staging: the run's own, or an orphan."""
        path = self.root / staged
        if path.parent != self.root / STAGING_NAME:
            raise ValueError(f"{path} is no staging folder of {self.root}")
        self.require_no_link(STAGING_NAME)
        discard(self._store, path)


def _not_one_file(source: Path, target: Path, found: str) -> LedgerBroken:
    """Return the error of a late file that is gone, or that is another one in its day."""
    day = target.parent.name.removeprefix(DAY_PREFIX)
    return LedgerBroken(
        expected=f"the late file {source}, or the same file at {target}",
        found=found,
        do=f"Build the day that it belongs to again (`run --date {day} --force`), or restore the file."
        if found == "neither"
        else "Move the one that is not as the manifest says out of the lake, or, where both are alike, "
        f"{source}; then run again.",
    )


def _stat(path: Path) -> os.stat_result | None:
    """Return the attributes of a path, following links; None if it does not exist."""
    with store_errors(f"look at {path}"), suppress(FileNotFoundError, NotADirectoryError):
        return os.stat(path)
    return None


def _may_hold_ours(folder: Path) -> bool:
    """Return whether this user may list a folder or write in it; if neither, we made no folder there."""
    return any(os.access(folder, mode, effective_ids=True) for mode in (os.R_OK, os.W_OK | os.X_OK))
