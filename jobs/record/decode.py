"""Payloads to typed columns and event times, or to a cause.

Relies on `payload` for JSON, `arrays` for columns and `event_time` for times; Arrow in, Arrow out.
Never lets a record's verdict depend on its neighbours: a batch decodes as its records do one by one.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.record.arrays import (
    EventTimeAt,
    Make,
    TimeReader,
    Values,
    array_builder,
    bisect_failures,
    columns_of,
    make_slots,
    with_path,
)
from jobs.record.columns import Column, Kind, Scalar, Struct
from jobs.record.event_time import OUT_OF_YEARS, Faults, where, within_years
from jobs.record.payload import Payloads
from jobs.record.rules import RecordFormat, Rules, TimeFormat
from jobs.record.schema import INSTANT, record_schema
from jobs.record.wire_columns import problems, wire_columns

NO_EVENT_TIME = "No event time"
NO_KAFKA_TIMESTAMP = "No Kafka timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What the payloads of a batch hold, one slot a record.

    `columns` are the record's own in the order of the schema, and mean nothing where the record is invalid:
    the writer leaves such rows out anyway, and to blank them would copy all columns for one bad record.
    `event_time` is in microseconds since the epoch, UTC, and null for an invalid record; `cause` is null
    for a valid one.
    """

    columns: list[pa.Array]
    event_time: pa.Int64Array
    cause: pa.StringArray


class Decoder:
    """Decodes the records of one topic; built once per task."""

    def __init__(self, rules: Rules) -> None:
        """Compile the rules; rules by which nothing can be decoded are a ValueError."""
        if wrong := problems(rules):
            raise ValueError("; ".join(wrong))
        self._json = _JsonRecords(rules) if rules.format is RecordFormat.JSON else None
        self._time = _EventTime(rules) if rules.event_time.path else None

    def decode(self, values: pa.BinaryArray, kafka_timestamp: pa.TimestampArray) -> Decoded:
        """Decode a batch; a record's columns, event time and cause depend on that record alone."""
        with _no_garbage_collection():
            read = self._json.read(values, self._time) if self._json else _Read(columns=[values])
        if self._time and read.written is not None:
            times, untimed = self._time.times(read.written)
            if self._time.instant_column is not None:
                read.columns[self._time.instant_column] = times.cast(INSTANT)
        else:
            times, untimed = _kafka_times(kafka_timestamp)
        late = read.unmade | untimed
        return Decoded(
            columns=read.columns,
            event_time=_nulled(times, read.unread | late),
            cause=_causes(late | read.unread, len(values)),
        )


@dataclass(slots=True, kw_only=True)
class _Read:
    """What was read of a batch: its columns, and its event times as written, where records hold them.

    `unread` are the payloads that are not valid, blank in all columns; `unmade` those with a value that
    its column cannot hold.
    """

    columns: list[pa.Array]
    written: pa.Array | None = None
    unread: Faults = field(default_factory=dict)
    unmade: Faults = field(default_factory=dict)


class _JsonRecords:
    """Reads JSON records into columns, chunk by chunk."""

    def __init__(self, rules: Rules) -> None:
        wired = wire_columns(rules.columns, rules.event_time)
        event = _event_time_at(rules)
        self._payloads = Payloads(wired)
        self._types = [*record_schema(rules).types]
        self._makers: list[Make] = []
        for column, wire in zip(rules.columns, wired, strict=False):
            where = f"$.{column.name}"
            make = array_builder(column.type, wire.type, where, event.below(column.name))
            shared = event.path == (column.name,) and column.type == Scalar(Kind.TIMESTAMP)
            self._makers.append(_left_out if shared else bisect_failures(make, column.type, where))

    def read(self, values: pa.BinaryArray, time: _EventTime | None) -> _Read:
        """Return the columns of a batch, and the event times as `time` finds them."""
        batch = _Read(columns=[pa.array([], type) for type in self._types])
        parts: list[list[pa.Array]] = []
        written: list[pa.Array] = []
        for start, rows, unread in self._payloads.read(values):
            slots = columns_of(rows)
            del rows
            arrays, unmade = make_slots(self._makers, slots)
            parts.append(arrays)
            if time and time.written_column is None:
                written.append(time.written(slots))
            del slots
            batch.unread |= {start + index: cause for index, cause in unread.items()}
            batch.unmade |= {start + index: cause for index, cause in unmade.items()}
        if parts:
            batch.columns = [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
        if time and time.written_column is not None:
            batch.written = batch.columns[time.written_column]
        elif time:
            batch.written = pa.concat_arrays([time.written(()), *written])
        return batch


def _left_out(values: Values) -> tuple[pa.Array, Faults]:
    return pa.nulls(len(values), INSTANT), {}


class _EventTime:
    """Finds the event time among the slots of decoded rows, and reads it once.

    `written_column` is the column that holds it as written, `instant_column` the one that holds the instant
    read; None where no column does, or only one inside a struct.
    """

    def __init__(self, rules: Rules) -> None:
        event, wired = _event_time_at(rules), wire_columns(rules.columns, rules.event_time)
        self._where = f"$.{'.'.join(event.path)}"
        self._reader = event.reader
        self._slot, *self._below = _slots(wired, event.path)
        self._arrow = pa.string() if event.reader.format is TimeFormat.ISO8601 else pa.int64()
        types: dict[tuple[str, ...], pa.DataType] = {
            (column.name,): column.type for column in record_schema(rules)
        }
        same = types.get(event.path)
        self.written_column = self._slot if same == self._arrow else None
        self.instant_column = self._slot if same == INSTANT else None

    def written(self, slots: Sequence[Values]) -> pa.Array:
        """Return the event times as the records write them."""
        found = slots[self._slot] if slots else ()
        for below in self._below:
            found = [None if inner is None else getattr(inner, f"f{below}") for inner in found]
        return pa.array(found, self._arrow)

    def times(self, written: pa.Array) -> tuple[pa.Int64Array, Faults]:
        """Read the event times; a missing one is a fault like any other."""
        times, faults = self._reader.read(written)
        if written.null_count:
            faults |= where(written.is_null(), NO_EVENT_TIME)
        return times, with_path(self._where, faults)


def _event_time_at(rules: Rules) -> EventTimeAt:
    rule = rules.event_time
    zone = ZoneInfo(rule.zone) if rule.path and rule.format is TimeFormat.ISO8601 else None
    return EventTimeAt(path=rule.path, reader=TimeReader(format=rule.format, zone=zone))


def _slots(columns: tuple[Column, ...], path: tuple[str, ...]) -> list[int]:
    """Return the number of the slot at each step of a path."""
    index = next(index for index, column in enumerate(columns) if column.name == path[0])
    inner = columns[index].type
    return [index, *(_slots(inner.fields, path[1:]) if isinstance(inner, Struct) else ())]


def _kafka_times(stamps: pa.TimestampArray) -> tuple[pa.Int64Array, Faults]:
    micros = stamps.cast(INSTANT).cast(pa.int64())
    times = within_years(micros)
    faults: Faults = {}
    if times.null_count:
        outside = pc.and_(times.is_null(), micros.is_valid())
        faults = where(outside, f"{OUT_OF_YEARS} - Kafka timestamp")
        faults |= where(micros.is_null(), NO_KAFKA_TIMESTAMP)
    return times, faults


def _nulled(times: pa.Int64Array, faults: Faults) -> pa.Int64Array:
    if not faults:
        return times
    gone = np.zeros(len(times), np.bool_)
    gone[list(faults)] = True
    return pc.if_else(pa.array(gone), pa.scalar(None, times.type), times)


def _causes(faults: Faults, rows: int) -> pa.StringArray:
    if not faults:
        return pa.nulls(rows, pa.string())
    number = {cause: index for index, cause in enumerate(dict.fromkeys(faults.values()))}
    of_row = np.full(rows, -1, np.int32)
    of_row[list(faults)] = [number[cause] for cause in faults.values()]
    return pa.array(list(number), pa.string()).take(pa.array(of_row, mask=of_row < 0))


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Turn the collector off while a batch makes millions of short-lived values, none of them in a cycle."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
