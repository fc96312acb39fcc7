"""A test run that is told to end tears down what it started, as it does after Ctrl-C."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Take SIGTERM, and the end of the terminal, for Ctrl-C; nohup's word stands."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
