"""The terms of a plan, and instants of its day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from offsets.days import day_in
from offsets.plan import Terms
from tests.support.manifests import CONTRACT

FIRST, SECOND = date(2026, 5, 1), date(2026, 5, 2)
ZONE = "Europe/Amsterdam"
NOW = datetime(2026, 5, 4, tzinfo=UTC)
TERMS = Terms(
    zone=ZONE,
    grace=timedelta(hours=1),
    headroom=timedelta(hours=24),
    future=timedelta(days=1),
    contract=CONTRACT,
)


def at(day: date, hours: float) -> datetime:
    return day_in(ZONE, day).start + timedelta(hours=hours)
