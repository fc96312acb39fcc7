"""Reads JSON payloads into columns and event times, chunk by chunk.

Relies on `payload` for rows and on `arrays` for columns. Never keeps the rows of two chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jobs.record.columns import Column, ColumnType, Struct
from jobs.record.event_time import Faults, TimeReader, read_event_times
from jobs.record.formats.json.arrays import (
    Make,
    Values,
    array_builder,
    bisect_failures,
    columns_of,
    make_slots,
)
from jobs.record.formats.json.payload import Payloads, Row
from jobs.record.formats.json.wire_columns import columns_as_read, event_time_type, wire_columns
from jobs.record.formats.protocol import Read
from jobs.record.rules import EventTimeRule
from jobs.record.schema import INSTANT, columns_schema

Place = tuple[int, ...]
"""Where decoded rows hold a value: its slot in the row, then in each struct on the way."""


class JsonReader:
    """Reads the objects of one topic; built once per task."""

    def __init__(self, columns: tuple[Column, ...], event: EventTimeRule) -> None:
        """Compile the rules; raise ValueError where nothing can be read by them."""
        columns, wired = columns_as_read(columns, event), wire_columns(columns, event)
        self._payloads = Payloads(wired)
        self._schema = columns_schema(columns)
        self._time = _EventTime(event, columns, wired) if event.path else None
        self._places: list[Place] = []
        self._makers: list[Make] = []
        for index, column in enumerate(columns):
            place, wire = _find(wired, column.path)
            path = f"$.{'.'.join(column.path)}"
            make = bisect_failures(array_builder(column.type, wire, path), column.type, path)
            self._places.append(place)
            self._makers.append(_left_out if self._time and index in self._time.instant_columns else make)

    def read(self, values: pa.BinaryArray) -> Read:
        """Return the columns and the event times of a batch."""
        batch = Read(columns=[pa.array([], type) for type in self._schema.types])
        parts: list[list[pa.Array]] = []
        written: list[pa.Array] = []
        for start, rows, value_faults in self._payloads.read(values):
            slots = _Slots(rows)
            del rows  # its memory is used again for the next chunk
            arrays, field_faults = make_slots(self._makers, list(map(slots.at, self._places)))
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


class _Slots:
    """The values of decoded rows by their place; those inside structs are taken out when first needed."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._values: dict[Place, Values] = {(slot,): each for slot, each in enumerate(columns_of(rows))}

    def at(self, place: Place) -> Values:
        if place not in self._values:
            name, structs = f"f{place[-1]}", self.at(place[:-1])
            self._values[place] = [None if struct is None else getattr(struct, name) for struct in structs]
        return self._values[place]


class _EventTime:
    """Finds the event time among the slots of decoded rows, and reads it once.

    `written_column` is the index of a column that holds it as written, or None; `instant_columns` are those
    that hold the instant.
    """

    def __init__(self, event: EventTimeRule, columns: tuple[Column, ...], wired: tuple[Column, ...]) -> None:
        type = event_time_type(event)
        self._path, self._reader = event.path, TimeReader.of(type.written)
        self._place, _ = _find(wired, event.path)
        own = {index: column for index, column in enumerate(columns) if column.path == event.path}
        arrow = columns_schema(columns).types
        self.written_column = next((index for index in own if arrow[index] == self._reader.arrow), None)
        self.instant_columns = [index for index, column in own.items() if column.type == type]

    def written(self, slots: _Slots) -> pa.Array:
        """Return the event times as the records write them."""
        return pa.array(slots.at(self._place), self._reader.arrow)

    def read(self, batch: Read, parts: list[pa.Array]) -> None:
        """Read the event times of a batch; take them from `parts` where no column holds them as written."""
        if self.written_column is None:
            written = pa.concat_arrays([pa.array([], self._reader.arrow), *parts])
        else:
            written = batch.columns[self.written_column]
        batch.event_time = read_event_times(written, self._reader, self._path)
        for index in self.instant_columns:
            batch.columns[index] = batch.event_time[0].cast(INSTANT)


def _find(fields: tuple[Column, ...], path: tuple[str, ...]) -> tuple[Place, ColumnType]:
    """Return the place that a path leads to, and the type that is there."""
    slot = next(index for index, field in enumerate(fields) if field.name == path[0])
    type = fields[slot].type
    if len(path) == 1 or not isinstance(type, Struct):
        return (slot,), type
    place, inner = _find(type.fields, path[1:])
    return (slot, *place), inner
