"""What lies in the staging of a lake on disk: described, and removed; no symbolic link is followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jobs.lake.names import REMOVED
from jobs.lake.port import Orphan
from jobs.lake.refusals import store_errors
from jobs.lake.store import Store

PROBE_NAME: Final = "links"
"""The link by which a run learns whether the store has links."""


def described(path: Path) -> Orphan | None:
    """Describe what lies in staging under one name; None where it has just been removed.

    Raises:
        StoreFailed: it cannot be looked at.
    """
    with store_errors(f"look at {path}"), suppress(FileNotFoundError):
        at = path.lstat().st_mtime
        day, _, run_id = path.name.removeprefix(REMOVED).partition(".")
        stats = list(_stats(path))
        sizes = [each.st_size for each in stats if not stat.S_ISDIR(each.st_mode)]
        return Orphan(
            name=path.name,
            day=day,
            run_id=run_id,
            files=len(sizes),
            bytes=sum(sizes),
            changed=datetime.fromtimestamp(max([at, *(each.st_mtime for each in stats)]), UTC),
        )
    return None


def _stats(folder: Path) -> Iterator[os.stat_result]:
    """Return the attributes of each folder and file; one that vanishes meanwhile is none.

    Folders count because a file may be older than its place: the old day of a rebuild came here by a rename.
    The probe does not: it is the lake's lock, which every run writes.
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
    """Remove a folder of staging; what the store refuses to remove stays.

    It is renamed first, so that a worker that still writes into it finds nothing there. Links are removed
    as links.
    """
    system = store.system
    with suppress(OSError):
        gone = staged
        if not staged.name.startswith(REMOVED):
            gone = staged.with_name(f"{REMOVED}{staged.name}")
            system.rename(staged, gone)
        if stat.S_ISDIR(os.lstat(gone).st_mode):
            system.rmtree(gone)
        else:
            system.unlink(gone)
        system.rmdir(staged.parent)
