"""What a test run draws of cases that cost much and are alike; `./run.sh prove` plays them all.

Relies on one seed for the whole run, which is shown at its end: KAFKA_DAILY_SAMPLE_SEED draws the same again.
"""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from typing import Final, TypeVar

T = TypeVar("T")
Record = Callable[[str, object], None]
SEED: Final = "KAFKA_DAILY_SAMPLE_SEED"
ALL: Final = "KAFKA_DAILY_SAMPLE_ALL"
"""A variable that, with any value, makes tests run all cases."""


def drawn(cases: Sequence[T], count: int, record: Record) -> list[T]:
    """Return a random choice of the cases, in their order, and record its seed; or return all cases."""
    if os.environ.get(ALL):
        return list(cases)
    record(SEED, seed())
    numbers = random.Random(seed()).sample(range(len(cases)), count)
    return [cases[number] for number in sorted(numbers)]


def numbered(every: int, record: Record) -> Iterator[int]:
    """Yield the numbers from 1 on, without end: all, or every so many from a random one of the first."""
    if os.environ.get(ALL):
        return count(1)
    record(SEED, seed())
    return count(1 + seed() % every, every)


@cache
def seed() -> int:
    """Return the seed of this test run."""
    given = os.environ.get(SEED)
    return int(given) if given else secrets.randbelow(1 << 32)
