"""Several topics in one run: each by itself, whatever becomes of the others."""

from __future__ import annotations

import _thread
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from jobs import context, logs
from jobs.config import Settings
from jobs.context import Pipeline, Runtime
from jobs.daily import Outcome, run_day
from jobs.topics import TopicResult, configs_in, run_topics, worst
from offsets.errors import ConfigError, DayNotOver
from offsets.kafka.reader import TopicDescription
from offsets.verdict import Verdict
from tests.support import local_engine
from tests.support.command_line import document, invoke
from tests.support.local_engine import LocalEngine, order
from tests.support.memory_topic import MemoryTopic
from tests.support.processes import until

FIRST = date(2026, 3, 28)
NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> dict[str, MemoryTopic]:
    """Let pipelines read topics in memory, by the name that the config gives."""
    found: dict[str, MemoryTopic] = {}

    @contextmanager
    def pipeline(runtime: Runtime, settings: Settings, *_: object) -> Iterator[Pipeline]:
        logs.bind(run_id=f"run-of-{settings.topic}")
        if settings.topic not in found:
            raise ConfigError(expected=f"topic {settings.topic}", found="none", do="Correct topic.")
        topic = found[settings.topic]
        yield local_engine.pipeline(settings.lake.folder, topic, engine=LocalEngine(topic))

    monkeypatch.setattr(context.Runtime, "pipeline", pipeline)
    return found


@pytest.fixture(autouse=True)
def _log_to_nowhere() -> Iterator[None]:
    """Write no line where a command of an earlier test wrote its own: that stream is closed."""

    def drop(*_: object) -> dict[str, object]:
        raise structlog.DropEvent

    structlog.configure(processors=[drop])
    yield
    structlog.reset_defaults()


def a_topic(records: int) -> MemoryTopic:
    """Make a topic of the first day; it has the one name that topics in memory have."""
    topic = MemoryTopic()
    for number in range(records):
        at = NOON + timedelta(minutes=number)
        topic.produce(0, order(at), at)
    past = NOON + timedelta(days=2)
    topic.produce(0, order(past), past)
    return topic


def config(folder: Path, topic: str, **changed: Any) -> Path:
    tree = {
        "topic": topic,
        "kafka": {"bootstrap_servers": "localhost:1"},
        "day": {"zone": "Europe/Amsterdam", "first": str(FIRST)},
        "event_time": {"field": "at"},
        "record": {"columns": {"id": "string"}},
        "lake": {"path": f"./{topic}"},
    }
    path = folder / f"{topic}.yaml"
    path.write_text(yaml.safe_dump(tree | changed))
    return path


def test_each_topic_is_settled_into_its_own_lake(tmp_path: Path, topics: dict[str, MemoryTopic]) -> None:
    for number in range(9):
        topics[f"t{number}"] = a_topic(number + 1)
        config(tmp_path, f"t{number}")
    code, found = document("run", "--config", tmp_path, "--date", FIRST)
    assert (code, found["exit_code"]) == (0, 0)
    assert [each["topic"] for each in found["topics"]] == [f"t{number}" for number in range(9)]
    rows = [each["days"][0]["rows"][Verdict.IN_DAY.value] for each in found["topics"]]
    assert rows == list(range(1, 10))
    assert all((tmp_path / f"t{number}" / f"date={FIRST}" / "_manifest.json").exists() for number in range(9))


def test_a_topic_that_fails_stops_no_other(tmp_path: Path, topics: dict[str, MemoryTopic]) -> None:
    configs = [config(tmp_path, name) for name in ("one", "missing", "two")]
    configs.insert(1, tmp_path / "nowhere.yaml")
    topics |= {"one": a_topic(3), "two": a_topic(4)}
    given = [argument for path in configs for argument in ("--config", path)]
    code, found = document("run", *given, "--date", FIRST)
    assert (code, found["exit_code"]) == (2, 2)
    assert [each["exit_code"] for each in found["topics"]] == [0, 2, 2, 0]
    assert found["topics"][2]["failure"]["expected"] == "topic missing"
    code, stdout, stderr = invoke("run", *given, "--date", FIRST)
    assert code == 2
    assert "4 topic(s), 2 failed" in stdout
    assert stdout.count("committed already") == 2
    lines = [json.loads(line) for line in stderr.splitlines()]
    [failed] = [line for line in lines if "topic missing" in line["event"]]
    assert (failed["topic"], failed["run_id"], failed["exit_code"]) == ("missing", "run-of-missing", 2)


def test_a_bug_that_one_topic_meets_is_told_and_stops_no_other(
    tmp_path: Path, topics: dict[str, MemoryTopic]
) -> None:
    topics |= {"one": a_topic(3), "two": a_topic(4)}
    configs = [config(tmp_path, name) for name in ("one", "two")]

    def run(pipeline: Pipeline, day: date) -> Outcome:
        if pipeline.settings.lake.folder.name == "one":
            raise ZeroDivisionError
        return run_day(pipeline, day)

    told: list[TopicResult] = []
    found = run_topics(Runtime(), configs, lambda _: [FIRST], run, told.append)
    assert [each.exit_code for each in found] == [70, 0]
    assert {each.topic for each in told} == {"one", "two"}


def test_what_a_topic_did_before_it_failed_is_told(tmp_path: Path, topics: dict[str, MemoryTopic]) -> None:
    topics |= {"one": a_topic(3)}

    def run(pipeline: Pipeline, day: date) -> Outcome:
        if day > FIRST:
            raise DayNotOver(expected="a day", found="none", do="Wait.")
        return run_day(pipeline, day)

    days = [FIRST, FIRST + timedelta(days=1), FIRST + timedelta(days=2)]
    [found] = run_topics(Runtime(), [config(tmp_path, "one")], lambda _: days, run, lambda _: None)
    assert [each.manifest.day.date for each in found.outcomes] == [FIRST]
    assert found.exit_code == 10


def test_topics_run_beside_each_other(tmp_path: Path, topics: dict[str, MemoryTopic]) -> None:
    topics |= {"one": a_topic(1), "two": a_topic(1)}
    both = threading.Barrier(2, timeout=20)

    def run(pipeline: Pipeline, day: date) -> Outcome:
        both.wait()
        return run_day(pipeline, day)

    configs = [config(tmp_path, name) for name in ("one", "two")]
    found = run_topics(Runtime(), configs, lambda _: [FIRST], run, lambda _: None)
    assert [each.exit_code for each in found] == [0, 0]


def test_a_signal_ends_all_topics(tmp_path: Path, topics: dict[str, MemoryTopic]) -> None:
    """It is raised in the main thread; those that wait are not begun, and those at work are waited for."""
    topics |= {f"t{number}": a_topic(1) for number in range(9)}
    begun, tidied = [], []
    stopping = threading.Event()

    class Stopped(Runtime):
        def cancel(self) -> None:
            stopping.set()

    def run(pipeline: Pipeline, day: date) -> Outcome:
        begun.append(pipeline)
        if len(begun) == 1:
            _thread.interrupt_main()
        assert stopping.wait(20)
        tidied.append(pipeline)
        raise DayNotOver(expected="a day", found="none", do="Wait.")

    told: list[TopicResult] = []
    configs = [config(tmp_path, f"t{number}") for number in range(9)]
    with pytest.raises(KeyboardInterrupt):
        run_topics(Stopped(), configs, lambda _: [FIRST], run, told.append)
    assert len(tidied) == len(begun) < 9
    assert {each.exit_code for each in told} == {130}
    assert len(told) == len(begun)


def test_two_topics_share_no_lake_and_one_spark_section(
    tmp_path: Path, topics: dict[str, MemoryTopic]
) -> None:
    topics |= {name: a_topic(1) for name in ("one", "same", "other", "fine")}
    configs = [
        config(tmp_path, "one"),
        config(tmp_path, "same", lake={"path": "./one"}),
        config(tmp_path, "other", spark={"spark.driver.memory": "3g"}),
        config(tmp_path, "fine"),
    ]
    found = run_topics(Runtime(), configs, lambda _: [FIRST], run_day, lambda _: None)
    assert [each.exit_code for each in found] == [0, 2, 2, 0]
    assert "a lake of its own" in str(found[1].failure)
    assert "the same `spark` section" in str(found[2].failure)


def test_the_worst_code_is_that_which_asks_most_of_a_person() -> None:
    assert worst([]) == 0
    assert worst([0, 12]) == 12
    assert worst([12, 2, 15]) == 2
    assert worst([2, 21, 12]) == 21
    assert worst([24, 70, 21]) == 70


def test_a_folder_stands_for_its_yaml_files(tmp_path: Path) -> None:
    one, two = config(tmp_path, "b"), config(tmp_path, "a")
    (tmp_path / "notes.txt").write_text("none")
    assert configs_in([tmp_path]) == [two, one]
    assert configs_in([one]) == [one]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"one \*.yaml for each topic"):
        configs_in([tmp_path / "empty"])


@pytest.mark.parametrize(
    "arguments, found",
    [
        (("run", "--force", "--date", FIRST), "--force and --accept"),
        (("run", "--accept-contract", "--date", FIRST), "--force and --accept"),
        (("plan",), "only `run` and `upgrade` take several"),
        (("status",), "only `run` and `upgrade` take several"),
        (("verify",), "only `run` and `upgrade` take several"),
        (("clean",), "only `run` and `upgrade` take several"),
    ],
)
def test_what_is_for_one_topic_refuses_several(
    tmp_path: Path, arguments: tuple[object, ...], found: str
) -> None:
    several = [argument for name in "ab" for argument in ("--config", config(tmp_path, name))]
    for given in ((*arguments, *several), (*several, *arguments)):
        code, document_ = document(*given)
        assert code == 2
        assert found in document_["expected"]


def test_the_variable_may_name_a_folder(
    tmp_path: Path, topics: dict[str, MemoryTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    topics |= {"one": a_topic(3)}
    config(tmp_path, "one")
    monkeypatch.setenv("KAFKA_DAILY_CONFIG", str(tmp_path))
    code, found = document("run", "--date", FIRST)
    assert (code, [each["topic"] for each in found["topics"]]) == (0, ["one"])


def test_a_path_that_cannot_be_looked_at_is_a_wrong_config() -> None:
    """It was a bug (70), of one topic as well: whether it is a folder cannot be known."""
    code, found = document("run", "--config", "x" * 300)
    assert (code, "cannot read the file" in found["found"]) == (2, True)


def test_a_lake_behind_a_loop_of_links_stops_no_other_topic(
    tmp_path: Path, topics: dict[str, MemoryTopic]
) -> None:
    topics |= {"loop": a_topic(1), "fine": a_topic(1)}
    (tmp_path / "loop").symlink_to("loop")
    configs = [config(tmp_path, "loop"), config(tmp_path, "fine")]
    found = run_topics(Runtime(), configs, lambda _: [FIRST], run_day, lambda _: None)
    assert [each.exit_code for each in found] == [27, 0]


def test_what_an_editor_leaves_in_a_folder_is_no_config(tmp_path: Path) -> None:
    (tmp_path / ".#one.yaml").symlink_to("somebody@somewhere")
    assert configs_in([tmp_path, config(tmp_path, "one")]) == [tmp_path / "one.yaml"] * 2


def test_days_that_no_topic_can_be_run_for_are_refused_once(tmp_path: Path) -> None:
    config(tmp_path, "one")
    code, found = document("run", "--config", tmp_path, "--to", FIRST)
    assert (code, found["error"]) == (2, "ConfigError")
    assert "--from A --to B" in found["expected"]


def test_after_a_signal_the_document_tells_of_each_topic_and_no_day_is_begun(
    tmp_path: Path, topics: dict[str, MemoryTopic], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had ended was told of nowhere, and a topic between two days went on with the next one."""
    stopping = threading.Event()
    monkeypatch.setattr(context.Runtime, "cancel", lambda _: stopping.set())

    class Signals(MemoryTopic):
        def describe(self, topic: str) -> TopicDescription:
            if not stopping.is_set():
                until(lambda: at_work() == 1)  # the first topic is done
                os.kill(os.getpid(), signal.SIGTERM)
            assert stopping.wait(20)
            return super().describe(topic)

    def at_work() -> int:
        return sum(each.name.endswith("(work)") for each in threading.enumerate())

    topics |= {"done": a_topic(3), "cut": a_topic(4)}
    topics["cut"].__class__ = Signals
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    given = [argument for name in ("done", "cut") for argument in ("--config", config(tmp_path, name))]
    assert document("run", *given[:2], "--from", FIRST, "--to", FIRST + timedelta(days=1))[0] == 0
    try:
        code, found = document("run", *given, "--from", FIRST, "--to", FIRST + timedelta(days=1))
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert (code, found["error"]) == (143, "Terminated")
    told = {each["topic"]: each for each in found["facts"]["topics"]}
    assert told["done"]["days"][0]["already"]
    assert [day["day"]["date"] for day in told["cut"]["days"]] == [str(FIRST)]
    assert told["cut"]["failure"]["error"] == "Interrupted"
    assert not (tmp_path / "cut" / f"date={FIRST + timedelta(days=1)}").exists()


def test_a_job_that_begins_after_the_signal_is_cancelled_too(
    tmp_path: Path, topics: dict[str, MemoryTopic]
) -> None:
    """While Spark started there was no job to cancel: the topic went on with its day."""
    topics |= {"one": a_topic(1)}
    cancelled = threading.Semaphore(0)

    class Stopped(Runtime):
        def cancel(self) -> None:
            cancelled.release()

    def run(pipeline: Pipeline, day: date) -> Outcome:
        _thread.interrupt_main()
        assert cancelled.acquire(timeout=20)
        # here its job would begin
        begun.append(cancelled.acquire(timeout=5))
        raise DayNotOver(expected="a day", found="none", do="Wait.")

    begun: list[bool] = []
    with pytest.raises(KeyboardInterrupt):
        run_topics(Stopped(), [config(tmp_path, "one")], lambda _: [FIRST], run, lambda _: None)
    assert begun == [True]


def test_a_line_on_a_terminal_names_its_topic_where_several_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines of four topics came mixed, and nothing told whose they were."""
    monkeypatch.setattr(logs, "for_people", lambda: True)
    logs.configure()

    def work() -> None:
        logs.bind(topic="orders", run_id="run-7")
        structlog.get_logger().info("stage ended")

    logs.scoped(work)()
    work()
    several, alone = capsys.readouterr().err.splitlines()
    assert "orders" in several
    assert "run-7" not in several
    assert "orders" not in alone
    logs.configure()


def test_a_topic_that_takes_a_while_to_tidy_up_after_a_signal_is_waited_for(
    tmp_path: Path, topics: dict[str, MemoryTopic]
) -> None:
    """Of a thread in whose join a signal arrives, Python before 3.13 believes that it has ended."""
    topics |= {"one": a_topic(1)}
    stopping, tidied = threading.Event(), threading.Event()

    class Stopped(Runtime):
        def cancel(self) -> None:
            stopping.set()

    def run(pipeline: Pipeline, day: date) -> Outcome:
        time.sleep(0.3)  # by now the main thread waits; it is woken by a signal of its own alone
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        assert stopping.wait(20)
        time.sleep(0.5)
        tidied.set()
        raise DayNotOver(expected="a day", found="none", do="Wait.")

    with pytest.raises(KeyboardInterrupt):
        run_topics(Stopped(), [config(tmp_path, "one")], lambda _: [FIRST], run, lambda _: None)
    assert tidied.is_set()
