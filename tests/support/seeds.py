"""The seeds that a test run drew, shown at its end whatever came of it, so that it can be played again."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, value in seeds(terminalreporter):
        terminalreporter.write_line(f"drawn at random: {name}={value}")


def seeds(reporter: pytest.TerminalReporter) -> list[tuple[str, object]]:
    """Return once each property that tests recorded under the name of a variable that sets it."""
    reports = [*reporter.stats.get("passed", []), *reporter.stats.get("failed", [])]
    found = [each for report in reports for each in report.user_properties if each[0].endswith("_SEED")]
    return list(dict.fromkeys(found))
