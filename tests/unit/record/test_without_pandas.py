"""pandas stays out of a worker, and where it is wanted it is found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

A_DAY = """
from datetime import UTC, date, datetime
from pathlib import Path
import sys
from jobs.record.without_pandas import keep_pandas_out
keep_pandas_out()
import jobs.task.task
from jobs.daily import run_day
from tests.support.local_engine import order, pipeline
from tests.support.memory_topic import MemoryTopic
topic, at = MemoryTopic(), datetime(2026, 3, 28, 12, tzinfo=UTC)
topic.produce(0, order(at), at)
run_day(pipeline(Path(sys.argv[1]) / "lake", topic), date(2026, 3, 28))
print("pandas" in sys.modules)
"""
MODULES = "import sys; import jobs.task.task; print('pandas' in sys.modules)"
FOUND = """
import jobs.task.task
import pyarrow as pa
print(len(pa.table({"n": [1, 2]}).to_pandas()))
"""


def ran(program: str, *arguments: object) -> str:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]


def test_a_process_that_keeps_pandas_out_settles_a_day_without_it(tmp_path: Path) -> None:
    assert ran(A_DAY, tmp_path) == "False"


def test_the_modules_of_a_task_import_no_pandas() -> None:
    assert ran(MODULES) == "False"


def test_who_wants_pandas_still_finds_it() -> None:
    assert ran(FOUND) == "2"
