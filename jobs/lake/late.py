"""Bring late rows to the day that they belong to: a roll-forward after the commit.

It is repeated until it is done. Only the manifest decides which file moves where; today's config does not
matter. What was brought to a day that expired went with it. The manifest of the amended day is never changed:
a day is its own manifest, plus the files that later manifests list for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import date

from jobs.lake.files import awaits_rename
from jobs.lake.names import brought_by, in_day, parent
from jobs.lake.port import Lake
from jobs.lake.refusals import not_published
from offsets.commit_log import first_kept
from offsets.manifest import DataFile, Manifest


def late_moves(manifest: Manifest) -> Iterator[tuple[DataFile, str, str]]:
    """Yield each late file that has a target, with its reference in its run's day and its target."""
    for file in manifest.files:
        if file.target:
            yield file, in_day(manifest.day.date, file.path), file.target


def amended_by(lake: Lake, day: date, into: Iterable[date]) -> list[str]:
    """List the files that a day's run brought to some earlier days."""
    return [ref for ref in lake.late_files(into, day, None) if brought_by(ref) == day]


def is_unfinished(lake: Lake, source: str, target: str) -> bool:
    """Return whether a late file still lies in the folder of its run's day, or has its earlier name."""
    return lake.stat(source) is not None or awaits_rename(lake, source, target)


def unfinished_moves(lake: Lake, newest: Manifest) -> Iterator[str]:
    """Yield the targets of late files that have not reached their days, or not under that name."""
    for _, source, target in late_moves(newest):
        if is_unfinished(lake, source, target):
            yield target


def has_unfinished_moves(lake: Lake, manifest: Manifest) -> bool:
    """Return whether the manifest is the newest and has unfinished moves; an older one never has."""
    return any(unfinished_moves(lake, manifest)) and lake.days()[-1:] == [manifest.day.date]


def finish_moves(
    lake: Lake, manifest: Manifest, *, rebuilding: bool = False, kept_from: date | None = None
) -> Mapping[date, int]:
    """Finish the moves of the newest day, and return how many rows each earlier day received now.

    While a day is rebuilt (`rebuilding`), only files are moved that wait for nothing else: what is gone or
    damaged, the rebuild mends. `kept_from` is the first day that has not expired, where that is known.

    Raises:
        NotPublished: the store refused; the day itself is committed.
        LedgerBroken: a late file is at neither place, or another file is at its target.
    """
    amended: Counter[date] = Counter()
    with not_published(f"the late rows of {manifest.day.date} to reach their days"):
        kept_from = kept_from or first_kept(lake)
        for file, source, target in late_moves(manifest):
            if file.day and file.day < kept_from:
                continue
            if rebuilding and not _can_move(lake, source, target):
                continue
            if lake.bring(source, target) and file.day:
                amended[file.day] += file.rows
        if not rebuilding:
            lake.finish(manifest.day.date)
    return dict(sorted(amended.items()))


def _can_move(lake: Lake, source: str, target: str) -> bool:
    """Return whether a late file is there, and so is its day, without another file in its place."""
    entries = {lake.stat(source), lake.stat(target)} - {None}
    if not entries:
        return awaits_rename(lake, source, target)
    return len(entries) == 1 and lake.stat(parent(target)) is not None
