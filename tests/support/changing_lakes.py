"""Lakes whose columns changed on their third day, for readers of others.

Each has a row that came late under the old columns, one that came late under the new ones, and an invalid
record. What a reader should see is read file by file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from jobs.config import Late
from jobs.daily import run_day
from jobs.record.columns import Column, parse_type
from jobs.record.rules import Rules
from offsets.instants import micros
from offsets.plan import Accept
from tests.support.local_engine import RULES, pipeline
from tests.support.memory_topic import MemoryTopic
from tests.support.three_days import FIRST, SECOND, STARTS, THIRD, at

OWN: Final = ("id", "n", "more", "nest")
"""The columns that differ from lake to lake."""
WIDE: Final = 3_000_000_000
"""A number that no int holds; records of the days with `n: bigint` have it."""
Row = Mapping[str, Any]
Rows = Mapping[tuple[int, int], Row]
"""What the columns of OWN hold, by coordinate."""

CHANGES: Final[Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]] = {
    "stable": ({"id": "string", "n": "bigint"}, {"id": "string", "n": "bigint"}),
    "column added": ({"id": "string", "n": "bigint"}, {"id": "string", "n": "bigint", "more": "string"}),
    "column dropped": ({"id": "string", "more": "string", "n": "bigint"}, {"id": "string", "n": "bigint"}),
    "widened": ({"id": "string", "n": "int"}, {"id": "string", "n": "bigint"}),
    "nested field added": (
        {"id": "string", "nest": "struct<a:int>"},
        {"id": "string", "nest": "struct<a:int,b:string>"},
    ),
}
"""The columns of the first two days, and those of the third, by the name of the change."""


def by(**columns: str) -> Rules:
    """Make rules with these columns, by their types."""
    return replace(RULES, columns=tuple(Column(name, parse_type(text)) for name, text in columns.items()))


OLD: Final = by(id="string", n="int", gone="json", nested="struct<a:int>")
NEW: Final = by(added="decimal(10,2)", nested="struct<a:int,b:string>", n="bigint", id="string")


def _record(when: datetime, number: int, n: int) -> bytes:
    fields = {"more": f"m{number}", "nest": {"a": number, "b": f"b{number}"}}
    return json.dumps({"id": f"o{number}", "n": n, "at": micros(when), **fields}).encode()


def _topic(wide: bool) -> MemoryTopic:
    topic, number = MemoryTopic(2), 0
    for day in (FIRST, SECOND, THIRD):
        n = WIDE if wide and day == THIRD else 1
        for hour in range(4):
            number += 1
            topic.produce(hour % 2, _record(at(day, 1 + hour), number, n), at(day, 1 + hour))
        topic.produce(0, b"not json", at(day, 21))
        if day != FIRST:
            topic.produce(0, _record(STARTS[FIRST], 100 + number, n), at(day, 21.5))
    return topic


def a_changing_lake(lake: Path, change: str, late: Late) -> None:
    """Make the lake of a change."""
    old, new = CHANGES[change]
    topic = _topic(wide=change == "widened")
    for day in (FIRST, SECOND, THIRD):
        rules = by(**(new if day == THIRD else old))
        run_day(pipeline(lake, topic, rules=rules, late=late, accept=Accept(contract=True)), day)


def rows_to_see(lake: Path, days: str = "date=*") -> Rows:
    """Read the rows of days, file by file."""
    rows = {}
    for path in lake.glob(f"{days}/*.parquet"):
        for row in pq.ParquetFile(path).read().to_pylist():
            own = {name: plain(row[name]) for name in OWN if name in row}
            rows[row["kafka_partition"], row["kafka_offset"]] = own
    return rows


def plain(value: Any) -> Any:
    """Return a value as any reader may show it: no field that is null, no NaN, no number of another type."""
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items() if plain(inner) is not None} or None
    if isinstance(value, float):
        return None if value != value else int(value)
    return value.item() if hasattr(value, "item") else value


def judged(seen: list[Row], expected: Rows) -> str:
    """Return what a reader showed: `all`, `part` of the columns, `wrong rows` or `wrong values`.

    Where it shows a column, it must show the value of each row that has one.
    """
    shown = {(row["kafka_partition"], row["kafka_offset"]): _nested(row) for row in seen}
    if len(shown) != len(seen) or shown.keys() != expected.keys():
        return "wrong rows"
    columns = {name for row in shown.values() for name in row}
    found = {_found(shown[place], row, columns) for place, row in expected.items()}
    return next(word for word in ("wrong values", "part", "all") if word in found)


def _nested(row: Row) -> Row:
    """Return a row in which fields of a struct are no columns, as fastparquet shows them."""
    nest = {name.partition(".")[2]: value for name, value in row.items() if name.startswith("nest.")}
    return {**row, "nest": nest} if nest else row


def _found(row: Row, expected: Row, columns: set[str]) -> str:
    hidden = False
    for name, value in expected.items():
        found = plain(row.get(name))
        lacks_fields = name == "nest" and found and value and found.items() < value.items()
        if lacks_fields or (name not in columns and value is not None):
            hidden = True
        elif found != value:
            return "wrong values"
    return "part" if hidden else "all"
