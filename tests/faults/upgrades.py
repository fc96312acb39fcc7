"""Lets the oldest days of a history be of an earlier format, and upgrades them, with a fault or without one.

Relies on a history whose newest day is settled. Such a lake, and one whose upgrade died, may be left for the
days to come: each law holds of them too.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from datetime import date
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jobs.upgrade.run import upgrade
from offsets.errors import NotPublished, StoreFailed
from tests.faults.store import Fault, some
from tests.support.earlier_formats import as_of_format
from tests.support.local_engine import Crash, LocalEngine

if TYPE_CHECKING:
    from tests.faults.histories import History

FORMATS: Final = (3, 2)
"""Format 1 kept no digests, which the laws compare."""


def upgrade_oldest_days(history: History, how: int) -> None:
    """Let the oldest days be of an earlier format, then upgrade them, perhaps not now or not to the end."""
    how = how * 617 % 1000  # spread it: hypothesis draws small numbers most often
    if not history.earlier:
        _make_earlier(history, how)
    if not history.earlier:
        return
    if how & 1:
        at = 1 + how * history.made * len(history.earlier) // 1000  # a run makes about as many changes
        _fail(history, Fault(at=at, after=bool(how & 2), error=5 if how % 3 == 0 else None), how)
    if how & 4:
        history.counts["left of an earlier format"] += 1
    else:
        finish_upgrade(history)


def finish_upgrade(history: History) -> None:
    """Upgrade all days that are of an earlier format."""
    history.store.plant()
    found = upgrade(history.pipeline(LocalEngine(history.topic)))
    history.store.show()
    assert found.left == {}, found.left
    kept = history.earlier & {settled.day.date for settled in history.lake.kept}
    formats = {day: history.manifest(day)["format_version"] for day in kept}
    assert set(formats.values()) <= {4}, formats
    history.counts["days upgraded"] += len(found.days)
    _look(history)
    history.earlier = set()


def _make_earlier(history: History, how: int) -> None:
    days = _oldest_days(history)
    if not days:
        return
    history.earlier = set(days[: 1 + how % len(days)])
    # what today's version wrote beside the days, as_of_format() removes
    with tempfile.TemporaryDirectory(dir=history.folder.parent) as aside:
        for name in ("_ledger", "_schema.json"):
            (history.folder / name).rename(Path(aside) / name)
        as_of_format(history.folder, FORMATS[how // 7 % len(FORMATS)], *map(str, history.earlier))
        for name in ("_ledger", "_schema.json"):
            (Path(aside) / name).rename(history.folder / name)
    for day in history.earlier:
        entry = history.folder / "_ledger" / f"{day}.json"
        entry.unlink()
        entry.hardlink_to(history.folder / f"date={day}" / "_manifest.json")
    history.store.reload()
    history.store.plant()
    history.note_files()


def _oldest_days(history: History) -> list[date]:
    """Return the days that an earlier version could have written, and of which it recorded what laws compare.

    It let no day expire, and before a later one did, that one wrote the newest day. Of an accepted loss it
    did not record how much was unsettled.
    """
    lake = history.lake
    kept = [settled.day.date for settled in lake.kept]
    if len(kept) < len(lake.days):
        kept.pop()
    manifests = {day: history.manifest(day) for day in kept}
    return list(
        takewhile(
            lambda day: not (manifests[day]["late_expired"] or manifests[day]["accepted"]["loss"]), kept
        )
    )


def _is_recorded_by_then(manifest: Any) -> bool:
    return not manifest["late_expired"] and not manifest["accepted"]["loss"]


def _fail(history: History, fault: Fault, how: int) -> None:
    history.store.plant(fault)
    struck = history.store.injected
    with suppress(Crash, StoreFailed, NotPublished):
        upgrade(history.pipeline(LocalEngine(history.topic)))
    history.store.show()
    history.counts["upgrades that failed"] += history.store.injected > struck
    if history.store.dead and how & 8:
        history.store.power_loss(some(how))
    _look(history)


def _look(history: History) -> None:
    """Check the lake by all laws; of the committed days the manifests of these alone may have changed."""
    for day in history.earlier:
        if (name := f"date={day}/_manifest.json") in history.before:
            history.before[name] = sha256(history.manifest_text(day)).hexdigest()
    history.look(moving=False)
    history.note_files()
