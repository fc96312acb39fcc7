"""List and remove orphans: the folders that dead runs left in staging.

Looks only into staging, which no reader opens. Nothing is removed without the lock: while it is held, no
other run is alive, so nobody needs these folders.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import structlog

from jobs.lake.expiry import finish_expiry
from jobs.lake.ledger import enter_days, replaced_days
from jobs.lake.names import REMOVED, STAGED_DAY, STAGING_NAME, staged_day
from jobs.lake.port import Lake, LockHolder, Orphan
from jobs.lake.status import is_alive
from offsets.commit_log import kept_days, read_intact
from offsets.errors import StoreFailed

log = structlog.get_logger(__name__)


def orphans(lake: Lake, unchanged_since: datetime | None = None) -> list[Orphan]:
    """List the folders in staging, or only those last changed before an instant.

    A live run's folder is listed too, and marked; a folder that a run removes meanwhile is not listed.

    Raises:
        StoreFailed: staging cannot be read.
    """
    holder = lake.lock_holder()
    return [
        replace(orphan, live=is_alive(holder)) if holder and holder.run_id == orphan.run_id else orphan
        for orphan in lake.orphans()
        if unchanged_since is None or orphan.changed < unchanged_since
    ]


def _is_needed(lake: Lake, orphan: Orphan) -> bool:
    """Return whether an orphan holds the folder that a day had before, whose new manifest is damaged.

    The day has no folder between the commands that put that one back.
    """
    day = staged_day(orphan.name)
    place = lake.place(f"{STAGING_NAME}/{orphan.name}/{STAGED_DAY}")
    if day is None or lake.replaced_place(day) != place or read_intact(lake, day):
        return False
    log.warning("kept: the manifest of the folder that took its place is damaged", folder=place, day=str(day))
    return True


def clean(lake: Lake, holder: LockHolder, unchanged_since: datetime | None = None) -> list[Orphan]:
    """Remove all orphans, or only those last changed before an instant, and return them.

    Raises:
        LakeLocked: a run is alive.
        StoreFailed: something could not be removed.
    """
    if not orphans(lake, unchanged_since):
        return []
    with lake.lock(holder):
        finish_expiry(lake, holder.run_id)
        if replaced := list(replaced_days(lake, kept_days(lake)[0])):
            enter_days(lake, replaced)  # an orphan that names such a day is what the next run knows it by
        found_orphans = [orphan for orphan in orphans(lake, unchanged_since) if not _is_needed(lake, orphan)]
        # remains of an earlier removal come first: they have the name that another orphan is renamed to
        for orphan in sorted(found_orphans, key=lambda orphan: not orphan.name.startswith(REMOVED)):
            lake.discard(f"{STAGING_NAME}/{orphan.name}")
        # an orphan that could be renamed, but not removed, is still there under its new name
        names = {orphan.name.removeprefix(REMOVED) for orphan in found_orphans}
        if remaining := [left.name for left in lake.orphans() if left.name.removeprefix(REMOVED) in names]:
            raise StoreFailed(
                expected=f"to remove {lake.place(f'{STAGING_NAME}/{remaining[0]}')}",
                found="it is still there",
                do="Find out who may write there, then run `clean` again; no reader looks into it.",
            )
    return found_orphans
