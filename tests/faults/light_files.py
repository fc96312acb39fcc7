"""Light files for tests: Arrow's own format instead of Parquet, in a tenth of the time, and the rows of both.

Stands in for the parts of `pyarrow.parquet` that the product uses. Fails on any other part.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.faults.laws import Row


@contextmanager
def light_files() -> Iterator[None]:
    """Write no Parquet."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pq, "ParquetWriter", LightWriter)
        patched.setattr(pq, "ParquetFile", LightFile)
        patched.setattr(pq, "read_schema", lambda file: LightFile(file).schema_arrow)
        patched.setattr(pq, "read_metadata", LightFooter)
        yield


class LightWriter:
    """Writes as `pq.ParquetWriter` does, but Arrow's own stream: it takes a tenth of the time."""

    def __init__(self, file: Any, schema: pa.Schema, **options: Any) -> None:
        self._file, self._buffer = file, pa.BufferOutputStream()
        self._stream = pa.ipc.new_file(self._buffer, schema)
        self._metadata: dict[str, str] = {}

    def write_table(self, table: pa.Table, row_group_size: int) -> None:
        self._stream.write_table(table, row_group_size)

    def add_key_value_metadata(self, metadata: dict[str, str]) -> None:
        self._metadata |= metadata

    def close(self) -> None:
        self._stream.close()
        footer = json.dumps(self._metadata).encode()
        self._file.write(memoryview(self._buffer.getvalue()))
        self._file.write(footer + len(footer).to_bytes(4, "big"))


class LightFooter:
    """The metadata of a LightWriter's file, as `pq.read_metadata` returns it."""

    def __init__(self, file: BufferedIOBase) -> None:
        self.metadata = {key.encode(): value.encode() for key, value in _read(file)[1].items()}


class LightFile:
    """Reads a LightWriter's file, as `pq.ParquetFile` reads Parquet."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._table, _ = _read(file)
        self.schema_arrow, self.num_row_groups = self._table.schema, 1

    def read_row_group(self, group: int, columns: list[str], use_threads: bool) -> pa.Table:
        return self._table.select(columns)

    def iter_batches(self, row_groups: list[int]) -> Any:
        return self._table.to_batches()


def _read(file: BufferedIOBase) -> tuple[pa.Table, dict[str, str]]:
    """Read a table and the metadata behind it, as Parquet's footer would hold it."""
    file.seek(0)
    content = file.read()
    end = len(content) - 4
    begin = end - int.from_bytes(content[end:], "big")
    if not 0 < begin <= end:
        raise pa.ArrowInvalid(f"{file} is too small: it has no footer")
    return pa.ipc.open_file(pa.py_buffer(content[:begin])).read_all(), json.loads(content[begin:end])


def _rows(table: pa.Table) -> Iterator[Row]:
    what = "value" if "value" in table.column_names else "id"
    none = [None] * table.num_rows
    times = table["event_time"].cast(pa.int64()).to_pylist() if "event_time" in table.column_names else none
    parts, numbers = table["kafka_partition"].to_pylist(), table["kafka_offset"].to_pylist()
    for part, offset, time, text in zip(parts, numbers, times, table[what].to_pylist(), strict=True):
        yield Row((part, offset), time, text)


def light_rows(path: Path) -> Iterable[Row]:
    """Read the rows of a LightWriter's file."""
    with path.open("rb") as file:
        return file_rows(file)


def file_rows(file: BufferedIOBase) -> list[Row]:
    """Read the rows of a LightWriter's open file."""
    return list(_rows(_read(file)[0]))


def parquet_rows(path: Path) -> Iterable[Row]:
    """Read rows of Parquet."""
    return _rows(pq.read_table(path, partitioning=None))
