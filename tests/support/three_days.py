"""Three days of orders on a topic in memory, and the lakes that undisturbed runs make from them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path

from jobs.config import Late
from jobs.daily import run_day
from tests.support.local_engine import order, pipeline
from tests.support.memory_topic import MemoryTopic

FIRST, SECOND, THIRD = date(2026, 3, 28), date(2026, 3, 29), date(2026, 3, 30)
"""In Europe/Amsterdam; the second has 23 hours."""
STARTS = {
    FIRST: datetime(2026, 3, 27, 23, tzinfo=UTC),
    SECOND: datetime(2026, 3, 28, 23, tzinfo=UTC),
    THIRD: datetime(2026, 3, 29, 22, tzinfo=UTC),
    date(2026, 3, 31): datetime(2026, 3, 30, 22, tzinfo=UTC),
}


def at(day: date, hours: float) -> datetime:
    """Return an instant by the hours since a day's start."""
    return STARTS[day] + timedelta(hours=hours)


def orders(topic: MemoryTopic, day: date, count: int = 6, partition: int | None = None) -> None:
    """Produce records of one day, spread over it, and over the partitions where none is named."""
    for number in range(count):
        when = at(day, 1 + 20 * number / count)
        topic.produce(number % len(topic.logs) if partition is None else partition, order(when), when)


def three_days(topic: MemoryTopic) -> None:
    """Produce three days with all kinds of records."""
    for day in (FIRST, SECOND, THIRD):
        orders(topic, day)
        topic.produce(0, b"not json", at(day, 21))
        topic.produce(0, order(at(day, 25)), at(day, 21))  # of a later day, for those of 23 and 24 hours
        if day != FIRST:
            topic.produce(0, order(at(day, -3)), at(day, 21.5))  # late
    topic.marker(0, at(THIRD, 22))


@cache
def a_lake(count: int, late: Late = Late.SET_ASIDE) -> Path:
    """Return a lake of the first of three days, made once; copy it, never change it."""
    topic = MemoryTopic(2)
    three_days(topic)
    folder = Path(tempfile.mkdtemp(prefix="kafka-daily-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for day in (FIRST, SECOND, THIRD)[:count]:
        run_day(pipeline(folder / "lake", topic, late=late), day)
    return folder / "lake"
