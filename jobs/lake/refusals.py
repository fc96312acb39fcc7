"""Turn errors of the operating system into an error that says what was tried and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from offsets.errors import NotPublished, StoreFailed

NEXT_STEP: Final = {
    errno.ENOSPC: "Free some space; the day can then be run again.",
    errno.EDQUOT: "Raise the quota; the day can then be run again.",
    errno.EROFS: "Make the file system writable; the day can then be run again.",
    errno.EACCES: "Give this user the right to read and write there; the day can then be run again.",
}


def in_short(names: Sequence[str]) -> str:
    """Return the first nine of some names, for a message."""
    return f"{', '.join(names[:9])}{' and more' if len(names) > 9 else ''}"


@contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Turn an OSError into a StoreFailed that says what was tried."""
    try:
        yield
    except OSError as error:
        raise StoreFailed(
            expected=f"to {what}",
            found=f"{error.strerror or error} ({errno.errorcode.get(error.errno or 0, '?')})",
            do=NEXT_STEP.get(error.errno or 0, "Look at the disk and its logs before running the day again."),
        ) from error


@contextmanager
def advising(do: str) -> Iterator[None]:
    """Replace the advice of a store's refusal, so that it names the command that goes on."""
    try:
        yield
    except (StoreFailed, NotPublished) as refused:
        raise type(refused)(
            expected=refused.expected, found=refused.found, do=do, **refused.facts
        ) from refused


@contextmanager
def not_published(expected: str, do: str = "Mend the store, then run the day again.") -> Iterator[None]:
    """Turn a StoreFailed after a commit into a NotPublished: the day is committed all the same."""
    try:
        yield
    except StoreFailed as refused:
        raise NotPublished(
            expected=expected,
            found=f"{refused.found} when trying {refused.expected}",
            do=f"The day is committed and nothing is lost. {do}",
        ) from refused
