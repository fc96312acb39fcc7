"""The names of what lies in a lake, for those who write them and for those who look for them.

Pure. A reference is a path below the lake; a name is a path below a day.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Final

DAY_PREFIX: Final = "date="
STAGING_NAME: Final = "_staging"
STAGED_DAY: Final = "day"
"""Where a day is put together below a run's staging; a day that was replaced is found there."""
REMOVED: Final = "removed."
"""The prefix of a run's name in staging while it is being removed."""
LATE_NAME: Final = re.compile(r"late-(\d{4}-\d\d-\d\d)-")
"""The beginning of a late file's name, with the day whose run brought it."""
OURS: Final = re.compile(
    r"part-[^/]*\.parquet|_invalid/invalid-[^/]*\.parquet|_late/date=[^/]*/late-[^/]*\.parquet"
)
"""The names that a run gives to files, for a day without a manifest; their footers name topic and day."""
RUN: Final = re.compile(r"-\d{8}T\d{6}-[0-9a-f]{6}-\d+\.parquet$")
"""The end of such a name, with the run's id: by it a file whose footer cannot be read is ours."""
NFS: Final = re.compile(r"\.nfs[0-9a-f]{16,}")
"""NFS's name for a file that was removed while somebody reads it; it disappears by itself."""


def day_ref(day: date | None) -> str:
    """Return the reference of a committed day."""
    return f"{DAY_PREFIX}{day}"


def part_name(run_id: str, number: int) -> str:
    """Name a file of the day's own rows."""
    return f"part-{run_id}-{number:05d}.parquet"


def invalid_name(run_id: str, number: int) -> str:
    """Name a file of invalid records."""
    return f"_invalid/invalid-{run_id}-{number:05d}.parquet"


def late_name(into: date, by: date, run_id: str, number: int) -> str:
    """Name a file of late rows of a day, in the folder of the day whose run met them."""
    return f"_late/{day_ref(into)}/late-{by}-{run_id}-{number:05d}.parquet"


def late_target(into: date, name: str) -> str:
    """Return the reference that a late file gets in the day it belongs to."""
    return f"{day_ref(into)}/{last(name)}"


def brought_by(ref: str) -> date | None:
    """Return the day whose run brought a late file, as the file's name says; None for any other file."""
    found = LATE_NAME.match(last(ref))
    try:
        return date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


def day_of(ref: str) -> date:
    """Return the day in whose folder a reference lies.

    Raises:
        ValueError: it lies in none.
    """
    return date.fromisoformat(ref.split("/")[0].removeprefix(DAY_PREFIX))


def last(ref: str) -> str:
    """Return the last part of a reference."""
    return ref.rsplit("/", 1)[-1]


def parent(ref: str) -> str:
    """Return what a reference lies in; empty for the lake itself."""
    return ref.rpartition("/")[0]


def below(ref: str, folder: str) -> str:
    """Return the name of a reference below a folder that it lies in."""
    return ref.removeprefix(f"{folder}/")
