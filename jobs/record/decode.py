"""Decodes values to typed columns and event times, or to a cause; takes and returns Arrow arrays.

Relies on the format of the rules for columns, and on `event_time` for Kafka's own times. Never lets a
record's verdict depend on its neighbours: a batch decodes exactly as its records do one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.record.columns import duplicate_name, name_problem
from jobs.record.event_time import OUT_OF_YEARS, Faults, faults_where, within_years
from jobs.record.formats import DECODERS
from jobs.record.key import key_reader
from jobs.record.layout import day_columns, file_schema
from jobs.record.rules import Rules
from jobs.record.schema import INSTANT

NO_VALUE = "No value (tombstone)"
NO_KAFKA_TIMESTAMP = "No Kafka timestamp"


def day_schema(rules: Rules) -> pa.Schema:
    """Return the schema of a day's own files."""
    return file_schema(day_columns(rules))


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The values of a batch, one slot a record.

    `columns` are the record's own and its key's, as in `day_schema`. They mean nothing where the record is
    invalid: the writer leaves such rows out, and blanking them would copy all columns for one bad record.
    `event_time` is in microseconds since the epoch, UTC, and null for an invalid record; `cause` is null for
    a valid one.
    """

    columns: list[pa.Array]
    event_time: pa.Int64Array
    cause: pa.StringArray


class Decoder:
    """Decodes the records of one topic; built once per task."""

    def __init__(self, rules: Rules) -> None:
        """Compile the rules; raise ValueError where nothing can be decoded by them."""
        columns = (*rules.columns, *rules.key.columns)
        problems = [*(name_problem(column.name) for column in columns), duplicate_name(columns)]
        if any(problems):
            raise ValueError("; ".join(filter(None, problems)))
        self._format = DECODERS[rules.format]
        self._read = self._format.reader(rules)
        self._read_keys = key_reader(rules) if rules.key.columns else None

    def decode(
        self, values: pa.BinaryArray, kafka_timestamp: pa.TimestampArray, keys: pa.BinaryArray | None = None
    ) -> Decoded:
        """Decode a batch; a record's columns, event time and cause depend on that record alone.

        Raises:
            ValueError: the rules decode keys, and none were passed.
        """
        read, (key_columns, key_faults) = self._read(values), self._keys(keys)
        times, time_faults = read.event_time or _kafka_times(kafka_timestamp)
        faults = key_faults | read.field_faults | time_faults | read.value_faults
        if values.null_count and not self._format.keeps_null_values:
            faults |= faults_where(values.is_null(), NO_VALUE)
        return Decoded(
            columns=[*read.columns, *key_columns],
            event_time=_nulled(times, faults),
            cause=_causes(faults, len(values)),
        )

    def _keys(self, keys: pa.BinaryArray | None) -> tuple[list[pa.Array], Faults]:
        if self._read_keys is None:
            return [], {}
        if keys is None:
            raise ValueError("expected the keys of the batch, which the rules decode")
        return self._read_keys(keys)


def _kafka_times(stamps: pa.TimestampArray) -> tuple[pa.Int64Array, Faults]:
    micros = stamps.cast(INSTANT).cast(pa.int64())
    times = within_years(micros)
    faults: Faults = {}
    if times.null_count:
        outside = pc.and_(times.is_null(), micros.is_valid())
        faults = faults_where(outside, f"{OUT_OF_YEARS} - Kafka timestamp")
        faults |= faults_where(micros.is_null(), NO_KAFKA_TIMESTAMP)
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
