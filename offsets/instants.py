"""Instants as Kafka and Arrow count them: milliseconds and microseconds from 1970, UTC."""

from __future__ import annotations

from datetime import datetime, timedelta

from offsets.days import UTC

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
LAST_STAMP = (1 << 62) // 1000
"""The largest timestamp (ms from 1970) that is computed with: half of what an int64 of microseconds holds."""


def micros(instant: datetime) -> int:
    """Count the microseconds from 1970-01-01T00:00Z to an aware instant."""
    return (instant - EPOCH) // MICROSECOND


def from_micros(count: int | None) -> datetime | None:
    """Return the instant `count` microseconds after 1970-01-01T00:00Z; None for None."""
    return None if count is None else EPOCH + timedelta(microseconds=count)


def from_stamp(timestamp: int) -> datetime | None:
    """Return the instant of Kafka's timestamp (ms from 1970); None where no date holds it."""
    try:
        return from_micros(timestamp * 1000)
    except OverflowError:
        return None


def millis(instant: datetime) -> int:
    """Count the milliseconds from 1970-01-01T00:00Z to an aware instant, rounded up."""
    return -(-micros(instant) // 1000)
