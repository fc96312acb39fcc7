"""A lake in memory, each change of which can fail: the port's second implementation.

Holds names and bytes, and has no disk: a commit is one step, a late file is linked and unlinked, what is
written is durable. `show` writes the lake to a folder for tests that read one.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from io import BytesIO
from pathlib import Path

from jobs.lake.files import HashedFile, awaits_rename
from jobs.lake.names import (
    LEDGER_NAME,
    REMOVED,
    STAGED_DAY,
    STAGING_NAME,
    brought_by,
    day_ref,
    earlier_name,
    entry_day,
    entry_ref,
    last,
)
from jobs.lake.port import DayContents, Entry, LockHolder, Orphan
from offsets.errors import DayExists, LakeLocked, LedgerBroken, StoreFailed
from offsets.manifest_text import LISTS_NAME, MANIFEST_NAME
from tests.faults.store import Fault, Keeps, nothing
from tests.support.local_engine import Crash
from tests.support.same_in_tasks import SameInTasks


class MemoryStore(SameInTasks):
    """The names of a lake in memory, and its next fault."""

    def __init__(self, root: Path) -> None:
        """Begin without a lake; `root` is where it is shown."""
        self.root, self.names, self.staged = root, dict[str, bytearray](), set[str]()
        self.times: dict[bytes, int] = {}
        """After how many changes a text of a day was written."""
        self.locked = False
        self.kinds: Counter[str] = Counter()
        self.injected = 0
        self.plant()

    def plant(self, fault: Fault | None = None) -> None:
        """Start a new process, with a fault ahead of it or none."""
        self.fault, self.dead, self.made, self.locked = fault, False, 0, False

    @contextmanager
    def change(self, kind: str) -> Iterator[None]:
        """Make a change, or fail before or after it if the fault is due."""
        if self.dead:
            raise Crash("not alive")
        self.kinds[kind] += 1
        self.made += 1
        fault = self.fault if self.fault and self.fault.at == self.made else None
        if fault and not fault.after:
            self._fail(fault, kind)
        yield
        if fault:
            self._fail(fault, kind)

    def _fail(self, fault: Fault, kind: str) -> None:
        self.injected += 1
        if fault.error is None:
            self.dead = True
            raise Crash(f"killed at {kind}")
        raise StoreFailed(expected=f"to {kind}", found="EIO", do="Look.")

    def power_loss(self, keeps: Keeps = nothing) -> None:
        """Start again; all names are durable."""
        self.plant()
        self.show()

    def show(self) -> None:
        """Write the lake to its folder; names of one file become hard links."""
        folder = self.root / "lake"
        shutil.rmtree(folder, ignore_errors=True)
        made: dict[int, Path] = {}
        for name, text in self.names.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if id(text) in made:
                path.hardlink_to(made[id(text)])
            else:
                path.write_bytes(text)
                made[id(text)] = path

    def reload(self) -> None:
        """Load the folder, which a test has changed."""
        folder, texts = self.root / "lake", dict[int, bytearray]()
        self.names = {}
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                text = texts.setdefault(path.stat().st_ino, bytearray(path.read_bytes()))
                self.names[path.relative_to(folder).as_posix()] = text


class MemoryFile(HashedFile):
    """A file that is being written to a lake in memory."""

    def __init__(self, store: MemoryStore, ref: str) -> None:
        """Take the name, which must be free."""
        super().__init__(ref)
        self._store, self._text = store, bytearray()
        with store.change("create"):
            assert ref not in store.names
            store.names[ref] = self._text

    def _append(self, view: memoryview) -> None:
        """Append bytes; a dead process writes nothing, as in `tests/faults/store.py`."""
        if not self._store.dead:
            with self._store.change("write"):
                self._text.extend(view)

    def make_durable(self) -> str:
        """Return the SHA-256 of the contents."""
        return self._hash.hexdigest()


class MemoryLake:
    """A lake in memory; implements `jobs.lake.port.Lake`."""

    def __init__(self, store: MemoryStore) -> None:
        """Take the store that holds it."""
        self._store = store

    # -- reading

    def exists(self) -> bool:
        return bool(self._store.names)

    def place(self, ref: str) -> str:
        return f"memory:{ref}"

    def days(self) -> list[date]:
        return sorted(date.fromisoformat(name.removeprefix("date=")) for name in self.day_names())

    def day_names(self) -> list[str]:
        return sorted({name.split("/")[0] for name in self._store.names if name.startswith("date=")})

    def has_day(self, day: date) -> bool:
        return self.stat(day_ref(day)) is not None

    def has_manifest(self, day: date) -> bool:
        return self.manifest_place(day) in self._store.names

    def manifest_place(self, day: date) -> str:
        return f"{day_ref(day)}/{MANIFEST_NAME}"

    def manifest_text(self, day: date) -> bytes | None:
        text = self._store.names.get(self.manifest_place(day))
        return None if text is None else bytes(text)

    def manifest_written(self, day: date) -> datetime | None:
        text = bytes(self._store.names.get(self.manifest_place(day), b""))
        after = self._store.times.get(text)
        return None if after is None else datetime.fromtimestamp(after, UTC)

    def offset_lists(self, day: date, at: int, size: int) -> bytes:
        return bytes(self._store.names.get(f"{day_ref(day)}/{LISTS_NAME}", b"")[at : at + size])

    def entries(self) -> list[date]:
        return sorted(filter(None, (entry_day(last(ref)) for ref in self.files_below(LEDGER_NAME))))

    def entry_place(self, day: date) -> str:
        return entry_ref(day)

    def is_entered(self, day: date) -> bool:
        text = self.entry_text(day)
        return text is not None and text == self.manifest_text(day)

    def entry_problem(self, day: date) -> str:
        return f"{self.entry_place(day)}: not the manifest"

    def replaced_place(self, day: date) -> str | None:
        return None

    def late_since_replaced(self, day: date) -> list[str]:
        return []

    def entry_text(self, day: date) -> bytes | None:
        text = self._store.names.get(entry_ref(day))
        return None if text is None else bytes(text)

    def stat(self, ref: str) -> Entry | None:
        if ref in self._store.names:
            return Entry(identity=id(self._store.names[ref]))
        exists = any(name.startswith(f"{ref}/") for name in self._store.names)
        return Entry(identity=ref) if exists else None

    def open_file(self, ref: str) -> BytesIO:
        try:
            return BytesIO(bytes(self._store.names[ref]))
        except KeyError:
            raise FileNotFoundError(ref) from None

    def files_below(self, ref: str) -> Iterator[str]:
        yield from [name for name in self._store.names if name.startswith(f"{ref}/")]

    def require_no_link(self, ref: str) -> None:
        pass

    def late_files(self, into: Iterable[date], by: date, since: datetime | None) -> list[str]:
        folders = {day_ref(day) for day in into}
        late = ((ref, brought_by(ref)) for ref in self._late() if ref.split("/")[0] in folders)
        return [ref for ref, day in late if day and day >= by]

    def _late(self) -> list[str]:
        return sorted(name for name in self._store.names if name.count("/") == 1 and brought_by(name))

    def lock_holder(self) -> LockHolder | None:
        return None

    def staged_names(self) -> list[str]:
        return sorted({name.split("/")[1] for name in self.files_below(STAGING_NAME)} | self._store.staged)

    def orphans(self) -> list[Orphan]:
        return [self._orphan(name) for name in self.staged_names()]

    def _orphan(self, name: str) -> Orphan:
        files = list(self.files_below(f"{STAGING_NAME}/{name}"))
        day, _, run_id = name.removeprefix(REMOVED).partition(".")
        size = sum(len(self._store.names[ref]) for ref in files)
        return Orphan(name=name, day=day, run_id=run_id, files=len(files), bytes=size, changed=datetime.min)

    # -- changing

    @contextmanager
    def lock(self, holder: LockHolder) -> Iterator[None]:
        if self._store.locked:
            raise LakeLocked(expected="the lake to be free", found="it is held", do="Wait.")
        self._store.locked = True
        try:
            yield
        finally:
            self._store.locked = False

    def make_days_durable(self) -> None:
        pass

    def enter(self, days: Iterable[date]) -> None:
        for day in days:
            with self._store.change("enter"):
                self._store.names[entry_ref(day)] = self._store.names[self.manifest_place(day)]

    def put(self, ref: str, text: bytes) -> None:
        with self._store.change("put"):
            self._store.names[ref] = bytearray(text)

    def stage(self, day: date, run_id: str) -> str:
        with self._store.change("stage"):
            self._store.staged.add(f"{day}.{run_id}")
        return f"{STAGING_NAME}/{day}.{run_id}"

    def begin_attempt(self, ref: str) -> None:
        if ref.split("/")[1] not in self._store.staged:
            raise StoreFailed(expected=f"to begin {ref}", found="its run is gone", do="Look.")

    def create_file(self, ref: str) -> MemoryFile:
        self.begin_attempt(ref)
        return MemoryFile(self._store, ref)

    def require_late_moves(self, staged: str) -> None:
        pass

    def settle(self, day: date) -> None:
        pass

    def require_replace(self, staged: str) -> None:
        pass

    def commit(self, staged: str, day: date, contents: DayContents) -> None:
        if self.has_day(day):
            raise DayExists(expected=f"{day} to be absent", found="it is there", do="Look.")
        with self._store.change("commit"):
            self._put(day, contents)

    def replace(self, staged: str, day: date, contents: DayContents) -> None:
        for source, target in contents.withdrawn.items():
            if target in self._store.names:
                with self._store.change("withdraw"):
                    self._store.names.setdefault(source, self._store.names.pop(target))
        with self._store.change("replace"):
            old = {name: self._store.names[name] for name in self.files_below(day_ref(day))}
            shared = {name: self._store.names[ref] for name, ref in contents.shared.items()}
            for name in old:
                del self._store.names[name]
            self._put(day, DayContents(moved=contents.moved, shared={}, texts=contents.texts))
            for name, text in shared.items():
                self._store.names[f"{day_ref(day)}/{name}"] = text
            for name, text in old.items():
                self._store.names[f"{staged}/{STAGED_DAY}/{name.removeprefix(f'{day_ref(day)}/')}"] = text

    def _put(self, day: date, contents: DayContents) -> None:
        names, folder = self._store.names, day_ref(day)
        for name, ref in contents.moved.items():
            names[f"{folder}/{name}"] = names.pop(ref)
        for name, ref in contents.shared.items():
            names[f"{folder}/{name}"] = names[ref]
        for name, text in contents.texts.items():
            names[f"{folder}/{name}"] = bytearray(text)
            self._store.times[text] = self._store.kinds.total()

    def bring(self, source: str, target: str) -> bool:
        names = self._store.names
        at_target, at_source = names.get(target), names.get(source)
        if at_source is None and at_target is not None:
            return False
        renamed = awaits_rename(self, source, target)
        if not (at_source or renamed) or (at_target is not None and at_target is not at_source):
            raise LedgerBroken(expected=f"{source} or {target}", found="neither or two", do="Look.")
        if renamed:
            with self._store.change("rename"):
                names[target] = names.pop(earlier_name(target))
        elif at_target is None and at_source is not None:
            with self._store.change("link"):
                names[target] = at_source
        if at_source is not None:
            with self._store.change("unlink"):
                del names[source]
        return not renamed

    def finish(self, day: date) -> None:
        pass

    def require_removal(self) -> None: ...

    def remove(self, staged: str, day: date) -> None:
        with self._store.change("remove"):
            for name in list(self.files_below(day_ref(day))):
                moved = f"{staged}/{STAGED_DAY}/{name.removeprefix(f'{day_ref(day)}/')}"
                self._store.names[moved] = self._store.names.pop(name)

    def discard(self, staged: str) -> None:
        with self._store.change("discard"):
            for name in list(self.files_below(staged)):
                del self._store.names[name]
            self._store.staged.discard(last(staged))
