"""Orphans: what runs that died left in staging, and their removal when somebody asks for it.

Looks into `_staging/` only, which no reader does. Nothing is removed without the lock: under it no run is
alive, so that whatever lies there is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from jobs.storage import REMOVED, Lake, LockHolder
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


def orphans(lake: Lake) -> list[Orphan]:
    """List what lies in staging; a live run's folder is among it."""
    return [_described(folder) for folder in lake.staged_runs()]


def clean(lake: Lake, holder: LockHolder) -> list[Orphan]:
    """Remove all orphans and give them.

    Raises:
        LakeLocked: a run is alive.
        StoreFailed: something could not be removed.
    """
    if not lake.staged_runs():
        return []
    with lake.lock(holder):
        found = orphans(lake)
        for each in lake.staged_runs():
            lake.discard_staging(each)
        if left := lake.staged_runs():
            raise StoreFailed(
                expected=f"to remove {left[0]}",
                found="it is still there",
                do="Look who may write there, then clean again; no reader looks into it.",
            )
    return found


def _described(folder: Path) -> Orphan:
    day, _, run_id = folder.name.removeprefix(REMOVED).partition(".")
    stats = list(_stats(folder))
    return Orphan(
        name=folder.name,
        day=day,
        run_id=run_id,
        files=len(stats),
        bytes=sum(size for size, _ in stats),
        changed=datetime.fromtimestamp(max((at for _, at in stats), default=folder.stat().st_mtime), UTC),
    )


def _stats(folder: Path) -> Iterator[tuple[int, float]]:
    """Give size and time of each file; one that vanishes meanwhile is none."""
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                found = path.stat()
                yield found.st_size, found.st_mtime
