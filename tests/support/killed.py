"""A program that is killed at a call of its store, and what a kill leaves: attempts of tasks, and no lock."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

from jobs.lake.store import System


def killing(at: int) -> System:
    """Return the system's calls, of which the n-th kills this process."""
    left = at

    class Killing(System):
        def __getattribute__(self, name: str) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__getattribute__(name)

    return Killing()


def is_killed(program: str, lake: Path, at: int) -> bool:
    """Run a program with a lake and a number, and return whether a kill ended it; the lock must be free."""
    ended = subprocess.run([sys.executable, "-c", program, str(lake), str(at)], check=False)
    assert ended.returncode in (0, -signal.SIGKILL)
    assert_lock_free(lake)
    return ended.returncode != 0


def attempts(lake: Path) -> list[Path]:
    """List the files that tasks are writing, without those that a sample wrote before."""
    return list((lake / "_staging").glob("*/attempts/*-*/*.part"))


def assert_lock_free(lake: Path) -> None:
    """Check that the kernel has freed the lock of the killed run."""
    with (lake / "_lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
