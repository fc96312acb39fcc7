"""Reports add up whatever the order of batches and tasks, and an offset told twice is never added."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.task.result import (
    RangeLog,
    TaskResult,
    join_results,
    joined_by_partition,
    ranges_of,
    slices,
    summed,
    summed_causes,
)
from offsets.checkpoint import Anchor
from offsets.errors import AuditFailed, StoreFailed
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


def result_of(partition: int, offsets: list[int], pending: list[int]) -> TaskResult:
    """Make the result of a task that wrote some rows, and left others to a later day."""
    every = Offsets.of((offset, offset + 1) for offset in (*offsets, *pending))
    last = max(offsets + pending)
    return TaskResult(
        delivered={partition: every},
        unfiled={Verdict.LATER_DAY: {partition: Offsets.of((offset, offset + 1) for offset in pending)}},
        tally=(tally(Verdict.IN_DAY, offsets, partition), tally(Verdict.LATER_DAY, pending, partition)),
        last={partition: Anchor(offset=last, timestamp=last, digest="d")},
    )


def test_results_of_tasks_join_to_the_result_of_one_in_any_order() -> None:
    results = [result_of(0, [5, 6], [8]), result_of(0, [1, 2], [3]), result_of(1, [4], [9])]
    joined = join_results(results)
    assert joined == join_results(results[::-1])
    assert joined.delivered == {0: Offsets([(1, 4), (5, 7), (8, 9)]), 1: Offsets([(4, 5), (9, 10)])}
    assert joined.unfiled[Verdict.LATER_DAY] == {0: Offsets([(3, 4), (8, 9)]), 1: Offsets([(9, 10)])}
    assert {partition: anchor.offset for partition, anchor in joined.last.items()} == {0: 8, 1: 9}
    assert [(entry.partition, entry.rows) for entry in joined.tally] == [(0, 2), (0, 4), (1, 1), (1, 1)]


def test_a_failed_task_fails_the_join_and_so_does_an_offset_of_two_tasks() -> None:
    failure = StoreFailed(expected="one", found="other", do="Mend it.")
    with pytest.raises(StoreFailed):
        join_results([result_of(0, [1], [2]), TaskResult(failure=failure)])
    with pytest.raises(AuditFailed, match="delivered once"):
        join_results([result_of(0, [1, 2], [3]), result_of(0, [4], [2])])
