"""The fields of a record that are read: its columns, and the event time in any field.

Pure: imports neither pyarrow nor msgspec, so that the config can check its rules.
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
"""The column types that an event time can share, as text (True) and as a count, and the type that is read."""


def wire_columns(columns: tuple[Column, ...], event: EventTimeRule) -> tuple[Column, ...]:
    """Return the columns as they are read; the event time's slot is last where it is no column itself.

    Raises:
        ValueError: the event time is in a column that it cannot share.
    """
    for name in event.path:
        if problem := field_problem(name):
            raise ValueError(f"event time: {problem}")
    return _with_slot(columns, event.path, event.path, event.format) if event.path else columns


def _with_slot(
    columns: tuple[Column, ...], left: tuple[str, ...], path: tuple[str, ...], format: TimeFormat
) -> tuple[Column, ...]:
    """Add a slot for the rest of a path, or change the column that the path leads to or through."""
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
