"""Processes by their ids: their children, and whether they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.spark.engine import Engine

WAIT = 60.0


def until(holds: Callable[[], bool], seconds: float = WAIT) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.01)


def descendants(root: int) -> list[int]:
    """Yield the descendants of a process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        children.setdefault(parent_of(int(folder.name)), []).append(int(folder.name))

    def below(pid: int) -> Iterator[int]:
        for child in children.get(pid, []):
            yield child
            yield from below(child)

    return list(below(root))


def parent_of(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    return ""


def lives(pid: int) -> bool:
    """Return whether a process runs; one that waits to be reaped does not."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def jvm_of(engine: Engine) -> int:
    """Return the id of a session's JVM."""
    gateway = engine.session.sparkContext._gateway
    assert gateway is not None
    return int(gateway.proc.pid)
