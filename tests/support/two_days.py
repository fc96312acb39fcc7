"""Two days of orders on the shared broker, so many that the tasks write for a while."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.brokers import Broker, wait_for_leaders
from tests.support.engine import FIRST
from tests.support.judged import SentRecord, midnight, sent_records
from tests.support.produce import Record, order, send

DAYS = [FIRST, FIRST + timedelta(days=1)]
ROWS = 30_000
"""Records in each partition."""
LATE = timedelta(hours=2)


@pytest.fixture(scope="session")
def two_days(broker: Broker, admin: AdminClient) -> Iterator[tuple[str, list[SentRecord]]]:
    """Fill a topic of two partitions, for tests that only read it: each kills another run over it.

    Every ninth order is two hours behind its stamp, so some are late.
    """
    name, start = f"two-days-{uuid.uuid4().hex[:12]}", midnight(DAYS[0])
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    wait_for_leaders(admin, name, 2)
    records: list[Record] = []
    for number in range(ROWS):
        stamp = start + timedelta(hours=47) * number / ROWS
        at = stamp - LATE if number % 9 == 0 else stamp
        records += [order(at, partition, stamp=stamp, n=number) for partition in range(2)]
    sent = sent_records(records, send(broker.bootstrap_servers, name, records))
    yield (
        name,
        [
            replace(record, happened=record.happened - LATE)
            if number // 2 % 9 == 0 and record.happened
            else record
            for number, record in enumerate(sent)
        ],
    )
    admin.delete_topics([name])[name].exception(30)
