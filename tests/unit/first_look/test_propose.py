"""A proposal is one that the config takes, whatever the stamps of a topic are."""

from __future__ import annotations

from datetime import date

import pytest

from jobs.first_look.propose import propose
from offsets.kafka.reader import FullRecord


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
@pytest.mark.parametrize("stamp", [-1, 0])
def test_a_lake_begins_in_1970_at_the_earliest_in_any_zone(stamp: int, zone: str) -> None:
    """In zones behind UTC the epoch is of 1969, which `day.first` refuses: init wrote such a config."""
    records = [FullRecord(offset, stamp, None, b'{"n":1}', ()) for offset in range(20)]
    proposed = propose(records, zone, None)
    assert proposed is not None
    assert proposed.first == date(1970, 1, 1)
