"""What stays the same object in a task of this process, though a task gets its lake pickled."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

_ALIVE: WeakValueDictionary[int, SameInTasks] = WeakValueDictionary()


class SameInTasks:
    """An object of which pickling makes no copy."""

    def __reduce__(self) -> Any:
        """Pickle its number alone."""
        _ALIVE[id(self)] = self
        return _alive, (id(self),)


def _alive(number: int) -> SameInTasks:
    return _ALIVE[number]
