"""How a day is cut into tasks and batches."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.day.sizing import (
    FILES_PER_TASK,
    PACKED,
    PIECES_PER_TASK,
    bytes_per_row,
    file_count,
    piece_rows,
    sample_is_useful,
    task_count,
)
from jobs.task.batch_limit import COUNTED, LARGE_MESSAGE, LARGE_RECORD, WEIGHED, BatchLimit, batch_limit
from offsets.checkpoint import PartitionCheckpoint
from offsets.day_plan import DayPlan
from offsets.ranges import Offsets
from tests.support.bounds import DAY
from tests.support.manifests import full
from tests.support.spans import plan, span

MIB = 1 << 20


@pytest.mark.parametrize(
    "largest_message, sampled, limit",
    [
        (MIB, [300, LARGE_RECORD - 1], COUNTED),
        (MIB, [300, LARGE_RECORD], WEIGHED),
        (1_048_588, [300], COUNTED),
        (LARGE_MESSAGE + 1, [300], WEIGHED),
        (MIB, [], WEIGHED),
        (None, [300], WEIGHED),
    ],
    ids=[
        "small",
        "a large record",
        "Kafka's default",
        "large messages",
        "nothing known of records",
        "nor of messages",
    ],
)
def test_batches_are_only_counted_where_records_are_known_to_be_small(
    largest_message: int | None, sampled: list[int], limit: BatchLimit
) -> None:
    assert batch_limit(largest_message, sampled) == limit


def test_a_batch_that_is_only_counted_fits_into_an_arrow_column() -> None:
    assert COUNTED.bytes is None
    # Arrow doubles the buffer of a column, and a buffer holds less than 2 GiB
    assert COUNTED.rows * LARGE_MESSAGE <= 1 << 30


def day_of(*partitions: int, pending: int = 0) -> DayPlan:
    """Plan so many new offsets per partition; before those of the first, single pending ones far apart."""
    parts, spans = [], []
    for number, rows in enumerate(partitions):
        waits = Offsets([(9 * at, 9 * at + 1) for at in range(pending if number == 0 else 0)])
        seen = 9 * pending
        part = PartitionCheckpoint(partition=number, seen_until=seen, pending=waits, anchor=None)
        reads = Offsets.of([*waits, (seen, seen + rows)])
        spans.append(span(part.next_from_offset, seen, seen + rows, reads, number))
        parts.append(part)
    return plan(DAY, spans, parts)


def tasks(size: float, *, target: int = 64, minimum: int = 32, cores: int = 2) -> int:
    """Count the tasks for a day of some MiB."""
    rows = 1_000_000
    sizes = {"target": target * MIB, "minimum": minimum * MIB}
    return task_count(day_of(rows), size * MIB / rows, **sizes, cores=cores)


@pytest.mark.parametrize(
    "size, count, files",
    [
        (0, 1, 1),
        (1, 1, 1),
        (63.9, 1, 1),
        (64.1, 2, 2),
        (140, 2, 4),
        (155, 2, 4),
        (128 + 5, 2, 2),
        (64 * 4.3, 2, 6),
        (64 * 5.9, 2, 6),
        (64 * 8, 2, 8),
        (64 * 8.19, 4, 8),
        (64 * 400, 196, 392),
        (64 * 1_000_000, 250_000, 1_000_000),
    ],
)
def test_tasks_are_those_that_leave_the_fewest_files_and_no_core_idle(
    size: float, count: int, files: int
) -> None:
    assert (tasks(size), file_count(size * MIB, count, target=64 * MIB)) == (count, files)


@given(size=st.floats(0, 1e6), cores=st.integers(1, 64), minimum=st.integers(1, 64))
def test_a_days_files_are_few_and_its_cores_are_busy(size: float, cores: int, minimum: int) -> None:
    count = tasks(size, cores=cores, minimum=minimum)
    busy = max(min(cores, int(size / minimum)), 1)
    assert count % busy == 0
    assert size / count <= FILES_PER_TASK * 64 * 1.001 or size < 64 * FILES_PER_TASK
    assert file_count(size * MIB, count, target=64 * MIB) <= math.ceil(size / 64) + count


def test_a_core_more_than_the_minimum_allows_gets_no_task() -> None:
    assert tasks(100, cores=16) == 3
    assert tasks(100, cores=16, minimum=1) == 16


@pytest.mark.parametrize("size, files", [(64, 1), (64 * 1.05, 1), (64 * 1.06, 2), (64 * 3.05, 3), (0, 1)])
def test_a_file_takes_a_little_more_than_its_target(size: float, files: int) -> None:
    assert file_count(size * MIB, 1, target=64 * MIB) == files
    assert file_count(7 * size * MIB, 7, target=64 * MIB) == 7 * files


def test_a_row_is_guessed_from_the_day_before_else_from_records_else_from_nothing() -> None:
    manifest = full()
    assert bytes_per_row(manifest, 300.0) == 1234 / 6
    unfiled = replace(manifest, files=tuple(each for each in manifest.files if each.day), tally=())
    assert bytes_per_row(unfiled, 300.0) == 300 * PACKED, "late and invalid rows say nothing of the day's"
    assert bytes_per_row(None, 300.0) == 300 * PACKED
    assert bytes_per_row(None, None) == bytes_per_row(None, 0.0) == 500 * PACKED


def test_no_sample_is_taken_where_one_task_is_enough_anyway() -> None:
    day = day_of(1_000)
    assert sample_is_useful(day, 100.0, minimum=999_999)
    assert not sample_is_useful(day, 100.0, minimum=1_000_000)
    assert not sample_is_useful(day_of(0), 100.0, minimum=1)


def test_pieces_are_several_a_task_and_none_is_empty() -> None:
    assert piece_rows(day_of(800), 2) == math.ceil(1.05 * 800 / 2 / PIECES_PER_TASK)
    assert piece_rows(day_of(300, 500), 2) == piece_rows(day_of(800), 2), "it is the day that counts"
    assert piece_rows(day_of(3), 2) == 1
    assert piece_rows(day_of(0), 1) == 1


def test_partitions_of_nearly_one_size_are_cut_alike() -> None:
    """One of a few records more was cut into three pieces, the others into two: one of two tasks took 86 MiB
    of 155, and the other core waited."""
    day = day_of(1_000_900, 999_100, 1_000_020, 999_980)
    piece = piece_rows(day, 2)
    assert [math.ceil(len(span.reads) / piece) for span in day.spans] == [2, 2, 2, 2]


def test_many_small_ranges_far_back_make_pieces_small_enough_to_share_them_out() -> None:
    """Spark deals pieces out by number: else one task would be given all that is small, and idle."""
    assert piece_rows(day_of(800, pending=1), 2) == math.ceil(1.05 * 801 / 8)
    assert piece_rows(day_of(800, pending=40), 2) == math.ceil(1.05 * 840 / (4 * 40))
