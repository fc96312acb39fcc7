"""What a run that was killed leaves behind: its attempts, and no lock."""

from __future__ import annotations

import fcntl
from pathlib import Path


def attempts(lake: Path) -> list[Path]:
    """Find the files that tasks are writing; what a sample writes before them is none of theirs."""
    return list((lake / "_staging").glob("*/attempts/*-*/*.part"))


def assert_lock_free(lake: Path) -> None:
    """The kernel has freed the lock of whoever died."""
    with (lake / "_lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
