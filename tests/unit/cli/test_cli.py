"""Every way to end has its exit code, one JSON document where asked for, and a result on stdout alone."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog

import jobs.context
from jobs.context import Pipeline
from jobs.daily import run_day
from jobs.lake.port import LockHolder
from jobs.lake.posix import PosixLake
from jobs.record.columns import Column, parse_type
from offsets.errors import RunFailed
from offsets.plan import Accept
from tests.support.command_line import document, invoke
from tests.support.lake_parts import part
from tests.support.local_engine import LocalEngine, pipeline, settings
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, a_lake, three_days

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CONFIG = """\
topic: orders
kafka:
  bootstrap_servers: 127.0.0.1:{port}
  timeout: {timeout}
day:
  zone: Europe/Amsterdam
  first: 2026-03-28
event_time:
  field: at
  format: epoch_us
record:
  columns:
    id: string
    n: bigint
  kafka_columns: [key]
lake:
  path: ./lake
"""


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take back what a command changes of its process: signals and logs."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    logs = structlog.get_config()
    monkeypatch.delenv("KAFKA_DAILY_CONFIG", raising=False)
    yield
    structlog.configure(**logs)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "orders.yaml"
    path.write_text(CONFIG.format(port=1, timeout="1s"))
    return path


@pytest.fixture
def topic() -> MemoryTopic:
    made = MemoryTopic(2)
    three_days(made)
    return made


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return Path(shutil.copytree(a_lake(2), tmp_path / "lake"))


@pytest.fixture
def in_memory(config: Path, topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    """Let the commands open a pipeline over a topic in memory."""
    from contextlib import contextmanager

    engine = LocalEngine(topic)

    @contextmanager
    def opened(path: Path | None, accept: Accept | None = None, progress: Any = None) -> Iterator[Pipeline]:
        yield pipeline(config.parent / "lake", topic, now=NOW, engine=engine, accept=accept)

    monkeypatch.setattr(jobs.context, "open_context", opened)
    return engine


NOW = datetime(2026, 3, 31, 0, tzinfo=UTC)


# -- usage


@pytest.mark.parametrize(
    "arguments, found",
    [
        (["frobnicate"], "No such command 'frobnicate'"),
        (["run", "--frobnicate"], "--frobnicate"),
        (["run", "--date", "yesterday"], "'yesterday' does not match"),
        (["status", "surplus"], "(surplus)"),
        (["run", "--force=yes"], "'--force' does not take a value"),
    ],
)
def test_wrong_usage_ends_with_2_and_with_json_as_one_document(arguments: list[str], found: str) -> None:
    """It was a text of click's, also under --json."""
    code, stdout, stderr = invoke(*arguments)
    assert (code, stdout) == (2, "")
    assert "--help" in json.loads(stderr)["event"]
    code, told = document(*arguments)
    assert (code, told["error"], told["exit_code"]) == (2, "ConfigError", 2)
    assert found in told["found"]
    assert "--help" in told["do"]
    assert told["expected"]


@pytest.mark.parametrize(
    "arguments, help_",
    [(["run", "--json", "--date"], "kafka-daily run --help"), (["--config"], "kafka-daily --help")],
)
def test_an_option_whose_value_was_forgotten_is_wrong_usage(arguments: list[str], help_: str) -> None:
    """It ended as a bug of ours (70)."""
    code, stdout, stderr = invoke(*arguments)
    assert code == 2
    told = json.loads(stdout)["do"] if "--json" in arguments else json.loads(stderr)["event"]
    assert f"`{help_}`" in told


def test_help_is_no_error() -> None:
    assert invoke("--help")[0] == invoke("run", "--help")[0] == 0
    code, stdout, stderr = invoke()
    assert code == 2
    assert "Usage" in stdout + stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--to", "2026-03-28"],
        ["--from", "2026-03-29", "--to", "2026-03-28"],
        ["--date", "2026-03-28", "--from", "2026-03-28", "--to", "2026-03-28"],
    ],
)
def test_days_that_make_no_range_end_with_2(
    config: Path, in_memory: LocalEngine, arguments: list[str]
) -> None:
    code, _, stderr = invoke("run", "--config", config, *arguments)
    assert code == 2
    assert "--from A --to B" in stderr


@pytest.mark.parametrize("command", ["plan", "run", "status", "verify"])
def test_no_config_ends_with_2_and_says_how_to_make_one(command: str, tmp_path: Path) -> None:
    for arguments in ([command], [command, "--config", tmp_path / "none.yaml"]):
        code, stdout, stderr = invoke(*arguments)
        assert (code, stdout) == (2, "")
        assert "conf/example.yaml" in stderr


def test_a_config_may_be_named_before_the_command_after_it_or_by_the_environment(
    config: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = invoke("status", "--config", config)
    assert after[0] == 0
    assert invoke("--config", config, "status") == after
    assert invoke("--config", "nowhere.yaml", "status", "--config", config) == after
    monkeypatch.setenv("KAFKA_DAILY_CONFIG", str(config))
    assert invoke("status") == after


def test_the_demo_answers_json_with_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had no --json; here it stops at once, since no broker was set up."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    code, told = document("demo")
    assert (code, told["error"]) == (12, "BrokerUnavailable")
    assert "jars/broker" in told["expected"]


# -- paths


def test_a_relative_path_stays_relative_in_tables_and_messages(
    config: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both were shown from the root on, many folders long."""
    monkeypatch.chdir(config.parent)
    assert invoke("status", "--config", "orders.yaml")[1].splitlines()[0] == "lake lake"
    missing = document("status", "--config", "conf/none.yaml")[1]
    assert missing["expected"] == "a configuration at conf/none.yaml"
    file = part(lake)
    file.write_bytes(b"")
    code, told = document("verify", "--config", "orders.yaml")
    assert code == 28
    assert told["facts"]["verified"]["problems"][0].startswith(str(file.relative_to(config.parent)))


def test_a_program_is_told_the_whole_path(config: Path, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(config.parent)
    assert document("status", "--config", "orders.yaml")[1]["lake"] == str(lake)
    lake.rename(lake.with_name("gone"))
    lake.write_text("a file")
    assert json.loads(invoke("status", "--config", "orders.yaml")[2])["lake"] == str(lake)


# -- what each command prints


def test_status_shows_the_days_the_next_one_and_a_holder(config: Path, lake: Path) -> None:
    holder = LockHolder(run_id="r9", host="elsewhere", pid=7, since=NOW)
    with PosixLake(lake).lock(holder):
        code, stdout, stderr = invoke("status", "--config", config)
    assert (code, stderr) == (0, "")
    for words in ("2026-03-28", "2026-03-29", "complete", "next day: 2026-03-30 is due", "run r9 (pid 7 on"):
        assert words in stdout
    code, told = document("status", "--config", config)
    assert code == 0
    assert [day["rows"] for day in told["days"]] == [6, 7]
    assert told["next_day"] == "2026-03-30"


def test_verify_ends_with_0_or_with_28_and_names_the_file(config: Path, lake: Path) -> None:
    assert invoke("verify", "--config", config)[0] == 0
    assert document("verify", "--config", config)[1]["problems"] == []
    path = part(lake)
    path.write_bytes(b"")
    code, stdout, stderr = invoke("verify", "--config", config)
    assert code == 28
    assert str(path) in stdout
    assert "VerifyFailed" in stderr
    assert invoke("verify", "--config", config, "--date", "2026-03-28")[0] == 0
    assert invoke("verify", "--config", config, "--date", "2026-03-31")[0] == 2
    shutil.rmtree(lake)
    assert invoke("verify", "--config", config)[0] == 2


def test_verify_notes_a_file_of_columns_that_is_not_that_of_the_manifests(config: Path, lake: Path) -> None:
    (lake / "_schema.json").unlink()
    code, stdout, _ = invoke("verify", "--config", config)
    assert code == 0
    assert "note" in stdout
    assert "_schema.json is not there" in " ".join(stdout.split())
    (note,) = document("verify", "--config", config)[1]["notes"]
    assert note.endswith("no day depends on it, and the next run writes it again")


def test_verify_with_json_prints_one_document_also_where_it_fails(config: Path, lake: Path) -> None:
    path = part(lake)
    path.write_bytes(b"")
    code, told = document("verify", "--config", config)
    assert code == 28
    assert str(path) in told["facts"]["verified"]["problems"][0]
    assert told["facts"]["verified"]["days"] == 2


def test_plan_shows_what_a_run_would_do_and_touches_nothing(config: Path, in_memory: LocalEngine) -> None:
    code, stdout, _ = invoke("plan", "--config", config)
    assert code == 0
    assert "2026-03-28" in stdout
    code, told = document("plan", "--config", config)
    assert code == 0
    assert told["plan"]["day"]["date"] == "2026-03-28"
    assert told["expected_files"] == 1
    assert told["expected_rows"] == sum(
        span["until_offset"] - span["from_offset"] for span in told["plan"]["spans"]
    )
    assert in_memory.jobs == 0
    assert not (config.parent / "lake").exists()


def test_plan_of_a_committed_day_says_that_it_is_committed(config: Path, in_memory: LocalEngine) -> None:
    """It said that the day was removed, and must be restored from a backup."""
    invoke("run", "--config", config, "--date", FIRST)
    invoke("run", "--config", config, "--date", SECOND)
    for day, rows in ((FIRST, 6), (SECOND, 7)):
        code, stdout, _ = invoke("plan", "--config", config, "--date", day)
        assert code == 0
        assert f"{day} was committed already by run " in stdout
        assert f"{rows} rows" in stdout
        code, told = document("plan", "--config", config, "--date", day)
        assert (code, told["plan"], told["committed"]["rows"]["in_day"]) == (0, None, rows)
        assert told["committed"]["run_id"] in stdout


def test_plan_names_all_days_that_are_due_and_plans_the_first(config: Path, in_memory: LocalEngine) -> None:
    code, stdout, _ = invoke("plan", "--config", config)
    assert code == 0
    assert "3 days are due, 2026-03-28 to 2026-03-30: the first is planned here" in stdout
    assert document("plan", "--config", config)[1]["due"] == ["2026-03-28", "2026-03-29", "2026-03-30"]
    invoke("run", "--config", config, "--from", FIRST, "--to", SECOND)
    stdout = invoke("plan", "--config", config)[1]
    assert "days are due" not in stdout
    assert stdout.startswith("2026-03-30 (Europe/Amsterdam): ")


def test_plan_with_nothing_due_ends_with_0_as_run_does(config: Path, in_memory: LocalEngine) -> None:
    invoke("run", "--config", config)
    for command in ("plan", "run"):
        code, stdout, _ = invoke(command, "--config", config)
        assert code == 0
        assert stdout == "nothing is due: 2026-03-31 can be settled from 2026-03-31T23:00Z on\n"
    code, told = document("plan", "--config", config)
    assert (code, told["due"], told["plan"]) == (0, [], None)
    assert (told["next_day"], told["due_at"]) == ("2026-03-31", "2026-03-31T23:00:00Z")
    assert document("plan", "--config", config, "--date", "2026-03-31")[0] == 10


@pytest.mark.parametrize("named", [(), ("--date", "2026-03-31")])
def test_a_changed_config_is_checked_where_no_day_is_due(
    config: Path, in_memory: LocalEngine, topic: MemoryTopic, named: tuple[str, ...]
) -> None:
    """After the night's run `plan` said that nothing is due, and the next night ended with 25."""
    rules = settings(config.parent / "lake").rules
    for day in (FIRST, SECOND, date(2026, 3, 30)):
        run_day(pipeline(config.parent / "lake", topic, rules=replace(rules, columns=rules.columns[:1])), day)
    code, stdout, stderr = invoke("plan", "--config", config, *named)
    said = " ".join((stdout + stderr).replace('\\"', '"').split())
    assert code == (10 if named else 0)
    assert "the next day will end with 25 (ContractChanged): " in said
    assert 'record.columns.n: (none) -> "bigint" (additive: ' in said
    code, stdout, stderr = invoke("plan", "--config", config, "--accept-contract", *named)
    said = " ".join((stdout + stderr).replace('\\"', '"').split())
    assert code == (10 if named else 0)
    assert "will end with 25" not in said
    assert 'would be accepted, additive record.columns.n: (none) -> "bigint": ' in said
    if not named:  # `run` was silent about it until the night
        code, stdout, _ = invoke("run", "--config", config)
        assert code == 0
        assert "the next day will end with 25 (ContractChanged): " in " ".join(stdout.split())


def test_the_document_of_a_plan_without_a_due_day_has_the_changes(
    config: Path, in_memory: LocalEngine, topic: MemoryTopic
) -> None:
    rules = settings(config.parent / "lake").rules
    for day in (FIRST, SECOND, date(2026, 3, 30)):
        run_day(pipeline(config.parent / "lake", topic, rules=replace(rules, columns=rules.columns[:1])), day)
    code, told = document("plan", "--config", config)
    assert (code, told["will_fail"]["error"], told["contract_changes"]) == (0, "ContractChanged", [])
    code, told = document("plan", "--config", config, "--accept-contract")
    assert (code, told["will_fail"], told["contract_changes"][0]["kind"]) == (0, None, "additive")
    code, told = document("plan", "--config", config, "--date", "2026-03-31")
    assert (code, told["facts"]["will_fail"]["exit_code"]) == (10, 25)
    code, told = document("plan", "--config", config, "--date", "2026-03-31", "--accept-contract")
    assert (code, told["facts"]["contract_changes"][0]["kind"]) == (10, "additive")


def test_a_plan_without_a_due_day_is_silent_about_a_config_that_did_not_change(
    config: Path, in_memory: LocalEngine
) -> None:
    invoke("run", "--config", config)
    assert "contract" not in invoke("plan", "--config", config, "--accept-contract")[1]
    told = document("plan", "--config", config, "--date", "2026-03-31")[1]
    assert list(told["facts"]) == ["due"]


def test_plan_takes_what_run_accepts(config: Path, in_memory: LocalEngine, topic: MemoryTopic) -> None:
    topic.retain_from(0, 1)
    assert invoke("plan", "--config", config)[0] == 20
    assert "accepted by --accept-start" in invoke("plan", "--config", config, "--accept-start")[1]
    invoke("run", "--config", config, "--date", FIRST, "--accept-start")
    topic.retain_from(0, 9)
    plan = ("plan", "--config", config, "--date", SECOND)
    code, told = document(*plan)
    assert code == 20
    assert invoke("plan", "--config", config, "--accept-loss", told["facts"]["accept"])[0] == 2
    code, told = document(*plan, "--accept-loss", told["facts"]["accept"])
    assert (code, len(told["plan"]["accepted"]["loss"])) == (0, 1)


def test_plan_takes_a_changed_contract(config: Path, in_memory: LocalEngine, topic: MemoryTopic) -> None:
    run_day(pipeline(config.parent / "lake", topic, zone="UTC"), FIRST)
    assert invoke("plan", "--config", config)[0] == 25
    said = invoke("plan", "--config", config, "--accept-contract")[1]
    assert "would be accepted, breaking" in said
    assert "read or filed by another rule" in " ".join(said.split())
    assert json.loads(invoke("plan", "--config", config, "--accept-contract", "--json")[1])[
        "contract_changes"
    ]


def test_a_changed_column_is_shown_by_its_name_whatever_that_holds(
    config: Path, in_memory: LocalEngine, topic: MemoryTopic
) -> None:
    """Brackets were taken for a style: `[/eur]` ended the command as a bug, `[eur]` was left out."""
    rules = settings(config.parent / "lake").rules
    columns = (
        *rules.columns,
        *(Column(name=f"price[{unit}]", type=parse_type("bigint")) for unit in ("eur", "/eur")),
    )
    run_day(pipeline(config.parent / "lake", topic, rules=replace(rules, columns=columns)), FIRST)
    code, stdout, _ = invoke("plan", "--config", config, "--accept-contract")
    assert code == 0
    assert "price[eur]" in stdout
    assert "price[/eur]" in stdout


def test_a_changed_first_day_ends_with_2_for_plan_and_run(
    config: Path, in_memory: LocalEngine, topic: MemoryTopic
) -> None:
    run_day(pipeline(config.parent / "lake", topic, first=SECOND), SECOND)
    for command in ("plan", "run"):
        code, told = document(command, "--config", config)
        assert (code, told["expected"]) == (2, "day.first: 2026-03-29, the first day of this lake")


def test_run_settles_every_due_day_and_then_says_until_when_there_is_none(
    config: Path, in_memory: LocalEngine
) -> None:
    code, stdout, _ = invoke("run", "--config", config)
    assert code == 0
    assert stdout.count("committed 2026-03-") == 3
    code, stdout, _ = invoke("run", "--config", config)
    assert code == 0
    assert "nothing is due: 2026-03-31 can be settled from 2026-03-31T23:00Z on" in stdout
    assert document("run", "--config", config) == (0, {"days": []})


def test_a_range_without_its_end_goes_to_the_newest_day_that_is_due(
    config: Path, in_memory: LocalEngine
) -> None:
    """It was wrong usage."""
    invoke("run", "--config", config, "--date", FIRST)
    since = ("run", "--config", config, "--from")
    code, told = document(*since, FIRST)
    days = [(day["day"]["date"], day["already"]) for day in told["days"]]
    assert (code, days) == (0, [("2026-03-28", True), ("2026-03-29", False), ("2026-03-30", False)])
    code, told = document(*since, SECOND)
    assert (code, [day["already"] for day in told["days"]]) == (0, [True, True])
    assert document(*since, "2026-03-31")[0] == 10
    assert document(*since, "2026-03-01")[0] == 2


def test_a_range_without_its_end_does_not_pass_over_a_day(config: Path, in_memory: LocalEngine) -> None:
    assert document("run", "--config", config, "--from", SECOND)[0] == 16


def test_status_shows_the_last_days_alone(config: Path, lake: Path) -> None:
    code, stdout, _ = invoke("status", "--config", config, "--last", "1")
    assert code == 0
    assert "2026-03-28 " not in stdout
    assert "2026-03-29 " in stdout
    assert [day["date"] for day in document("status", "--config", config, "--last", 1)[1]["days"]] == [
        "2026-03-29"
    ]
    assert len(document("status", "--config", config, "--last", 9)[1]["days"]) == 2
    assert document("status", "--config", config, "--last", 0)[0] == 2


def test_run_of_a_committed_day_says_so_and_ends_with_0(config: Path, in_memory: LocalEngine) -> None:
    invoke("run", "--config", config, "--date", FIRST)
    code, stdout, _ = invoke("run", "--config", config, "--date", FIRST)
    assert code == 0
    assert "committed already" in stdout
    assert in_memory.jobs == 1
    code, told = document("run", "--config", config, "--from", FIRST, "--to", SECOND)
    assert code == 0
    assert [(day["day"]["date"], day["already"], day["rows"]["in_day"]) for day in told["days"]] == [
        ("2026-03-28", True, 6),
        ("2026-03-29", False, 7),
    ]


@pytest.mark.parametrize(
    "day, code, error",
    [
        (date(2026, 3, 30), 16, "EarlierDayMissing"),
        (date(2026, 3, 31), 10, "DayNotOver"),
        (date(2026, 3, 1), 2, "ConfigError"),
    ],
)
def test_a_run_that_stops_ends_with_its_code_and_one_document(
    config: Path, in_memory: LocalEngine, day: date, code: int, error: str
) -> None:
    found, told = document("run", "--config", config, "--date", day)
    assert (found, told["exit_code"], told["error"]) == (code, code, error)
    assert told["expected"]
    assert told["found"]
    assert told["do"]
    found, stdout, stderr = invoke("run", "--config", config, "--date", day)
    assert (found, stdout) == (code, "")
    assert f"{error} (exit {code})" in stderr


def test_a_range_stops_at_its_first_failure_and_tells_the_days_before_it(
    config: Path, in_memory: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, told = document("run", "--config", config, "--from", FIRST, "--to", date(2026, 4, 2))
    assert (code, told["error"]) == (10, "DayNotOver")
    assert [day["day"]["date"] for day in told["facts"]["days"]] == ["2026-03-28", "2026-03-29", "2026-03-30"]


def test_a_failed_job_ends_with_15(config: Path, in_memory: LocalEngine) -> None:
    in_memory.dies = True
    assert document("run", "--config", config)[0] == RunFailed.exit_code == 15


def test_a_changed_contract_ends_with_25_and_its_flag_goes_on(
    config: Path, in_memory: LocalEngine, topic: MemoryTopic
) -> None:
    run_day(pipeline(config.parent / "lake", topic, zone="UTC"), FIRST)
    assert invoke("run", "--config", config, "--date", SECOND)[0] == 25
    code, stdout, _ = invoke("run", "--config", config, "--date", SECOND, "--accept-contract")
    assert code == 0
    assert "committed" in stdout


def test_a_moved_log_start_ends_with_20_and_its_flag_goes_on(
    config: Path, in_memory: LocalEngine, topic: MemoryTopic
) -> None:
    topic.retain_from(0, 1)
    code, told = document("run", "--config", config, "--date", FIRST)
    assert (code, told["facts"]["partition"], told["facts"]["log_start"]) == (20, 0, 1)
    assert invoke("run", "--config", config, "--date", FIRST, "--accept-start")[0] == 0


def test_a_loss_ends_with_20_and_goes_on_when_copied_from_the_message(
    config: Path, in_memory: LocalEngine, topic: MemoryTopic
) -> None:
    assert invoke("run", "--config", config, "--date", FIRST)[0] == 0
    topic.retain_from(0, 9)
    code, told = document("run", "--config", config, "--date", SECOND)
    assert code == 20
    lost = told["facts"]["accept"]
    assert invoke("run", "--config", config, "--accept-loss", lost)[0] == 2
    assert invoke("run", "--config", config, "--date", SECOND, "--accept-loss", "0:1")[0] == 2
    assert invoke("run", "--config", config, "--date", SECOND, "--accept-loss", "0:9-9")[0] == 2
    assert invoke("run", "--config", config, "--date", SECOND, "--accept-loss", f"{lost},0:1")[0] == 2
    code, told = document("run", "--config", config, "--date", SECOND, "--accept-loss", lost)
    assert (code, told["days"][0]["lossy"]) == (0, [lost])


def test_a_committed_day_is_built_again_when_forced(config: Path, in_memory: LocalEngine, lake: Path) -> None:
    assert invoke("run", "--config", config, "--force")[0] == 2
    code, told = document("run", "--config", config, "--date", SECOND, "--force")
    assert (code, told["days"][0]["revision"], in_memory.jobs) == (0, 2, 1)


def test_orphans_are_listed_and_removed_when_told_to(config: Path, lake: Path) -> None:
    (lake / "_staging" / "2026-03-30.dead").mkdir(parents=True)
    assert document("clean", "--config", config)[1]["orphans"][0]["run_id"] == "dead"
    assert "clean --execute" in invoke("clean", "--config", config)[1]
    assert document("clean", "--config", config, "--older-than", "7d")[1]["orphans"] == []
    assert (
        invoke("clean", "--config", config, "--older-than", "7d", "--execute")[1]
        == "nothing lies in staging\n"
    )
    for wrong in ("7", "a week", "-1d", ""):  # "" of a variable that is not set: it removed all
        code, told = document("clean", "--config", config, "--older-than", wrong, "--execute")
        assert (code, told["error"]) == (2, "ConfigError")
    assert (lake / "_staging" / "2026-03-30.dead").exists()
    assert "removed" in invoke("clean", "--config", config, "--older-than", "0s", "--execute")[1]
    (lake / "_staging" / "2026-03-30.dead").mkdir(parents=True)
    assert "removed" in invoke("clean", "--config", config, "--execute")[1]
    assert invoke("clean", "--config", config) == (0, "nothing lies in staging\n", "")


# -- real processes


def process(*arguments: object, **extra: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "jobs", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=Path(__file__).parents[3], **extra
    )


IN_MEMORY = """
import sys
class WithoutPandas:
    @staticmethod
    def find_spec(name, *_):
        if name == "pandas":  # pyarrow looks for it, does without, and takes a third of the time
            raise ImportError(name)
sys.meta_path.insert(0, WithoutPandas)
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
import jobs.context, jobs.cli.commands as main
from tests.support.local_engine import pipeline, order
from tests.support.memory_topic import MemoryTopic
topic, now, really = MemoryTopic(), datetime(2026, 3, 31, tzinfo=UTC), jobs.context.open_context
for hours in range(10, 90, 10):
    topic.produce(0, order(now - timedelta(hours=hours)), now - timedelta(hours=hours))
@contextmanager
def opened(*arguments):
    with really(*arguments) as there:
        yield pipeline(there.lake.root, topic, now=now)
jobs.context.open_context = opened
main.main()
"""
"""The command line over a topic in memory, for a process of its own."""
REAL = "from jobs.cli.commands import main; main()"


def in_a_process(
    *arguments: object, redirected: str = "", program: str = IN_MEMORY
) -> subprocess.CompletedProcess[bytes]:
    command = f'exec "$@" {redirected}'
    python = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(
        ["bash", "-c", command, "bash", *python],
        capture_output=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )


FORKS = IN_MEMORY.replace(
    "main.main()\n",
    """
import gc, json, os
gc.freeze()  # else each fork copies what it looks through
for line in sys.stdin:
    sys.argv[1:], files, real = json.loads(line)
    if not (child := os.fork()):
        for number, name in enumerate(files, 1):
            if name is None:  # nobody reads it
                reader, file = os.pipe()
                os.close(reader)
            else:
                file = os.open(name, os.O_WRONLY | os.O_CREAT)
            os.dup2(file, number)
        if real:
            jobs.context.open_context = really
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    sys.exit()
main.main()
""",
)
"""A process that has loaded all of the command line, and forks for each command: it ends as any other."""


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    command, here = [sys.executable, "-c", FORKS], Path(__file__).parents[3]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=here, text=True
    ) as child:
        yield child


def in_a_fork(
    forks: subprocess.Popen[str], arguments: Sequence[object], files: Sequence[Path | None], *, real: bool
) -> int:
    """Return the exit code of a command that writes to two files; None is a pipe that nobody reads."""
    assert forks.stdin is not None
    assert forks.stdout is not None
    names = [str(file) if file else None for file in files]
    forks.stdin.write(json.dumps([list(map(str, arguments)), names, real]) + "\n")
    forks.stdin.flush()
    return int(forks.stdout.readline())


THREE_DAYS = ("run",)
NOT_OVER = ("run", "--date", "2999-03-31")
FULL = Path("/dev/full")
FILE = Path("a file")


@pytest.mark.parametrize("json", [[], ["--json"]])
@pytest.mark.parametrize(
    "files",
    [(FULL, FILE), (FILE, FULL), (FULL, FULL), (None, FILE), (FILE, None)],
    ids=lambda files: " ".join("nobody" if file is None else file.name for file in files),
)
def test_what_cannot_be_printed_changes_neither_the_days_nor_the_exit_code(
    forks: subprocess.Popen[str], config: Path, files: tuple[Path | None, ...], json: list[str]
) -> None:
    """A full disk under the log, or `run | head -0`, was a bug (70) after the first of three days."""
    to = [config.with_name(f"{number}") if file is FILE else file for number, file in enumerate(files, 1)]
    there = [file for file in to if file and file is not FULL]
    code = in_a_fork(forks, [*THREE_DAYS, "--config", config, *json], to, real=False)
    assert (code, len(PosixLake(config.parent / "lake").days())) == (0, 3), [f.read_text() for f in there]
    code = in_a_fork(forks, [*NOT_OVER, "--config", config, *json], to, real=True)
    assert code == 10, [f.read_text() for f in there]


@pytest.mark.parametrize("json", [[], ["--json"]])
@pytest.mark.parametrize("redirected", [">&-", "2>&-"])
def test_a_stream_that_is_closed_changes_neither_the_days_nor_the_exit_code(
    config: Path, redirected: str, json: list[str]
) -> None:
    """Python has no such stream from its start on."""
    done = in_a_process(*THREE_DAYS, "--config", config, *json, redirected=redirected)
    assert (done.returncode, len(PosixLake(config.parent / "lake").days())) == (0, 3), done.stderr.decode()
    done = in_a_process(*NOT_OVER, "--config", config, *json, redirected=redirected, program=REAL)
    assert done.returncode == 10, done.stderr.decode()


NOISE = """
        import logging, threading, warnings
        warnings.warn("two\\nlines")
        logging.getLogger("py4j").error("a connection\\nbroke")
        logging.getLogger("odd").log(35, "of a level between two")
        logging.getLogger("odd").error("%d of them", "many")
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        class Odd:
            __del__ = lambda self: 1 / 0
        Odd()
"""


def test_each_line_of_the_log_is_a_document_that_names_topic_lake_and_run(config: Path) -> None:
    """Warnings, what libraries log, tracebacks of threads and the last line were none."""
    noisy = IN_MEMORY.replace("        yield", NOISE + "        yield")
    done = in_a_process("run", "--config", config, "--from", FIRST, "--to", "2026-03-31", program=noisy)
    assert done.returncode == 10, done.stderr.decode()
    events = [json.loads(line) for line in done.stderr.decode().splitlines()]
    assert {event["topic"] for event in events} == {"orders"}
    assert {event["lake"] for event in events} == {str(config.parent / "lake")}
    assert len({event["run_id"] for event in events}) == 1
    said = [event["event"] for event in events]
    assert {
        "two\nlines",
        "a connection\nbroke",
        "of a level between two",
        "%d of them",
        "stage ended",
    } <= set(said)
    assert sum("ZeroDivisionError" in event.get("exception", "") for event in events) == 2
    assert events[-1]["event"].startswith("DayNotOver (exit 10) The day is not over. Expected 2026-03-31")
    assert (events[-1]["error"], events[-1]["exit_code"], events[-1]["level"]) == ("DayNotOver", 10, "error")


CAPABILITIES = "-dac_override,-dac_read_search"
WITHOUT_RIGHTS = ["setpriv", f"--bounding-set={CAPABILITIES}", f"--inh-caps={CAPABILITIES}"]
"""Files have rights for root too."""


@pytest.mark.parametrize(
    "what, mode, code, found",
    [
        ("orders.yaml", 0, 2, "cannot read the file: Permission denied"),
        ("lake", 0, 27, "Permission denied (EACCES)"),
        ("lake", 0o500, 27, "Permission denied (EACCES)"),
    ],
)
def test_a_missing_right_is_an_error_of_its_own(
    config: Path, what: str, mode: int, code: int, found: str
) -> None:
    """Of a config it was a text of click's, also under --json."""
    (config.parent / "lake").mkdir()
    (config.parent / what).chmod(mode)
    command = [*(WITHOUT_RIGHTS if os.geteuid() == 0 else []), sys.executable, "-m", "jobs"]
    arguments = ["run", "--date", str(FIRST), "--json", "--config", str(config)]
    done = subprocess.run(
        [*command, *arguments], capture_output=True, cwd=Path(__file__).parents[3], check=False
    )
    (config.parent / what).chmod(0o700)
    assert done.returncode == code, done.stderr.decode()
    assert found in json.loads(done.stdout)["found"]


@pytest.mark.parametrize("command", ["status", "clean", "plan", "verify"])
def test_a_failure_of_any_command_names_topic_and_lake(config: Path, command: str) -> None:
    (config.parent / "lake").write_text("a file")
    events = [json.loads(line) for line in invoke(command, "--config", config)[2].splitlines()]
    assert [(each["topic"], each["lake"]) for each in events] == [("orders", str(config.parent / "lake"))]
    missing = json.loads(invoke(command, "--config", "nowhere.yaml")[2])
    assert "topic" not in missing


def test_a_bug_is_one_document_in_the_log(config: Path) -> None:
    done = in_a_process("run", "--config", config, program=IN_MEMORY.replace("yield", "1 / 0; yield"))
    assert (done.returncode, done.stdout) == (70, b"")
    event = json.loads(done.stderr)
    assert "bug in kafka-daily" in event["event"]
    assert "ZeroDivisionError" in event["exception"]


def test_a_bug_ends_with_70_and_a_traceback(config: Path, lake: Path) -> None:
    """A lake whose path is no folder at all is refused by name; what nobody thought of is a bug."""
    code = "import jobs.lake.status as i, jobs.cli.commands as m; i.status = lambda *a: 1 / 0; m.main()"
    child = subprocess.run(
        [sys.executable, "-c", code, "status", "--config", config],
        capture_output=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert child.returncode == 70
    assert child.stdout == b""
    assert b"ZeroDivisionError" in child.stderr
    assert b"bug in kafka-daily" in child.stderr


@pytest.mark.parametrize(
    "number, code, error",
    [
        (signal.SIGINT, 130, "Interrupted"),
        (signal.SIGTERM, 143, "Terminated"),
        (signal.SIGHUP, 143, "Terminated"),
    ],
)
def test_a_signal_ends_a_run_with_its_code_and_frees_the_lake(
    config: Path, number: signal.Signals, code: int, error: str
) -> None:
    """The run waits for a broker that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config.write_text(CONFIG.format(port=silent.getsockname()[1], timeout="9s"))
        lake = PosixLake(config.parent / "lake")
        child = process("run", "--config", config, "--date", FIRST, "--json")
        try:
            silent.settimeout(20)
            silent.accept()
            deadline = time.monotonic() + 20
            while lake.lock_holder() is None and time.monotonic() < deadline:
                time.sleep(0.01)
            holder = lake.lock_holder()
            assert holder is not None
            assert holder.pid == child.pid
            child.send_signal(number)
            stdout, stderr = child.communicate(timeout=20)
        finally:
            child.kill()
            child.wait()
    assert child.returncode == code, stderr.decode()
    assert json.loads(stdout)["error"] == error
    assert b"Traceback" not in stderr
    assert lake.lock_holder() is None
    assert lake.days() == []


@pytest.mark.parametrize("second", SIGNALS)
def test_a_signal_while_an_error_is_told_changes_nothing(second: signal.Signals, tmp_path: Path) -> None:
    """As of a terminal, which tells of its end twice: it ended with 130, or with a traceback."""
    code = (
        "import os, jobs.cli.console as t; tell = t.failure\n"
        f"def late(*a, **k): os.kill(os.getpid(), {int(second)}); tell(*a, **k)\n"
        "t.failure = late; from jobs.cli.commands import main; main()"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, "status", "--json", "--config", tmp_path / "none.yaml"],
        capture_output=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert (child.returncode, json.loads(child.stdout)["error"]) == (2, "ConfigError")
    assert b"Traceback" not in child.stderr


SIGNALS_THAT_WAIT = """
import jobs.cli.commands as commands, jobs.context, os, signal
def load(path):
    signal.pthread_sigmask(signal.SIG_BLOCK, both := {signal.SIGTERM, signal.SIGHUP})
    for number in both: os.kill(os.getpid(), number)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
jobs.context.load = load
commands.main()
"""


def test_two_signals_that_waited_end_a_command_with_its_message() -> None:
    """As while the broker's client waits: it ended with 130, without a message."""
    child = subprocess.run(
        [sys.executable, "-c", SIGNALS_THAT_WAIT, "status", "--json"],
        capture_output=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert child.returncode == 143, child.stderr
    assert json.loads(child.stdout)["error"] == "Terminated"


def test_a_signal_after_the_message_changes_no_exit_code() -> None:
    """Spark's libraries take a while to end: the JSON document named 2, and the command ended with 143."""
    late = "import atexit, os; atexit.register(lambda: os.kill(os.getpid(), 15))\n"
    child = subprocess.run(
        [sys.executable, "-c", late + "from jobs.cli.commands import main; main()", "status", "--json"],
        capture_output=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert (child.returncode, json.loads(child.stdout)["exit_code"]) == (2, 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_whose_error_nobody_reads_can_be_ended(number: signal.Signals, tmp_path: Path) -> None:
    """Behind a pipe that is full it waited for its reader, and neither Ctrl-C nor SIGTERM ended it."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, b"x" * select.PIPE_BUF):
            pass
    os.set_blocking(writer, True)
    command = [sys.executable, "-m", "jobs", "status", "--json", "--config", str(tmp_path / "none.yaml")]
    here = Path(__file__).parents[3]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, cwd=here) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"{\n"
        deadline = time.monotonic() + 10
        while child.poll() is None and time.monotonic() < deadline:
            child.send_signal(number)
            time.sleep(0.1)
        child.kill()
    os.close(reader)
    os.close(writer)
    assert child.returncode == 2


def test_an_error_has_its_code_where_python_drops_docstrings(tmp_path: Path) -> None:
    """PYTHONOPTIMIZE=2: the title is the docstring's first line, and each error was a bug (70)."""
    child = subprocess.run(
        [sys.executable, "-OO", "-m", "jobs", "status", "--json", "--config", tmp_path / "none.yaml"],
        capture_output=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert (child.returncode, json.loads(child.stdout or "{}").get("title")) == (2, "ConfigError")


def test_ctrl_c_while_the_program_loads_is_no_traceback(tmp_path: Path) -> None:
    text = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(20)"
    (tmp_path / "structlog.py").write_text(text)
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    child = subprocess.run(
        [sys.executable, "-P", "-m", "jobs", "status"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        check=False,
    )
    assert (child.returncode, child.stderr) == (-signal.SIGINT, b"")


def test_a_folder_that_was_removed_can_be_where_we_are_called(tmp_path: Path) -> None:
    """Its name cannot be had any more: a bug of ours, and Java does not start there at all."""
    gone = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'
    show = "import os, jobs.cli.commands as m; m.app = lambda **_: print(os.getcwd()); m.main()"
    command = ["sh", "-c", gone, "sh", sys.executable, "-P", "-c", show]  # no more than the program has
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, cwd=tmp_path, env=here, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"/\n"), done.stderr


def test_a_command_behind_nohup_outlives_its_terminal(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config.write_text(CONFIG.format(port=silent.getsockname()[1], timeout="2s"))
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            child = process("run", "--config", config, "--date", FIRST, "--json")
        finally:
            signal.signal(signal.SIGHUP, before)
        with child:
            silent.settimeout(20)
            silent.accept()
            child.send_signal(signal.SIGHUP)
            assert json.loads(child.communicate(timeout=30)[0])["error"] == "BrokerUnavailable"


def test_a_committed_day_is_done_in_a_moment_without_spark_or_kafka(config: Path, lake: Path) -> None:
    code = (
        "import sys, jobs.cli.commands as m\n"
        "try: m.main()\n"
        "finally: print({n for n in sys.modules if n.split('.')[0] in"
        " ('pyspark', 'confluent_kafka', 'pyarrow', 'pandas')}, file=sys.stderr)"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, "run", "--config", config, "--date", str(FIRST), "--json"],
        capture_output=True,
        cwd=Path(__file__).parents[3],
        check=False,
        env={**os.environ, "KAFKA_DAILY_LOG": "WARNING"},
    )
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout)["days"][0]["already"]
    assert child.stderr.strip() == b"set()"
