"""The fields of a record that are read: the places of its columns, and the event time in any field.

Pure: imports neither pyarrow nor msgspec, so that the config can check its rules.
Never reads a field twice: what is read from one place shares one slot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jobs.record.columns import (
    Array,
    Column,
    ColumnType,
    Decimal,
    Kind,
    Map,
    Scalar,
    Struct,
    ddl,
    field_problem,
)
from jobs.record.rules import EventTimeRule
from jobs.record.time_format import Written


class Misplaced(ValueError):
    """A column, or the event time where it is None, cannot be read from its place."""

    def __init__(self, column: str | None, why: str) -> None:
        """Take the column's name."""
        super().__init__(why)
        self.column = column


@dataclass(frozen=True, slots=True)
class _Place:
    path: tuple[str, ...]
    type: ColumnType
    column: str | None

    def wrong(self, why: str) -> Misplaced:
        label = "event time" if self.column is None else "its place"
        return Misplaced(self.column, f"{label} `{'.'.join(self.path)}` {why}")


def columns_as_read(columns: tuple[Column, ...], event: EventTimeRule) -> tuple[Column, ...]:
    """Return the columns with a rule in each time that is not read by default.

    A timestamp that holds the event time is read by the event time's rule, unless its column has one.
    """
    own = [replace(column, type=_as_written(column.type, column.written)) for column in columns]
    return tuple(
        replace(column, type=_with_event_time(column.type, event.path[len(column.path) :], event))
        if event.path[: len(column.path)] == column.path
        else column
        for column in own
    )


def _as_written(type: ColumnType, written: Written | None) -> ColumnType:
    match type:
        case Scalar(Kind.TIMESTAMP | Kind.DATE as kind):
            return Scalar(kind, written)
        case Array(element):
            return Array(_as_written(element, written))
        case Map(value):
            return Map(_as_written(value, written))
        case Struct(fields):
            return Struct(tuple(Column(field.name, _as_written(field.type, written)) for field in fields))
        case _:
            return type


def _with_event_time(type: ColumnType, below: tuple[str, ...], event: EventTimeRule) -> ColumnType:
    if isinstance(type, Struct) and below:
        return Struct(
            tuple(
                Column(field.name, _with_event_time(field.type, below[1:], event))
                if field.name == below[0]
                else field
                for field in type.fields
            )
        )
    return event_time_type(event) if type == Scalar(Kind.TIMESTAMP) and not below else type


def event_time_type(event: EventTimeRule) -> Scalar:
    """Return the type that the event time is read as."""
    return Scalar(Kind.TIMESTAMP, Written(event.format, event.zone))


def wire_columns(columns: tuple[Column, ...], event: EventTimeRule) -> tuple[Column, ...]:
    """Return the fields of a record as they are read; what only a path leads to comes after its neighbours.

    Raises:
        Misplaced: a column or the event time lies in one that it cannot share.
    """
    places = [_Place(column.path, column.type, column.name) for column in columns_as_read(columns, event)]
    # the column of a whole object comes before those inside it, whose slots follow its own
    places.sort(key=lambda place: len(place.path))
    if event.path:
        places.append(_Place(event.path, event_time_type(event), None))
    fields: tuple[Column, ...] = ()
    for place in places:
        for problem in filter(None, map(field_problem, place.path)):
            raise place.wrong(f"cannot be read: {problem}")
        fields = _with_place(fields, place, 0)
    return fields


def _with_place(fields: tuple[Column, ...], place: _Place, depth: int) -> tuple[Column, ...]:
    """Add a slot for a place, or find the one that it shares; `depth` names lead to the fields."""
    name, below = place.path[depth], depth + 1
    if name not in {field.name for field in fields}:
        type = Struct(_with_place((), place, below)) if below < len(place.path) else place.type
        return (*fields, Column(name, type))
    return tuple(
        Column(name, _shared(field.type, place, below)) if field.name == name else field for field in fields
    )


def _shared(type: ColumnType, place: _Place, depth: int) -> ColumnType:
    if depth < len(place.path):
        if not isinstance(type, Struct):
            through = ".".join(place.path[:depth])
            raise place.wrong(f"lies inside `{through}`, which is {ddl(type)}; only a struct works")
        return Struct(_with_place(type.fields, place, depth))
    counts = (Scalar(Kind.INT), Scalar(Kind.BIGINT))
    if _slot(type) != _slot(place.type) and not (
        place.column is None and _slot(type) in counts and _slot(place.type) in counts
    ):
        raise place.wrong(_conflict(type, place))
    return type


def _conflict(type: ColumnType, place: _Place) -> str:
    if place.column is not None:
        return f"is read as {_described(place.type)}, and by another column as {_described(type)}"
    works = "string or timestamp" if _slot(place.type) == Scalar(Kind.STRING) else "int, bigint or timestamp"
    return f"is read as {_described(place.type)}; its column is {_described(type)}, expected {works}"


def _described(type: ColumnType) -> str:
    format = f" ({type.written.format.value})" if isinstance(type, Scalar) and type.written else ""
    return ddl(type) + format


def _slot(type: ColumnType) -> ColumnType:
    """Return the type that stands for all that are decoded alike."""
    match type:
        case Scalar(Kind.TIMESTAMP, None):
            return Scalar(Kind.STRING)
        case Scalar(_, Written(format)):
            return Scalar(Kind.BIGINT if format.is_count else Kind.STRING)
        case Decimal():
            return Scalar(Kind.JSON)
        case Array(element):
            return Array(_slot(element))
        case Map(value):
            return Map(_slot(value))
        case Struct(fields):
            return Struct(tuple(Column(field.name, _slot(field.type)) for field in fields))
        case _:
            return type
