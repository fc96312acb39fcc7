"""What a task does with its records: classify them, write them, return the result.

Relies on batches of one Kafka span after another. Runs in a Spark worker, but knows nothing of Spark.
Writes to the attempt's own folder alone, whose files count only if the driver takes the attempt's result.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.lake.files import numbered_files
from jobs.lake.port import Files
from jobs.record.decode import Decoded, Decoder, day_schema
from jobs.record.layout import late_schema, with_columns_of
from jobs.record.rules import Rules
from jobs.record.schema import INVALID_SCHEMA
from jobs.task.batch_limit import BATCH_BYTES, BATCH_ROWS
from jobs.task.batching import Waiting, joined
from jobs.task.classify import CODE, VERDICTS, Classified, Codes, DayBounds, Mask, classify
from jobs.task.parquet_writer import FileOptions, RollingWriter
from jobs.task.result import (
    UNFILED,
    Longs,
    RangeLog,
    TaskResult,
    each_once,
    ranges_of,
    slices,
    summed,
    summed_causes,
)
from offsets.checkpoint import Anchor
from offsets.columns import ColumnRuns, columns_on
from offsets.errors import KafkaDailyError
from offsets.instants import micros
from offsets.kafka.reader import digest_of
from offsets.manifest import CauseCount, Tally
from offsets.verdict import Verdict

OPEN_LATE_DAYS: Final = 64
"""How many late days a task keeps files open for; the least recently written is closed first."""
LATE_BYTES: Final = 32 << 20
"""How many bytes of late rows may wait in memory; then they are sorted by day and written."""
LATE_DAY: Final = "kafka_late_day"
"""The column of waiting late rows that indexes the bounds' days. No config may use this name."""
NO_STAMP: Final = -1_000
"""Kafka's NO_TIMESTAMP, -1 ms."""
FAR: Final = 1 << 62
"""A timestamp farther from 1970 counts as this far, so that subtractions stay inside an int64."""
OLDEST: Final = micros(datetime(1901, 1, 1, tzinfo=UTC))
"""Spark moves older timestamps to another calendar, by the zone of its JVM."""
FEW_RUNS: Final = 16
"""Up to 16 contiguous runs of rows are sliced without copying; with more, filter() copies once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """What every task of a run gets; its files go below the reference `attempts`.

    `columns` are those of the earlier days, which late files get beside today's.
    """

    rules: Rules
    bounds: DayBounds
    lake: Files
    attempts: str
    files: FileOptions
    columns: ColumnRuns = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of records as the source delivers them.

    `kafka_timestamp` is null where there is none. Where clients report it differently, or nearly overflow, it
    is FAR before or after 1970: outside any validity window and all years.
    """

    partition: Longs
    offset: Longs
    kafka_timestamp: pa.Array
    key: pa.Array
    value: pa.Array
    headers: pa.Array | None

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> Batch:
        """Make a batch from the source's columns."""
        return cls(
            partition=rows["partition"].to_numpy().astype(np.int64),
            offset=rows["offset"].to_numpy(),
            kafka_timestamp=_stamps(rows["timestamp"]),
            key=rows["key"],
            value=rows["value"],
            headers=rows["headers"] if "headers" in rows.schema.names else None,
        )

    def __len__(self) -> int:
        """Count the records."""
        return len(self.offset)

    def keep(self, mask: Mask) -> Batch:
        """Keep the records where the mask holds."""
        chosen = pa.array(mask)
        return Batch(
            self.partition[mask],
            self.offset[mask],
            self.kafka_timestamp.filter(chosen),
            self.key.filter(chosen),
            self.value.filter(chosen),
            self.headers.filter(chosen) if self.headers is not None else None,
        )

    def last(self, row: int) -> Anchor:
        """Return one record as an anchor."""
        stamp = self.kafka_timestamp[row].cast(pa.int64()).as_py()
        return Anchor(
            offset=int(self.offset[row]),
            timestamp=-1 if stamp is None else stamp // 1000,
            digest=digest_of(self.key[row].as_py(), self.value[row].as_py()),
        )


def _stamps(column: pa.Array) -> pa.Array:
    """Return Kafka's timestamps: null for -1 ms alone, and FAR from 1970 for those too old or beyond FAR."""
    micros = column.cast(pa.int64())
    edges = pc.min_max(micros).as_py()
    if edges["min"] is None or (edges["min"] >= 0 and edges["max"] <= FAR):
        return column
    micros = pc.if_else(pc.equal(micros, NO_STAMP), pa.scalar(None, pa.int64()), micros)
    micros = pc.if_else(pc.less(micros, OLDEST), pa.scalar(-FAR, pa.int64()), micros)
    return pc.min_element_wise(micros, FAR, skip_nulls=False).cast(column.type)


def run_task(spec: TaskSpec, attempt: str, batches: Iterable[pa.RecordBatch]) -> TaskResult:
    """Settle all batches of one task attempt; the result holds a KafkaDailyError instead of raising it."""
    folder = f"{spec.attempts}/{attempt}"
    try:
        spec.lake.begin_attempt(folder)
        task = _Task(spec, folder)
        gc.disable()
        for batch in batches:
            task.process(Batch.of(batch))
        return task.result()
    except KafkaDailyError as failure:
        return TaskResult(failure=failure)
    finally:
        gc.enable()


def judge(batch: Batch, decoder: Decoder, bounds: DayBounds) -> tuple[Decoded, Classified]:
    """Decode a batch, and return the verdicts of its records, none of which may be settled already."""
    decoded = decoder.decode(batch.value, batch.kafka_timestamp, batch.key)
    classified = classify(
        tombstone=pc.is_null(batch.value).to_numpy(zero_copy_only=False),
        event_time=decoded.event_time,
        kafka_timestamp=batch.kafka_timestamp.cast(pa.int64()),
        cause=decoded.cause,
        bounds=bounds,
    )
    return decoded, classified


def rebatch(sent: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches until they are worth the work that each costs a task."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in sent:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield from joined(waiting)
            waiting, rows, size = [], 0, 0
    yield from joined(waiting)


class _Task:
    """The state of one attempt: its writers and its tally."""

    def __init__(self, spec: TaskSpec, folder: str) -> None:
        self._spec, self._bounds = spec, spec.bounds
        self._decoder = Decoder(spec.rules)
        self._schema = day_schema(spec.rules)
        self._new_file = numbered_files(spec.lake, folder)
        self._delivered = RangeLog()
        self._unfiled = {verdict: RangeLog() for verdict in UNFILED}
        self._tally: list[Tally] = []
        self._causes: list[CauseCount] = []
        self._last: dict[int, Anchor] = {}
        self._in_day = self._writer(Verdict.IN_DAY)
        self._invalid = self._writer(Verdict.INVALID)
        self._late_waiting = Waiting()
        self._late: dict[date, RollingWriter] = {}
        self._open_late: OrderedDict[date, RollingWriter] = OrderedDict()

    def process(self, batch: Batch) -> None:
        """Classify, route and count one batch."""
        settled = np.zeros(len(batch), dtype=bool)
        for partition, at, end in slices(batch.partition):
            offsets = batch.offset[at:end]
            with each_once("delivered"):
                self._delivered.add(partition, offsets)
            settled[at:end] = self._bounds.seen[partition].settled(offsets)
            anchor = batch.last(at + int(offsets.argmax()))
            self._last[partition] = max(
                self._last.get(partition, anchor), anchor, key=lambda record: record.offset
            )
        if settled.any():
            self._count(
                batch.partition[settled],
                batch.offset[settled],
                np.full(settled.sum(), CODE[Verdict.ALREADY_SETTLED]),
            )
            batch = batch.keep(~settled)
        if len(batch):
            self._classify(batch)

    def _classify(self, batch: Batch) -> None:
        decoded, classified = judge(batch, self._decoder, self._bounds)
        self._count(batch.partition, batch.offset, classified.code)
        self._route(batch, decoded, classified)

    def _route(self, batch: Batch, decoded: Decoded, classified: Classified) -> None:
        codes = set(np.unique(classified.code).tolist())
        if CODE[Verdict.INVALID] in codes:
            self._write_invalid(batch, classified)
        for verdict in UNFILED:
            if CODE[verdict] in codes:
                mask = classified.code == CODE[verdict]
                offsets, partitions = batch.offset[mask], batch.partition[mask]
                for partition, at, end in slices(partitions):
                    self._unfiled[verdict].add(partition, offsets[at:end])
        if not codes & {CODE[Verdict.IN_DAY], CODE[Verdict.LATE]}:
            return
        rows = self._rows(batch, decoded)
        if codes == {CODE[Verdict.IN_DAY]}:
            self._in_day.add(rows)
            return
        self._in_day.add(*_select(rows, classified.code == CODE[Verdict.IN_DAY]))
        if CODE[Verdict.LATE] in codes:
            self._write_late(rows, classified)

    def _rows(self, batch: Batch, decoded: Decoded) -> pa.RecordBatch:
        kafka: list[pa.Array] = []
        if "key" in self._spec.rules.kafka_columns:
            kafka.append(batch.key)
        if batch.headers is not None:
            kafka.append(batch.headers.cast(self._schema.field("kafka_headers").type))
        columns = [
            decoded.event_time.cast(self._schema.field("event_time").type),
            pa.array(batch.partition.astype(np.int32)),
            # a view through numpy would keep the batch's whole message alive, and nobody could see that
            pa.array(batch.offset.copy()),
            batch.kafka_timestamp.cast(self._schema.field("kafka_timestamp").type),
            *kafka,
            *decoded.columns,
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _write_late(self, rows: pa.RecordBatch, classified: Classified) -> None:
        late = pa.array(classified.code == CODE[Verdict.LATE])
        # not by day yet: a batch may hold a few rows for each of a thousand days, and each part takes memory
        self._late_waiting.add(rows.append_column(LATE_DAY, pa.array(classified.day)).filter(late))
        if self._late_waiting.bytes > LATE_BYTES:
            self._sort_late()

    def _sort_late(self) -> None:
        """Write the waiting late rows, day by day."""
        if not (batches := self._late_waiting.take()):
            return
        waiting = pa.Table.from_batches(batches)
        days = waiting[LATE_DAY].to_numpy()
        order = np.argsort(days, kind="stable")
        rows = waiting.drop_columns([LATE_DAY]).take(pa.array(order))
        parts = [(self._bounds.days[index], at, end) for index, at, end in slices(days[order])]
        # days with an open file first, before the file of another day closes theirs
        for day, at, end in sorted(parts, key=lambda part: part[0] not in self._open_late):
            if day not in self._late:
                self._late[day] = self._writer(Verdict.LATE, day)
            self._late[day].write(with_columns_of(rows.slice(at, end - at), self._late[day].schema))
            self._bound_open_late(day)

    def _bound_open_late(self, day: date) -> None:
        """Close the least recently written late file if too many are open."""
        if self._late[day].is_open:
            self._open_late[day] = self._late[day]
            self._open_late.move_to_end(day)
        if len(self._open_late) > OPEN_LATE_DAYS:
            _, oldest = self._open_late.popitem(last=False)
            oldest.finish()

    def _write_invalid(self, batch: Batch, classified: Classified) -> None:
        invalid = classified.code == CODE[Verdict.INVALID]
        bad = batch.keep(invalid)
        causes = classified.cause.filter(pa.array(invalid))
        headers = INVALID_SCHEMA.field("headers").type
        rows = [
            pa.array(bad.partition.astype(np.int32)),
            pa.array(bad.offset),
            bad.kafka_timestamp.cast(INVALID_SCHEMA.field("kafka_timestamp").type),
            bad.key,
            bad.value,
            bad.headers.cast(headers) if bad.headers is not None else pa.nulls(len(bad), headers),
            causes,
        ]
        self._invalid.add(pa.RecordBatch.from_arrays(rows, schema=INVALID_SCHEMA))
        for row, cause in enumerate(causes.to_pylist()):
            self._causes.append(
                CauseCount(
                    cause=cause, rows=1, partition=int(bad.partition[row]), offset=int(bad.offset[row])
                )
            )
        self._causes = list(summed_causes(self._causes))

    def _count(self, partitions: Longs, offsets: Longs, codes: Codes) -> None:
        with each_once("delivered"):
            self._tally = list(summed([*self._tally, *_tallies(partitions, offsets, codes)]))

    def _writer(self, verdict: Verdict, day: date | None = None) -> RollingWriter:
        schema = INVALID_SCHEMA if verdict is Verdict.INVALID else self._schema
        if day:
            schema = late_schema(columns_on(self._spec.columns, day), self._spec.rules)
        return RollingWriter(self._new_file, schema, verdict, day, self._spec.files)

    def result(self) -> TaskResult:
        """Finish all files, and return what was done."""
        self._sort_late()
        writers = [self._in_day, self._invalid, *self._late.values()]
        return TaskResult(
            delivered=self._delivered.ranges(),
            unfiled={verdict: ranges for verdict, log in self._unfiled.items() if (ranges := log.ranges())},
            tally=tuple(self._tally),
            causes=tuple(self._causes),
            last=self._last,
            files=tuple(file for writer in writers for file in writer.close()),
        )


def _select(rows: pa.RecordBatch, mask: Mask) -> list[pa.RecordBatch]:
    """Return the rows where the mask holds: views if they are few runs, else one copy."""
    runs = ranges_of(np.flatnonzero(mask))
    if len(runs) > FEW_RUNS:
        return [rows.filter(pa.array(mask))]
    return [rows.slice(at, end - at) for at, end in runs]


def _tallies(partitions: Longs, offsets: Longs, codes: Codes) -> Iterator[Tally]:
    """Count the verdicts of one batch; its offsets may have any order."""
    for partition, at, end in slices(partitions):
        of_partition, verdicts = offsets[at:end], codes[at:end]
        for code in np.unique(verdicts).tolist():
            of_verdict = of_partition[verdicts == code]
            yield Tally(
                partition=partition,
                verdict=VERDICTS[code],
                rows=len(of_verdict),
                from_offset=int(of_verdict.min()),
                until_offset=int(of_verdict.max()) + 1,
            )
