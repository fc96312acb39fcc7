"""Where a record can be, in words that the oracle compares.

Relies on nothing.
Never says where a record belongs: the oracle does.
"""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import NamedTuple


class Where(StrEnum):
    """Every fate of a produced record; together they are all that was produced."""

    IN_DAY = "in its day"
    LATE = "late"
    AMENDED = "amended"
    INVALID = "invalid"
    SKIPPED = "skipped"
    BEFORE_FIRST = "before the first day"
    BEFORE_START = "before the first offset read"
    PENDING = "pending"
    NOT_READ = "not read yet"
    NOWHERE = "nowhere"
    ASTRAY = "astray"


class Place(NamedTuple):
    """One fate, with the day whose commit brought it, and for a late or amended row its own day."""

    where: Where
    day: date | None = None
    happened: date | None = None
    path: str = ""

    def __str__(self) -> str:
        """Return it in one line."""
        day = f" of {self.day}" if self.day else ""
        happened = f", filed under {self.happened}" if self.happened else ""
        return f"{self.where.value}{day}{happened}{self.path and ' '}{self.path}"
