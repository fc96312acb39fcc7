"""Orphans: what runs that died left in staging, and their removal when somebody asks for it.

Looks into `_staging/` only, which no reader does, and follows no symbolic link. Nothing is removed without
the lock: while it is held no run is alive, so that nobody needs what lies there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jobs.lake.posix import PROBE_NAME, REMOVED, STAGING_NAME, Lake, LockHolder, store_errors
from offsets.errors import StoreFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A folder below staging: whose it was, what it takes (bytes), and when it was last changed (UTC)."""

    name: str
    day: str
    run_id: str
    files: int
    bytes: int
    changed: datetime


def orphans(lake: Lake, unchanged_since: datetime | None = None) -> list[Orphan]:
    """List what lies in staging, or only what was last changed before an instant.

    A live run's folder is listed too; one that a run removes meanwhile is not.

    Raises:
        StoreFailed: it cannot be looked at.
    """
    found = [each for path in lake.staged_runs() if (each := _described(path))]
    return [each for each in found if unchanged_since is None or each.changed < unchanged_since]


def clean(lake: Lake, holder: LockHolder, unchanged_since: datetime | None = None) -> list[Orphan]:
    """Remove all orphans, or only those last changed before an instant, and return them.

    Raises:
        LakeLocked: a run is alive.
        StoreFailed: something could not be removed.
    """
    if not orphans(lake, unchanged_since):
        return []
    with lake.lock(holder):
        found = orphans(lake, unchanged_since)
        # what an earlier removal left comes first: it has the name that another one needs
        for each in sorted(found, key=lambda each: not each.name.startswith(REMOVED)):
            lake.discard_staging(lake.root / STAGING_NAME / each.name)
        # what could only be renamed is still there under its other name
        names = {each.name.removeprefix(REMOVED) for each in found}
        if left := [path for path in lake.staged_runs() if path.name.removeprefix(REMOVED) in names]:
            raise StoreFailed(
                expected=f"to remove {left[0]}",
                found="it is still there",
                do="Find out who may write there, then run `clean` again; no reader looks into it.",
            )
    return found


def _described(path: Path) -> Orphan | None:
    """Describe an orphan; None where it has just been removed."""
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
