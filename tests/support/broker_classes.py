"""Java's archive of the classes that a broker loads: made once for a set-up, as tests start many brokers.

A broker only reads it, and Java ignores one that does not fit. Never leaves one that was cut short: Java
crashes on that.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from jobs.demo.broker import BrokerProcess, class_archive

ENDED: Final = 143
"""The exit code of a Java that SIGTERM has ended in order, after which the archive is whole."""


def make_class_archive() -> None:
    """Start a broker once and keep its classes, where no archive of them is; replace older ones.

    Raises:
        BrokerUnavailable: the broker does not start.
        OSError: the archive cannot be kept.
    """
    archive = class_archive()
    if archive.exists():
        return
    new = archive.with_suffix(f".{os.getpid()}")
    try:
        if _Recorded(new).recorded():
            with new.open("rb") as file:
                os.fsync(file.fileno())
            for old in archive.parent.glob("broker-*.jsa"):
                old.unlink(missing_ok=True)
            new.replace(archive)
    finally:
        new.unlink(missing_ok=True)


class _Recorded(BrokerProcess):
    """A broker that writes its classes when it ends."""

    def __init__(self, archive: Path) -> None:
        super().__init__()
        self._archive, self._formatted = archive, False

    def recorded(self) -> bool:
        """Start and stop it; return whether the archive is whole."""
        with self:
            shell = self._shell
        return shell is not None and shell.returncode == ENDED

    def _format(self) -> None:
        super()._format()
        self._formatted = True

    def _java(self) -> list[str]:
        program, *options = super()._java()
        return [program, *([f"-XX:ArchiveClassesAtExit={self._archive}"] * self._formatted), *options]
