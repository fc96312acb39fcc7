"""Reads JSON payloads into columns and event times, chunk by chunk.

Relies on `payload` for rows and on `arrays` for columns. Never keeps the rows of two chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

import pyarrow as pa

from jobs.record.columns import Column, Kind, Scalar, Struct
from jobs.record.event_time import Faults, TimeReader, read_event_times
from jobs.record.formats.json.arrays import (
    EventTimeAt,
    Make,
    Values,
    array_builder,
    bisect_failures,
    columns_of,
    make_slots,
)
from jobs.record.formats.json.payload import Payloads
from jobs.record.formats.json.wire_columns import wire_columns
from jobs.record.formats.protocol import Read
from jobs.record.rules import Rules, TimeFormat
from jobs.record.schema import INSTANT, columns_schema


class JsonReader:
    """Reads the records of one topic; built once per task."""

    def __init__(self, rules: Rules) -> None:
        """Compile the rules; raise ValueError where nothing can be read by them."""
        event, wired = _event_time_at(rules), wire_columns(rules.columns, rules.event_time)
        self._payloads = Payloads(wired)
        self._schema = columns_schema(rules.columns)
        self._time = _EventTimeSlot(event, wired, self._schema) if event.path else None
        self._makers: list[Make] = []
        for column, wire in zip(rules.columns, wired, strict=False):
            path = f"$.{column.name}"
            make = array_builder(column.type, wire.type, path, event.below(column.name))
            shared = event.path == (column.name,) and column.type == Scalar(Kind.TIMESTAMP)
            self._makers.append(_left_out if shared else bisect_failures(make, column.type, path))

    def read(self, values: pa.BinaryArray) -> Read:
        """Return the columns and the event times of a batch."""
        batch = Read(columns=[pa.array([], type) for type in self._schema.types])
        parts: list[list[pa.Array]] = []
        written: list[pa.Array] = []
        for start, rows, value_faults in self._payloads.read(values):
            slots = columns_of(rows)
            del rows  # its memory is used again for the next chunk
            arrays, field_faults = make_slots(self._makers, slots)
            parts.append(arrays)
            if self._time and self._time.written_column is None:
                written.append(self._time.written(slots))
            del slots
            batch.value_faults |= {start + index: cause for index, cause in value_faults.items()}
            batch.field_faults |= {start + index: cause for index, cause in field_faults.items()}
        if parts:
            batch.columns = [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
        if self._time:
            self._time.read(batch, written)
        return batch


def _left_out(values: Values) -> tuple[pa.Array, Faults]:
    return pa.nulls(len(values), INSTANT), {}


class _EventTimeSlot:
    """Finds the event time among the slots of decoded rows, and reads it once.

    `written_column` is the index of the column that holds it as written, `instant_column` of the one that
    holds the instant; None where no top-level column does.
    """

    def __init__(self, event: EventTimeAt, wired: tuple[Column, ...], schema: pa.Schema) -> None:
        self._event = event
        self._slot, *self._below = _slots(wired, event.path)
        self._arrow = pa.string() if event.reader.format is TimeFormat.ISO8601 else pa.int64()
        own = schema.field(self._slot).type if len(event.path) == 1 and self._slot < len(schema) else None
        self.written_column = self._slot if own == self._arrow else None
        self.instant_column = self._slot if own == INSTANT else None

    def written(self, slots: Sequence[Values]) -> pa.Array:
        """Return the event times as the records write them."""
        values = slots[self._slot] if slots else ()
        for slot in self._below:
            values = [None if struct is None else getattr(struct, f"f{slot}") for struct in values]
        return pa.array(values, self._arrow)

    def read(self, batch: Read, parts: list[pa.Array]) -> None:
        """Read the event times of a batch; take them from `parts` where no column holds them as written."""
        if self.written_column is None:
            written = pa.concat_arrays([self.written(()), *parts])
        else:
            written = batch.columns[self.written_column]
        batch.event_time = read_event_times(written, self._event.reader, self._event.path)
        if self.instant_column is not None:
            batch.columns[self.instant_column] = batch.event_time[0].cast(INSTANT)


def _event_time_at(rules: Rules) -> EventTimeAt:
    rule = rules.event_time
    zone = ZoneInfo(rule.zone) if rule.path and rule.format is TimeFormat.ISO8601 else None
    return EventTimeAt(path=rule.path, reader=TimeReader(format=rule.format, zone=zone))


def _slots(columns: tuple[Column, ...], path: tuple[str, ...]) -> list[int]:
    """Return the slot of each name in a path."""
    index = next(index for index, column in enumerate(columns) if column.name == path[0])
    inner = columns[index].type
    return [index, *(_slots(inner.fields, path[1:]) if isinstance(inner, Struct) else ())]
