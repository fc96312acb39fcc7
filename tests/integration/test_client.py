"""The broker's client on a real broker: settings at their limits, and what it does when things move or drag."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

import pytest

from offsets.broker import Broker as Client
from offsets.ledger import Ledger
from offsets.model import day_in
from offsets.plan import plan_day
from offsets.survey import survey
from tests.brokers import Broker, MakeTopic
from tests.produce import Record, ms, send
from tests.unit.test_plan import FIRST, NOW, TERMS, at

LONG_MAX = str(2**63 - 1)
DAY = day_in(TERMS.zone, FIRST)


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    made = Client({"bootstrap.servers": broker.bootstrap_servers}, timedelta(seconds=20))
    yield made
    made.close()


@pytest.mark.parametrize("retention", ["-1", "3153600000000", "86400000000000001", LONG_MAX])
def test_every_retention_that_kafka_takes_can_be_planned(
    broker: Broker, topic: MakeTopic, client: Client, retention: str
) -> None:
    """retention.ms = Long.MAX_VALUE, which some use for "for ever", was a bug of ours at each command."""
    limits = dict.fromkeys(("retention.bytes", "segment.ms", "delete.retention.ms"), LONG_MAX)
    name = topic(config={"cleanup.policy": "delete", "retention.ms": retention, **limits})
    send(broker.bootstrap_servers, name, [Record(0, b"v", ms(at(date(2026, 5, 2), 3)))])
    found = survey(client, name, DAY, TERMS.grace, TERMS.future, None)
    plan = plan_day(day=DAY, ledger=Ledger(()), found=found, terms=TERMS, now=NOW)
    assert (plan.headroom_hours is None) == (retention != "3153600000000")
