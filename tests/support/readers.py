"""Readers of a lake that others write, and the promises of docs/READ.md about them."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, Final

PAGE: Final = (Path(__file__).parents[2] / "docs" / "READ.md").read_text()
PROMISED, FOLDER, EVERYWHERE = "date=*/*.parquet", "", "**/*.parquet"
WAYS: Final = (PROMISED, FOLDER, EVERYWHERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A library, and how it counts the rows of a pattern or of a folder."""

    module: str
    count: Callable[[Any, str], int]


def _listed(path: str) -> Any:
    return sorted(glob(path, recursive=True)) if "*" in path else path  # noqa: PTH207


def _polars(polars: Any, path: str) -> int:
    return int(polars.scan_parquet(path).select(polars.len()).collect().item())


def _duckdb(duckdb: Any, path: str) -> int:
    return int(duckdb.execute(f"SELECT count(*) FROM read_parquet('{path}')").fetchone()[0])


def _pyarrow(dataset: Any, path: str) -> int:
    return int(dataset.dataset(_listed(path), format="parquet", partitioning="hive").count_rows())


def _pandas(pandas: Any, path: str) -> int:
    listed = _listed(path)
    return sum(len(pandas.read_parquet(each)) for each in ([listed] if listed == path else listed))


def _chdb(chdb: Any, path: str) -> int:
    return int(chdb.query(f"SELECT count() FROM file('{path}', Parquet)", "TSV").bytes())


def _datafusion(datafusion: Any, path: str) -> int:
    return int(datafusion.SessionContext().read_parquet(path).count())


READERS: Final[Mapping[str, Reader]] = {
    "DuckDB": Reader(module="duckdb", count=_duckdb),
    "Polars": Reader(module="polars", count=_polars),
    "pyarrow": Reader(module="pyarrow.dataset", count=_pyarrow),
    "pandas": Reader(module="pandas", count=_pandas),
    "ClickHouse": Reader(module="chdb", count=_chdb),
    "DataFusion": Reader(module="datafusion", count=_datafusion),
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


def ran(program: str, **names: object) -> int:
    """Run a program of the page, and return the rows that it counts."""
    exec(program, names)
    rows = names["rows"]
    assert isinstance(rows, int)
    return rows


def counted(reader: str, path: str) -> int | str:
    """Count by a reader; an error of any kind is `error`."""
    library = importlib.import_module(READERS[reader].module)
    try:
        return READERS[reader].count(library, path)
    except Exception:  # noqa: BLE001 - each reader has its own
        return "error"
