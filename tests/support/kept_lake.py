"""The lake of format 3 that version 0.1.0 left, and a topic that goes on from it.

`tests/data/lake-of-format-3` holds the days of `three_days`. The late rows of the second were set aside, and
those of the third brought to the second. Never write it again.
"""

from __future__ import annotations

import shutil
from datetime import date
from pathlib import Path
from typing import Final

from tests.support.local_engine import order
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import SECOND, at, orders, three_days

KEPT: Final = Path(__file__).parents[1] / "data" / "lake-of-format-3"
FOURTH: Final = date(2026, 3, 31)


def a_kept_lake(lake: Path) -> Path:
    """Copy the lake to a folder, and return that."""
    return Path(shutil.copytree(KEPT, lake))


def four_days_of_orders() -> MemoryTopic:
    """Return the lake's topic with a fourth day, which has an invalid record and a late row of the second."""
    made = MemoryTopic(2)
    three_days(made)
    orders(made, FOURTH)
    made.produce(0, b"not json", at(FOURTH, 21))
    made.produce(0, order(at(SECOND, 5)), at(FOURTH, 21.5))
    return made
