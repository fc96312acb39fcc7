"""The names of files and folders in a lake: how they are made, and how they are recognised.

Pure. A reference is a path below the lake; a name is a path below a day.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Final

DAY_PREFIX: Final = "date="
STAGING_NAME: Final = "_staging"
STAGED_DAY: Final = "day"
"""The folder in a run's staging where a day is put together; after an exchange it holds the old day."""
REMOVED: Final = "removed."
"""The prefix of a staging folder that is being removed."""
LEDGER_NAME: Final = "_ledger"
ENTRY: Final = ".json"
"""The end of the name of a day's entry in the ledger."""
PUT: Final = "put."
"""The prefix of a small file in staging that is to be renamed over one beside the days."""
DAY_ROWS: Final = ".parquet"
"""The end of the name of a file whose rows are of the day that it lies in, and of no other file."""
ASIDE: Final = ".rows"
"""The end of the name of any other Parquet file: no reader that searches folders takes it for rows."""
SUCCESS_NAME: Final = "_SUCCESS"
"""An empty file in a committed day, for programs that wait for one."""
LATE_NAME: Final = re.compile(r"(?:part-)?late-(\d{4}-\d\d-\d\d)-")
"""The start of a late file's name, with the day whose run brought it; no `part-` up to manifest format 3."""
OURS: Final = re.compile(
    r"part-(?!late-)[^/]*\.parquet"
    r"|_invalid/invalid-[^/]*\.(?:rows|parquet)"
    r"|_late/date=[^/]*/(?:part-)?late-[^/]*\.(?:rows|parquet)"
)
"""The names that a run uses for files, now and up to manifest format 3, to recognise them in a day without
a manifest."""
RUN: Final = re.compile(r"-\d{8}T\d{6}-[0-9a-f]{6}-\d+\.(?:rows|parquet)$")
"""The end of such a name, with the run's id, which shows that a file with an unreadable footer is ours."""
NFS: Final = re.compile(r"\.nfs[0-9a-f]{16,}")
"""NFS's name for a file that was removed while it was open; it disappears by itself."""


def day_ref(day: date | None) -> str:
    """Return the reference of a committed day."""
    return f"{DAY_PREFIX}{day}"


def entry_ref(day: date) -> str:
    """Return the reference of a day's entry in the ledger."""
    return f"{LEDGER_NAME}/{day}{ENTRY}"


def entry_day(name: str) -> date | None:
    """Return the day of which a name in the ledger is the entry; None for any other name."""
    try:
        day = date.fromisoformat(name.removesuffix(ENTRY))
    except ValueError:
        return None
    return day if name == f"{day}{ENTRY}" else None


def staged_day(name: str) -> date | None:
    """Return the day of which a name in staging is a run's folder; None for any other name."""
    try:
        return date.fromisoformat(name.removeprefix(REMOVED).partition(".")[0])
    except ValueError:
        return None


def in_day(day: date, name: str) -> str:
    """Return the reference of a name below a day."""
    return f"{day_ref(day)}/{name}"


def part_name(run_id: str, number: int) -> str:
    """Return the name of a file of the day's own rows."""
    return f"part-{run_id}-{number:05d}{DAY_ROWS}"


def invalid_name(run_id: str, number: int) -> str:
    """Return the name of a file of invalid records."""
    return f"_invalid/invalid-{run_id}-{number:05d}{ASIDE}"


def late_name(into: date, by: date, run_id: str, number: int) -> str:
    """Return the name of a file of late rows of day `into`, in the folder of `by`, whose run read them."""
    return f"_late/{day_ref(into)}/part-late-{by}-{run_id}-{number:05d}{ASIDE}"


def late_target(into: date, name: str) -> str:
    """Return the reference of a late file in its day, where it sorts after the day's own files."""
    return in_day(into, name_in_its_day(name))


def name_in_its_day(ref: str) -> str:
    """Return the name that a late file has in the day that it belongs to, wherever it lies now."""
    return last(ref) if ref.endswith(DAY_ROWS) else last(ref).removesuffix(ASIDE) + DAY_ROWS


def late_source(target: str) -> str:
    """Return the name that a late file had in the folder of its run, by its reference in its day."""
    by_format_3 = last(target).startswith("late-")
    return f"_late/{target if by_format_3 else target.removesuffix(DAY_ROWS) + ASIDE}"


def todays_name(ref: str) -> str:
    """Return today's name of a file that a manifest names, by its path below a day or by its target."""
    folder, name = parent(ref), last(ref)
    if name.startswith("late-"):
        name = f"part-{name}"
    if folder.startswith("_"):
        name = name.removesuffix(DAY_ROWS).removesuffix(ASIDE) + ASIDE
    return f"{folder}/{name}" if folder else name


def earlier_name(target: str) -> str:
    """Return the name that a late file had in its day up to manifest format 3."""
    return f"{parent(target)}/{last(target).removeprefix('part-')}"


def brought_by(ref: str) -> date | None:
    """Return the day whose run brought a late file, from its name; None for any other file."""
    match = LATE_NAME.match(last(ref))
    try:
        return date.fromisoformat(match[1]) if match else None
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
    """Return the folder of a reference; empty for the lake itself."""
    return ref.rpartition("/")[0]


def below(ref: str, folder: str) -> str:
    """Return the path of a reference below one of its folders."""
    return ref.removeprefix(f"{folder}/")
