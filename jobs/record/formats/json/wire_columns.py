"""Which values of a record are read at all: its columns, and the event time wherever it stands.

Pure: imports neither pyarrow nor msgspec, so that the config can ask for the problems of its rules.
Never reads a field twice: an event time that is also a column shares that column's slot.
"""

from __future__ import annotations

from jobs.record.columns import (
    Column,
    ColumnType,
    Kind,
    Scalar,
    Struct,
    ddl,
    field_problem,
)
from jobs.record.rules import EventTimeRule, TimeFormat

_SHARED: dict[bool, dict[Kind, Kind]] = {
    True: {Kind.STRING: Kind.STRING, Kind.TIMESTAMP: Kind.STRING},
    False: {Kind.INT: Kind.INT, Kind.BIGINT: Kind.BIGINT, Kind.TIMESTAMP: Kind.BIGINT},
}
"""The column types that an event time can share, as text and as a count, and what is read for each."""


def wire_columns(columns: tuple[Column, ...], event: EventTimeRule) -> tuple[Column, ...]:
    """Return the columns as they are read, with the event time's slot: last where it is no column itself.

    An event time that no column can share is a ValueError.
    """
    for name in event.path:
        if problem := field_problem(name):
            raise ValueError(f"event time: {problem}")
    return _with_slot(columns, event.path, event.path, event.format) if event.path else columns


def _with_slot(
    columns: tuple[Column, ...], left: tuple[str, ...], path: tuple[str, ...], format: TimeFormat
) -> tuple[Column, ...]:
    """Add the slot that the rest of a path leads to, or change the column that it leads to or through."""
    name, below = left[0], left[1:]
    if name not in {column.name for column in columns}:
        hidden = Struct(()) if below else Scalar(Kind.TIMESTAMP)
        return (*columns, Column(name, _through(hidden, below, path, format)))
    return tuple(
        Column(name, _through(column.type, below, path, format)) if column.name == name else column
        for column in columns
    )


def _through(
    type: ColumnType, below: tuple[str, ...], path: tuple[str, ...], format: TimeFormat
) -> ColumnType:
    where = f"event time `{'.'.join(path)}`"
    if below:
        if not isinstance(type, Struct):
            through = ".".join(path[: -len(below)])
            raise ValueError(f"{where} lies inside `{through}`, which is {ddl(type)}; only a struct works")
        return Struct(_with_slot(type.fields, below, path, format))
    kinds = _SHARED[format is TimeFormat.ISO8601]
    if not isinstance(type, Scalar) or type.kind not in kinds:
        works = " or ".join(kind.value for kind in kinds)
        raise ValueError(f"{where} is read as {format.value}; its column is {ddl(type)}, expected {works}")
    return Scalar(kinds[type.kind])
