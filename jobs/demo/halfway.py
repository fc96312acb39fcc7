"""Kill a run in the middle of its work, and be sure that it was in the middle.

Relies on the staging folder: what lies there was written by a run that has not committed.
Never kills a run that has written nothing yet.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from jobs.demo.subprocess_cli import CommandLine, kill
from offsets.errors import RunFailed

KILL_AT: Final = 0.3
"""The share of the earlier days' mean bytes that the run may write before it is killed."""
LOOK_SECONDS: Final = 0.002


def kill_half_way(jobs: CommandLine, lake: Path, day: str) -> None:
    """Kill the run of a day by SIGKILL once it has written a part of its files.

    Raises:
        RunFailed: the run ended before that.
    """
    committed = len(list(lake.glob("date=*")))
    enough = KILL_AT * sum(_size(path) for path in lake.glob("date=*/*.parquet")) / max(committed, 1)
    with jobs.started("run", "--date", day) as (child, log):
        while sum(_size(path) for path in lake.glob(f"_staging/{day}.*/**/*")) < enough:
            if child.poll() is not None:
                raise RunFailed(
                    expected=f"the run of {day} to be killed while it writes",
                    found=f"it ended with code {child.returncode} before that; its log:\n{log.read_text()}",
                    do="Try the demo again.",
                )
            time.sleep(LOOK_SECONDS)
        kill(child)


def _size(path: Path) -> int:
    # A file can be moved between the listing and the look.
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0
