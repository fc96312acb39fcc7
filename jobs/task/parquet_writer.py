"""Parquet files that roll at a size, and what can be read back of them.

Relies on Arrow. A file counts only once `close` has returned it, so a file that was cut short is never named.
Knows nothing of a day's rules.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from io import BufferedIOBase
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.lake.files import sha256_and_size
from jobs.lake.port import Files, NewFile
from jobs.task.batching import Waiting
from jobs.task.encoding import delta_encoded, dictionary_columns, leaves
from jobs.task.result import Longs, ReadBack, WrittenFile, offsets_in, slices
from offsets.manifest import FileOffsets
from offsets.ranges import Gathering
from offsets.verdict import Verdict

ROW_GROUP_BYTES: Final = 64 << 20
"""How much a writer holds in memory before it writes a row group."""
OVERSHOOT: Final = 1.1
"""A file may grow to this share of the target, so that no tiny remainder is left for another."""
LIMIT: Final = 1.14
"""A row group is cut so that the file stays below this share of the target even if nothing compresses."""
TOO_LITTLE: Final = 0.04
"""A file is full when less than this share of the target is missing."""
ZSTD_LEVEL: Final = 1
"""Level 3 takes 1.4 times the time for 1 % of the bytes."""
FOOTER_BYTES: Final = 400
"""About how many bytes a column of a row group takes in footer and page index, without its statistics."""
UNREADABLE: Final = (OSError, ValueError, KeyError, TypeError, OverflowError, pa.ArrowException)
"""What reading a damaged file, or values that no run writes, may raise."""
STATISTICS_BYTES: Final = 4096
"""The largest value that Parquet's writer keeps as a minimum or maximum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """How files are written: sizes in bytes; `origin` goes into the footer."""

    target_size: int
    compression: str
    origin: Mapping[str, str]


class RollingWriter:
    """Writes rows of one verdict (and of one late day) to files of about the target size."""

    def __init__(
        self,
        new_file: Callable[[], NewFile],
        schema: pa.Schema,
        verdict: Verdict,
        day: date | None,
        options: FileOptions,
    ) -> None:
        """Make no file before the first rows; `new_file` begins each file."""
        self._new_file, self.schema, self._verdict, self._day = new_file, schema, verdict, day
        self._options = options
        self._waiting = Waiting()
        self._bytes_per_byte = 1.0
        self._open: _OpenFile | None = None
        self._done: list[WrittenFile] = []

    def add(self, *views: pa.RecordBatch) -> None:
        """Add rows, all of one batch; write once a row group is full. Without rows no file is made."""
        self._waiting.add(*views)
        if self._waiting.bytes >= self._group_limit:
            self.flush()

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of rows wait."""
        return self._waiting.bytes

    @property
    def is_open(self) -> bool:
        """Whether a file is open."""
        return self._open is not None

    @property
    def _group_limit(self) -> float:
        """The size of a full row group: small against the target, so that a file can stop close to it."""
        return min(ROW_GROUP_BYTES, self._options.target_size / 16 / self._bytes_per_byte)

    def flush(self) -> None:
        """Write what waits."""
        self.write(pa.Table.from_batches(self._waiting.take(), self.schema))

    def write(self, rows: pa.Table) -> None:
        """Write rows at once, in new files where one would grow too large."""
        while rows.num_rows:
            rows = self._write_some(rows)

    def _write_some(self, rows: pa.Table) -> pa.Table:
        """Write a row group of as many rows as the open file should hold, and return the others."""
        if self._open is None:
            self._open = _OpenFile(self._new_file(), self.schema, self._options, rows)
        target, size = self._options.target_size, self._open.size
        fit, held = rows.num_rows, rows.nbytes
        if size + held * self._bytes_per_byte > target * OVERSHOOT:
            room = target - size if target - size > target * TOO_LITTLE else 0
            fit = _fitting(rows, room / self._bytes_per_byte)
        # the estimate may be wrong: rows that do not compress must fit too, together with their footer
        most = target * LIMIT - size - _footer_bytes(rows)
        fit = min(fit, _fitting(rows, most / max(self._bytes_per_byte, 1)))
        if fit == 0 and self._open.rows:
            self.finish()
            return rows
        group = rows.slice(0, max(fit, 1))
        self._open.write(group)
        self._bytes_per_byte = max((self._open.size - size) / max(group.nbytes, 1), 0.001)
        return rows.slice(group.num_rows)

    def close(self) -> list[WrittenFile]:
        """Finish the last file and return all files."""
        self.flush()
        self.finish()
        return self._done

    def finish(self) -> None:
        """Finish the open file, if there is one; waiting and later rows go to another file."""
        if self._open:
            self._done.append(self._open.close(self._verdict, self._day))
            self._open = None


def write_empty(file: NewFile, schema: pa.Schema, options: FileOptions) -> WrittenFile:
    """Write a file of a day without rows, which shows readers the day's columns."""
    return _OpenFile(file, schema, options, schema.empty_table()).close(Verdict.IN_DAY, None)


class _OpenFile:
    """One file being written, and what it holds so far."""

    def __init__(self, file: NewFile, schema: pa.Schema, options: FileOptions, like: pa.Table) -> None:
        self._file = file
        self._origin = options.origin
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression=options.compression,
            compression_level=ZSTD_LEVEL if options.compression == "zstd" else None,
            use_dictionary=dictionary_columns(like),
            column_encoding=delta_encoded(schema),
            write_page_index=True,
            write_statistics=True,
        )
        self._offsets: dict[int, tuple[int, int, int]] = {}
        self._times: tuple[int, int] | None = None
        self._footer = 0
        self.rows = 0

    @property
    def size(self) -> int:
        """About how large the file would be if it were closed now."""
        return self._file.size + self._footer

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._footer += _footer_bytes(table)
        self.rows += table.num_rows
        for partition, offsets in _coordinates(table):
            rows, from_, until = self._offsets.get(partition, (0, 1 << 63, 0))
            self._offsets[partition] = (
                rows + len(offsets),
                min(from_, int(offsets.min())),
                max(until, int(offsets.max()) + 1),
            )
        if "event_time" in table.column_names:
            edges = pc.min_max(table["event_time"].cast(pa.int64())).as_py()
            low, high = self._times or (edges["min"], edges["max"])
            self._times = (min(low, edges["min"]), max(high, edges["max"]))

    def close(self, verdict: Verdict, day: date | None) -> WrittenFile:
        offsets = tuple(
            FileOffsets(partition=partition, rows=rows, from_offset=from_, until_offset=until)
            for partition, (rows, from_, until) in sorted(self._offsets.items())
        )
        ranges = [[part.partition, part.from_offset, part.until_offset] for part in offsets]
        about = {**self._origin, "verdict": verdict.value, "offsets": json.dumps(ranges)}
        self._writer.add_key_value_metadata({f"kafka_daily.{key}": value for key, value in about.items()})
        self._writer.close()
        digest = self._file.make_durable()
        return WrittenFile(
            path=self._file.ref,
            verdict=verdict,
            day=day,
            rows=self.rows,
            bytes=self._file.size,
            sha256=digest,
            offsets=offsets,
            event_time_min=self._times[0] if self._times else None,
            event_time_max=self._times[1] if self._times else None,
        )


def _footer_bytes(table: pa.Table) -> int:
    """Estimate what a row group adds to a footer: two values of each leaf, each in two places."""
    largest: dict[str, int] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks:
            for path, leaf in leaves(name, chunk):
                largest[path] = max(largest.get(path, 0), _longest(leaf))
    return sum(FOOTER_BYTES + 4 * min(size, STATISTICS_BYTES) for size in largest.values())


def _longest(leaf: pa.Array) -> int:
    """Measure the longest value, in bytes."""
    if pa.types.is_string(leaf.type) or pa.types.is_binary(leaf.type):
        return pc.max(pc.binary_length(leaf)).as_py() or 0
    return 16


def _fitting(rows: pa.Table, room: float) -> int:
    """Count the first rows that take no more than some bytes of memory."""
    count: int = rows.num_rows
    if rows.nbytes <= room:
        return count
    return bisect_right(range(1, count), room, key=lambda first: rows.slice(0, first).nbytes)


def _coordinates(table: pa.Table) -> list[tuple[int, Longs]]:
    partitions = table["kafka_partition"].to_numpy()
    offsets = table["kafka_offset"].to_numpy()
    return [(partition, offsets[at:end]) for partition, at, end in slices(partitions)]


def batches_of(lake: Files, written: WrittenFile) -> Iterator[pa.RecordBatch]:
    """Read a file's rows, without the metadata of its footer."""
    with lake.open_file(written.path) as file:
        source = pq.ParquetFile(file)
        schema = source.schema_arrow.remove_metadata()
        # by row group, since that has a bounded size: a batch may otherwise hold thousands of large records
        for group in range(source.num_row_groups):
            for batch in source.iter_batches(row_groups=[group]):
                yield batch.cast(schema)


def read_back(lake: Files, ref: str) -> ReadBack:
    """Read a file's hash, coordinates and event times again.

    Raises:
        OSError: it cannot be read.
        pa.ArrowInvalid: it is no Parquet file.
    """
    with lake.open_file(ref) as file:
        return _read_back(file)


def _read_back(file: BufferedIOBase) -> ReadBack:
    digest, size = sha256_and_size(file)
    source = pq.ParquetFile(file)
    names = [
        name
        for name in ("kafka_partition", "kafka_offset", "event_time")
        if name in source.schema_arrow.names
    ]
    held: dict[int, Gathering] = {}
    twice: set[int] = set()
    times: list[tuple[int, int]] = []
    rows = 0
    for group in range(source.num_row_groups):
        table = source.read_row_group(group, columns=names, use_threads=False)
        rows += table.num_rows
        for partition, offsets in _coordinates(table):
            try:
                held.setdefault(partition, Gathering()).add(offsets_in(offsets))
            except ValueError:
                twice.add(partition)
        if "event_time" in names and table.num_rows:
            edges = pc.min_max(table["event_time"].cast(pa.int64())).as_py()
            times.append((edges["min"], edges["max"]))
    return ReadBack(
        rows=rows,
        bytes=size,
        sha256=digest,
        offsets={
            partition: None if partition in twice else offsets.gathered()
            for partition, offsets in held.items()
        },
        event_time_min=min((low for low, _ in times), default=None),
        event_time_max=max((high for _, high in times), default=None),
        schema=source.schema_arrow,
    )
