"""The soak as a user calls it: few kills and few records, all else as in a long one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import command_of, descendants, lives, until
from tests.support.sampled import SEED, Record, seed

SECONDS = 540.0
pytestmark = [pytest.mark.spark, pytest.mark.alone]
KILLS = {"folder": 3, "s3": 3}
"""`./run.sh prove` deals a hundred over more records."""
SOAK = [sys.executable, "-m", "tests.soak", "soak", "--json"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", KILLS)
def test_after_each_random_kill_every_record_is_there_once(
    tmp_path: Path, record_property: Record, store: str, request: pytest.FixtureRequest
) -> None:
    if store == "s3":
        request.getfixturevalue(
            "s3_server"
        )  # skips where the server cannot be made, and fails where it must be
    record_property(SEED, seed())
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*SOAK, "--kills", str(KILLS[store]), "--records", "20000", "--seed", str(seed()), "--store", store],
        env=environment, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    by_victim = found["by_victim_and_step"]
    print(f"seed {found['seed']}: {by_victim}")
    assert found["exact"]
    assert found["kills"] == sum(sum(steps.values()) for steps in by_victim.values()) == KILLS[store]
    assert found["checks"] == found["runs"] > KILLS[store]
    assert found["produced"] > 20_000
    assert found["records_checked"] > 2 * found["produced"]
    assert not list(tmp_path.glob("kafka-daily-*"))


def test_a_soak_that_is_interrupted_stops_all_that_it_started(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [*SOAK, "--kills", "5", "--records", "5000"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as soak:  # fmt: skip
        try:
            until(lambda: bool(list(tmp_path.glob("kafka-daily-soak-*/lake-*/logs/*.log"))))
            until(lambda: any("SparkSubmit" in command_of(pid) for pid in descendants(soak.pid)))
            started = [pid for pid in descendants(soak.pid) if lives(pid)]
            soak.send_signal(signal.SIGINT)
            assert soak.wait(60) == 130
        finally:
            soak.kill()
    assert len(started) > 3  # the broker and its shell, a run and its JVM
    until(lambda: not any(map(lives, started)))
    assert not list(tmp_path.glob("kafka-daily-*"))
