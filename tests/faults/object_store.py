"""An object store in memory that loses answers, delays requests and forgets them: `ObjectStore` for tests.

Each change is put to `fate`, which says what becomes of it. A change that is delayed lands later, also when
the process that asked for it is dead, or never. A copy reads its source when it begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from functools import partial
from io import BytesIO

from jobs.lake.files import HashedFile
from jobs.lake.objects.store import Found
from offsets.errors import StoreFailed
from tests.support.local_engine import Crash
from tests.support.same_in_tasks import SameInTasks

START = datetime(2026, 1, 1, tzinfo=UTC)


class Fate(Enum):
    """What becomes of a change."""

    ANSWERED = auto()
    LOST_ANSWER = auto()
    """It was made, and an error is the answer."""
    ASKED_TWICE = auto()
    """The answer was lost on the way, and a library asked again: a `create` is refused by its own object."""
    LOST_REQUEST = auto()
    """It was not made, and an error is the answer."""
    DELAYED = auto()
    """An error is the answer, and it is made later."""
    KILLED_BEFORE = auto()
    KILLED_AFTER = auto()
    KILLED_DELAYED = auto()


class MemoryObjects(SameInTasks):
    """The objects of a lake in memory."""

    at_once = 1

    def __init__(self) -> None:
        """Begin without objects; each change is answered."""
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.flying: list[tuple[str, Callable[[], object]]] = []
        self.fate: Callable[[str, str], Fate] = lambda kind, key: Fate.ANSWERED
        self.asked: Callable[[str, str], None] = lambda kind, key: None
        """Called before each question and each change."""
        self.kinds: Counter[str] = Counter()
        self.changes, self.now = 0, START

    # -- reading

    def place(self, key: str) -> str:
        return f"memory:{key}"

    def get(self, key: str) -> bytes | None:
        self.asked("get", key)
        found = self.objects.get(key)
        return found[0] if found else None

    def open_object(self, key: str) -> BytesIO:
        self.asked("open", key)
        try:
            return BytesIO(self.objects[key][0])
        except KeyError:
            raise FileNotFoundError(key) from None

    def head(self, key: str) -> Found | None:
        self.asked("head", key)
        return self._found(key) if key in self.objects else None

    def objects_below(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))

    def find(self, folder: str) -> list[Found]:
        self.asked("find", folder)
        return [self._found(key) for key in self.objects_below(f"{folder}/")]

    def folders(self, folder: str = "") -> list[str]:
        self.asked("folders", folder)
        inner = f"{folder}/" if folder else ""
        below = [key.removeprefix(inner) for key in self.objects_below(inner)]
        return sorted({name.split("/")[0] for name in below if "/" in name})

    def _found(self, key: str) -> Found:
        text, modified = self.objects[key]
        return Found(key=key, size=len(text), modified=modified)

    # -- changing

    def create(self, key: str, text: bytes) -> bool:
        def make() -> bool:
            if key in self.objects:
                return False
            self._set(key, text)
            return True

        return bool(self._change("create", key, make))

    def put(self, key: str, text: bytes) -> None:
        self._change("put", key, lambda: self._set(key, text))

    def new_object(self, key: str) -> MemoryObject:
        return MemoryObject(self, key)

    def copy(self, source: str, target: str) -> bool:
        self.asked("copy from", source)
        if (found := self.objects.get(source)) is None:
            return False
        self._change("copy", target, lambda: self._set(target, found[0]))
        return True

    def delete(self, keys: Iterable[str]) -> None:
        for key in [*keys]:
            self._change("delete", key, partial(self._remove, key))

    def _remove(self, key: str) -> None:
        self.changes += 1
        self.objects.pop(key, None)

    def _set(self, key: str, text: bytes) -> None:
        self.changes += 1
        self.objects[key] = (text, self.now + timedelta(milliseconds=self.changes))

    def _change(self, kind: str, key: str, make: Callable[[], object]) -> object:
        self.asked(kind, key)
        fate = self.fate(kind, key)
        self.kinds[f"{kind}: {fate.name}"] += 1
        if fate is Fate.KILLED_BEFORE:
            raise Crash(f"killed before {kind} {key}")
        if fate in (Fate.DELAYED, Fate.KILLED_DELAYED):
            self.flying.append((f"{kind} {key}", make))
        elif fate is not Fate.LOST_REQUEST:
            answer = make()
            if fate is Fate.ASKED_TWICE:
                answer = make()
            if fate in (Fate.ANSWERED, Fate.ASKED_TWICE):
                return answer
        if fate in (Fate.KILLED_AFTER, Fate.KILLED_DELAYED):
            raise Crash(f"killed after {kind} {key}")
        raise StoreFailed(expected=f"to {kind} {key}", found="no answer", do="Run again.")

    def land(self, number: int) -> str:
        """Make a delayed change now."""
        what, make = self.flying.pop(number)
        make()
        return what


class MemoryObject(HashedFile):
    """An object that is being written."""

    def __init__(self, store: MemoryObjects, key: str) -> None:
        super().__init__(key)
        self._store, self._parts = store, list[bytes]()

    def _append(self, view: memoryview) -> None:
        self._parts.append(bytes(view))

    def make_durable(self) -> str:
        self._store.put(self.ref, b"".join(self._parts))
        return self._hash.hexdigest()
