"""Makes a test run without root's rights, so that a folder can be closed to it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NOBODY: Final = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Give up root's rights for a while, if this user has them."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(own)


@contextmanager
def folder_of_nobody() -> Iterator[Path]:
    """Make a folder that the user of `unprivileged` owns; pytest's own may be closed to him."""
    with unprivileged(), tempfile.TemporaryDirectory() as folder:
        try:
            yield Path(folder)
        finally:
            for at, folders, _ in os.walk(folder):
                for name in folders:
                    (Path(at) / name).chmod(0o700)
