"""Prints the seeds that a test run drew at its end, so that the run can be repeated."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, value in seeds(terminalreporter):
        terminalreporter.write_line(f"drawn at random: {name}={value}")


def seeds(reporter: pytest.TerminalReporter) -> list[tuple[str, object]]:
    """Return once each property that tests recorded under the name of a variable that sets it."""
    reports = [*reporter.stats.get("passed", []), *reporter.stats.get("failed", [])]
    properties = (item for report in reports for item in report.user_properties)
    return list(dict.fromkeys(item for item in properties if item[0].endswith("_SEED")))
