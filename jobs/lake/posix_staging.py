"""Describe and remove folders in the staging of a lake on disk; no symbolic link is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jobs.lake.names import REMOVED, STAGED_DAY
from jobs.lake.port import Orphan
from jobs.lake.refusals import store_errors
from jobs.lake.store import Store

PROBE_NAME: Final = "links"
"""The link by which a run checks that the store has hard links."""
BARRIER_NAME: Final = "not-committed.parquet"
"""A file that is no Parquet, beside a day that is put together: a reader that searches all folders for
`*.parquet` stops with an error that names it, and does not count the rows of a day that is not committed."""
BARRIER: Final = (
    b"This is no Parquet. The day beside this file is not committed: read date=*/*.parquet.\n"
    b"\x18\xff\xff\xff\xff\x0f"
    b"\x06\x00\x00\x00none"
)
"""Its text, and an end for fastparquet, which looks for no magic number and reads beyond the buffer that any
text makes, until it crashes: a footer of 6 bytes, whose first field has a length below zero, is an error."""


def describe_orphan(path: Path) -> Orphan | None:
    """Describe a folder in staging; None if it has just been removed.

    Raises:
        StoreFailed: the folder cannot be read.
    """
    with store_errors(f"look at {path}"), suppress(FileNotFoundError):
        changed = path.lstat().st_mtime
        day, _, run_id = path.name.removeprefix(REMOVED).partition(".")
        stats = list(_stats(path))
        sizes = [entry.st_size for entry in stats if not stat.S_ISDIR(entry.st_mode)]
        return Orphan(
            name=path.name,
            day=day,
            run_id=run_id,
            files=len(sizes),
            bytes=sum(sizes),
            changed=datetime.fromtimestamp(max([changed, *(entry.st_mtime for entry in stats)]), UTC),
        )
    return None


def _stats(folder: Path) -> Iterator[os.stat_result]:
    """Yield the attributes of each folder and file, except those that vanish meanwhile.

    Folders count too: the files of a rebuild's old day are older than their move into staging. The probe does
    not count: it is a link to the lake's lock, which every run writes.
    """
    if folder.is_symlink():
        return
    probe = folder / PROBE_NAME
    for inner, _, names in os.walk(folder):
        for path in (Path(inner), *(Path(inner, name) for name in names)):
            with store_errors(f"look at {path}"), suppress(FileNotFoundError):
                if path != probe:
                    yield path.lstat()


def discard(store: Store, staged: Path) -> None:
    """Remove a folder of staging; files that the store refuses to remove stay.

    It is renamed first, so that a worker that still writes into it fails. Links are removed, not followed.
    """
    system = store.system
    with suppress(OSError):
        renamed = staged
        if not staged.name.startswith(REMOVED):
            renamed = staged.with_name(f"{REMOVED}{staged.name}")
            system.rename(staged, renamed)
        if stat.S_ISDIR(os.lstat(renamed).st_mode):
            day = renamed / STAGED_DAY
            if day.is_dir() and not day.is_symlink():
                system.rmtree(day)  # before the barrier beside it
            system.rmtree(renamed)
        else:
            system.unlink(renamed)
        system.rmdir(staged.parent)
