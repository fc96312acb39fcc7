"""What lies in a lake, read as a stranger would: by walking its folders and opening its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq

Coordinate = tuple[int, int]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a record lies: in a day's folder, as `in_day`, `late` or `invalid`; `of` is a late row's day."""

    day: date
    kind: str
    of: date | None = None


def rows(lake: Path) -> Iterator[tuple[Coordinate, Place]]:
    """Give each row of all committed days with its place; a row that lies twice is given twice."""
    for folder in sorted(lake.glob("date=*")):
        day = _date(folder)
        for file in sorted(folder.rglob("*.parquet")):
            match file.relative_to(folder).parts:
                case [_]:
                    place = Place(day, "in_day")
                case ["_invalid", _]:
                    place = Place(day, "invalid")
                case ["_late", late, _]:
                    place = Place(day, "late", _date(Path(late)))
                case other:
                    raise AssertionError(f"a file at an unknown place: {other}")
            table = pq.read_table(file, columns=["kafka_partition", "kafka_offset"], partitioning=None)
            for partition, offset in zip(*table.to_pydict().values(), strict=True):
                yield (partition, offset), place


def places(lake: Path) -> dict[Coordinate, Place]:
    """Give the one place of each row.

    Raises:
        AssertionError: a row lies in two places.
    """
    found: dict[Coordinate, Place] = {}
    for coordinate, place in rows(lake):
        assert coordinate not in found, f"{coordinate} lies at {found[coordinate]} and at {place}"
        found[coordinate] = place
    return found


def files(lake: Path) -> set[str]:
    """List all files of a lake by their paths below it."""
    return {path.relative_to(lake).as_posix() for path in lake.rglob("*") if path.is_file()}


def _date(folder: Path) -> date:
    return date.fromisoformat(folder.name.removeprefix("date="))
