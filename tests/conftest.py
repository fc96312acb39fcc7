"""Fixtures for all tests live in modules of their own, one for each thing that they start."""

pytest_plugins = ["tests.brokers", "tests.engine", "tests.seeds", "tests.two_days"]
