"""Child processes that end when we do, however we end.

Relies on Linux, which signals a child whose parent is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1
"""Linux's prctl(2): which signal a process gets when its parent ends. Kept by exec, not by fork."""


def bound_to(parent: int, number: signal.Signals) -> Callable[[], None]:
    """Return what a new process calls first: it gets a signal if its parent is killed."""
    prctl = ctypes.CDLL(None).prctl

    def bind() -> None:
        prctl(PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it was killed before that
            os._exit(1)

    return bind


@contextmanager
def ended(process: subprocess.Popen[Any], *, keep: bool = False) -> Iterator[None]:
    """Make sure that a process is over when the block is left; with `keep` only if that is by an error."""
    try:
        yield
    except GeneratorExit:  # what was kept is known to nobody any more
        if not keep:
            _end(process)
        raise
    except BaseException:
        _end(process)
        raise
    if not keep:
        _end(process)


def _end(process: subprocess.Popen[Any]) -> None:
    process.kill()
    process.wait()
