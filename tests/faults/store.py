"""A store that fails at a planned change, and forgets what was not fsynced when its power fails.

Relies on a lake changing by the calls of its `System` alone, in whose place it stands. Does each change for
real, and keeps a model of what is durable beside it. Never makes a lake safer than a disk would.
"""

# it stands in the place of `os`, and calls it
# ruff: noqa: PTH102, PTH104, PTH106, PTH108
from __future__ import annotations

import hashlib
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from jobs.lake.store import System
from tests.support.local_engine import Crash

T = TypeVar("T")
ROOT: Final = 0
NAMING: Final = frozenset({"mkdir", "open", "rename", "link", "unlink", "rmdir", "exchange"})
"""The kinds of change that a reader of names can see."""
_ALIVE: WeakValueDictionary[str, FaultyOs] = WeakValueDictionary()

Keeps = Callable[[], bool]
"""Returns whether the disk wrote early one change that was not made durable."""


def nothing() -> bool:
    """Lose all that was not made durable."""
    return False


def everything() -> bool:
    """Keep all: the disk was quick."""
    return True


def some(seed: int) -> Keeps:
    """Keep about half of it, by a seed."""
    chance = random.Random(seed)
    return lambda: chance.random() < 0.5


# -- the model of a disk


@dataclass(slots=True)
class Name:
    """What a change does to one name of a folder: give it to a node, or take it away."""

    folder: int
    name: str
    node: int | None
    durable: bool = False


@dataclass(slots=True)
class Change:
    """A change of names; the first name carries it: lost with it are all others.

    A `whole` change holds for all its names or for none. Else the others may be lost alone: the old name of
    a file that was renamed into another folder comes back unless its own was synced.
    """

    names: tuple[Name, ...]
    whole: bool = False


Tree = dict[int, dict[str, int]]


@dataclass(slots=True)
class Disk:
    """Folders and files as a process sees them, and as they would be after a loss of power."""

    seen: Tree = field(default_factory=lambda: {ROOT: {}})
    kept: Tree = field(default_factory=lambda: {ROOT: {}})
    """The names that were there when this disk was loaded; `changes` come on top."""
    text: dict[int, bytearray] = field(default_factory=dict)
    durable_text: dict[int, bytes] = field(default_factory=dict)
    torn: set[int] = field(default_factory=set)
    """Files whose fsync failed: the kernel forgets what it could not write, and a later fsync succeeds."""
    changes: list[Change] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(ROOT + 1))

    @classmethod
    def load(cls, root: Path) -> Disk:
        """Take a real folder as it is, all of it durable."""
        disk, inodes = cls(), dict[int, int]()
        disk._load(root, ROOT, inodes)
        disk.kept = {node: dict(names) for node, names in disk.seen.items()}
        return disk

    def _load(self, folder: Path, parent: int, inodes: dict[int, int]) -> None:
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                node = self.seen[parent][entry.name] = next(self.numbers)
                self.seen[node] = {}
                self._load(Path(entry.path), node, inodes)
                continue
            inode = entry.inode()
            if inode not in inodes:
                inodes[inode] = node = next(self.numbers)
                self.durable_text[node] = Path(entry.path).read_bytes()
                self.text[node] = bytearray(self.durable_text[node])
            self.seen[parent][entry.name] = inodes[inode]

    def copy(self) -> Disk:
        """Return a disk that changes apart from this one; its nodes have the same numbers."""
        return Disk(
            seen={node: dict(names) for node, names in self.seen.items()},
            kept={node: dict(names) for node, names in self.kept.items()},
            text={node: bytearray(text) for node, text in self.text.items()},
            durable_text=dict(self.durable_text),
            torn=set(self.torn),
            changes=[Change(tuple(map(replace, each.names)), each.whole) for each in self.changes],
            numbers=count(1 + max([*self.seen, *self.text])),
        )

    def find(self, parts: tuple[str, ...]) -> int:
        """Return the node of a path."""
        node = ROOT
        for part in parts:
            node = self.seen[node][part]
        return node

    def change(self, *names: Name, whole: bool = False) -> None:
        """Make a change that the disk has not written yet."""
        self.changes.append(Change(names, whole))
        for name in names:
            _name(self.seen, name)

    def sync(self, node: int) -> None:
        """Make durable what fsync of a file or of a folder promises, and no more."""
        if node in self.text:
            if node not in self.torn:
                self.durable_text[node] = bytes(self.text[node])
            return
        for change in self.changes:
            for name in change.names:
                name.durable |= name.folder == node

    def after_power_loss(self, keeps: Keeps) -> Disk:
        """Return the disk as it is when the power is back."""
        disk = Disk(seen={node: {} for node in self.seen}, numbers=self.numbers)
        for node, names in self.kept.items():
            disk.seen[node] = dict(names)
        for change in self.changes:
            first, *others = change.names
            if first.durable or keeps():
                if change.whole:
                    disk._forget_names({name.node for name in change.names if name.node in self.seen})
                _name(disk.seen, first)
                for other in others:
                    if change.whole or other.durable or keeps():
                        _name(disk.seen, other)
        for node, text in self.text.items():
            durable, full = self.durable_text.get(node, b""), bytes(text)
            if durable != full and keeps():
                durable = full if keeps() else full[: len(full) // 2]
            disk.text[node], disk.durable_text[node] = bytearray(durable), durable
        disk.kept = {node: dict(names) for node, names in disk.seen.items()}
        return disk

    def _forget_names(self, folders: set[int | None]) -> None:
        """Take away the names of folders that get another one: a folder has one name."""
        for names in self.seen.values():
            for name in [name for name, node in names.items() if node in folders]:
                del names[name]

    def state(self) -> str:
        """Return a hash of the disk, seen and durable, without the text of a lock, which is for people."""
        return _hash(self) + _hash(self.after_power_loss(nothing))

    def store(self, root: Path) -> None:
        """Write the disk to a real folder, in the place of what is there."""
        for entry in os.scandir(root):
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
        made: dict[int, Path] = {}
        for node, path in self.walk(root):
            if node in self.seen:
                path.mkdir()
            elif node in made:
                path.hardlink_to(made[node])
            else:
                path.write_bytes(self.text[node])
                made[node] = path

    def walk(self, root: Path, folder: int = ROOT) -> Iterator[tuple[int, Path]]:
        """Yield all nodes with their paths, folders before what is in them."""
        for name, node in sorted(self.seen[folder].items()):
            yield node, root / name
            if node in self.seen:
                yield from self.walk(root / name, node)


def _hash(disk: Disk) -> str:
    numbers: dict[int, int] = {}
    digest = hashlib.sha256()
    for node, path in disk.walk(Path()):
        text = b"" if path.name == "_lock" else bytes(disk.text.get(node, b""))
        number = numbers.setdefault(node, len(numbers))
        digest.update(f"{path} {number} {hashlib.sha256(text).hexdigest()}\n".encode())
    return digest.hexdigest()


def _name(tree: Tree, given: Name) -> None:
    if given.node is None:
        tree[given.folder].pop(given.name, None)
    else:
        tree[given.folder][given.name] = given.node


# -- the faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Which change fails, and how; no `error` is a kill, after which this process changes nothing more."""

    at: int
    """The number of the change, from 1, among those of the kinds `of`; writes in a row to a file are one."""
    within: int = 0
    """Which of them, from 0, where it is writes that fail; where there are fewer, what comes next fails."""
    error: int | None = None
    after: bool = False
    """Whether the change was made all the same, and only the answer was lost."""
    lasting: bool = False
    """Whether all that follow fail as well."""
    of: frozenset[str] | None = None


@dataclass(slots=True, kw_only=True)
class Numbered:
    """Numbers the changes of some kinds, from 1; writes in a row to a file are one."""

    of: frozenset[str] | None
    made: int = 0
    _writes: int = 0
    _writing: int | None = None

    def count(self, kind: str, file: int | None) -> bool:
        """Count a change, if it is of these kinds."""
        if self.of and kind not in self.of:
            return False
        if kind == "write" and file == self._writing:
            self._writes += 1
        else:
            self.made, self._writes = self.made + 1, 0
        self._writing = file if kind == "write" else None
        return True

    def is_due(self, kind: str, at: int, within: int) -> bool:
        """Return whether the counted change is the one of a number, or comes after it."""
        early = kind == "write" and self.made == at and self._writes < within
        return self.made >= at and not early


class FaultyOs(System):
    """The system's calls over one real folder, each of which may fail."""

    def __init__(self, root: Path) -> None:
        """Watch over a folder; all that is in it is durable."""
        _ALIVE[str(root)] = self
        self.root = root
        self.disk = Disk.load(root)
        self.fault: Fault | None = None
        self.dead = False
        self.injected = 0
        """How often a fault struck, over the whole life of this store."""
        self.kinds: Counter[str] = Counter()
        self.watch: Callable[[], None] = lambda: None
        """Called after each change of a name, so that a reader can look."""
        self.about_to: Callable[[str, int | None], None] = lambda kind, file: None
        """Called before each change, of an open file or of names."""
        self._numbered = Numbered(of=None)
        self._struck = False
        self.death = "not alive"
        self._files: dict[int, int] = {}
        self._outside: set[int] = set()

    def plant(self, fault: Fault | None = None) -> None:
        """Start a new process, with a fault ahead of it or none.

        What the last one left open leads nowhere from now on: Arrow may write when it is collected.
        """
        nowhere = os.open(os.devnull, os.O_RDWR)
        for file in self._files:
            os.dup2(nowhere, file)
        os.close(nowhere)
        self._files, self._outside = {}, set()
        self.arm(fault)

    def arm(self, fault: Fault | None) -> None:
        """Plant a fault ahead of a process that is alive."""
        self.fault, self.dead, self._struck = fault, False, False
        self._numbered = Numbered(of=fault.of if fault else None)

    def power_loss(self, keeps: Keeps = nothing) -> None:
        """Forget what was not made durable, but for what the disk happened to write early."""
        written = {
            node: path.stat().st_mtime_ns
            for node, path in self.disk.walk(self.root)
            if node in self.disk.text and path.exists()
        }
        self.disk = self.disk.after_power_loss(keeps)
        self.disk.store(self.root)
        for node, path in self.disk.walk(self.root):
            if (
                node in written
            ):  # a disk knows still when a file was written: columns and late files are told by it
                os.utime(path, ns=(written[node], written[node]))
        self.plant()

    def __reduce__(self) -> Any:
        """Stay the same store in a task, which gets its lake pickled."""
        return _alive, (str(self.root),)

    def show(self) -> None:
        """Do nothing: the folder shows what is there."""

    def reload(self) -> None:
        """Take what somebody made of the folder, all of it durable."""
        self.disk = Disk.load(self.root)

    def require_all_seen(self) -> None:
        """Check that the real folder is what the model says: no change went past it."""
        real = Disk.load(self.root)
        actual = {path.relative_to(self.root): real.text.get(node) for node, path in real.walk(self.root)}
        model = {
            path.relative_to(self.root): self.disk.text.get(node) for node, path in self.disk.walk(self.root)
        }
        assert actual == model, f"changed behind the harness: {_differences(actual, model)}"

    # -- the changes

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """Make a folder."""
        self._change("mkdir", lambda: os.mkdir(path, mode), lambda _: self._add(path, folder=True))

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        """Open a file or folder; with O_CREAT it is a change."""
        if not flags & os.O_CREAT:
            file = os.open(path, flags)
            if Path(path).is_relative_to(self.root):
                self._opened(file, path)
            else:
                self._outside.add(file)
            return file
        new = not os.path.lexists(path)

        def model(file: int) -> None:
            if new:
                self._add(path, folder=False)
            self._opened(file, path)

        return self._change("open", lambda: os.open(path, flags, mode), model)

    def close(self, file: int) -> None:
        """Close; even a dead process's files are closed."""
        self._files.pop(file, None)
        self._outside.discard(file)
        os.close(file)

    def write(self, file: int, data: bytes | memoryview) -> int:
        """Append to a file; a dead process writes nothing, and is not told.

        Arrow's finalizers write, wherever Python collects them: an error there would be printed, and printing
        it parses Python, which may be what Python was doing.
        """
        if self.dead or file not in self._files:
            return len(data)
        return self._change(
            "write", lambda: os.write(file, data), lambda size: self._text(file).extend(data[:size]), file
        )

    def pwrite(self, file: int, data: bytes, at: int) -> int:
        """Write at a place."""

        def model(size: int) -> None:
            text = self._text(file)
            text.extend(b"\0" * max(at - len(text), 0))
            text[at : at + size] = data[:size]

        return self._change("pwrite", lambda: os.pwrite(file, data, at), model, file)

    def truncate(self, file: int, size: int) -> None:
        """Cut an open file."""

        def model(_: None) -> None:
            text = self._text(file)
            text[:] = text[:size].ljust(size, b"\0")

        self._change("truncate", lambda: os.truncate(file, size), model, file)

    def fsync(self, file: int) -> None:
        """Make a file's text, or a folder's names, durable; what lies above the root is durable anyway."""
        if file in self._outside:
            return
        self._change("fsync", lambda: None, lambda _: self.disk.sync(self._files[file]), file)

    def rename(self, source: Path, target: Path) -> None:
        """Rename; the new name carries it. A folder, or a name within a folder, is renamed whole."""
        node = self.disk.find(self._parts(source))
        whole = node in self.disk.seen or source.parent == target.parent
        self._change(
            "rename",
            lambda: os.rename(source, target),
            lambda _: self.disk.change(self._to(target, node), self._to(source, None), whole=whole),
        )

    def link(self, source: Path, target: Path) -> None:
        """Link a file under another name."""
        node = self.disk.find(self._parts(source))
        self._change(
            "link", lambda: os.link(source, target), lambda _: self.disk.change(self._to(target, node))
        )

    def unlink(self, path: Path) -> None:
        """Take a name away."""
        self._change("unlink", lambda: os.unlink(path), lambda _: self.disk.change(self._to(path, None)))

    def rmdir(self, path: Path) -> None:
        """Remove an empty folder."""
        self._change("rmdir", lambda: os.rmdir(path), lambda _: self.disk.change(self._to(path, None)))

    def rmtree(self, path: Path) -> None:
        """Remove a folder name by name, each of which is a change."""
        for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False):
                self.rmtree(Path(entry.path))
            else:
                self.unlink(Path(entry.path))
        self.rmdir(path)

    def exchange(self, one: Path, other: Path) -> None:
        """Exchange two names in one step; the second one, which readers see, carries it."""
        first, second = self.disk.find(self._parts(one)), self.disk.find(self._parts(other))
        self._change(
            "exchange",
            lambda: System.exchange(self, one, other),
            lambda _: self.disk.change(self._to(other, first), self._to(one, second), whole=True),
        )

    # -- their parts

    def _change(
        self, kind: str, do: Callable[[], T], model: Callable[[T], None], file: int | None = None
    ) -> T:
        if self.dead or (file is not None and file not in self._files):
            raise Crash(self.death)
        self.kinds[kind] += 1
        self.about_to(kind, file)
        fault = self._strikes(kind, file)
        if fault and not fault.after:
            self._fail(fault, kind, file)
        try:
            result = do()
        except OSError:
            if fault:  # the store refused by itself
                self._fail(fault, kind, file)
            raise
        model(result)
        if kind in NAMING:
            self.watch()
        if fault:
            if isinstance(result, int) and kind == "open":
                self.close(result)
            self._fail(fault, kind, file)
        return result

    def _strikes(self, kind: str, file: int | None) -> Fault | None:
        """Count a change; return the fault where this change is to fail."""
        fault = self.fault
        if fault is None or not self._numbered.count(kind, file):
            return None
        due = self._numbered.is_due(kind, fault.at, fault.within)
        if not due or (self._struck and not fault.lasting):
            return None
        self._struck = True
        return fault

    def _fail(self, fault: Fault, kind: str, file: int | None) -> None:
        self.injected += 1
        if fault.error is None:
            self.dead, self.death = True, f"killed {'after' if fault.after else 'before'} {kind}"
            raise Crash(self.death)
        if kind == "fsync" and file is not None and not fault.after and self._files[file] in self.disk.text:
            self.disk.torn.add(self._files[file])
        raise OSError(fault.error, os.strerror(fault.error), kind)

    def _parts(self, path: Path) -> tuple[str, ...]:
        return Path(path).relative_to(self.root).parts

    def _to(self, path: Path, node: int | None) -> Name:
        *folder, name = self._parts(path)
        return Name(self.disk.find(tuple(folder)), name, node)

    def _add(self, path: Path, *, folder: bool) -> None:
        node = next(self.disk.numbers)
        if folder:
            self.disk.seen[node] = {}
        else:
            self.disk.text[node] = bytearray()
        self.disk.change(self._to(path, node))

    def _opened(self, file: int, path: Path) -> None:
        self._files[file] = self.disk.find(self._parts(path))

    def _text(self, file: int) -> bytearray:
        return self.disk.text[self._files[file]]


def _alive(root: str) -> FaultyOs:
    """Return the store that stands for a folder in this process."""
    return _ALIVE[root]


def _differences(actual: dict[Path, Any], model: dict[Path, Any]) -> list[str]:
    return sorted(str(path) for path in actual.keys() | model.keys() if actual.get(path) != model.get(path))
