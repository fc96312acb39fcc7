"""What waits in a task's memory is what is counted, whatever it was cut from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from jobs.lake.files import numbered_files
from jobs.record.rules import Rules
from jobs.task.batching import held_bytes, owned
from jobs.task.parquet_writer import FileOptions, RollingWriter
from jobs.task.small_files import merge_small_files
from jobs.task.task import TaskSpec, run_task
from offsets.verdict import Verdict
from tests.support.bounds import BOUNDS, DAY, DAYS
from tests.support.local_engine import RULES, order
from tests.support.pieces import piece
from tests.support.plain_files import FILES

ROWS, BATCHES = 2_000, 30
MIB = 1 << 20
PAD = "x" * 250
OPTIONS = FileOptions(target_size=256 * MIB, compression="zstd", origin={})
LIVE, OLD = DAY.start, DAYS[0].start

Value = Callable[[int], tuple[datetime | None, int]]
"""The event time of a batch's n-th row, None where it is broken, and how many bytes it is padded by."""


def payloads(shape: Value) -> list[bytes]:
    rows = [shape(row) for row in range(ROWS)]
    return [b"[]" + PAD.encode() if at is None else order(at, id=PAD) + b" " * pad for at, pad in rows]


def source(number: int, values: list[bytes], folder: Path) -> pa.RecordBatch:
    """Make a batch as it comes from a socket: all columns are parts of one message's memory."""
    stamps = pa.array([round(LIVE.timestamp() * 1e6)] * ROWS, pa.int64()).cast(pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0] * ROWS, pa.int32()),
            "offset": pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64()),
            "timestamp": stamps,
            "key": pa.array([b"key"] * ROWS, pa.binary()),
            "value": pa.array(values, pa.binary()),
        }
    )
    path = folder / "message"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_stream(file).read_next_batch()


def grown(batches: Iterator[pa.RecordBatch], memory: list[int]) -> Iterator[pa.RecordBatch]:
    """Note the Arrow memory that a task holds after each batch."""
    for batch in batches:
        yield batch
        del batch
        memory.append(pa.total_allocated_bytes())


@pytest.mark.parametrize(
    "shape, rules",
    [
        (lambda row: (LIVE if 500 <= row < 505 else OLD, 0), RULES),
        (lambda row: (OLD if 500 <= row < 505 else DAY.end, 0), RULES),
        (lambda row: (None if row == 500 else DAY.end, 0), RULES),
        (lambda row: (LIVE if row % 150 == 0 else DAY.end, 0), RULES),
        (lambda row: (LIVE if row == 7 else DAY.end, 0), RULES),
        (lambda row: (LIVE, 2_000), replace(RULES, columns=RULES.columns[1:])),
    ],
    ids=[
        "a few live",
        "a few late",
        "one invalid",
        "runs of one",
        "one live",
        "small columns of large records",
    ],
)
def test_a_task_does_not_keep_the_batches_of_which_it_took_a_few_rows(
    shape: Value, rules: Rules, tmp_path: Path
) -> None:
    """As in a replay of old events beside live ones: memory grew with what was read."""
    task = TaskSpec(rules=rules, bounds=BOUNDS, lake=FILES, attempts=str(tmp_path), files=OPTIONS)
    memory: list[int] = []
    values = payloads(shape)
    batches = (source(number, values, tmp_path) for number in range(BATCHES))
    report = run_task(task, "a", grown(batches, memory))
    assert report.failure is None
    assert sum(each.rows for each in report.tally) == ROWS * BATCHES
    filed = sum(file.rows for file in report.files)
    a_row = len(PAD) + 60 if rules is RULES else 60
    assert memory[-1] - memory[0] < 1.4 * filed * a_row + MIB, f"{memory[0]:,} bytes, then {memory[-1]:,}"


def rows(values: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"n": pa.array(range(len(values)), pa.int64()), "text": pa.array(values)}
    )


def held(views: list[pa.RecordBatch]) -> int:
    return held_bytes(column for view in views for column in view.columns)


def addresses(views: list[pa.RecordBatch]) -> list[int]:
    return [view["text"].buffers()[2].address for view in views]


def test_views_that_show_most_of_a_batch_are_not_copied() -> None:
    batch = rows([PAD] * 1000)
    views = [batch.slice(at, 99) for at in range(0, 1000, 100)]
    assert addresses(owned(views)) == addresses(views)


def test_views_that_show_little_of_a_batch_are_copied_and_equal() -> None:
    batch = rows([f"{PAD}{number}" for number in range(1000)])
    views = [batch.slice(10, 5), batch.slice(700, 3)]
    kept = owned(views)
    assert kept == views
    assert held(views) > 250_000
    assert held(kept) < 3_000


def test_a_copy_holds_nested_rows_and_nulls() -> None:
    type = pa.struct([("a", pa.list_(pa.string())), ("b", pa.map_(pa.string(), pa.bool_()))])
    value: list[dict[str, Any] | None] = [{"a": ["x", None], "b": [("k", True)]}, None, {"a": None, "b": []}]
    view = pa.RecordBatch.from_pydict({"s": pa.array(value * 99, type), "n": pa.nulls(297)}).slice(100, 4)
    (kept,) = owned([view])
    assert kept == view
    assert kept.schema == view.schema
    assert held([kept]) < held([view]) / 10


def test_crumbs_are_joined_while_they_wait(tmp_path: Path) -> None:
    """A single row in memory of its own takes kilobytes: three buffers a column, each with its books."""
    schema = pa.schema([(f"c{number}", pa.string()) for number in range(12)])
    schema = schema.append(pa.field("kafka_partition", pa.int32())).append(
        pa.field("kafka_offset", pa.int64())
    )
    writer = RollingWriter(
        numbered_files(FILES, str(tmp_path)), schema, Verdict.LATE, date(2026, 3, 1), OPTIONS
    )
    for number in range(5_000):
        texts = [pa.array(["some text"])] * 12
        places = [pa.array([0], pa.int32()), pa.array([number], pa.int64())]
        writer.add(pa.RecordBatch.from_arrays([*texts, *places], schema=schema))
    assert len(writer._waiting.batches) < 600
    assert held(writer._waiting.batches) < 1.2 * writer.waiting_bytes
    (file,) = writer.close()
    assert file.rows == 5_000


def test_pieces_that_are_merged_hold_what_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand tasks may each leave a row of a late day."""
    most = 0
    add = RollingWriter.add

    def watched(writer: RollingWriter, *views: pa.RecordBatch) -> None:
        nonlocal most
        add(writer, *views)
        most = max(most, len(writer._waiting.batches))

    pieces = [piece(tmp_path, number, rows=1) for number in range(600)]
    monkeypatch.setattr(RollingWriter, "add", watched)
    (merged,) = merge_small_files(FILES, pieces, str(tmp_path / "merged"), OPTIONS, MIB)
    assert merged.rows == 600
    assert 100 < most < 300
