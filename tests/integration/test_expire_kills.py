"""A real kill at every change of `expire`: the next run, or the same command again, leaves no other lake."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from jobs.lake.clean import clean
from jobs.lake.expiry import expire
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.roll_forward import finish_last_run
from jobs.verify.level import Level
from jobs.verify.run import verify
from tests.support.killed import is_killed
from tests.support.lake import places
from tests.support.three_days import FIRST, SECOND, THIRD, a_lake

NOW = datetime(2026, 4, 10, tzinfo=UTC)
HOLDER = LockHolder(run_id="expire", host="here", pid=1, since=NOW)
KILLED = """
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from jobs.lake.expiry import expire
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.lake.roll_forward import finish_last_run
from jobs.lake.store import Store
from tests.support.killed import killing

lake, now = PosixLake(Path(sys.argv[1]), Store(killing(int(sys.argv[2])))), datetime(2026, 4, 10, tzinfo=UTC)
with lake.lock(LockHolder(run_id="killed", host="here", pid=1, since=now)):
    ledger, _ = finish_last_run(lake, "killed")
    expire(lake, ledger, date(2099, 1, 1), now, "killed", "a test")
"""


def test_an_expiry_killed_at_any_change_is_finished_by_the_next(tmp_path: Path) -> None:
    states = set[tuple[str, ...]]()
    kept = {at: place for at, place in places(a_lake(3)).items() if place.day > FIRST}
    whole = [f"date={day}" for day in (FIRST, SECOND, THIRD)]
    for n in count(1):
        lake = PosixLake(Path(shutil.copytree(a_lake(3), tmp_path / f"{n}")))
        killed = is_killed(KILLED, lake.root, n)
        there = sorted(path.name for path in lake.root.glob("date=*"))
        assert there in (whole, whole[1:])
        states.add((*there, *lake.staged_names()))
        with lake.lock(HOLDER):
            ledger, _ = finish_last_run(lake, "expire")
            expire(lake, ledger, THIRD, NOW, "expire", "a test")
        clean(lake, HOLDER)
        assert places(lake.root) == kept
        result = verify(lake, None, lambda *_: None, Level.RECORDS)
        assert (result.problems, result.expired.days, lake.staged_names()) == ((), 1, [])
        if not killed:
            break
    assert n > 25
    assert len(states) > 4
