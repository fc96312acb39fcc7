"""A real kill at every change of `upgrade`: the same command again leaves the lake that one call leaves."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from jobs.lake.posix import PosixLake
from jobs.upgrade.chain import upgradable
from jobs.upgrade.run import upgrade
from jobs.verify.level import Level
from jobs.verify.run import verify
from tests.support.kept_lake import KEPT, a_kept_lake
from tests.support.killed import is_killed
from tests.support.lake import files, places
from tests.support.local_engine import pipeline
from tests.support.memory_topic import MemoryTopic

STEP = 7
"""Calls between two kills; each one of the store's is failed in `tests/faults`."""
KILLED = """
import sys
from pathlib import Path
from jobs.upgrade.run import upgrade
from tests.support.killed import killing
from tests.support.local_engine import pipeline
from tests.support.memory_topic import MemoryTopic

assert upgrade(pipeline(Path(sys.argv[1]), MemoryTopic(2), system=killing(int(sys.argv[2])))).left == {}
"""


def lasting(lake: Path) -> set[str]:
    return {name for name in files(lake) if not name.startswith("_staging/")}


def test_an_upgrade_killed_at_any_change_is_finished_by_the_next(tmp_path: Path) -> None:
    states = set[tuple[str, ...]]()
    rows = places(KEPT)
    whole = a_kept_lake(tmp_path / "whole")
    upgrade(pipeline(whole, MemoryTopic(2)))
    for n in count(1, STEP):
        lake = a_kept_lake(tmp_path / f"{n}")
        killed = is_killed(KILLED, lake, n)
        states.add(tuple(sorted(lasting(lake))))
        assert upgrade(pipeline(lake, MemoryTopic(2))).left == {}
        assert lasting(lake) == lasting(whole)
        assert places(lake) == rows
        assert upgradable(PosixLake(lake)) == ()
        assert verify(PosixLake(lake), None, lambda *_: None, Level.RECORDS).problems == ()
        if not killed:
            break
    assert n > 100
    assert len(states) > 4
