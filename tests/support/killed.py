"""What a killed run leaves: its attempts, and no lock."""

from __future__ import annotations

import fcntl
from pathlib import Path


def attempts(lake: Path) -> list[Path]:
    """List the files that tasks are writing, without those that a sample wrote before."""
    return list((lake / "_staging").glob("*/attempts/*-*/*.part"))


def assert_lock_free(lake: Path) -> None:
    """Check that the kernel has freed the lock of the killed run."""
    with (lake / "_lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
