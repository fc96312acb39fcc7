"""Readers of a lake that others write, and the promises of docs/READ.md about them."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.support.changing_lakes import CHANGES, Row, Rows, judged

PAGE: Final = (Path(__file__).parents[2] / "docs" / "READ.md").read_text()
PROMISED, FOLDER, EVERYWHERE = "date=*/*.parquet", "", "**/*.parquet"
WAYS: Final = (PROMISED, FOLDER, EVERYWHERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A library: how it counts the rows of a pattern or of a folder, how it reads them with all columns that
    it finds, and how it shows what the names of its program on the page hold."""

    module: str
    count: Callable[[Any, str], int]
    rows: Callable[[Any, str], list[Row]]
    shown: Callable[[Mapping[str, Any]], list[Row]]
    alone: bool = False
    """Whether it needs a process of its own: ClickHouse handles all signals of the one that it is in."""


def _listed(path: str) -> Any:
    return sorted(glob(path, recursive=True)) if "*" in path else path  # noqa: PTH207


def _each(path: str) -> list[str]:
    listed = _listed(path)
    return [listed] if listed == path else listed


def _polars(polars: Any, path: str) -> int:
    return int(polars.scan_parquet(path).select(polars.len()).collect().item())


def _duckdb(duckdb: Any, path: str) -> int:
    with duckdb.connect() as own:  # the shared one would be in use until a result is read to its end
        return int(own.execute(f"SELECT count(*) FROM read_parquet('{path}')").fetchall()[0][0])


def _duckdb_rows(connection: Any, source: str) -> list[Row]:
    # a time with a zone needs a library that is not here
    found = connection.execute(f"SELECT * EXCLUDE (event_time, kafka_timestamp) FROM {source}")
    names = [name for name, *_ in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _dataset(dataset: Any, path: str) -> Any:
    return dataset.dataset(_listed(path), format="parquet", partitioning="hive")


def _pandas(pandas: Any, path: str) -> int:
    return sum(len(pandas.read_parquet(each)) for each in _each(path))


def _pandas_rows(pandas: Any, path: str) -> list[Row]:
    return [row for each in _each(path) for row in pandas.read_parquet(each).to_dict("records")]


def _chdb(chdb: Any, path: str) -> int:
    return int(chdb.query(f"SELECT count() FROM file('{path}', Parquet)", "TSV").bytes())


def _chdb_rows(chdb: Any, path: str) -> list[Row]:
    return _chdb_select(chdb, f"file('{path}', Parquet)")


def _chdb_select(chdb: Any, source: str) -> list[Row]:
    query = f"SELECT * EXCEPT (kafka_key) FROM {source}"  # bytes are no JSON
    return [json.loads(line) for line in chdb.query(query, "JSONEachRow").bytes().splitlines()]


def _fastparquet(fastparquet: Any, path: str) -> Any:
    return fastparquet.ParquetFile(_listed(path))


READERS: Final[Mapping[str, Reader]] = {
    "DuckDB": Reader(
        module="duckdb",
        count=_duckdb,
        rows=lambda duckdb, path: _duckdb_rows(duckdb.connect(), f"read_parquet('{path}')"),
        shown=lambda names: _duckdb_rows(names["lake"], "orders"),
    ),
    "Polars": Reader(
        module="polars",
        count=_polars,
        rows=lambda polars, path: polars.scan_parquet(path).collect().to_dicts(),
        shown=lambda names: names["lake"].collect().to_dicts(),
    ),
    "pyarrow": Reader(
        module="pyarrow.dataset",
        count=lambda dataset, path: _dataset(dataset, path).count_rows(),
        rows=lambda dataset, path: _dataset(dataset, path).to_table().to_pylist(),
        shown=lambda names: names["lake"].to_table().to_pylist(),
    ),
    "pandas": Reader(
        module="pandas",
        count=_pandas,
        rows=_pandas_rows,
        shown=lambda names: names["lake"].to_dict("records"),
    ),
    "ClickHouse": Reader(
        module="chdb",
        count=_chdb,
        rows=_chdb_rows,
        shown=lambda names: _chdb_select(names["chdb"], names["orders"]),
        alone=True,
    ),
    "DataFusion": Reader(
        module="datafusion",
        count=lambda datafusion, path: datafusion.SessionContext().read_parquet(path).count(),
        rows=lambda datafusion, path: datafusion.SessionContext().read_parquet(path).to_pylist(),
        shown=lambda names: names["context"].sql("SELECT * FROM orders").to_pylist(),
    ),
    "fastparquet": Reader(
        module="fastparquet",
        count=lambda fastparquet, path: int(_fastparquet(fastparquet, path).count()),
        rows=lambda fastparquet, path: _fastparquet(fastparquet, path).to_pandas().to_dict("records"),
        shown=lambda names: names["lake"].to_dict("records"),
    ),
}
"""All readers of the page but Spark, whose session is a fixture."""


def promised(reader: str, way: str, *, unfinished: bool) -> str:
    """Return the cell of the page's table: `rows` or `error`."""
    row = re.search(rf"^\| {reader} \|(.*)\|$", PAGE, re.MULTILINE)
    assert row, f"{reader} has no row in the table"
    return [cell.strip() for cell in row[1].split("|")][WAYS.index(way) + 3 * unfinished]


def snippet(heading: str, lake: Path) -> str:
    """Return the program below a heading of the page, about a lake of ours."""
    program = re.search(rf"^## {heading}\n[^#]*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    assert program, f"nothing below {heading}"
    assert "lake/orders" in program[1]
    return program[1].replace("lake/orders", str(lake))


def ran(program: str, names: dict[str, Any]) -> int:
    """Run a program of the page with some names, and return the rows that it counts."""
    exec(program, names)
    rows = names["rows"]
    assert isinstance(rows, int)
    return rows


@cache
def _own_process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn"))


Found = TypeVar("Found")


def _called(function: Callable[..., Found], reader: str, *about: object) -> Found:
    """Call a function that uses a reader, in a process of its own if it needs one."""
    if READERS[reader].alone:
        return _own_process().submit(function, reader, *about).result()
    return function(reader, *about)


def counted(reader: str, path: str) -> int | str:
    """Count by a reader; an error of any kind is `error`."""
    return _called(_counted, reader, path)


def _counted(reader: str, path: str) -> int | str:
    library = importlib.import_module(READERS[reader].module)
    try:
        return READERS[reader].count(library, path)
    except Exception:  # noqa: BLE001 - each reader has its own
        return "error"


PROGRAM, ONE_DAY = "its program below", "one day"
"""Rows of a reader in the table of changes: its program, and the pattern of a day that has late rows."""


def promised_after(change: str, reader: str, way: str) -> str:
    """Return a cell of the page's table of changes."""
    named = "the folder" if way == FOLDER else f"`{way}`" if way in WAYS else way
    row = re.search(rf"^\| {reader} \| {re.escape(named)} \|(.*)\|$", PAGE, re.MULTILINE)
    assert row, f"{reader}, {named} has no row in the table"
    return [cell.strip(" *") for cell in row[1].split("|")][[*CHANGES].index(change)]


def seen_after(read: Callable[[], list[Row]], expected: Rows) -> str:
    """Return what a reader shows of a lake, in words of the page's table; an error of any kind is `error`."""
    try:
        rows = read()
    except Exception:  # noqa: BLE001 - each reader has its own
        return "error"
    return judged(rows, expected)


def counted_by_program(reader: str, lake: Path) -> int:
    """Run the program of a reader, and return the rows that it counts."""
    return _called(_counted_by_program, reader, lake)


def _counted_by_program(reader: str, lake: Path) -> int:
    return ran(snippet(reader, lake), {})


def read_by(reader: str, lake: Path, way: str) -> list[Row]:
    """Read the rows of a lake in one way; its program must also count them."""
    return _called(_read_by, reader, lake, way)


def _read_by(reader: str, lake: Path, way: str) -> list[Row]:
    found = READERS[reader]
    if way != PROGRAM:
        return found.rows(importlib.import_module(found.module), f"{lake}/{way}")
    names: dict[str, Any] = {}
    counted = ran(snippet(reader, lake), names)
    rows = found.shown(names)
    assert counted == len(rows)
    return rows
