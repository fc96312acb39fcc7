"""Makes a test run that SIGTERM ends tear down what it started, as after Ctrl-C."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Handle SIGTERM and SIGHUP like Ctrl-C; a SIGHUP that nohup ignores stays ignored."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
