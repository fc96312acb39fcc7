"""Turn errors of the operating system into an error that says what was tried and what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from offsets.errors import StoreFailed

NEXT_STEP: Final = {
    errno.ENOSPC: "Free some space; the day can then be run again.",
    errno.EDQUOT: "Raise the quota; the day can then be run again.",
    errno.EROFS: "Make the file system writable; the day can then be run again.",
    errno.EACCES: "Give this user the right to read and write there; the day can then be run again.",
}


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
