"""What the protocol needs of an object store, and no more: no rename, no lock, no clock.

Each change is whole or not made. An answer may be lost: then the change was made, or is made later, or never,
even after the process that asked for it has died. One change alone is refused where another came first:
`create`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from io import BufferedIOBase
from typing import Protocol

from jobs.lake.port import NewFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """An object by its key below the lake, its size in bytes, and its last change by the store's clock."""

    key: str
    size: int
    modified: datetime


class ObjectStore(Protocol):
    """The objects of one lake; all keys are below its prefix."""

    @property
    def at_once(self) -> int:
        """How many copies may be asked for at once."""
        ...

    def place(self, key: str) -> str:
        """Return the address of a key, for messages."""
        ...

    def get(self, key: str) -> bytes | None:
        """Read a small object; None if there is none.

        Raises:
            StoreFailed: the store refused, or did not answer.
        """
        ...

    def open_object(self, key: str) -> BufferedIOBase:
        """Open an object for reading at any position.

        Raises:
            OSError: there is none, or the store refused.
        """
        ...

    def head(self, key: str) -> Found | None:
        """Look at an object; None if there is none.

        Raises:
            StoreFailed: the store refused, or did not answer.
        """
        ...

    def find(self, folder: str) -> list[Found]:
        """List all objects below a folder, at any depth, in order.

        Raises:
            StoreFailed: the store refused, or did not answer.
        """
        ...

    def folders(self, folder: str = "") -> list[str]:
        """List the names just below a folder that have objects below them, in order.

        Raises:
            StoreFailed: the store refused, or did not answer.
        """
        ...

    def create(self, key: str, text: bytes) -> bool:
        """Put a small object where there is none; return whether the store says that it did.

        False says nothing: a lost answer that was asked for again is a refusal by one's own object.

        Raises:
            StoreFailed: the store refused otherwise, or did not answer: the object may be there all the same.
        """
        ...

    def put(self, key: str, text: bytes) -> None:
        """Put a small object, in the place of what is there; may be repeated.

        Raises:
            StoreFailed: the store refused, or did not answer.
        """
        ...

    def new_object(self, key: str) -> NewFile:
        """Begin an object that is there once it is durable, and not at all before; nothing may be there."""
        ...

    def copy(self, source: str, target: str) -> bool:
        """Copy an object whole; return whether there was a source. May be repeated.

        Raises:
            StoreFailed: the store refused, or did not answer.
        """
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there are passed over.

        Raises:
            StoreFailed: the store refused, or did not answer.
        """
        ...
