"""What touches no record is done in under a second, on a machine where no JVM could start."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.brokers import Broker, MakeTopic
from tests.support.engine import FIRST, Command, Configured
from tests.support.judged import midnight
from tests.support.produce import every, send

SECONDS = 1.0
PYTHON = "import asyncio, ssl, unittest, xmlrpc.client"
PYTHON_SECONDS = 0.11
"""What an idle machine needs for PYTHON; one that is slower, or shared, is given more in proportion."""


@pytest.fixture
def committed(broker: Broker, topic: MakeTopic, configured: Configured, command: Command) -> Path:
    name = topic(partitions=2)
    records = [
        order for part in range(2) for order in every(timedelta(minutes=5), midnight(FIRST), 300, part)
    ]
    send(broker.bootstrap_servers, name, records)
    config = configured(name)
    assert command(config, "run", "--date", str(FIRST)).code == 0
    return config


def test_what_reads_no_record_ends_within_a_second_and_without_java(committed: Path, tmp_path: Path) -> None:
    (nothing := tmp_path / "bin").mkdir()
    environment = {
        "PATH": str(nothing),
        "JAVA_HOME": str(tmp_path / "no-java"),
        "KAFKA_DAILY_CONFIG": str(committed),
        "KAFKA_DAILY_HOME": os.environ.get("KAFKA_DAILY_HOME", ""),
        "LANG": "C.UTF-8",
    }
    for arguments in (["run", "--date", str(FIRST)], ["plan"], ["status"]):
        took, python = [], []
        for _ in range(3):
            python.append(_seconds([sys.executable, "-c", PYTHON], environment)[0])
            seconds, done = _seconds([sys.executable, "-m", "jobs", *arguments, "--json"], environment)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)
            took.append(seconds)
        slower = max(1.0, statistics.median(python) / PYTHON_SECONDS)
        assert statistics.median(took) < SECONDS * slower, (arguments, took, python)


def _seconds(
    program: list[str], environment: dict[str, str]
) -> tuple[float, subprocess.CompletedProcess[str]]:
    began = time.monotonic()
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    return time.monotonic() - began, done
