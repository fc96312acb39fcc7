"""From a topic to a day with `init`, `plan`, `show` and `run` alone, on a real broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.cli import first_look
from jobs.context import open_broker
from jobs.first_look.record import read_record
from offsets.errors import BrokerBehind, ConfigError
from tests.support.brokers import Broker, MakeTopic
from tests.support.engine import FIRST, Command
from tests.support.judged import midnight
from tests.support.processes import until
from tests.support.produce import Transactions, every, order, send

MINUTE = timedelta(minutes=1)


def test_a_proposed_config_settles_its_topic_and_each_record_can_be_shown(
    broker: Broker, topic: MakeTopic, command: Command, tmp_path: Path
) -> None:
    name, path = topic(partitions=2), tmp_path / "proposed.yaml"
    records = [record for part in range(2) for record in every(MINUTE, midnight(FIRST), 300, part)]
    records.append(order(midnight(FIRST), 0)._replace(value=b"\0\0\0\0\7{}", key=b"k"))
    offset = send(broker.bootstrap_servers, name, records)[-1]
    arguments = ("--topic", name, "--bootstrap", broker.bootstrap_servers, "--out", str(path))
    done = command(None, "init", *arguments, "--zone", "Europe/Amsterdam", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert (found["sampled"], found["rows"], found["invalid"]) == (601, 600, 1)
    done = command(path, "show", f"0:{offset}", "--json")
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    assert (shown["verdict"], shown["run"], shown["key"]["text"]) == ("invalid", str(FIRST), "k")
    assert "schema registry" in shown["hint"]
    assert json.loads(command(path, "plan", "--date", str(FIRST), "--json").out)["warnings"] == []
    done = command(path, "run", "--date", str(FIRST), "--json")
    assert done.code == 0, done.err
    (day,) = json.loads(done.out)["days"]
    assert (day["rows"]["in_day"], day["rows"]["invalid"]) == (600, 1)
    assert json.loads(command(path, "show", "1:7", "--json").out)["settled"] is True


def test_past_events_that_are_written_today_are_warned_of(
    broker: Broker, topic: MakeTopic, command: Command, tmp_path: Path
) -> None:
    """A first try gave empty days without a word."""
    name, path = topic(partitions=2), tmp_path / "proposed.yaml"
    now = datetime.now(UTC)
    records = [order(midnight(FIRST) + n * MINUTE, n % 2, stamp=now) for n in range(100)]
    send(broker.bootstrap_servers, name, records)
    arguments = ("--topic", name, "--bootstrap", broker.bootstrap_servers, "--out", str(path))
    assert command(None, "init", *arguments, "--zone", "Europe/Amsterdam").code == 0
    done = command(path, "plan", "--date", str(FIRST), "--json")
    assert done.code == 0, done.err
    (warning,) = json.loads(done.out)["warnings"]
    assert warning.startswith(f"100 of 100 sampled records that follow this day's are events of {FIRST}")


def test_an_offset_without_a_record_names_one_that_can_be_shown(broker: Broker, topic: MakeTopic) -> None:
    name = topic()
    transactions = Transactions(broker.bootstrap_servers, name)
    transactions.begin([order(midnight(FIRST))])
    kafka = first_look.cluster(broker.bootstrap_servers, None, Path())
    with open_broker(kafka.settings) as reader:
        with pytest.raises(BrokerBehind, match="open transaction from offset 0"):
            read_record(reader, name, 0, 0)
        transactions.commit_open()
        until(lambda: reader.log_offsets(name, [0])[0].last_stable == 2)
        assert read_record(reader, name, 0, 0).value == order(midnight(FIRST)).value
        with pytest.raises(ConfigError, match="a gap") as stopped:
            read_record(reader, name, 0, 1)
        assert "`show 0:0`" in stopped.value.do
        with pytest.raises(ConfigError, match="not written yet") as stopped:
            read_record(reader, name, 0, 9)
        assert "`show 0:0`" in stopped.value.do
        with pytest.raises(ConfigError):
            read_record(reader, f"{name}-missing", 0, 0)
