"""A lake in a bucket: an entry in the ledger commits a day, and then its files are copied to their places.

No promise rests on a lock, and on a clock only that no copy takes an hour: each entry is put where none is,
so of several runs one commits a day, and the others find out by reading. What follows the commit may be
repeated by anybody, any number of times: a file is copied where it is not there yet, once all are there the
staging of the run goes, and then `_SUCCESS` names the entry. So no copy of a day begins after its `_SUCCESS`,
not even by a process that slept. A run removes its own staging in one other case: when it has read another's
entry in the place of its own, or never put one.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import partial
from io import BufferedIOBase
from itertools import islice
from typing import Final, TypeVar

from jobs.lake.names import (
    DAY_PREFIX,
    LEDGER_NAME,
    STAGING_NAME,
    SUCCESS_NAME,
    below,
    brought_by,
    day_of,
    day_ref,
    entry_ref,
    in_day,
    last,
    parent,
    staged_day,
)
from jobs.lake.objects.lease import leased, read_holder
from jobs.lake.objects.ledger import FENCE, DayEntries, Entries, put_entry, read_entries
from jobs.lake.objects.store import Found, ObjectStore
from jobs.lake.port import DayContents, Entry, LockHolder, NewFile, Orphan
from offsets.errors import (
    AuditFailed,
    ConfigError,
    DayExists,
    LakeLocked,
    LedgerBroken,
    StoreFailed,
    VerifyFailed,
)
from offsets.manifest import DataFile, Manifest
from offsets.manifest_text import LISTS_NAME, MANIFEST_NAME, from_json

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
BEGUN_NAME: Final = "_run.json"
"""The first object in the staging of a run, so that `clean` finds a run that wrote nothing yet."""
IN_FLIGHT: Final = timedelta(hours=1)
"""For so long, by the store's clock, a copy may be on its way that a run began before it died."""
MOVES_NAME: Final = "_moves.json"
"""In the staging of a run: where each file lies until it is copied, by its path below the day."""
SETTLED_NAME: Final = "_settled.json"
"""In the staging of a run some of whose files are nowhere: from its time on no copy to the day begins."""


@dataclass(slots=True)
class _Run:
    """A run of this process: what its day's ledger held when it began, and whether its entry may be there."""

    entries: DayEntries
    may_be_committed: bool = False


@dataclass(frozen=True, slots=True)
class _OpenDay:
    """A committed day whose files are not all known to be in place, and where the others lie."""

    entry: Found
    manifest: Manifest
    moves: dict[str, str]

    @property
    def staging(self) -> str:
        """The staging of the run that committed it."""
        return _staging(self.manifest.day.date, self.manifest.run_id)

    def final(self, file: DataFile) -> str:
        """Return the key at which a file ends."""
        return file.target or in_day(self.manifest.day.date, file.path)


class ObjectLake:
    """The objects of one topic: reading them, and each change that a run can make."""

    def __init__(
        self, store: ObjectStore, in_flight: timedelta = IN_FLIGHT, *, with_lease: bool = True
    ) -> None:
        """Take the store, below the prefix of the lake, and how long a copy may be on its way.

        Without a lease several runs work at once, as they may with it: no promise rests on it.
        """
        self._store, self._in_flight, self._with_lease = store, in_flight, with_lease
        self._forget()

    def _forget(self) -> None:
        """Know nothing: what is known is known from one listing on."""
        self._listed: Entries | None = None
        self._looked_up: dict[date, DayEntries] = {}
        self._texts: dict[str, bytes | None] = {}
        self._successes: dict[date, bytes | None] = {}
        """What was found beside some days, each to be looked at once."""
        self._own: set[tuple[date, int]] = set()
        """The numbers of the entries that this run put, by their days."""
        self._runs: dict[str, _Run] = {}
        self._published: set[str] = set()
        self._cleared: set[str] = set()
        """The entries that count beside no file that they replaced."""
        self._open: dict[str, _OpenDay] = {}

    def __getstate__(self) -> dict[str, object]:
        """Pickle without what this process knows."""
        return {name: getattr(self, name) for name in ("_store", "_in_flight", "_with_lease")}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Know nothing in another process."""
        self.__dict__.update(state)
        self._forget()

    # -- the ledger

    def _entries(self) -> Entries:
        if self._listed is None:
            self._listed = read_entries(self._store)
        return self._listed

    def _of(self, day: date) -> DayEntries:
        """Return the entries of a day; without a listing of all days those of this day alone are listed."""
        if self._listed is not None:
            return self._listed.of(day)
        if day not in self._looked_up:
            self._looked_up[day] = self._look_again(day)
        return self._looked_up[day]

    def _list_anew(self) -> None:
        """Know no entries: this process has put one, or somebody else may have."""
        self._listed = None
        self._looked_up.clear()

    def _look_again(self, day: date) -> DayEntries:
        """List the entries of one day as they are now; what this run goes by stays as it was."""
        return read_entries(self._store, day).of(day)

    def days(self) -> list[date]:
        """List the committed days, in order."""
        return self._entries().committed()

    def entries(self) -> list[date]:
        """List the days that have an entry, which are the committed ones."""
        return self.days()

    def has_day(self, day: date) -> bool:
        """Return whether a day is committed."""
        return self._of(day).counts is not None

    def has_manifest(self, day: date) -> bool:
        """Return whether a day is committed."""
        return self.has_day(day)

    def manifest_place(self, day: date) -> str:
        """Return the address of the entry that counts."""
        entry = self._of(day).counts
        return self._store.place(entry.key if entry else entry_ref(day))

    entry_place = manifest_place

    def manifest_text(self, day: date) -> bytes | None:
        """Return the entry that counts, or None; those of the days after it are asked for at once."""
        entry = self._of(day).counts
        if entry is None:
            return None
        if entry.key not in self._texts:
            keys = [each.key for each in map(self._counts, self._days_from(day)) if each]
            self._texts = dict(zip(keys, self._at_once(self._store.get, keys), strict=True))
        return self._texts[entry.key]

    def _counts(self, day: date) -> Found | None:
        return self._of(day).counts

    def _days_from(self, day: date) -> list[date]:
        """Return a day and some that come after it, which is how a chain is read."""
        return [day, *islice(self._later_days(day), self._store.at_once - 1)]

    def _later_days(self, day: date) -> Iterator[date]:
        if self._listed is not None:
            days = self._listed.committed()
            yield from days[bisect_right(days, day) :]

    def _at_once(self, ask: Callable[[Asked], Answer], of: Sequence[Asked]) -> list[Answer]:
        """Ask the store several things, at once where it allows it."""
        if len(of) < 2 or self._store.at_once == 1:
            return [*map(ask, of)]
        with ThreadPoolExecutor(self._store.at_once) as pool:
            return [*pool.map(ask, of)]

    entry_text = manifest_text

    def manifest_written(self, day: date) -> datetime | None:
        """Return when the entry that counts was put, by the store's clock."""
        entry = self._of(day).counts
        return entry.modified if entry else None

    def offset_lists(self, day: date, at: int, size: int) -> bytes:
        """Read bytes of the long sets that the entry that counts names."""
        text = self._store.get(self._key(in_day(day, LISTS_NAME)))
        return (text or b"")[at : at + size]

    def replaced_place(self, day: date) -> None:
        """Return None: an entry is never of another folder."""

    def late_since_replaced(self, day: date) -> list[str]:
        """Return none, as no folder is replaced."""
        return []

    def is_entered(self, day: date) -> bool:
        """Return whether all that follows a day's commit is done: its `_SUCCESS` names the entry.

        Those of the days after it are asked for at once: whoever looks at all days goes on with them.
        """
        entry = self._of(day).counts
        if entry is None:
            return False
        if entry.key not in self._published:
            if day not in self._successes:
                days = self._days_from(day)
                texts = self._at_once(lambda each: self._store.get(in_day(each, SUCCESS_NAME)), days)
                self._successes = dict(zip(days, texts, strict=True))
            if self._successes.pop(day) == _names(entry):  # it may change until it is looked at again
                self._published.add(entry.key)
        return entry.key in self._published

    def entry_problem(self, day: date) -> str:
        """Return that `_SUCCESS` does not name a day's entry; the entry itself is the truth."""
        success = self._store.place(in_day(day, SUCCESS_NAME))
        advice = f"`run --date {day}` puts it anew, once all files of the day are there"
        return f"{success}: missing, or it does not name {self.entry_place(day)}. {advice}"

    # -- reading

    def exists(self) -> bool:
        """Return whether the lake has an entry or anything in staging."""
        return bool(self._entries().days or self.staged_names())

    def place(self, ref: str) -> str:
        """Return the address of a reference."""
        return self._store.place(self._key(ref))

    def day_names(self) -> list[str]:
        """List all names that readers of `date=*` take for a day, in order."""
        return [name for name in self._store.folders() if name.startswith(DAY_PREFIX)]

    def _key(self, ref: str) -> str:
        """Return the key of a reference: the manifest and its entry are one object, its sets another."""
        day = _manifest_day(ref) or _lists_day(ref)
        entry = self._of(day).counts if day else None
        if day is None or entry is None:
            return ref
        return entry.key if _manifest_day(ref) else _lists_key(day, self._read(entry).run_id)

    def _read(self, entry: Found) -> Manifest:
        text, place = self._store.get(entry.key), self._store.place(entry.key)
        return from_json(text or b"", place, lambda at, size: b"")

    def stat(self, ref: str) -> Entry | None:
        """Look at the object, day or folder at a reference; a file of a day may still lie in staging."""
        if ref.startswith(DAY_PREFIX) and "/" not in ref:
            return Entry(identity=ref) if self.has_day(date.fromisoformat(ref[5:])) else None
        key = self._key(ref)
        if self._store.head(key):
            return Entry(identity=key)
        if waiting := self._waiting(ref):
            return Entry(identity=waiting[1]) if self._store.head(waiting[0]) else None
        return None

    def _waiting(self, ref: str) -> tuple[str, str] | None:
        """Return where a file of a committed day lies in staging, and the key at which it is to end."""
        if not ref.startswith(DAY_PREFIX) or (open_day := self._open_day(day_of(ref))) is None:
            return None
        name = below(ref, ref.split("/")[0])
        source = open_day.moves.get(name)
        final = next((open_day.final(file) for file in open_day.manifest.files if file.path == name), None)
        return (source, final) if source and final else None

    def _open_day(self, day: date) -> _OpenDay | None:
        """Return a committed day that is not published, or None."""
        entry = self._of(day).counts
        if entry is None or self.is_entered(day):
            return None
        if entry.key not in self._open:
            open_day = _OpenDay(entry, self._read(entry), {})
            moves = self._store.get(f"{open_day.staging}/{MOVES_NAME}")
            self._open[entry.key] = replace(open_day, moves=json.loads(moves or b"{}"))
        return self._open[entry.key]

    def open_file(self, ref: str) -> BufferedIOBase:
        """Open a file for reading, where it lies."""
        try:
            return self._store.open_object(self._key(ref))
        except FileNotFoundError:
            if waiting := self._waiting(ref):
                return self._store.open_object(waiting[0])
            self._require_not_fenced(ref)
            raise

    def _require_not_fenced(self, ref: str) -> None:
        """Check that a file of this run was not removed by `clean`, which fenced the run off before."""
        name = ref.split("/")[1] if ref.startswith(STAGING_NAME) else ""
        run, day = self._runs.get(name), staged_day(name)
        if run and day and self._look_again(day).number != run.entries.number:
            raise _beaten(day)

    def files_below(self, ref: str) -> Iterator[str]:
        """Yield all objects below a reference but `_SUCCESS`, and its files that are still in staging."""
        keys = {each.key for each in self._store.find(ref) if last(each.key) != SUCCESS_NAME}
        day = staged_day(ref.split("/")[0].removeprefix(DAY_PREFIX))
        if day and (open_day := self._open_day(day)):
            names = (in_day(day, name) for name in open_day.moves)
            keys |= {name for name in names if name.startswith(f"{ref}/") and self.stat(name)}
        yield from sorted(keys)

    def require_no_link(self, ref: str) -> None:
        """Do nothing: an object is no link."""

    def late_files(self, into: Iterable[date], by: date, since: datetime | None) -> list[str]:
        """List the late files that runs of `by` or later brought to some days.

        With `since` there are none: each was named by an entry before it came, and entries are not removed.
        """
        if since:
            return []
        found = [each.key for day in into for each in self._store.find(day_ref(day))]
        return [key for key in found if (brought := brought_by(key)) and brought >= by]

    def lock_holder(self) -> LockHolder | None:
        """Return the run that the advisory lock names, if any."""
        return read_holder(self._store)

    def staged_names(self) -> list[str]:
        """List the names in staging, in order."""
        return self._store.folders(STAGING_NAME)

    def orphans(self) -> list[Orphan]:
        """List the staging of runs, but for that from which files of a committed day are still copied."""
        self._list_anew()
        found: dict[str, list[Found]] = {}
        for each in self._store.find(STAGING_NAME):
            found.setdefault(each.key.split("/")[1], []).append(each)
        return [_orphan(name, objects) for name, objects in found.items() if not self._is_needed(name)]

    def _is_needed(self, name: str) -> bool:
        day = staged_day(name)
        open_day = self._open_day(day) if day else None
        return open_day is not None and name == last(open_day.staging)

    # -- changing

    @contextmanager
    def lock(self, holder: LockHolder) -> Iterator[None]:
        """Begin to read anew, under the advisory lock: it keeps most other runs out, and not all.

        Raises:
            LakeLocked: another run is at work; or this one found a contradiction, and another run has changed
                the ledger meanwhile: what was read before and after that may contradict.
        """
        with leased(self._store, holder) if self._with_lease else nullcontext(), self._undisturbed():
            yield

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        self._forget()
        begun = self._entries()
        try:
            yield
        except (AuditFailed, DayExists, LedgerBroken, VerifyFailed) as contradiction:
            if self._have_others_put(begun):
                raise _disturbed() from contradiction
            raise

    def _have_others_put(self, begun: Entries) -> bool:
        """Return whether the ledger has changed since, but for what this run put."""
        now = read_entries(self._store)
        for day in {*begun.days, *now.days}:
            before, after = begun.of(day), now.of(day)
            new = {(day, number) for number in range(before.number + 1, after.number + 1)}
            if after != before and not (new and new <= self._own):
                return True
        return False

    def make_days_durable(self) -> None:
        """Do nothing: what a store shows is durable."""

    def put(self, ref: str, text: bytes) -> None:
        """Put a small object beside the days."""
        self._store.put(ref, text)

    def stage(self, day: date, run_id: str) -> str:
        """Begin the staging of one run, and remember the entries of its day.

        Raises:
            DayExists: the day has files and no entry.
            StoreFailed: the store refused.
        """
        staged = _staging(day, run_id)
        begun = f"{staged}/{BEGUN_NAME}"
        self._require_conditions(begun)
        try:
            self._runs[last(staged)] = _Run(self._entries_to_go_on_from(day))
        except (DayExists, LakeLocked):
            with suppress(StoreFailed):
                self._store.delete([begun])  # no task has begun: nothing else is there
            raise
        return staged

    def _entries_to_go_on_from(self, day: date) -> DayEntries:
        there = self._store.find(day_ref(day))  # before the ledger: an entry comes before its files
        entries = self._look_again(day)
        if entries.counts != self._of(day).counts:
            raise _beaten(day)
        if there and not entries.counts:
            raise DayExists(
                expected=f"no objects below {self.place(day_ref(day))}, since {day} is not committed",
                found=f"{there[0].key}",
                do="If the files of a lake in a folder were copied here, remove them, and run `copy-lake`. "
                "If this day's entry in `_ledger/` was lost, restore it from a backup. If they are "
                "somebody else's, move them away. Then run the day again.",
            )
        return entries

    def _require_conditions(self, key: str) -> None:
        """Put the first object of a run, and check that the store refuses to put it where it is.

        A conflict at the first time may leave nothing: then the second time puts it.
        """
        if self._store.create(key, b"{}") and self._store.create(key, b"{}"):
            raise StoreFailed(
                expected=f"the store to refuse a second object at {self._store.place(key)}",
                found="it was put twice: If-None-Match is ignored",
                do="Two runs at once could both commit here. Take a store that honours If-None-Match, such "
                "as S3, Google Cloud Storage, Azure Blob Storage or MinIO. Nothing was read.",
            )

    def begin_attempt(self, ref: str) -> None:
        """Do nothing: a bucket has no folders."""

    def create_file(self, ref: str) -> NewFile:
        """Begin a file in the staging of a run."""
        return self._store.new_object(ref)

    def require_late_moves(self, staged: str) -> None:
        """Do nothing: a late file is copied like any other."""

    def settle(self, day: date) -> None:
        """Finish what the last commit of a day left, or all of it but the files that are nowhere.

        After that no copy to the day begins any more: what it would be of has gone.

        Raises:
            LedgerBroken: somebody else's object is in the place of a file, or a file is nowhere and what it
                replaces is still there, or it is not known what the objects in staging are.
            StoreFailed: the store refused.
        """
        if open_day := self._open_day(day):
            self._remove_superseded(open_day)
            if lost := self._nowhere(open_day):
                self._copy_missing(open_day, [file for file in open_day.manifest.files if file not in lost])
                self._record_settled(open_day)
            else:
                self.finish(day)

    def _nowhere(self, open_day: _OpenDay) -> list[DataFile]:
        """Return the files that are neither in staging nor in place; staging comes first, and goes last.

        Raises:
            LedgerBroken: it is not known what the objects in staging are.
        """
        moves, files = open_day.moves, open_day.manifest.files
        staged = {each.key for each in self._store.find(open_day.staging)}
        there = self._sizes({*map(open_day.final, files)})
        lost = [
            file for file in files if moves.get(file.path) not in staged and open_day.final(file) not in there
        ]
        if lost and not moves:
            self._require_none_staged(open_day, staged)
        return lost

    def _require_none_staged(self, open_day: _OpenDay, staged: Set[str]) -> None:
        folder = open_day.staging
        if files := staged - {f"{folder}/{name}" for name in (BEGUN_NAME, SETTLED_NAME)}:
            raise LedgerBroken(
                expected=f"{self._store.place(f'{folder}/{MOVES_NAME}')}, which says where its files belong",
                found=f"none, and {len(files)} objects beside it",
                do=f"Restore it. If it is gone for good, move what is left below {self._store.place(folder)} "
                f"out of the lake, keep it, and build the day again "
                f"(`run --date {open_day.manifest.day.date} --force`).",
            )

    def _record_settled(self, open_day: _OpenDay) -> None:
        """Record since when no copy to a day begins: once, or no hour would be long enough.

        The moves stay, so that a file that somebody puts back into staging is known.
        """
        mark, moves = (f"{open_day.staging}/{name}" for name in (SETTLED_NAME, MOVES_NAME))
        if self._delete_below(open_day.staging, but={mark, moves}) or not self._store.head(mark):
            self._store.put(mark, b"{}")

    def require_replace(self, staged: str) -> None:
        """Check that no copy to the day can be on its way: it would come back after its removal.

        Raises:
            LakeLocked: one can.
        """
        day = staged_day(last(staged))
        if day is None:
            raise ValueError(staged)
        open_day = self._open_day(day)
        mark = f"{open_day.staging}/{SETTLED_NAME}" if open_day else in_day(day, SUCCESS_NAME)
        settled, begun = self._store.head(mark), self._store.head(f"{staged}/{BEGUN_NAME}")
        if settled and begun and begun.modified - settled.modified >= self._in_flight:
            return
        until = settled.modified + self._in_flight if settled else None
        raise LakeLocked(
            expected=f"the last copy to {day} to be {self._in_flight} old",
            found=f"one of {settled.modified:%Y-%m-%dT%H:%M:%SZ}" if settled else "nothing that says so",
            do=f"A copy on its way could bring back what a rebuild removes. Run again after "
            f"{until:%Y-%m-%dT%H:%M:%SZ}."
            if until
            else "Run again.",
        )

    def replace(self, staged: str, day: date, contents: DayContents) -> None:
        """Put a day's next entry: from then on it counts, and the files that it does not name go.

        Raises:
            LakeLocked: another run replaced the day, a copy to it may be on its way, or `clean` fenced this
                run off.
            StoreFailed: the store refused; it may not be known whether the day is replaced.
        """
        self.require_replace(staged)
        self._put_entry(staged, day, contents)

    def require_removal(self) -> None:
        """Refuse: no day leaves a bucket yet.

        Raises:
            ConfigError: in any case.
        """
        raise ConfigError(
            expected="a lake in a folder, for days to expire",
            found=f"one in a bucket, {self.place('')}",
            do="Days of a bucket cannot expire yet. Nothing was changed.",
        )

    def remove(self, staged: str, day: date) -> None:
        """Refuse: no day leaves a bucket yet."""
        self.require_removal()

    def commit(self, staged: str, day: date, contents: DayContents) -> None:
        """Put a day's entry: from then on it is committed, wherever its files lie.

        Raises:
            LakeLocked: another run committed the day, or `clean` fenced this run off.
            StoreFailed: the store refused; it may not be known whether the day is committed.
        """
        if self._runs[last(staged)].entries.counts:
            raise _beaten(day)
        self._put_entry(staged, day, contents)

    def _put_entry(self, staged: str, day: date, contents: DayContents) -> None:
        run = self._runs[last(staged)]
        if lists := contents.texts.get(LISTS_NAME):
            self._store.put(_lists_key(day, last(staged).partition(".")[2]), lists)
        self._store.put(f"{staged}/{MOVES_NAME}", json.dumps(dict(contents.moved)).encode())
        run.may_be_committed = True
        self._own.add((day, run.entries.number + 1))
        run.may_be_committed = put_entry(
            self._store, day, run.entries.number + 1, contents.texts[MANIFEST_NAME]
        )
        if not run.may_be_committed:
            raise _beaten(day)
        self._list_anew()

    def enter(self, days: Iterable[date]) -> None:
        """Copy the files of committed days to their places, but for late files that go to other days."""
        for day in days:
            if open_day := self._open_day(day):
                self._remove_superseded(open_day)
                self._copy_missing(open_day, [file for file in open_day.manifest.files if not file.target])

    def _remove_superseded(self, open_day: _OpenDay) -> None:
        """Remove the files that earlier entries of a day name and this one does not, before its own come.

        Raises:
            LedgerBroken: one of its own is nowhere; then they stay, as its rows may be in them alone.
        """
        if open_day.entry.key in self._cleared:
            return
        if superseded := self._superseded(open_day):
            if lost := self._nowhere(open_day):
                raise self._half_replaced(open_day, lost[0], superseded)
            self._store.delete(superseded)
        self._cleared.add(open_day.entry.key)

    def _superseded(self, open_day: _OpenDay) -> set[str]:
        """Return the keys of the files that earlier entries of a day name, that are there, and that go."""
        named = {*map(open_day.final, open_day.manifest.files)}
        finals = set[str]()
        for entry in self._of(open_day.manifest.day.date).before:
            old = _OpenDay(entry, self._read(entry), {})
            finals |= {*map(old.final, old.manifest.files)} - named
        return finals & self._sizes(finals).keys() if finals else finals

    def _half_replaced(self, open_day: _OpenDay, lost: DataFile, superseded: Set[str]) -> LedgerBroken:
        day, places = open_day.manifest.day.date, sorted(map(self._store.place, superseded))
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        return LedgerBroken(
            expected=f"{self._store.place(open_day.final(lost))}, or the object in staging that becomes it",
            found=f"neither; the files that it replaces are still there: {places[0]}{more}",
            do="Restore the object to its place. If it is gone for good, move what `verify` says no manifest "
            f"names out of the lake, keep it, and build {day} again (`run --date {day} --force`).",
        )

    def _copy_missing(self, open_day: _OpenDay, files: Sequence[DataFile]) -> int:
        """Copy those files to their places that are not there; return how many were copied."""
        there = self._sizes({*map(open_day.final, files)})
        for file in files:
            self._require_ours(open_day.final(file), file, there)
        missing = [file for file in files if open_day.final(file) not in there]
        return sum(self._at_once(partial(self._copy, open_day), missing))

    def _sizes(self, keys: Set[str]) -> Mapping[str, int]:
        """Return the sizes of those objects that are there: of many, their days are listed, whole."""
        if len(keys) == 1:
            return {found.key: found.size for found in map(self._store.head, keys) if found}
        folders = sorted({key.split("/")[0] for key in keys})
        return {found.key: found.size for folder in folders for found in self._store.find(folder)}

    def _require_ours(self, key: str, file: DataFile, there: Mapping[str, int]) -> None:
        if there.get(key, file.bytes) != file.bytes:
            raise LedgerBroken(
                expected=f"{self._store.place(key)} of {file.bytes} bytes, as its manifest says",
                found=f"another object of {there[key]} bytes",
                do="Move that object out of the lake, then run the day again: the file is copied there.",
            )

    def _copy(self, open_day: _OpenDay, file: DataFile) -> bool:
        """Copy a file to its place; return whether it was copied by this run."""
        final, source = open_day.final(file), open_day.moves.get(file.path)
        if source and self._store.copy(source, final):
            return True
        day = open_day.manifest.day.date
        if self._store.head(final):  # another run was faster, and its staging has gone
            return False
        if self._look_again(day).counts != open_day.entry:
            raise _disturbed()
        raise LedgerBroken(
            expected=f"{self._store.place(final)}, or the object in staging that becomes it",
            found="neither",
            do=f"Build {day} again (`run --date {day} --force`), or restore the object to its place.",
        )

    def bring(self, source: str, target: str) -> bool:
        """Copy a late file to its day; return whether it still had to be copied."""
        open_day = self._open_day(day_of(source))
        if open_day is None:
            return False
        file = next(file for file in open_day.manifest.files if file.target == target)
        return self._copy_missing(open_day, [file]) > 0

    def finish(self, day: date) -> None:
        """Bring all files of a day to their places, remove the staging of its run, and put `_SUCCESS`.

        Raises:
            StoreFailed: the store refused, or the day was replaced meanwhile.
            LedgerBroken: a file is nowhere.
        """
        if open_day := self._open_day(day):
            self._remove_superseded(open_day)
            self._copy_missing(open_day, open_day.manifest.files)
            if self._look_again(day).counts == open_day.entry:
                self._record_published(open_day)

    def _record_published(self, open_day: _OpenDay) -> None:
        """Remove what could still be copied, put `_SUCCESS`, and remove what names the day in staging."""
        day, begun = open_day.manifest.day.date, f"{open_day.staging}/{BEGUN_NAME}"
        self._delete_below(open_day.staging, but={begun})
        text = self._store.get(open_day.entry.key) or b""
        self._store.put(in_day(day, MANIFEST_NAME), text)  # for people: nothing reads it
        self._store.put(in_day(day, SUCCESS_NAME), _names(open_day.entry))
        self._published.add(open_day.entry.key)
        self._store.delete([begun])

    def discard(self, staged: str) -> None:
        """Remove the staging of a run that cannot commit any more; what a committed day needs stays."""
        name = last(staged)
        run = self._runs.get(name)
        if run is None:
            self._discard_orphan(name)
        elif not run.may_be_committed:
            self._delete_below(staged)

    def _discard_orphan(self, name: str) -> None:
        """Remove the staging of a run that may be alive: fence it off first, then remove what was there.

        A run that commits afterwards finds its number taken.
        """
        found, day = self._store.find(f"{STAGING_NAME}/{name}"), staged_day(name)
        if day:
            number = self._look_again(day).number + 1
            self._own.add((day, number))
            if not put_entry(self._store, day, number, FENCE):
                return  # somebody committed meanwhile: it is looked at next time
            self._list_anew()  # the run may have committed before the fence
            if self._is_needed(name):
                return
        self._store.delete(each.key for each in found)

    def _delete_below(self, folder: str, but: Set[str] = frozenset()) -> int:
        """Delete all objects below a folder but some; return how many."""
        keys = [each.key for each in self._store.find(folder) if each.key not in but]
        self._store.delete(keys)
        return len(keys)


def _staging(day: date, run_id: str) -> str:
    return f"{STAGING_NAME}/{day}.{run_id}"


def _lists_key(day: date, run_id: str) -> str:
    return f"{LEDGER_NAME}/{day}/{run_id}.lists"


def _names(entry: Found) -> bytes:
    """Return the text of a `_SUCCESS` that names an entry."""
    return f"{entry.key}\n".encode()


def _manifest_day(ref: str) -> date | None:
    """Return the day whose manifest or entry a reference is."""
    day = staged_day(parent(ref).removeprefix(DAY_PREFIX)) if last(ref) == MANIFEST_NAME else None
    return day or (staged_day(last(ref)) if ref == f"{LEDGER_NAME}/{last(ref)}" else None)


def _lists_day(ref: str) -> date | None:
    return staged_day(parent(ref).removeprefix(DAY_PREFIX)) if last(ref) == LISTS_NAME else None


def _orphan(name: str, objects: list[Found]) -> Orphan:
    day, _, run_id = name.partition(".")
    return Orphan(
        name=name,
        day=day,
        run_id=run_id,
        files=len(objects),
        bytes=sum(each.size for each in objects),
        changed=max(each.modified for each in objects),
        live=None,
    )


def _beaten(day: date) -> LakeLocked:
    return LakeLocked(
        expected=f"no other run to settle {day} meanwhile",
        found="another entry in the ledger, in the place of this run's",
        do="Nothing of this run was kept. Run the day again: it is committed, or planned anew.",
    )


def _disturbed() -> LakeLocked:
    return LakeLocked(
        expected="the ledger to stay as it was while this run read the lake",
        found="a newer entry in it",
        do="Another run works on this lake. Run again once it has ended.",
    )
