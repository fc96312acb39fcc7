"""Late rows brought to the day that they belong to: a roll-forward after the commit.

Replayed until it is done. The manifest names each file's move, and it alone decides; what the config says
today does not matter. The amended day's own manifest is never written again: a day is its manifest, plus what
later manifests list for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date

from jobs.lake.names import day_ref, parent
from jobs.lake.port import Lake
from offsets.errors import NotPublished, StoreFailed
from offsets.manifest import DataFile, Manifest


def late_moves(manifest: Manifest) -> Iterator[tuple[DataFile, str, str]]:
    """Yield each late file that has a target, with its first reference and the one that it is to get."""
    for file in manifest.files:
        if file.target:
            yield file, f"{day_ref(manifest.day.date)}/{file.path}", file.target


def unfinished_moves(lake: Lake, newest: Manifest) -> Iterator[str]:
    """Yield the targets of the late files that still lie in the folder of the day whose run brought them."""
    for _, source, target in late_moves(newest):
        if lake.stat(source):
            yield target


def has_unfinished_moves(lake: Lake, manifest: Manifest) -> bool:
    """Return whether late files of the newest day still wait; those of an older day never do."""
    return any(unfinished_moves(lake, manifest)) and lake.days()[-1:] == [manifest.day.date]


def finish_moves(lake: Lake, manifest: Manifest, *, leave_gone: bool = False) -> Mapping[date, int]:
    """Finish the moves of the newest day; return how many rows each closed day received now.

    Where another day is built again (`leave_gone`), a file that is gone altogether is left for its own day's
    rebuild to find, and so is one whose target's folder is gone.

    Raises:
        NotPublished: the store refused; the day itself is committed.
        LedgerBroken: a late file is neither here nor there, or its place was taken.
    """
    amended: Counter[date] = Counter()
    try:
        for file, source, target in late_moves(manifest):
            if leave_gone and _is_gone(lake, source, target):
                continue
            if lake.bring(source, target) and file.day:
                amended[file.day] += file.rows
    except StoreFailed as refused:
        raise NotPublished(
            expected=f"the late rows of {manifest.day.date} to reach their days",
            found=f"{refused.found} when trying {refused.expected}",
            do="The day is committed and nothing is lost. Mend the store, then run the day again.",
        ) from refused
    return dict(sorted(amended.items()))


def _is_gone(lake: Lake, source: str, target: str) -> bool:
    """Return whether a late file, or the day that it belongs to, is gone."""
    return not (lake.stat(source) or lake.stat(target)) or not lake.stat(parent(target))
