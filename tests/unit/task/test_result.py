"""Reports add up whatever the order of batches and tasks, and an offset told twice is never added."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.task.result import RangeLog, joined_by_partition, ranges_of, slices, summed, summed_causes
from offsets.manifest import CauseCount, Tally
from offsets.ranges import Offsets
from offsets.verdict import Verdict


@given(st.lists(st.integers(0, 3), max_size=30))
def test_a_column_of_partitions_is_cut_into_runs(partitions: list[int]) -> None:
    runs = list(slices(np.array(partitions, dtype=np.int64)))
    assert [part for part, at, end in runs for _ in range(at, end)] == partitions
    assert all(a[0] != b[0] and a[2] == b[1] for a, b in pairwise(runs))


@given(st.frozensets(st.integers(0, 50)), st.integers(1, 9))
def test_a_log_of_batches_is_the_set_of_their_offsets(numbers: frozenset[int], size: int) -> None:
    log, ordered = RangeLog(), sorted(numbers)
    for at in range(0, len(ordered), size):
        log.add(7, np.array(ordered[at : at + size], dtype=np.int64))
    expected = Offsets.of((number, number + 1) for number in numbers)
    assert joined_by_partition([log.ranges()]).get(7, Offsets()) == expected


def test_batches_out_of_order_are_still_one_set() -> None:
    log = RangeLog()
    for offsets in ([5, 6], [1, 2], [3, 4], [9, 8]):
        log.add(0, np.array(offsets, dtype=np.int64))
    assert joined_by_partition([log.ranges()]) == {0: Offsets([(1, 7), (8, 10)])}


@pytest.mark.parametrize("again", [[3], [1, 2], [4, 3]])
def test_an_offset_that_comes_twice_is_refused(again: list[int]) -> None:
    log, other = RangeLog(), RangeLog()
    log.add(0, np.array([1, 2, 3, 4]))
    other.add(0, np.array(again))
    with pytest.raises(ValueError, match="twice"):
        joined_by_partition([log.ranges(), other.ranges()])
    with pytest.raises(ValueError, match="twice"):
        log.add(0, np.array(again))


def test_no_offsets_are_no_ranges() -> None:
    assert ranges_of(np.array([], dtype=np.int64)) == []
    log = RangeLog()
    log.add(0, np.array([], dtype=np.int64))
    assert log.ranges() == {}


def tally(verdict: Verdict, offsets: list[int], partition: int = 0) -> Tally:
    return Tally(
        partition=partition,
        verdict=verdict,
        rows=len(offsets),
        from_offset=min(offsets),
        until_offset=max(offsets) + 1,
    )


def test_tallies_of_one_partition_and_verdict_add_up_in_any_order() -> None:
    parts = [
        tally(Verdict.LATE, [9]),
        tally(Verdict.IN_DAY, [7, 8]),
        tally(Verdict.IN_DAY, [1, 3]),
        tally(Verdict.IN_DAY, [1], partition=1),
    ]
    expected = (
        tally(Verdict.LATE, [9]),
        tally(Verdict.IN_DAY, [1, 3, 7, 8]),
        tally(Verdict.IN_DAY, [1], partition=1),
    )
    assert summed(parts) == summed(reversed(parts)) == expected


def test_causes_add_up_commonest_first_and_keep_their_first_example() -> None:
    counts = [
        CauseCount(cause=cause, rows=rows, partition=0, offset=offset)
        for cause, rows, offset in [("b", 1, 1), ("a", 1, 2), ("c", 5, 3), ("b", 3, 4), ("a", 3, 5)]
    ]
    found = [(each.cause, each.rows, each.offset) for each in summed_causes(counts)]
    assert found == [("c", 5, 3), ("a", 4, 2), ("b", 4, 1)]
