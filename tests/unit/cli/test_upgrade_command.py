"""`upgrade` shows which days it would change, changes them when told to, and says so as text and as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from tests.support.command_line import document, invoke
from tests.support.config_text import THREE_DAYS
from tests.support.kept_lake import a_kept_lake
from tests.support.lake import files, manifests
from tests.support.three_days import SECOND


def a_config(folder: Path) -> Path:
    a_kept_lake(folder / "lake")
    path = folder / "orders.yaml"
    path.write_text(THREE_DAYS)
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return a_config(tmp_path)


def formats(config: Path) -> list[int]:
    return [manifest["format_version"] for manifest in manifests(config.parent / "lake")]


def test_without_execute_it_shows_the_days_and_changes_nothing(config: Path) -> None:
    before = files(config.parent / "lake")
    code, stdout, _ = invoke("upgrade", "--config", config)
    assert code == 0
    assert "`upgrade --execute` gives them today's format and names" in stdout
    code, told = document("upgrade", "--config", config)
    assert (code, told["upgraded"], told["left"]) == (0, False, {})
    assert [(day["format"], day["files"], day["renamed"], day["rows"]) for day in told["days"]] == [
        (3, 2, 1, 7),
        (3, 3, 2, 9),
        (3, 3, 2, 9),
    ]
    assert files(config.parent / "lake") == before
    assert "3 day(s) are of an earlier format" in invoke("status", "--config", config)[1]


def test_with_execute_it_upgrades_them_once_and_status_is_silent(config: Path) -> None:
    _, would = document("upgrade", "--config", config)
    code, told = document("upgrade", "--config", config, "--execute")
    assert (code, told["upgraded"], told["days"]) == (0, True, would["days"])
    assert formats(config) == [4, 4, 4]
    code, stdout, _ = invoke("upgrade", "--config", config, "--execute")
    assert (code, stdout) == (0, "each day is of today's format\n")
    assert "earlier format" not in invoke("status", "--config", config)[1]
    code, found = document("verify", "--config", config, "--level", "records")
    assert (code, found["problems"], found["notes"]) == (0, [], [])


def test_a_day_that_is_damaged_is_named_and_ends_with_28(config: Path) -> None:
    (path,) = config.parent.glob(f"lake/date={SECOND}/part-*")
    path.unlink()
    code, stdout, stderr = invoke("upgrade", "--config", config, "--execute")
    assert code == 28
    assert f"left as it is {SECOND}: " in stdout
    assert path.name in stdout
    assert "run `upgrade --execute` again" in stderr
    code, told = document("upgrade", "--config", config, "--execute")
    assert (code, told["error"], list(told["facts"]["left"])) == (28, "VerifyFailed", [str(SECOND)])
    assert formats(config) == [4, 3, 4]


def test_it_waits_for_no_run(config: Path) -> None:
    holder = LockHolder(run_id="other", host="here", pid=1, since=datetime(2026, 4, 1, tzinfo=UTC))
    with PosixLake(config.parent / "lake").lock(holder):
        code, told = document("upgrade", "--config", config, "--execute")
        assert (code, told["error"]) == (11, "LakeLocked")
        assert document("upgrade", "--config", config)[0] == 0
    assert formats(config) == [3, 3, 3]


def test_several_lakes_are_upgraded_one_after_the_other_and_the_worst_code_counts(tmp_path: Path) -> None:
    configs = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        configs.append(a_config(tmp_path / name))
    (lost,) = configs[0].parent.glob(f"lake/date={SECOND}/part-*")
    lost.unlink()
    options = [option for path in configs for option in ("--config", path)]
    code, told = document("upgrade", *options, "--execute")
    assert (code, told["exit_code"]) == (28, 28)
    assert [len(topic["days"]) for topic in told["topics"]] == [2, 3]
    assert [bool(topic["failure"]) for topic in told["topics"]] == [True, False]
    assert (formats(configs[0]), formats(configs[1])) == ([4, 3, 4], [4, 4, 4])
    (tmp_path / "two" / "orders.yaml").write_text("topic: [")
    assert document("upgrade", *options)[1]["topics"][1]["failure"]["exit_code"] == 2
