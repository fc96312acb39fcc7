"""Records with stamps that Spark cannot take, or tells otherwise than Kafka: settled like all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.daily import run_day
from tests.lake_rows import places
from tests.local_engine import desk, order
from tests.memory_topic import MemoryTopic
from tests.unit.test_day import FIRST, SECOND, THIRD, at, lake, orders

__all__ = ["lake"]

NANOSECONDS = 1_774_652_400_000_000_000


@pytest.mark.parametrize("stamp", [-2, -86_400_000, -4_000_000_000_000, 5_000_000_000_000_000])
def test_an_odd_stamp_at_a_partitions_end_does_not_stop_the_lake(lake: Path, stamp: int) -> None:
    topic = MemoryTopic(1)
    orders(topic, FIRST)
    odd = topic.produce(0, order(at(FIRST, 22)), stamp)
    run_day(desk(lake, topic), FIRST)
    orders(topic, SECOND)
    run_day(desk(lake, topic), SECOND)
    run_day(desk(lake, topic), THIRD)
    assert places(lake)[0, odd].kind == "invalid"
    assert len(places(lake)) == len(topic.logs[0].records)
