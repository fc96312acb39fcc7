"""Orphans: what runs that died left in staging, and their removal when somebody asks for it.

Looks into staging only, which no reader does. Nothing is removed without the lock: while it is held no run is
alive, so that nobody needs what lies there.
"""

from __future__ import annotations

from datetime import datetime

from jobs.lake.names import REMOVED, STAGING_NAME
from jobs.lake.port import Lake, LockHolder, Orphan
from offsets.errors import StoreFailed


def orphans(lake: Lake, unchanged_since: datetime | None = None) -> list[Orphan]:
    """List what lies in staging, or only what was last changed before an instant.

    A live run's folder is listed too; one that a run removes meanwhile is not.

    Raises:
        StoreFailed: it cannot be looked at.
    """
    return [each for each in lake.orphans() if unchanged_since is None or each.changed < unchanged_since]


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
            lake.discard(f"{STAGING_NAME}/{each.name}")
        # what could only be renamed is still there under its other name
        names = {each.name.removeprefix(REMOVED) for each in found}
        if left := [each.name for each in lake.orphans() if each.name.removeprefix(REMOVED) in names]:
            raise StoreFailed(
                expected=f"to remove {lake.place(f'{STAGING_NAME}/{left[0]}')}",
                found="it is still there",
                do="Find out who may write there, then run `clean` again; no reader looks into it.",
            )
    return found
