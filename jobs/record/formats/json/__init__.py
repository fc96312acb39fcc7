"""JSON records: each is an object, whose fields have the names of the columns.

Imports msgspec and Arrow only where a record is decoded, since the config imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from jobs.record.columns import Column
from jobs.record.formats.json.wire_columns import Misplaced, wire_columns
from jobs.record.formats.protocol import KeyProblem, Read, RecordDecoder
from jobs.record.rules import EventTimeRule, Rules

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("record", "columns")


class Json(RecordDecoder):
    """Reads the columns, and the event time from any field."""

    has_fields = True
    keeps_null_values = False
    kafka_columns = frozenset[str]()

    def problems(self, rules: Rules) -> Iterator[KeyProblem]:
        """Yield a problem where columns are missing, or the event time cannot share the column it is in."""
        if not rules.columns:
            problem = "is missing; expected at least one, such as order_id: string"
            yield KeyProblem(_COLUMNS, problem, unless=(_COLUMNS,))
        yield from _misplaced(rules.columns, rules.event_time)

    def columns(self, rules: Rules) -> tuple[Column, ...]:
        """Return the columns of the rules."""
        return rules.columns

    def reader(self, rules: Rules) -> Callable[[pa.BinaryArray], Read]:
        """Compile the rules for msgspec and Arrow."""
        from jobs.record.formats.json.reader import JsonReader

        return JsonReader(rules.columns, rules.event_time).read


def _misplaced(columns: tuple[Column, ...], event: EventTimeRule) -> Iterator[KeyProblem]:
    """Yield a problem for each column that cannot be read from its place, then for the event time."""
    try:
        wire_columns(columns, event)
    except Misplaced as error:
        path = ("event_time", "field") if error.column is None else (*_COLUMNS, error.column)
        yield KeyProblem(path, str(error), unless=(("record",), ("event_time",)))
        if error.column is not None:
            yield from _misplaced(tuple(each for each in columns if each.name != error.column), event)
