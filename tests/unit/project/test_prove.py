"""What the long proof writes down: seeds as they are, counts added up, and nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests import prove
from tests.lanes import Lane
from tests.support.inner_pytest import BARE, WAITS
from tests.support.processes import descendants, lives, until
from tests.support.sampled import ALL

SUITE = """
import pytest
@pytest.mark.parametrize("faults", [1_000, 234])
def test_faults(faults, record_property): record_property("faults", faults)
def test_drawn(record_property): record_property("KAFKA_DAILY_HISTORY_SEED", 1234567)
@pytest.mark.skip
def test_skipped(): pass
"""


def test_counts_are_added_up_and_a_seed_can_be_copied(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", "test_it.py"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | BARE, capture_output=True, check=True)
    soaked = {"exact": True, "seed": 7654321, "kills": 1_000, "seconds": 1.5}
    section = prove.written(prove.figures(report), {"s3": soaked}, datetime(2026, 11, 22, tzinfo=UTC))
    assert "## The last whole run: 2026-11-22" in section
    assert "| `test_it.py` | KAFKA_DAILY_HISTORY_SEED 1234567; faults 1,234; tests 3 |" in section
    assert "| `./run.sh soak --store s3` | exact True; seed 7654321; kills 1,000 |" in section


PROGRAM = """
from tests import prove
from tests.lanes import PYTEST, Lane
prove.play(Lane(name="proof", command=(*PYTEST, "-p", "no:cacheprovider", "test_it.py")))
print("played")
"""


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["told to end", "Ctrl-C in a terminal"])
@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_what_the_proof_plays_ends_with_it_in_order(
    number: signal.Signals, code: int, send: Callable[[int, int], None], tmp_path: Path
) -> None:
    """SIGTERM left the tests at play, and Ctrl-C killed them while they stopped their brokers."""
    (tmp_path / "test_it.py").write_text(WAITS.replace("{name}", "it"))
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | BARE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        until((tmp_path / "it waits").exists)
        below = descendants(child.pid)
        send(child.pid, number)
        said = child.communicate()[0]
    assert child.returncode == code
    assert (tmp_path / "torn down by it").exists()
    assert not any(map(lives, below))
    assert "played" not in said


def test_the_proof_draws_no_sample() -> None:
    """What `./run.sh test` draws from, it plays whole."""
    assert f"{ALL}=1" in prove.tests(Path("report.xml")).command


def test_a_proof_that_failed_goes_no_further() -> None:
    with pytest.raises(SystemExit) as ended:
        prove.play(Lane(name="proof", command=("sh", "-c", "exit 3"), tests=False))
    assert ended.value.code == 3


def test_a_section_takes_the_place_of_the_last_one() -> None:
    first, second = (f"{prove.BEGIN}\n{text}\n{prove.END}" for text in ("one", "two"))
    page = prove.replaced("# Proof\nwhy\n", first)
    assert page == f"# Proof\nwhy\n\n{first}\n"
    assert prove.replaced(page + "## After\n", second) == f"# Proof\nwhy\n\n{second}\n## After\n"
