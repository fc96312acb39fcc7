"""A pytest in a pytest, and a test in it that waits."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
BARE = {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""The variables of a pytest that starts in half the time, without the plugins that are installed."""
WAITS = """
import subprocess, time
from pathlib import Path
import pytest
@pytest.fixture
def started():
    with subprocess.Popen(["sleep", "300"], start_new_session=True) as child:
        yield
        child.kill()
    Path("torn down by {name}").touch()
def test_it(started):
    Path("{name} waits").touch()
    time.sleep(300)
"""
