"""Tables fit the terminal, the progress line stays below the log, and colours can be turned off."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from jobs.cli import console, tables
from jobs.config import Late
from jobs.daily import Outcome, run_day
from jobs.day.plan import preview
from jobs.lake.posix import PosixLake
from jobs.rebuild import rebuild_day
from jobs.topics import TopicResult
from offsets.commit_log import read_manifest
from offsets.errors import RunFailed
from offsets.manifest import CauseCount
from offsets.verdict import Verdict
from tests.support.command_line import document, invoke
from tests.support.local_engine import pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.terminal import HERE, lines, on_terminal
from tests.support.three_days import FIRST, SECOND, THIRD, a_lake, three_days
from tests.unit.cli.test_cli import CONFIG, IN_MEMORY, REAL

COLOUR = re.compile(r"\x1b\[[0-9;]*[1-9][0-9;]*m")
SLOW = IN_MEMORY.replace(
    "@contextmanager",
    """
import time
from dataclasses import replace
from tests.support.local_engine import LocalEngine
class Slow(LocalEngine):
    def run_tasks(self, *arguments, **named):
        done = super().run_tasks(*arguments, **named)
        time.sleep(0.25)
        return done
@contextmanager""",
).replace(
    "yield pipeline(there.lake.root, topic, now=now)",
    "yield replace(pipeline(there.lake.root, topic, now=now, engine=Slow(topic)), observers=there.observers)",
)
"""The command line over a topic in memory, slow enough for its progress to be seen."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(CONFIG.format(port=1, timeout="1s"))
    return path


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return Path(shutil.copytree(a_lake(2), tmp_path / "lake"))


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda width: monkeypatch.setattr(console.out, "width", width)


# -- tables


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("command", [["status"], ["verify", "--level", "records"]])
def test_a_table_fits_and_no_figure_is_folded(
    config: Path, lake: Path, wide: Callable[[int], None], command: list[str], width: int
) -> None:
    """At 80 columns each day, its state and its figures stood in two lines."""
    wide(width)
    code, stdout, _ = invoke(*command, "--config", config)
    assert code == 0
    table = [line for line in stdout.splitlines() if re.match(r"day |2026-03-2", line)]
    assert len(table) == 3 * len([line for line in table if line.startswith("day")])
    assert max(len(line.rstrip()) for line in table) <= width
    assert all(line.split()[1] == "complete" for line in table[1:3])
    assert [line.split()[0] for line in table[1:3]] == ["2026-03-28", "2026-03-29"]


def test_what_a_narrow_table_leaves_out_is_named_and_stays_in_the_document(
    config: Path, lake: Path, wide: Callable[[int], None]
) -> None:
    wide(60)
    head, *_ = (line for line in invoke("status", "--config", config)[1].splitlines() if "state" in line)
    assert head.split()[:2] == ["day", "state"]
    assert "total" in head.split()
    assert "run" not in head.split()
    assert "not shown at this width: " in invoke("status", "--config", config)[1]
    run_id = document("status", "--config", config)[1]["days"][0]["run_id"]
    wide(200)
    stdout = invoke("status", "--config", config)[1]
    assert run_id in stdout
    assert "not shown" not in stdout


def test_columns_without_a_figure_go_first(config: Path, lake: Path, wide: Callable[[int], None]) -> None:
    """`gaps` is 0 on both days; `pending` is not, though it is less important by itself."""
    wide(200)
    full = invoke("status", "--config", config)[1]
    assert "gaps" in full
    run_id = document("status", "--config", config)[1]["days"][0]["run_id"]
    head = next(line for line in full.splitlines() if line.startswith("day"))
    wide(len(head.rstrip().removesuffix("run").rstrip()) - 1)
    shown = invoke("status", "--config", config)[1]
    head = next(line for line in shown.splitlines() if "state" in line)
    assert run_id not in shown
    assert "gaps" not in head
    assert "pending" in head


def test_the_long_run_goes_before_any_figure(config: Path, lake: Path, wide: Callable[[int], None]) -> None:
    """At 100 columns the ids of runs stood there, and late and gaps were left out."""
    wide(100)
    shown = invoke("status", "--config", config)[1]
    head = next(line for line in shown.splitlines() if "state" in line)
    assert "late" in head
    assert "gaps" in head
    assert "not shown at this width: run; --json has all" in shown


def test_status_adds_up_what_a_query_counts_and_shows_a_rebuilt_day(
    config: Path, tmp_path: Path, wide: Callable[[int], None]
) -> None:
    topic, lake = MemoryTopic(2), tmp_path / "lake"
    three_days(topic)
    for day in (FIRST, SECOND):
        run_day(pipeline(lake, topic, late=Late.AMEND), day)
    rebuild_day(pipeline(lake, topic, late=Late.AMEND), FIRST)
    wide(60)
    shown = invoke("status", "--config", config)[1].splitlines()
    head = next(line for line in shown if line.startswith("day"))
    assert "total" in head
    first = next(line for line in shown if line.startswith("2026-03-28"))
    assert "complete, rev 2" in first
    day = document("status", "--config", config)[1]["days"][0]
    assert day["state"] == "complete"
    total = len(pq.ParquetDataset(sorted((lake / "date=2026-03-28").glob("*.parquet"))).read())
    assert total == day["rows"] + sum(amended["rows"] for amended in day["amended"]) > day["rows"]
    column = len(head[: head.index("total")].split())
    assert first.replace("complete, rev 2", "complete").split()[column] == str(total)


def test_gaps_and_already_settled_stay_where_other_columns_can_go(
    config: Path, lake: Path, wide: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """At 80 to 110 columns `run` hid "already settled", and `verify` the gaps."""
    shutil.rmtree(lake)
    shutil.copytree(a_lake(3), lake)
    wide(80)
    assert "gaps proved" in invoke("verify", "--config", config)[1].splitlines()[0]
    manifest = read_manifest(PosixLake(lake), SECOND)
    assert manifest
    counts = [replace(manifest.tally[0], verdict=verdict, rows=1) for verdict in Verdict]
    manifest = replace(manifest, tally=tuple(counts), gaps=())
    tables.outcome(Outcome(manifest=manifest, already=False, amended=Counter(), seconds={}))
    assert "already settled" in capsys.readouterr().out.splitlines()[1]


def test_causes_beyond_the_first_five_are_counted(
    lake: Path, wide: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` left the sixth cause out without a word."""
    wide(200)
    manifest = read_manifest(PosixLake(lake), SECOND)
    assert manifest
    causes = [CauseCount(cause=f"cause {n}", rows=9 - n, partition=0, offset=n) for n in range(7)]
    for shown, last in ((7, "  7 x one of 2 other cause(s): see `causes` in "), (5, "  5 x cause 4 (")):
        tables.outcome(Outcome(manifest=replace(manifest, causes=tuple(causes[:shown])), already=False))
        assert capsys.readouterr().out.splitlines()[-2].startswith(last)


def test_the_last_line_of_verify_adds_up(config: Path, lake: Path) -> None:
    """It said `rows` of what `status` counts otherwise."""
    stdout = invoke("verify", "--config", config)[1]
    found = re.search(r"(\d+) records in files: (\d+) in day, (\d+) late, (\d+) invalid", stdout)
    assert found, stdout
    total, *parts = map(int, found.groups())
    days = document("status", "--config", config)[1]["days"]
    assert total == sum(parts)
    assert parts == [sum(day[name] for day in days) for name in ("rows", "late", "invalid")]
    assert "in files" in stdout.splitlines()[0]


def test_the_lake_is_shown_without_a_way_up_and_down(config: Path, lake: Path) -> None:
    """`status` said `lake conf/../lake/sensors`."""
    (config.parent / "conf").mkdir()
    text = config.read_text().replace("path: ./lake", "path: ../lake")
    (config.parent / "conf" / "orders.yaml").write_text(text)
    stdout = invoke("status", "--config", config.parent / "conf" / "orders.yaml")[1]
    assert stdout.splitlines()[0] == f"lake {lake}"


def test_a_way_up_through_a_link_stays(config: Path, lake: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "conf").mkdir(parents=True)
    (tmp_path / "conf").symlink_to(tmp_path / "elsewhere" / "conf")
    text = config.read_text().replace("path: ./lake", "path: ../lake")
    (tmp_path / "conf" / "orders.yaml").write_text(text)
    assert invoke("status", "--config", tmp_path / "conf" / "orders.yaml")[0] == 0
    shutil.move(lake, tmp_path / "elsewhere" / "lake")
    stdout = invoke("status", "--config", tmp_path / "conf" / "orders.yaml")[1]
    assert stdout.splitlines()[0] == f"lake {tmp_path / 'conf' / '..' / 'lake'}"
    assert "2026-03-28" in stdout


@pytest.mark.parametrize(
    "kind, room",
    [
        ({"cleanup_policy": "delete"}, "endless"),
        ({"cleanup_policy": "compact", "retention": timedelta(days=7)}, "endless"),
        ({"cleanup_policy": "delete", "retention_bytes": 1 << 30}, "not known"),
        ({"cleanup_policy": None, "retention_bytes": None}, "not known"),
    ],
)
def test_an_endless_retention_is_told_from_one_that_is_not_known(
    lake: Path, kind: dict[str, Any], room: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = MemoryTopic(2, **kind)
    three_days(made)
    tables.preview(preview(pipeline(lake, made), THIRD), 1)
    assert f"retention headroom: {room}\n" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_table_of_offsets_fits_a_terminal(config: Path, command: str, columns: int) -> None:
    came = on_terminal(SLOW, command, "--config", config, columns=columns)[1]
    tables = re.findall(r"(partition .*)\n( +0 .*)\n", "\n".join(lines(came)))
    assert len(tables) == (1 if command == "plan" else 3), came
    assert all(len(line) <= columns for table in tables for line in table)
    left_out = "not shown at this width" in came
    assert left_out is (columns == 80)


def test_a_table_of_topics_keeps_topic_day_state_and_exit_code(
    wide: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    failure = RunFailed(expected="a", found="b", do="c")
    results = [TopicResult(config=Path("orders.yaml"), topic="orders" * 6, failure=failure)]
    wide(70)
    tables.topics(results)
    head, row, *_ = capsys.readouterr().out.splitlines()
    assert head.split() == ["topic", "day", "state", "in", "day", "exit"]
    assert row.split() == ["orders" * 6, "RunFailed", "15"]
    assert len(row) <= 70


def test_without_a_terminal_all_columns_are_there(config: Path, lake: Path) -> None:
    own = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "jobs", "status", "--config", str(config)]
    for environ, has_run in ((own, True), (own | {"COLUMNS": "60"}, False)):
        done = subprocess.run(command, cwd=HERE, env=environ, capture_output=True, check=True)
        head = done.stdout.decode().splitlines()[1].split()
        assert head[:3] == ["day", "state", "rows"]
        assert ("run" in head) is has_run


# -- progress and log


def test_log_lines_stand_above_the_progress_line(config: Path) -> None:
    """Each log line began behind the bar, and the bar stayed there for ever."""
    code, came = on_terminal(SLOW, "run", "--config", config)
    assert code == 0, came
    shown = lines(came)
    bars = [line for line in shown if "━" in line]
    assert any("2026-03-29: tasks" in line for line in bars)
    assert not any("stage ended" in line or "committed" in line for line in bars)
    assert max(map(len, bars)) <= 80
    assert len([line for line in shown if "stage ended" in line]) == 18
    assert len([line for line in shown if line.startswith("committed 2026-03-")]) == 3


def test_a_failed_topic_is_told_above_the_progress_line(config: Path) -> None:
    """Its paragraph began behind the bar."""
    other = config.with_name("other.yaml")
    other.write_text(config.read_text().replace("./lake", "./another"))
    code, came = on_terminal(REAL, "run", "--config", config, "--config", other)
    shown = lines(came)
    assert code == 12, came
    assert len([line for line in shown if line.startswith("orders: BrokerUnavailable (exit 12)")]) == 2, came
    assert any("topics ━" in line for line in shown)


def test_the_progress_line_counts_rows(config: Path) -> None:
    """It counted tasks: of a day in one task nothing was seen until its end."""
    came = on_terminal(SLOW, "run", "--config", config, "--date", "2026-03-28")[1]
    assert any(re.search(r"2026-03-28: tasks .* (\d) of \1 rows", line) for line in lines(came)), lines(came)


@pytest.mark.parametrize("columns", [80, 200])
def test_results_go_to_stdout_also_while_the_terminal_shows_progress(
    config: Path, tmp_path: Path, columns: int
) -> None:
    with (tmp_path / "out").open("wb") as out:
        code, came = on_terminal(SLOW, "run", "--config", config, stdout=out.fileno(), columns=columns)
    assert code == 0, came
    text = (tmp_path / "out").read_text()
    assert text.count("committed 2026-03-") == 3
    assert "\x1b" not in text
    assert "committed 2026" not in came
    assert len({len(line.rstrip()) for line in text.splitlines() if line.startswith("partition")}) == 1


def test_no_colour_is_written_where_the_environment_wants_none(config: Path) -> None:
    """The log was coloured all the same."""
    assert COLOUR.search(on_terminal(SLOW, "run", "--config", config, "--date", "2026-03-28")[1])
    for program, arguments in (
        (SLOW, ["run", "--config", config, "--date", "2026-03-29"]),
        (REAL, ["status", "--config", config]),
        (REAL, ["-h"]),
    ):
        came = on_terminal(program, *arguments, NO_COLOR="1")[1]
        assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;)[0-9;]*m", came), came
