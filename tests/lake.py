"""What a lake holds, as a stranger reads it: Parquet by pyarrow, manifests as plain JSON.

Relies on names for a row's place. Imports nothing of the job, so that it cannot share a mistake with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from pyroaring import BitMap64

Coordinate = tuple[int, int]


class Place(NamedTuple):
    """Where a row lies: in the data, late or invalid rows of a day's folder; `dated` is a late row's day."""

    kind: str
    day: date
    dated: date | None = None


def coordinates(lake: Path) -> Iterator[tuple[Coordinate, Place]]:
    """Give every row that any reader could find, staging apart."""
    for path in sorted(lake.glob("date=*/**/*.parquet")):
        place = place_of(path.relative_to(lake))
        # A file alone, never a folder: pyarrow would add columns that it reads from the path.
        table = pq.ParquetFile(path).read(columns=["kafka_partition", "kafka_offset"])
        pairs = zip(table["kafka_partition"].to_pylist(), table["kafka_offset"].to_pylist(), strict=True)
        for partition, offset in pairs:
            yield (partition, offset), place


def begun(lake: Path) -> bool:
    """Tell whether a task has begun: it has a folder of its own, as the sample before it has."""
    return any((lake / "_staging").glob("*/attempts/*-*"))


def place_of(path: Path) -> Place:
    """Read a file's place from its path below the lake."""
    match path.parts:
        case [day, name] if name.startswith("late-"):  # brought here by the run of the day that it names
            return Place("late", date.fromisoformat(name[5:15]), _date(day))
        case [day, name] if name.startswith("part-"):
            return Place("day", _date(day))
        case [day, "_late", dated, name] if name.startswith("late-"):
            return Place("late", _date(day), _date(dated))
        case [day, "_invalid", name] if name.startswith("invalid-"):
            return Place("invalid", _date(day))
    raise AssertionError(f"{path} is no place for rows")


def places(lake: Path) -> dict[Coordinate, Place]:
    """Give the one place of each coordinate; one that lies in two places, or twice in one, is a failure."""
    found: dict[Coordinate, Place] = {}
    for coordinate, place in coordinates(lake):
        assert coordinate not in found, f"{coordinate} lies in {found[coordinate]} and in {place}"
        found[coordinate] = place
    return found


def rows(lake: Path, day: date, pattern: str = "*.parquet") -> dict[Coordinate, dict[str, Any]]:
    """Give the whole rows of a day by their coordinates."""
    found = {}
    for path in sorted(lake.glob(f"date={day}/{pattern}")):
        for row in pq.ParquetFile(path).read().to_pylist():
            found[row["kafka_partition"], row["kafka_offset"]] = row
    return found


def invalid(lake: Path, day: date) -> dict[Coordinate, dict[str, Any]]:
    """Give the invalid rows that a day's run found."""
    return rows(lake, day, "_invalid/*.parquet")


def manifest(lake: Path, day: date) -> dict[str, Any]:
    """Read a day's manifest."""
    return _read(lake / f"date={day}" / "_manifest.json")


def manifests(lake: Path) -> list[dict[str, Any]]:
    """Read all manifests, in the order of their days."""
    return [_read(path) for path in sorted(lake.glob("date=*/_manifest.json"))]


def _read(path: Path) -> dict[str, Any]:
    """Read a manifest, with the long sets of offsets that lie beside it put in their places."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    checkpoints = (*document["consumed"]["partitions"], *document["next"]["partitions"])
    for part, key in [
        *((each, "pending") for each in checkpoints),
        *((g, "offsets") for g in document["gaps"]),
    ]:
        if isinstance(listed := part[key], dict):
            text = path.with_name("_offsets.roaring").read_bytes()[listed["at"] :][: listed["bytes"]]
            part[key] = [[at, at + 1] for at in BitMap64.deserialize(text)]
    return document


def pending(lake: Path) -> set[Coordinate]:
    """Give the pending offsets of the last manifest."""
    return {
        (part["partition"], offset)
        for part in manifests(lake)[-1]["next"]["partitions"]
        for from_, until in part["pending"]
        for offset in range(from_, until)
    }


def gaps(document: dict[str, Any]) -> set[Coordinate]:
    """Give the offsets that a manifest says Kafka did not deliver."""
    return {
        (part["partition"], offset)
        for part in document["gaps"]
        for from_, until in part["offsets"]
        for offset in range(from_, until)
    }


def verdicts(document: dict[str, Any]) -> dict[str, int]:
    """Sum up a manifest's tally by verdict."""
    found: dict[str, int] = {}
    for tally in document["tally"]:
        found[tally["verdict"]] = found.get(tally["verdict"], 0) + tally["rows"]
    return found


def _date(name: str) -> date:
    return date.fromisoformat(name.removeprefix("date="))
