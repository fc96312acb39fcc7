"""A real kill at every change of `expire`: the next run, or the same command again, leaves no other lake."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from jobs.lake.clean import clean
from jobs.lake.expiry import expire
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.verify.level import Level
from jobs.verify.run import verify
from tests.support.killed import assert_lock_free
from tests.support.lake import places
from tests.support.three_days import FIRST, SECOND, THIRD, a_lake

NOW = datetime(2026, 4, 10, tzinfo=UTC)
HOLDER = LockHolder(run_id="expire", host="here", pid=1, since=NOW)
KILLED = """
import os, signal, sys
from datetime import UTC, date, datetime
from pathlib import Path
from jobs.lake.expiry import expire
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.store import Store, System

left = int(sys.argv[2])

class Killing(System):
    def __getattribute__(self, name):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)

lake, now = PosixLake(Path(sys.argv[1]), Store(Killing())), datetime(2026, 4, 10, tzinfo=UTC)
with lake.lock(LockHolder(run_id="killed", host="here", pid=1, since=now)):
    expire(lake, date(2099, 1, 1), now, "killed", "a test")
"""


def test_an_expiry_killed_at_any_change_is_finished_by_the_next(tmp_path: Path) -> None:
    states = set[tuple[str, ...]]()
    kept = {at: place for at, place in places(a_lake(3)).items() if place.day > FIRST}
    whole = [f"date={day}" for day in (FIRST, SECOND, THIRD)]
    for n in count(1):
        lake = PosixLake(Path(shutil.copytree(a_lake(3), tmp_path / f"{n}")))
        ended = subprocess.run([sys.executable, "-c", KILLED, str(lake.root), str(n)], check=False)
        assert ended.returncode in (0, -signal.SIGKILL)
        assert_lock_free(lake.root)
        there = sorted(path.name for path in lake.root.glob("date=*"))
        assert there in (whole, whole[1:])
        states.add((*there, *lake.staged_names()))
        with lake.lock(HOLDER):
            expire(lake, THIRD, NOW, "expire", "a test")
        clean(lake, HOLDER)
        assert places(lake.root) == kept
        result = verify(lake, None, lambda *_: None, Level.RECORDS)
        assert (result.problems, result.expired.days, lake.staged_names()) == ((), 1, [])
        if ended.returncode == 0:
            break
    assert n > 25
    assert len(states) > 4
