"""A lake with all that a reader may meet: late rows, invalid records, rows set aside, a day without rows.

With `unfinished`, a run died at its last step, so that a whole day lies in staging that is not committed.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from datetime import date, timedelta
from pathlib import Path

from jobs.config import Late
from jobs.daily import run_day
from jobs.lake.names import STAGED_DAY
from jobs.lake.store import System
from offsets.errors import StoreFailed
from tests.reference import Fate
from tests.support.lake import places
from tests.support.local_engine import order, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, STARTS, THIRD

EMPTY, LAST, UNFINISHED = date(2026, 3, 31), date(2026, 4, 1), date(2026, 4, 2)
DAYS = (FIRST, SECOND, THIRD, EMPTY, LAST)


class DiesBeforeTheRename(System):
    """The system calls of a run that dies when it would make its day visible."""

    def __init__(self) -> None:
        self._dead = False

    def rename(self, source: Path, target: Path) -> None:
        """Rename nothing from the day's own rename on."""
        self._dead = self._dead or source.name == STAGED_DAY
        if self._dead:
            raise OSError(errno.EIO, "dead")
        super().rename(source, target)


def _topic() -> MemoryTopic:
    topic = MemoryTopic(2)
    midnights = {
        **STARTS,
        LAST: STARTS[EMPTY] + timedelta(days=1),
        UNFINISHED: STARTS[EMPTY] + timedelta(days=2),
    }
    for day in (*DAYS, UNFINISHED):
        if day != EMPTY:
            start = midnights[day]
            for hour in range(6):
                topic.produce(hour % 2, order(start + timedelta(hours=hour)), start + timedelta(hours=hour))
            topic.produce(0, b"not json", start + timedelta(hours=21))
            if day != FIRST:
                topic.produce(0, order(STARTS[FIRST]), start + timedelta(hours=21.5))
    return topic


def a_lake_to_read(lake: Path, *, unfinished: bool) -> int:
    """Make the lake, and return how many rows its days have."""
    topic = _topic()
    for day in DAYS:
        run_day(pipeline(lake, topic, late=Late.SET_ASIDE if day == THIRD else Late.AMEND), day)
    if unfinished:
        with suppress(StoreFailed):
            run_day(pipeline(lake, topic, late=Late.AMEND, system=DiesBeforeTheRename()), UNFINISHED)
        assert list((lake / "_staging").glob(f"*/{STAGED_DAY}/part-*.parquet"))
    return sum(place.fate in (Fate.IN_DAY, Fate.AMENDED) for place in places(lake).values())
