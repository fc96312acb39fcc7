"""Tables fit the terminal, the progress line stays below the log, and colours can be turned off."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.cli import console, tables
from jobs.topics import TopicResult
from offsets.errors import RunFailed
from tests.support.command_line import document, invoke
from tests.support.terminal import HERE, lines, on_terminal
from tests.support.three_days import a_lake
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
    assert head.split()[:3] == ["day", "state", "rows"]
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
    wide(len(next(line for line in full.splitlines() if line.startswith("day")).rstrip()) - 1)
    head = next(line for line in invoke("status", "--config", config)[1].splitlines() if "state" in line)
    assert "gaps" not in head
    assert "pending" in head


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
