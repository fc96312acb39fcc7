"""What the long proof writes down: seeds as they are, counts added up, and nothing twice."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests import prove

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
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    soaked = {"exact": True, "seed": 7654321, "kills": 1_000, "seconds": 1.5}
    section = prove.written(prove.figures(report), soaked, datetime(2026, 11, 22, tzinfo=UTC))
    assert "## The last whole run: 2026-11-22" in section
    assert "| `test_it.py` | KAFKA_DAILY_HISTORY_SEED 1234567; faults 1,234; tests 3 |" in section
    assert "| `./run.sh soak` | exact True; seed 7654321; kills 1,000 |" in section


def test_a_section_takes_the_place_of_the_last_one() -> None:
    first, second = (f"{prove.BEGIN}\n{text}\n{prove.END}" for text in ("one", "two"))
    page = prove.replaced("# Proof\nwhy\n", first)
    assert page == f"# Proof\nwhy\n\n{first}\n"
    assert prove.replaced(page + "## After\n", second) == f"# Proof\nwhy\n\n{second}\n## After\n"
