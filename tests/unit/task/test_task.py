"""A task settles what it is given, in any cut and order, and what it cannot do is reported."""

from __future__ import annotations

import errno
import gc
import pickle
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.lake.posix import PosixLake
from jobs.lake.posix_file import PosixFile
from jobs.lake.store import System
from jobs.record.columns import Column, Kind, Scalar, name_problem
from jobs.record.decode import Decoder
from jobs.record.schema import INSTANT
from jobs.task import task
from jobs.task.parquet_writer import FileOptions
from jobs.task.result import TaskResult, joined_by_partition
from jobs.task.task import OLDEST, Batch, TaskSpec, rebatch, run_task
from offsets.checkpoint import Anchor
from offsets.errors import AuditFailed, StoreFailed
from offsets.kafka.reader import digest_of
from offsets.ranges import Offsets
from offsets.verdict import Verdict
from tests.support.bounds import BOUNDS, DAY, DAYS
from tests.support.local_engine import RULES, Crash, order, rows_of
from tests.support.memory_topic import Record
from tests.support.plain_files import FILES

NOON = DAY.start + timedelta(hours=12)
STAMP = int(NOON.timestamp() * 1000)


def task_order(folder: Path, target: int = 1 << 20, bounds: Any = BOUNDS) -> TaskSpec:
    options = FileOptions(target_size=target, compression="zstd", origin={"topic": "orders"})
    return TaskSpec(rules=RULES, bounds=bounds, lake=FILES, attempts=str(folder), files=options)


def record(offset: int, when: datetime | None = NOON, *, stamp: int = STAMP) -> Record:
    """Make a valid record, or without an instant a broken one."""
    return Record(
        offset=offset, timestamp=stamp, key=b"k", value=b"[]" if when is None else order(when, n=offset)
    )


def run(folder: Path, *batches: pa.RecordBatch, **changed: Any) -> TaskResult:
    folder.mkdir(exist_ok=True)
    return run_task(task_order(folder, **changed), "a", iter(batches))


def test_a_task_that_outlives_its_run_makes_no_folder_again(tmp_path: Path) -> None:
    spec = replace(task_order(tmp_path), lake=PosixLake(tmp_path), attempts="_staging/removed/attempts")
    (tmp_path / "_staging").mkdir()
    report = run_task(spec, "a", iter([rows_of(0, [record(0)])]))
    assert isinstance(report.failure, StoreFailed)
    assert list((tmp_path / "_staging").iterdir()) == []


def counts(report: TaskResult) -> dict[Verdict, tuple[int, int, int]]:
    return {each.verdict: (each.rows, each.from_offset, each.until_offset) for each in report.tally}


def mixed(offset: int) -> Record:
    kinds = [NOON, None, DAYS[0].start, DAY.end, DAYS[1].start, DAYS[0].start - timedelta(1), NOON]
    return record(offset, kinds[offset % 7])


@given(size=st.integers(1, 40))
def test_a_report_does_not_depend_on_how_the_records_are_cut(
    size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    records = [mixed(offset) for offset in range(35)]
    folder = tmp_path_factory.mktemp("attempt")
    report = run(folder, *(rows_of(0, records[at : at + size]) for at in range(0, 35, size)))
    assert report.failure is None
    assert report.delivered == {0: Offsets([(0, 35)])}
    assert counts(report) == {
        Verdict.IN_DAY: (10, 0, 35),
        Verdict.INVALID: (5, 1, 30),
        Verdict.LATE: (10, 2, 33),
        Verdict.LATER_DAY: (5, 3, 32),
        Verdict.BEFORE_FIRST: (5, 5, 34),
    }
    assert report.unfiled[Verdict.LATER_DAY] == {0: Offsets((at, at + 1) for at in range(3, 35, 7))}
    assert report.last[0].offset == 34
    rows = {(file.verdict, file.day): file.rows for file in report.files}
    assert rows == {
        (Verdict.IN_DAY, None): 10,
        (Verdict.INVALID, None): 5,
        (Verdict.LATE, DAYS[0].date): 5,
        (Verdict.LATE, DAYS[1].date): 5,
    }
    assert pickle.loads(pickle.dumps(report)) == report


def test_partitions_may_mix_within_a_batch(tmp_path: Path) -> None:
    parts = [rows_of(part, [record(offset)]) for offset in range(3) for part in (0, 1)]
    batch = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    seen = {0: BOUNDS.seen[0], 1: BOUNDS.seen[0]}
    report = run(tmp_path, batch, bounds=replace(BOUNDS, seen=seen))
    assert report.delivered == {0: Offsets([(0, 3)]), 1: Offsets([(0, 3)])}
    assert {each.partition: each.rows for each in report.tally} == {0: 3, 1: 3}
    (file,) = report.files
    assert [(part.partition, part.rows) for part in file.offsets] == [(0, 3), (1, 3)]


def test_pieces_of_a_partition_may_come_in_any_order(tmp_path: Path) -> None:
    """A cluster hands pieces out by place, not by offset; sets, counts and the anchor are the same."""
    pieces = [[record(at) for at in range(from_, from_ + 4)] for from_ in (8, 0, 4)]
    apart = run(tmp_path / "apart", *(rows_of(0, piece) for piece in pieces))
    together = run(tmp_path / "together", rows_of(0, [each for piece in pieces for each in piece]))
    for report in (apart, together):
        assert report.failure is None
        assert joined_by_partition([report.delivered]) == {0: Offsets([(0, 12)])}
        assert counts(report) == {Verdict.IN_DAY: (12, 0, 12)}
        assert report.last[0].offset == 11
        assert report.files[0].offsets[0].until_offset == 12


@pytest.mark.parametrize("batches", [[[0, 1, 2], [0, 1, 2]], [[0, 1, 1]], [[4], [4]]])
def test_an_offset_that_comes_twice_is_a_failure(tmp_path: Path, batches: list[list[int]]) -> None:
    report = run(tmp_path, *(rows_of(0, [record(at) for at in offsets]) for offsets in batches))
    assert isinstance(report.failure, AuditFailed)


def test_what_is_settled_already_is_counted_and_not_even_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.support.bounds import bounds_of

    bounds = bounds_of(DAYS[:-1], DAY, seen_until=6, pending=Offsets([(2, 3)]))
    decoded: list[int] = []
    decode = Decoder.decode

    def counting(self: Decoder, values: Any, *others: Any) -> Any:
        decoded.append(len(values))
        return decode(self, values, *others)

    monkeypatch.setattr(Decoder, "decode", counting)
    report = run(tmp_path, rows_of(0, [record(at) for at in range(2, 8)]), bounds=bounds)
    assert counts(report) == {Verdict.ALREADY_SETTLED: (3, 3, 6), Verdict.IN_DAY: (3, 2, 8)}
    assert decoded == [3]
    (file,) = report.files
    table = pq.read_table(file.path)
    assert table["kafka_offset"].to_pylist() == [2, 6, 7]


def test_a_row_holds_its_record_and_its_coordinate(tmp_path: Path) -> None:
    report = run(tmp_path, rows_of(0, [record(0)]))
    (row,) = pq.read_table(report.files[0].path).to_pylist()
    assert row == {
        "event_time": NOON,
        "kafka_partition": 0,
        "kafka_offset": 0,
        "kafka_timestamp": NOON,
        "kafka_key": b"k",
        "id": "o",
        "n": 0,
    }


def test_an_invalid_row_keeps_the_raw_record_and_its_cause(tmp_path: Path) -> None:
    report = run(tmp_path, rows_of(0, [record(3, None), record(4, None, stamp=-1)]))
    rows = pq.read_table(report.files[0].path).to_pylist()
    assert [row["kafka_timestamp"] for row in rows] == [NOON, None]
    assert [(row["kafka_offset"], row["key"], row["value"], row["headers"]) for row in rows] == [
        (3, b"k", b"[]", None),
        (4, b"k", b"[]", None),
    ]
    (cause,) = report.causes
    assert (cause.rows, cause.partition, cause.offset) == (2, 0, 3)
    assert {row["cause"] for row in rows} == {cause.cause}


def test_the_anchor_is_the_last_record_whatever_its_verdict(tmp_path: Path) -> None:
    last = record(8, None, stamp=-1)
    report = run(tmp_path, rows_of(0, [record(3)]), rows_of(0, [last]))
    assert report.last == {0: Anchor(offset=8, timestamp=-1, digest=digest_of(b"k", b"[]"))}


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_negative_stamp_is_taken_as_none_only_where_it_is_minus_one(zone: str | None) -> None:
    """Kafka's -1 comes as the last millisecond of 1969, and null stays null."""
    batch = stamped([-1000, 0, None, 5, -2000, -86_400_000_000], zone)
    assert batch.kafka_timestamp.is_valid().to_pylist() == [False, True, False, True, True, True]
    assert batch.kafka_timestamp.cast(pa.int64()).to_pylist()[4:] == [-2000, -86_400_000_000]
    assert [batch.last(row).timestamp for row in range(6)] == [-1, 0, -1, 0, -2, -86_400_000]
    assert batch.headers is None


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_stamps_that_clients_tell_differently_are_out_of_all_years(zone: str | None) -> None:
    """Spark moves what is before 1900 to another calendar; nothing near int64's ends can be subtracted."""
    far = 1 << 62
    micros = [(1 << 63) - 1, far + 1, far - 1, 0, OLDEST, OLDEST - 1, -far, -(1 << 63)]
    batch = stamped([*micros, None, -1000], zone)
    said = [far, far, far - 1, 0, OLDEST, -far, -far, -far, None, None]
    assert batch.kafka_timestamp.cast(pa.int64()).to_pylist() == said
    assert batch.kafka_timestamp.type == pa.timestamp("us", zone)


def stamped(micros: list[int | None], zone: str | None) -> Batch:
    """Make a batch of records that have nothing but a stamp."""
    rows = len(micros)
    columns = {
        "partition": pa.array([0] * rows, pa.int32()),
        "offset": pa.array(range(rows), pa.int64()),
        "timestamp": pa.array(micros, pa.int64()).cast(pa.timestamp("us", zone)),
        "key": pa.nulls(rows, pa.binary()),
        "value": pa.nulls(rows, pa.binary()),
    }
    return Batch.of(pa.RecordBatch.from_pydict(columns))


def test_stamps_without_a_zone_are_utc_as_spark_delivers_them(tmp_path: Path) -> None:
    rows = rows_of(0, [record(0)])
    naive = rows["timestamp"].cast(pa.int64()).cast(pa.timestamp("us"))
    at = rows.schema.get_field_index("timestamp")
    report = run(tmp_path, rows.set_column(at, "timestamp", naive))
    assert counts(report) == {Verdict.IN_DAY: (1, 0, 1)}
    assert pq.read_table(report.files[0].path)["kafka_timestamp"].type == INSTANT


def test_a_task_without_batches_makes_nothing(tmp_path: Path) -> None:
    report = run(tmp_path)
    assert report == TaskResult()
    assert list((tmp_path / "a").iterdir()) == []
    assert run(tmp_path / "empty", rows_of(0, [])).tally == ()


def late_batches(rows: int, days: int) -> list[pa.RecordBatch]:
    """Make batches in which the days lie mixed."""
    return [
        rows_of(0, [record(at, DAYS[at % days].start) for at in range(from_, min(from_ + 9, rows))])
        for from_ in range(0, rows, 9)
    ]


def test_many_late_days_make_one_file_each_while_their_rows_fit_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day beyond those with open files closed another's with each batch: 25 files a day of 500,000 rows."""
    monkeypatch.setattr(task, "OPEN_LATE_DAYS", 1)
    report = run(tmp_path, *late_batches(90, 3))
    assert [(file.day, file.rows) for file in report.files] == [(day.date, 30) for day in DAYS[:3]]


def test_late_rows_that_wait_take_what_they_hold_however_they_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch for each late day of each batch: 800 days of 60 columns were written nine rows at a time."""
    monkeypatch.setattr(task, "OPEN_LATE_DAYS", 1)
    monkeypatch.setattr(task, "LATE_BYTES", 20_000)
    report = run(tmp_path, *late_batches(90, 3))
    assert [(file.day, file.rows) for file in report.files] == [(day.date, 30) for day in DAYS[:3]]


def test_many_late_days_keep_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "OPEN_LATE_DAYS", 2)
    monkeypatch.setattr(task, "LATE_BYTES", 1)
    open_now, at_once = set[int](), list[int]()
    make, sync = PosixFile.__init__, PosixFile.make_durable

    def made(self: PosixFile, path: Path, ref: str, system: System) -> None:
        make(self, path, ref, system)
        open_now.add(id(self))
        at_once.append(len(open_now))

    def synced(self: PosixFile) -> str:
        open_now.discard(id(self))
        return sync(self)

    monkeypatch.setattr(PosixFile, "__init__", made)
    monkeypatch.setattr(PosixFile, "make_durable", synced)
    report = run(tmp_path, *late_batches(90, 3))
    assert max(at_once) == 3  # the two, and the one for which another is closed
    assert len(report.files) == 3 + 9  # ten batches, and each after the first reopens one day
    held = [
        offset for file in report.files for offset in pq.read_table(file.path)["kafka_offset"].to_pylist()
    ]
    assert sorted(held) == list(range(90))


def test_late_rows_wait_though_the_record_has_a_column_named_late_day(tmp_path: Path) -> None:
    """The column in which their day waits had a name that a config may use: no such day could be run."""
    columns = (*RULES.columns, Column("late_day", Scalar(Kind.STRING)))
    spec = replace(task_order(tmp_path), rules=replace(RULES, columns=columns))
    report = run_task(spec, "a", iter([rows_of(0, [record(0, DAYS[0].start)])]))
    assert [(file.verdict, file.rows) for file in report.files] == [(Verdict.LATE, 1)]
    assert name_problem(task.LATE_DAY), "a config could use it"


def test_late_rows_do_not_pile_up_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "LATE_BYTES", 1)
    report = run(tmp_path, *(rows_of(0, [record(at, DAYS[at % 3].start)]) for at in range(9)))
    assert {file.rows for file in report.files} == {3}
    assert all(pq.read_metadata(file.path).num_row_groups == 3 for file in report.files)


def test_a_full_disk_is_reported_and_not_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = PosixFile.write

    def full(self: PosixFile, data: Any) -> int:
        if self.size > 4:
            raise StoreFailed(expected="to write", found="No space left on device (ENOSPC)", do="Free some.")
        return write(self, data)

    monkeypatch.setattr(PosixFile, "write", full)
    report = run(tmp_path, rows_of(0, [record(0)]))
    assert isinstance(report.failure, StoreFailed)
    assert "ENOSPC" in str(report.failure)
    assert report.files == ()


def test_an_operating_systems_refusal_in_the_midst_of_a_file_is_a_store_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(System, "write", staticmethod(full))
    report = run(tmp_path, rows_of(0, [record(0)]))
    assert isinstance(report.failure, StoreFailed)


def test_what_no_error_of_ours_tells_is_raised_and_the_collector_runs_again(tmp_path: Path) -> None:
    """Spark then makes another attempt; a report of half a task would be believed."""

    def dying() -> Iterator[pa.RecordBatch]:
        yield rows_of(0, [record(0)])
        assert not gc.isenabled()
        raise Crash

    with pytest.raises(Crash):
        run_task(task_order(tmp_path), "a", dying())
    assert gc.isenabled()


def test_records_of_a_partition_that_nobody_planned_stop_the_task(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        run(tmp_path, rows_of(7, [record(0)]))


def test_two_attempts_never_share_a_folder_or_a_name(tmp_path: Path) -> None:
    first = run_task(task_order(tmp_path), "a", iter([rows_of(0, [record(0)])]))
    second = run_task(task_order(tmp_path), "b", iter([rows_of(0, [record(0)])]))
    assert not {file.path for file in first.files} & {file.path for file in second.files}
    assert all(file.path.endswith(".part") for file in first.files)


def small(rows: int, size: int, at: int = 0) -> pa.RecordBatch:
    offsets = pa.array(range(at, at + rows), pa.int64())
    return pa.RecordBatch.from_arrays(
        [offsets, pa.array([bytes(size)] * rows, pa.binary())], ["offset", "value"]
    )


@pytest.mark.parametrize(
    "sent, joined",
    [
        ([], []),
        ([(10, 8)], [10]),
        ([(1024, 8)] * 30, [20 * 1024, 10 * 1024]),
        ([(16, 300_000), (16, 300_000), (5, 300_000)], [32, 5]),
        ([(20_000, 1), (7, 1)], [20_000, 7]),
    ],
    ids=["nothing", "one", "by rows", "by bytes", "large already"],
)
def test_small_batches_are_joined_up_to_a_bound_and_none_is_lost(
    sent: list[tuple[int, int]], joined: list[int]
) -> None:
    starts = [sum(rows for rows, _ in sent[:number]) for number in range(len(sent))]
    batches = [small(rows, size, at) for (rows, size), at in zip(sent, starts, strict=True)]
    got = list(rebatch(iter(batches)))
    assert [batch.num_rows for batch in got] == joined
    assert [at for batch in got for at in batch["offset"].to_pylist()] == list(range(sum(joined)))
