"""Which encoding each leaf of a Parquet file gets.

Pure. Ascending coordinates are delta encoded. A dictionary is built where values repeat, and never where a
writer would only build it to drop it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

DELTA: Final = "DELTA_BINARY_PACKED"
ASCENDING: Final = ("kafka_offset", "kafka_timestamp", "event_time")
SAMPLE: Final = 10_000
"""How many rows decide whether values repeat."""
REPEATING: Final = 0.5
"""Values repeat where at most this share of them is distinct."""


def delta_encoded(schema: pa.Schema) -> dict[str, str]:
    """Return the names of the columns that ascend, with their encoding."""
    return dict.fromkeys((name for name in ASCENDING if name in schema.names), DELTA)


def dictionary_columns(table: pa.Table) -> list[str]:
    """Return the paths in Parquet of the leaves whose values repeat, judging by the first rows."""
    rows = table.slice(0, SAMPLE).combine_chunks()
    paths: list[str] = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if name not in ASCENDING and column.num_chunks:
            paths += [path for path, leaf in leaves(name, column.chunk(0)) if _repeats(leaf)]
    return paths


def leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """List the leaves of a column, with their paths in Parquet."""
    type = array.type
    if pa.types.is_struct(type):
        for index in range(type.num_fields):
            yield from leaves(f"{path}.{type.field(index).name}", array.field(index))
    elif pa.types.is_map(type):
        yield from leaves(f"{path}.key_value.key", array.keys)
        yield from leaves(f"{path}.key_value.value", array.items)
    elif pa.types.is_list(type):
        yield from leaves(f"{path}.list.element", array.flatten())
    else:
        yield path, array


def _repeats(leaf: pa.Array) -> bool:
    return len(leaf) > 0 and pc.count_distinct(leaf).as_py() <= REPEATING * len(leaf)
