"""How a day is cut into tasks and batches."""

from __future__ import annotations

import pytest

from jobs.sizing import COUNTED, LARGE_MESSAGE, LARGE_RECORD, WEIGHED, BatchLimit, batch_limit

MIB = 1 << 20


@pytest.mark.parametrize(
    "largest_message, sampled, limit",
    [
        (MIB, [300, LARGE_RECORD - 1], COUNTED),
        (MIB, [300, LARGE_RECORD], WEIGHED),
        (LARGE_MESSAGE, [300], WEIGHED),
        (MIB, [], WEIGHED),
        (None, [300], WEIGHED),
    ],
    ids=["small", "a large record", "large messages", "nothing known of records", "nor of messages"],
)
def test_batches_are_only_counted_where_records_are_known_to_be_small(
    largest_message: int | None, sampled: list[int], limit: BatchLimit
) -> None:
    assert batch_limit(largest_message, sampled) == limit


def test_a_batch_that_is_only_counted_fits_into_an_arrow_column() -> None:
    assert COUNTED.bytes is None
    assert COUNTED.rows * (LARGE_MESSAGE - 1) < 1 << 31
