"""The soak as a user calls it: few kills and few records, all else as in a long one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import descendants, lives, until

SECONDS = 540.0
SOAK = [sys.executable, "-m", "tests.soak", "soak", "--json"]


@pytest.mark.timeout(600)
@pytest.mark.spark
def test_after_each_of_five_random_kills_every_record_is_there_once(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*SOAK, "--kills", "5", "--records", "20000"],
        env=environment, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    by_victim = found["by_victim_and_step"]
    print(f"seed {found['seed']}: {by_victim}")
    assert found["exact"]
    assert found["kills"] == sum(sum(steps.values()) for steps in by_victim.values()) == 5
    assert found["checks"] == found["runs"] > 5
    assert found["produced"] > 20_000
    assert found["records_checked"] > 2 * found["produced"]
    assert not list(tmp_path.glob("kafka-daily-*"))


@pytest.mark.spark
def test_a_soak_that_is_interrupted_stops_all_that_it_started(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*SOAK, "--kills", "5", "--records", "5000"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as soak:  # fmt: skip
        try:
            until(lambda: bool(list(tmp_path.glob("kafka-daily-soak-*/lake-*/logs/*.log"))))
            time.sleep(3)
            started = [pid for pid in descendants(soak.pid) if lives(pid)]
            soak.send_signal(signal.SIGINT)
            assert soak.wait(60) == 130
        finally:
            soak.kill()
    assert len(started) > 2  # the broker and its shell, and a run
    until(lambda: not any(map(lives, started)))
    assert not list(tmp_path.glob("kafka-daily-*"))
