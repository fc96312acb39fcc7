"""Several topics in one run, on a real broker and in one Spark session."""

from __future__ import annotations

import json
import signal
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from tests.support.brokers import Broker, MakeTopic
from tests.support.engine import FIRST, SECTIONS, Child, Command, merged
from tests.support.judged import SentRecord, assert_exact, midnight, night, sent_records
from tests.support.killed import assert_lock_free, attempts
from tests.support.processes import descendants, lives, until
from tests.support.produce import order, send

MINUTE = timedelta(minutes=1)
Topics = dict[str, list[SentRecord]]


@pytest.fixture
def topics(broker: Broker, topic: MakeTopic) -> Topics:
    """Make three topics, each with records of its own."""
    return {topic(partitions=2): [] for _ in range(3)}


def fill(broker: Broker, topics: Topics, *, size: int) -> None:
    for number, (name, words) in enumerate(topics.items()):
        records = [
            order(midnight(FIRST) + n * MINUTE, n % 2, id=f"{number} " + "x" * size, n=n) for n in range(300)
        ]
        words += sent_records(records, send(broker.bootstrap_servers, name, records))


@pytest.fixture
def folder(broker: Broker, topics: Topics, tmp_path: Path) -> Path:
    """Write a config for each topic; the lakes are beside the folder."""
    configs = tmp_path / "configs"
    configs.mkdir()
    for name in topics:
        write(configs, broker, name)
    return configs


def write(configs: Path, broker: Broker, name: str) -> None:
    own = {"topic": name, "kafka": {"bootstrap_servers": broker.bootstrap_servers}}
    tree = merged(SECTIONS, own, {"lake": {"path": f"../{name}"}})
    (configs / f"{name}.yaml").write_text(yaml.safe_dump(tree))


@pytest.mark.usefixtures("engine")  # a fixture cannot be had from several threads at once
def test_topics_that_run_at_once_are_exact_and_a_missing_one_stops_none(
    admin: AdminClient, broker: Broker, topics: Topics, folder: Path, command: Command, tmp_path: Path
) -> None:
    fill(broker, topics, size=10)
    write(folder, broker, "missing-topic")
    done = command(folder, "run", "--date", str(FIRST), "--json")
    assert done.code == 2, done.err
    found = json.loads(done.out)
    assert [each["exit_code"] for each in found["topics"] if each["topic"] == "missing-topic"] == [2]
    assert sum(each["exit_code"] for each in found["topics"]) == 2
    assert "missing-topic" not in admin.list_topics(timeout=10).topics
    for name, words in topics.items():
        assert_exact(tmp_path / name, words, [night(FIRST)])


@pytest.mark.usefixtures("engine")
def test_a_signal_ends_all_topics_and_a_rerun_is_exact(
    broker: Broker, topics: Topics, folder: Path, child: Child, command: Command, tmp_path: Path
) -> None:
    fill(broker, topics, size=20_000)
    lakes = [tmp_path / name for name in topics]
    with child(folder).started("run", "--date", str(FIRST)) as (driver, log):
        until(lambda: any(attempts(lake) for lake in lakes))
        family = descendants(driver.pid)
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(60) == 143, log.read_text()
        until(lambda: not any(map(lives, family)), seconds=30)
        text = log.read_text()
    assert "Traceback" not in text
    lines = [json.loads(line) for line in text.splitlines() if "Using incubator modules" not in line]
    assert "A day is committed whole or not at all" in lines[-1]["event"]
    for lake in lakes:
        assert not (lake / "_staging").exists()
        if lake.exists():
            assert_lock_free(lake)
    assert command(folder, "run", "--date", str(FIRST)).code == 0
    for name, words in topics.items():
        assert_exact(tmp_path / name, words, [night(FIRST)])
