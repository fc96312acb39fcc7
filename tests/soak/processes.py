"""The processes of a run, by what they are: its driver, Spark's JVM below it, the Python workers below that.

Relies on /proc to see who runs below whom; where there is none, only the driver is found.
Never kills a process that is not below the given one.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
DAEMON: Final = "pyspark.daemon"


class Victim(StrEnum):
    """What a kill can hit."""

    DRIVER = "driver"
    WORKER = "Python worker"
    JVM = "JVM"


def kill_one(driver: int, wanted: Victim, rng: random.Random) -> Victim:
    """Send SIGKILL to one process of a run: of the wanted kind if there is one by now, else its driver."""
    found = all_of(driver, wanted)
    picked = [(wanted, rng.choice(sorted(found)))] if found else []
    for victim, pid in (*picked, (Victim.DRIVER, driver)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return victim
    return Victim.DRIVER


def all_of(root: int, wanted: Victim) -> list[int]:
    """Find the processes of a kind below one; the driver of a run is the root itself."""
    match wanted:
        case Victim.DRIVER:
            return [root]
        case Victim.JVM:
            return [pid for pid, _ in _below(root) if _is_spark(_command(pid))]
        case Victim.WORKER:
            # The daemon forks the workers, and keeps its command line in them.
            return [
                pid for pid, parent in _below(root) if DAEMON in _command(pid) and DAEMON in _command(parent)
            ]


def _is_spark(command: str) -> bool:
    return "org.apache.spark.deploy.SparkSubmit" in command


def _below(root: int) -> Iterator[tuple[int, int]]:
    """Give the processes below one, each with its parent."""
    children: dict[int, list[int]] = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(folder.name))
    reached = [root]
    while reached:
        parent = reached.pop()
        for pid in children.get(parent, []):
            yield pid, parent
            reached.append(pid)


def _command(pid: int) -> str:
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ")
    return ""
