"""Files stay near their target, say what they hold, and come back as they were written."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.lake.files import numbered_files
from jobs.lake.store import System
from jobs.task.parquet_writer import LIMIT, ROW_GROUP_BYTES, FileOptions, RollingWriter, read_back
from jobs.task.result import WrittenFile
from offsets.errors import StoreFailed
from offsets.manifest import FileOffsets
from offsets.ranges import Offsets
from offsets.verdict import Verdict
from tests.support.plain_files import FILES
from tests.support.rows import KIB, MIB, ORIGIN, SCHEMA, batch, noise


def writer(
    folder: Path, target: int, verdict: Verdict = Verdict.IN_DAY, day: date | None = None
) -> RollingWriter:
    options = FileOptions(target_size=target, compression="zstd", origin=ORIGIN)
    return RollingWriter(numbered_files(FILES, str(folder)), SCHEMA, verdict, day, options)


def dull(size: int) -> bytes:
    return b"dull " * (size // 5)


def written(folder: Path, target: int, values: Iterator[Sequence[bytes | None]]) -> list[WrittenFile]:
    rolling, first = writer(folder, target), 0
    for each in values:
        rolling.add(batch(first, each))
        first += len(each)
        assert rolling.waiting_bytes < ROW_GROUP_BYTES
    done = rolling.close()
    assert sum(file.rows for file in done) == first
    return done


@pytest.mark.parametrize("target", [1 * MIB, 2 * MIB])
@pytest.mark.parametrize(
    "kind",
    ["noise", "dull", "first dull then noise", "in turns", "large rows", "one batch", "tiny batches"],
)
def test_no_file_is_larger_than_its_share_of_the_target(tmp_path: Path, target: int, kind: str) -> None:
    def values() -> Iterator[Sequence[bytes | None]]:
        amount = 3 * target
        match kind:
            case "noise":
                yield from ([noise(500) for _ in range(400)] for _ in range(amount // 200_000))
            case "dull":
                yield from ([dull(500) + noise(9) for _ in range(1000)] for _ in range(amount // 15_000))
            case "first dull then noise":
                yield from ([dull(500) for _ in range(2000)] for _ in range(20))
                yield from ([noise(500) for _ in range(2000)] for _ in range(amount // MIB + 1))
            case "in turns":
                for turn in range(amount // 250_000 + 2):
                    yield [noise(500) if turn % 2 else dull(500) for _ in range(1000)]
            case "large rows":
                yield from ([noise(target // 11)] for _ in range(33))
            case "one batch":
                yield [noise(500) for _ in range(amount // 500)]
            case _:
                yield from ([noise(2000)] for _ in range(amount // 2000))

    files = written(tmp_path, target, values())
    assert max(file.bytes for file in files) <= 1.15 * target
    assert LIMIT < 1.15
    for file in files[:-1]:
        assert file.bytes >= 0.8 * target, "only the last one may be a remainder"


def test_the_footers_of_rows_that_are_mostly_empty_count_beforehand(tmp_path: Path) -> None:
    """A row group's statistics hold its largest values; judged by the average, they counted for nothing."""
    wide = [pa.field(f"c{number}", pa.binary()) for number in range(12)]
    schema = pa.schema([SCHEMA.field("kafka_partition"), SCHEMA.field("kafka_offset"), *wide])
    options = FileOptions(target_size=MIB, compression="none", origin=ORIGIN)
    rolling = RollingWriter(numbered_files(FILES, str(tmp_path)), schema, Verdict.IN_DAY, None, options)
    for first in range(0, 3000, 40):
        places = [pa.array([0] * 40, pa.int32()), pa.array(range(first, first + 40), pa.int64())]
        values = [pa.array([noise(4000), *[None] * 39], pa.binary()) for _ in wide]
        rolling.add(pa.RecordBatch.from_arrays([*places, *values], schema=schema))
    files = rolling.close()
    assert len(files) > 3
    assert max(file.bytes for file in files) <= 1.15 * MIB


def test_a_remainder_that_fits_makes_no_file_of_its_own(tmp_path: Path) -> None:
    (file,) = written(tmp_path, MIB, iter([[noise(200) for _ in range(53)] for _ in range(100)]))
    assert MIB < file.bytes <= 1.1 * MIB


def test_a_row_larger_than_the_target_has_a_file_to_itself(tmp_path: Path) -> None:
    files = written(tmp_path, 64 * KIB, iter([[b"a", noise(300 * KIB), b"b"], [noise(300 * KIB)]]))
    assert [file.rows for file in files] == [1, 1, 1, 1]


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    rolling = writer(tmp_path, MIB)
    for _ in range(9):
        rolling.add(batch(0, []))
    assert rolling._waiting.batches == [], "empty batches must not pile up"
    assert rolling.close() == []
    assert list(tmp_path.iterdir()) == []


def test_what_waits_in_memory_is_small_against_the_target(tmp_path: Path) -> None:
    rolling, most = writer(tmp_path, MIB), 0
    for number in range(300):
        rolling.add(batch(number, [noise(4000)]))
        most = max(most, rolling.waiting_bytes)
    assert most <= MIB / 16 + 5000
    rolling.close()


def test_a_file_says_what_it_holds(tmp_path: Path) -> None:
    rolling = writer(tmp_path, MIB, Verdict.LATE, date(2026, 3, 27))
    rolling.add(batch(5, [b"a", b"b"], partition=3))
    rolling.add(batch(2, [None], partition=1))
    rolling.add(batch(9, [b"c"], partition=3))
    (file,) = rolling.close()
    path = Path(file.path)
    assert (file.verdict, file.day, file.rows) == (Verdict.LATE, date(2026, 3, 27), 4)
    assert file.offsets == (
        FileOffsets(partition=1, rows=1, from_offset=2, until_offset=3),
        FileOffsets(partition=3, rows=3, from_offset=5, until_offset=10),
    )
    assert (file.event_time_min, file.event_time_max) == (2, 9)
    assert (file.bytes, file.sha256) == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
    footer = {key.decode(): value.decode() for key, value in pq.read_metadata(path).metadata.items()}
    assert footer.items() >= {f"kafka_daily.{key}": value for key, value in ORIGIN.items()}.items()
    assert footer["kafka_daily.verdict"] == "late"
    assert json.loads(footer["kafka_daily.offsets"]) == [[1, 2, 3], [3, 5, 10]]


def test_files_are_compressed_with_statistics_and_a_page_index(tmp_path: Path) -> None:
    (file,) = written(tmp_path, MIB, iter([[b"a"] * 50]))
    group = pq.read_metadata(file.path).row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        assert column.compression == "ZSTD"
        assert column.has_column_index
        assert column.has_offset_index
        assert column.is_stats_set
    assert pq.read_schema(file.path).remove_metadata() == SCHEMA


def test_what_is_read_back_is_what_was_written(tmp_path: Path) -> None:
    files = written(tmp_path, 64 * KIB, iter([[noise(1000) for _ in range(50)] for _ in range(6)]))
    assert len(files) > 2
    for file in files:
        back = read_back(FILES, file.path)
        assert (back.rows, back.bytes, back.sha256) == (file.rows, file.bytes, file.sha256)
        assert (back.event_time_min, back.event_time_max) == (file.event_time_min, file.event_time_max)
        (held,) = file.offsets
        assert back.offsets == {0: Offsets.between(held.from_offset, held.until_offset)}


def test_an_offset_that_lies_twice_in_a_file_is_told(tmp_path: Path) -> None:
    for first in (0, 4):
        (tmp_path / str(first)).mkdir()
        rolling = writer(tmp_path / str(first), MIB)
        rolling.add(batch(0, [b"a"] * 5))
        rolling.flush()
        rolling.add(batch(first, [b"a"]))
        (file,) = rolling.close()
        assert read_back(FILES, file.path).offsets == {0: None}


def test_offsets_in_any_order_are_read_back_as_a_set(tmp_path: Path) -> None:
    rolling = writer(tmp_path, MIB)
    for first in (9, 3, 6):
        rolling.add(batch(first, [b"a"] * 2))
    (file,) = rolling.close()
    assert read_back(FILES, file.path).offsets == {0: Offsets([(3, 5), (6, 8), (9, 11)])}


def test_row_groups_in_any_order_are_told_as_they_are_read_back(tmp_path: Path) -> None:
    """An edge that is only that of the last group would fail the audit of every day with some disorder."""
    rolling = writer(tmp_path, MIB)
    for first in (6, 9, 3):
        rolling.add(batch(first, [b"a"] * 2))
        rolling.flush()
    (file,) = rolling.close()
    assert pq.read_metadata(file.path).num_row_groups == 3
    assert file.offsets == (FileOffsets(partition=0, rows=6, from_offset=3, until_offset=11),)
    back = read_back(FILES, file.path)
    assert (file.event_time_min, file.event_time_max) == (back.event_time_min, back.event_time_max) == (3, 10)


def test_a_file_is_open_to_those_whom_the_umask_lets_read_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        (file,) = written(tmp_path, MIB, iter([[b"a"]]))
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path(file.path).stat().st_mode) == 0o644


def test_a_file_is_synced_before_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        System, "fsync", lambda _, file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
    )
    (file,) = written(tmp_path, MIB, iter([[b"a"]]))
    assert synced == [file.path]


def test_a_name_that_is_taken_is_never_written_over(tmp_path: Path) -> None:
    taken = tmp_path / "00000.parquet.part"
    taken.write_bytes(b"mine")
    with pytest.raises(StoreFailed, match="EEXIST"):
        written(tmp_path, MIB, iter([[b"a"]]))
    assert taken.read_bytes() == b"mine"


def test_a_cut_file_is_no_file(tmp_path: Path) -> None:
    (file,) = written(tmp_path, MIB, iter([[noise(100) for _ in range(99)]]))
    path = Path(file.path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises((OSError, pa.ArrowInvalid)):
        read_back(FILES, file.path)
