"""The demo's tables agree with the commands beside them."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from jobs.config import Late
from jobs.daily import run_day
from jobs.demo.locations import Where
from jobs.demo.oracle import Report
from jobs.demo.show import show_days
from jobs.lake.posix import PosixLake
from jobs.lake.status import day_states
from tests.support.local_engine import pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, THIRD, three_days


def test_the_demo_counts_files_as_status_does(tmp_path: Path) -> None:
    """Late files that other days had brought were counted as the day's own, invalid ones not at all."""
    topic, lake = MemoryTopic(2), tmp_path / "lake"
    three_days(topic)
    for day in (FIRST, SECOND, THIRD):
        run_day(pipeline(lake, topic, late=Late.AMEND), day)
    days = {day: dict[Where, int]() for day in (FIRST, SECOND, THIRD)}
    report = Report(produced=0, counts={}, by_day=days, different=0, differences=())
    shown = StringIO()
    show_days(Console(file=shown, width=120), PosixLake(lake), report)
    files = [line.split()[-2] for line in shown.getvalue().splitlines() if "2026-03-" in line]
    assert files == [str(state.files) for state in day_states(PosixLake(lake))] == ["1", "1", "1"]
