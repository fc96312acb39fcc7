"""Fixtures for all tests live in modules of their own, one for each thing that they start."""

pytest_plugins = [
    "tests.support.brokers",
    "tests.support.engine",
    "tests.support.object_servers",
    "tests.support.seeds",
    "tests.support.signals",
    "tests.support.two_days",
]
