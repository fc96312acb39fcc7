"""`show` and `init` on the command line: what they print, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog

import jobs.context
from jobs.config import load
from jobs.context import Pipeline
from jobs.record.hints import FRAMING
from offsets.instants import millis
from tests.support.command_line import document, invoke
from tests.support.local_engine import order, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, at


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture
def topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryTopic:
    """Let the commands open a pipeline over a topic in memory."""
    made = MemoryTopic()

    @contextmanager
    def opened(*_: Any) -> Iterator[Pipeline]:
        yield pipeline(tmp_path / "lake", made)

    monkeypatch.setattr(jobs.context, "open_context", opened)
    return made


def test_show_prints_the_record_its_verdict_and_its_outcome(topic: MemoryTopic) -> None:
    topic.produce(0, order(at(FIRST, 3)), at(FIRST, 3), key=b"k\x1b[2J", headers=[("a", b"1")])
    code, stdout, stderr = invoke("show", "0:0")
    assert (code, stderr) == (0, "")
    assert stdout.splitlines() == [
        "record      partition 0, offset 0 of orders",
        "stamped     2026-03-28T02:00:00+00:00",
        "key         k\\x1b[2J",
        "header a    1",
        'value       {"id":"o","n":0,"at":1774663200000000}',
        "event time  2026-03-28T02:00:00+00:00",
        "day         2026-03-28",
        "verdict     in day (not settled yet)",
        "outcome     the run for 2026-03-28 will read it: a row of 2026-03-28",
    ]


def test_show_prints_the_cause_of_an_invalid_record_and_one_document_with_json(topic: MemoryTopic) -> None:
    topic.produce(0, b"\0\0\0\0\7{}", at(FIRST, 3))
    assert "schema registry" in invoke("show", "0:0")[1]
    assert "event time  not read, since the record is invalid\n" in invoke("show", "0:0")[1]
    code, shown = document("show", "0:0", "--limit", "2")
    assert code == 0
    assert (shown["verdict"], shown["run"], shown["settled"]) == ("invalid", "2026-03-28", False)
    assert shown["value"] == {"text": "\0\0", "encoding": "utf-8", "bytes": 7, "cut": True}
    assert shown["cause"].startswith("Malformed JSON")


@pytest.mark.parametrize(
    "arguments, words",
    [(("0-1",), "P:OFFSET"), (("9:0",), "0 to 0"), (("0:5",), "not written yet"), ((), "P:OFFSET")],
)
def test_show_of_what_is_not_there_ends_with_2(
    topic: MemoryTopic, arguments: tuple[str, ...], words: str
) -> None:
    topic.produce(0, b"{}", at(FIRST, 3))
    code, told = document("show", *arguments)
    assert (code, told["error"]) == (2, "ConfigError")
    assert words in told["expected"] + told["found"]


def test_plan_prints_a_warning_where_past_events_are_stamped_later(topic: MemoryTopic) -> None:
    for number in range(12):
        topic.produce(0, order(at(FIRST, 1 + number)), at(FIRST, 60))
    code, stdout, _ = invoke("plan", "--date", FIRST)
    assert code == 0
    assert "warning 12 of 12 sampled records that follow this day's are events of 2026-03-28" in stdout
    assert len(document("plan", "--date", FIRST)[1]["warnings"]) == 1


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryTopic:
    """Let `init` sample a topic in memory."""
    made = MemoryTopic()

    @contextmanager
    def opened(*_: Any) -> Iterator[MemoryTopic]:
        yield made

    monkeypatch.setattr(jobs.context, "open_broker", opened)
    return made


def test_init_writes_a_config_that_plan_can_read_and_says_what_it_makes_of_the_sample(
    broker: MemoryTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in range(20):
        broker.produce(0, b'{"id":%d,"at":%d}' % (hour, millis(at(FIRST, hour))), at(FIRST, hour))
    broker.produce(0, b"\0\0\0\0\7{}", at(FIRST, 20))
    monkeypatch.chdir(tmp_path)
    code, stdout, stderr = invoke("init", "--topic", "orders", "--bootstrap", "localhost:9092")
    assert (code, stderr) == (0, "")
    assert stdout.splitlines() == [
        "wrote orders.yaml",
        "20 of 21 sampled records are valid by it; 20 would be rows",
        "  1 x Malformed JSON: invalid character (such as 0:20)",
        f"  hint: {FRAMING}",
        "its lake will be lake/orders",
        "look at its comments, then: plan --config orders.yaml",
    ]
    assert load(tmp_path / "orders.yaml", {}).rules.event_time.path == ("at",)
    code, told = document("init", "--topic", "orders", "--bootstrap", "localhost:9092")
    assert (code, told["error"]) == (2, "ConfigError")
    assert "--out" in told["do"]
    out = ("--out", tmp_path / "b.yaml", "--zone", "Europe/Amsterdam")
    code, told = document("init", "--topic", "orders", "--bootstrap", "localhost:9092", *out)
    assert (code, told["rows"], told["invalid"], told["first"]) == (0, 20, 1, "2026-03-28")
    assert told["path"] == str(tmp_path / "b.yaml")


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--topic", "a b", "--bootstrap", "localhost:9092"), "--topic"),
        (("--topic", "orders", "--bootstrap", "localhost"), "--bootstrap"),
        (("--topic", "orders", "--bootstrap", "localhost:9092", "--zone", "Mars"), "--zone"),
        (("--topic", "orders"), "neither"),
        (("--topic", "orders", "--bootstrap", "localhost:9092", "--config", "a.yaml"), "both"),
        (("--topic", "orders", "--config", "missing.yaml"), "missing.yaml"),
    ],
)
def test_wrong_options_of_init_end_with_2(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    code, told = document("init", *arguments)
    assert (code, told["error"]) == (2, "ConfigError")
    assert words in told["expected"] + told["found"]


def test_init_writes_beside_the_config_that_names_the_cluster(broker: MemoryTopic, tmp_path: Path) -> None:
    broker.produce(0, b'{"id":1}', at(FIRST, 3))
    (tmp_path / "cluster.yaml").write_text("kafka:\n  bootstrap_servers: kafka-1:9092\n  timeout: 7s\n")
    for arguments in (
        ("init", "--config", tmp_path / "cluster.yaml"),
        ("init", "--out", tmp_path / "b.yaml"),
    ):
        named = () if "--config" in arguments else ("--config", tmp_path / "cluster.yaml")
        code, told = document(*named, *arguments, "--topic", "orders")
        assert code == 0, told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.yaml", "cluster.yaml", "orders.yaml"]
    assert (tmp_path / "b.yaml").read_text() == (tmp_path / "orders.yaml").read_text()
    assert load(tmp_path / "orders.yaml", {}).kafka.timeout.seconds == 7
