"""`expire` shows what would leave, removes it when told to, and says so as text and as JSON."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from tests.support.command_line import document, invoke
from tests.support.config_text import THREE_DAYS
from tests.support.three_days import FIRST, SECOND, THIRD, a_lake


@pytest.fixture
def config(tmp_path: Path) -> Path:
    shutil.copytree(a_lake(3), tmp_path / "lake")
    path = tmp_path / "orders.yaml"
    path.write_text(THREE_DAYS)
    return path


def folders(config: Path) -> list[str]:
    return sorted(path.name for path in config.parent.glob("lake/date=*"))


def kept(*days: date) -> list[str]:
    return [f"date={day}" for day in days]


def test_without_execute_it_shows_what_would_leave_and_removes_nothing(config: Path) -> None:
    code, stdout, _ = invoke("expire", "--config", config, "--before", SECOND)
    assert code == 0
    assert str(FIRST) in stdout
    assert "`expire --execute` removes them for good" in stdout
    assert folders(config) == kept(FIRST, SECOND, THIRD)
    code, told = document("expire", "--config", config, "--before", SECOND)
    (day,) = told["days"]
    assert (code, told["removed"], day["date"]) == (0, False, str(FIRST))
    assert day["removed"].keys() == {"files", "bytes", "rows", "amended"}
    assert not list(config.parent.glob("lake/_staging/*"))


def test_with_execute_it_removes_them_and_the_other_commands_count_them(config: Path) -> None:
    _, would = document("expire", "--config", config, "--before", "2027-01-01")
    code, told = document("expire", "--config", config, "--before", "2027-01-01", "--execute")
    assert (code, told["removed"], told["days"]) == (0, True, would["days"])
    assert folders(config) == kept(SECOND, THIRD)
    code, seen = document("status", "--config", config)
    assert (code, seen["expired"], seen["kept_from"]) == (0, 1, str(SECOND))
    code, found = document("verify", "--config", config, "--level", "records")
    assert code == 0
    assert found["expired"]["days"] == 1
    assert found["expired"]["rows"] == told["days"][0]["removed"]["rows"]
    assert f"1 day(s) expired by policy; {SECOND} is the first" in invoke("status", "--config", config)[1]
    assert "expired by policy, and not missing: 1 day(s)" in invoke("verify", "--config", config)[1]
    code, stdout, _ = invoke("expire", "--config", config, "--before", "2027-01-01", "--execute")
    assert (code, stdout) == (
        0,
        f"no day expires, not even {SECOND} and {THIRD}: the newest two always stay\n",
    )


def test_counts_that_went_with_a_damaged_manifest_are_told_as_unknown(config: Path) -> None:
    lake = config.parent / "lake"
    for copy in (lake / f"date={FIRST}/_manifest.json", lake / f"_ledger/{FIRST}.json"):
        copy.write_bytes(copy.read_bytes()[:-9])
    for execute in ((), ("--execute",)):
        code, stdout, stderr = invoke("expire", "--config", config, "--before", SECOND, *execute)
        assert code == 0
        assert re.search(rf"{FIRST} +\? ", stdout)
        assert "?: not known, since a manifest that counted them is damaged" in stdout
        assert ("its counts are lost" in stderr) == bool(execute)
    assert "without rows of 1 of these days" in invoke("verify", "--config", config)[1]
    assert document("verify", "--config", config)[1]["expired"]["uncounted"] == 1


def test_an_expired_day_is_refused_by_name(config: Path) -> None:
    invoke("expire", "--config", config, "--before", SECOND, "--execute")
    code, told = document("verify", "--config", config, "--date", FIRST)
    assert (code, told["error"]) == (2, "ConfigError")
    for option in ((), ("--force",)):
        code, told = document("run", "--config", config, "--date", FIRST, *option)
        assert (code, told["error"]) == (2, "ConfigError")
        assert f"expired by policy (expire --before {SECOND})" in told["found"]


def test_it_waits_for_no_run_and_wants_a_date(config: Path) -> None:
    holder = LockHolder(run_id="other", host="here", pid=1, since=datetime(2026, 4, 1, tzinfo=UTC))
    with PosixLake(config.parent / "lake").lock(holder):
        code, told = document("expire", "--config", config, "--before", SECOND, "--execute")
        assert (code, told["error"]) == (11, "LakeLocked")
        assert document("expire", "--config", config, "--before", SECOND)[0] == 0
    assert document("expire", "--config", config, "--before", "yesterday")[0] == 2
    assert document("expire", "--config", config)[0] == 2
    assert folders(config) == kept(FIRST, SECOND, THIRD)
