"""Reads the examples of docs/TYPES.md with the job's decoder, and writes what comes out beside them.

Relies on rows of three cells: type, JSON, and what the decoder makes of it. Only the third is written.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final

import pyarrow as pa

from jobs.record.columns import Column, parse_type
from jobs.record.decode import Decoded, Decoder
from tests.support.local_engine import RULES, order

PAGE: Final = Path(__file__).parents[1] / "docs" / "TYPES.md"
ROW: Final = re.compile(r"^(\| `([^`]+)` \| `([^`]+)` \| )(.+)( \|)$", re.MULTILINE)
HEADS: Final = ("## What a type takes", "## What it refuses")
STAMP: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
AT: Final = json.loads(order(STAMP))["at"]


def type_reference() -> str:
    """Return the page with what the decoder makes of each example."""
    return ROW.sub(lambda row: row[1] + outcome(row[2], row[3]) + row[5], PAGE.read_text(encoding="utf-8"))


def outcome(type: str, text: str) -> str:
    """Return the cell of one example: its value, or its cause without the place."""
    found = decoded({"x": type}, f'{{"happened":{AT},"x":{text}}}')
    cause = found.cause[0].as_py()
    if cause is not None:
        return re.sub(r" - at `[^`]+`$", "", cause).replace("|", "or")
    return f"`{shown(found.columns[0][0].as_py(), type)}`"


def decoded(types: dict[str, str], payload: str) -> Decoded:
    """Decode one record whose event time lies in `happened`."""
    columns = tuple(Column(name, parse_type(type)) for name, type in types.items())
    rules = replace(RULES, columns=columns, event_time=replace(RULES.event_time, path=("happened",)))
    stamps = pa.array([STAMP], pa.timestamp("us", "UTC"))
    return Decoder(rules).decode(pa.array([payload.encode()], pa.binary()), stamps)


def shown(value: object, type: str) -> str:
    """Write a value as the page does."""
    match value:
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".") + " UTC"
        case date() | Decimal():
            return str(value)
        case bytes():
            return f"bytes {value.hex(' ')}"
        case list() if type.startswith("map"):
            return json.dumps(dict(value))
        case str() if type != "json":
            return value
        case str():
            return f"the text {value}"
        case _:
            return json.dumps(value)
