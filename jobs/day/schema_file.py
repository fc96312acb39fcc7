"""`_schema.json` beside the days: which columns they have, for Spark and for Arrow, and from which day on.

Relies on the manifests alone, from which it can be made at any time; nothing reads it but readers of others.
Imports Arrow only where the text is made.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import reduce
from typing import Final

from jobs.lake.port import Lake
from jobs.lake.refusals import not_published
from jobs.record.columns import ddl, parse_type, quoted
from jobs.record.layout import NEVER_NULL, file_schema
from offsets.columns import ColumnRuns, Columns, FileColumn, joined_columns
from offsets.errors import StoreFailed
from offsets.manifest import Manifest

SCHEMA_NAME: Final = "_schema.json"


def write_schema(lake: Lake, newest: Manifest, runs: ColumnRuns) -> None:
    """Write the columns of all days, unless the file has them; a newest day of format 3 or less has none.

    Raises:
        NotPublished: the store refused; the days are as they were.
    """
    with not_published(f"{lake.place(SCHEMA_NAME)} to tell the columns of the days up to {newest.day.date}"):
        if runs and (text := schema_text(newest, runs)) != read_schema(lake):
            lake.put(SCHEMA_NAME, text)


def is_behind(lake: Lake, committed: Manifest) -> bool:
    """Return whether the file was written before a day was committed, whose columns are known."""
    try:
        newest = str(json.loads(read_schema(lake) or b"{}").get("newest", ""))
    except (ValueError, AttributeError, StoreFailed):
        return False
    return bool(committed.columns) and newest < committed.day.date.isoformat()


def read_schema(lake: Lake) -> bytes | None:
    """Read what the file holds; None if there is none.

    Raises:
        StoreFailed: the store refused, or the file is a symbolic link.
    """
    lake.require_no_link(SCHEMA_NAME)
    with suppress(OSError), lake.open_file(SCHEMA_NAME) as file:
        return file.read()
    return None


def schema_text(newest: Manifest, runs: ColumnRuns) -> bytes:
    """Return what the file must hold, once the columns of the days up to the newest are known."""
    document = {"newest": newest.day.date.isoformat(), **schema_document(runs)}
    return json.dumps(document, indent=1, ensure_ascii=False).encode() + b"\n"


def schema_document(runs: ColumnRuns) -> dict[str, object]:
    """Return the columns of all days together, each column with its days, and those of each run of days."""
    every: Columns = reduce(joined_columns, (run.columns for run in runs))
    return {
        **_as_text(every),
        "columns": [_column(column, runs) for column in every],
        "days": [{"from_date": run.from_date.isoformat(), **_as_text(run.columns)} for run in runs],
    }


def _as_text(columns: Columns) -> dict[str, str]:
    spark = ", ".join(f"{quoted(column.name)} {_spark(column)}" for column in columns)
    return {"spark": spark, "arrow": file_schema(columns).to_string()}


def _spark(column: FileColumn) -> str:
    """Return a column's type as Spark reads it, each name quoted, since its parser takes few letters bare."""
    return ddl(parse_type(column.type), quoted) + (" NOT NULL" if column.name in NEVER_NULL else "")


def _column(column: FileColumn, runs: ColumnRuns) -> dict[str, object]:
    """Return a column with its newest type, the first day that has it, and the first that has it no more."""
    name = column.name.casefold()
    having = [any(other.name.casefold() == name for other in run.columns) for run in runs]
    last = len(having) - 1 - having[::-1].index(True)
    return {
        "name": column.name,
        "spark": _spark(column),
        "arrow": file_schema((column,)).to_string().removeprefix(f"{column.name}: "),
        "since": runs[having.index(True)].from_date.isoformat(),
        "until": runs[last + 1].from_date.isoformat() if last + 1 < len(runs) else None,
    }
