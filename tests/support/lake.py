"""Reads a lake as any other program does: Parquet by pyarrow, manifests as plain JSON.

Relies on the demo's oracle for what a file's name promises. Never imports the job, so that it cannot share a
mistake with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from pyroaring import BitMap64

from jobs.demo import lakefiles
from jobs.demo.lakefiles import parquet_files as parquet_files
from jobs.demo.locations import Where
from tests.reference import Coordinate, Fate, Place

FATES: Final = {
    Where.IN_DAY: Fate.IN_DAY,
    Where.AMENDED: Fate.AMENDED,
    Where.LATE: Fate.SET_ASIDE,
    Where.INVALID: Fate.INVALID,
}
"""The fate in the reference for each place in files."""
IN_FILES: Final = frozenset(FATES.values())


def coordinates(lake: Path) -> Iterator[tuple[Coordinate, Place]]:
    """Yield every row that a reader can find, except in staging."""
    for path in parquet_files(lake):
        place = place_of(path.relative_to(lake))
        # one file, never a folder: pyarrow would add columns from the path
        table = pq.ParquetFile(path).read(columns=["kafka_partition", "kafka_offset"])
        pairs = zip(table["kafka_partition"].to_pylist(), table["kafka_offset"].to_pylist(), strict=True)
        for partition, offset in pairs:
            yield (partition, offset), place


def begun(lake: Path) -> bool:
    """Return whether a task has begun: it has a folder of its own, as the sample before it has."""
    return any((lake / "_staging").glob("*/attempts/*-*"))


def place_of(path: Path) -> Place:
    """Read a file's place from its path below the lake."""
    location = lakefiles.place_of(path)
    assert location.day is not None, f"a file at an unknown place: {path}"
    return Place(FATES[location.where], location.day, location.happened)


def files(lake: Path) -> set[str]:
    """List all files of a lake by their paths below it."""
    return {path.relative_to(lake).as_posix() for path in lake.rglob("*") if path.is_file()}


def late_paths(lake: Path, by: date) -> list[Path]:
    """List the late files that a day's run brought to earlier days."""
    return sorted(lake.glob(f"date=*/part-late-{by}-*"))


def places(lake: Path) -> dict[Coordinate, Place]:
    """Return the one place of each coordinate; fail where one lies in two places, or twice in one."""
    by_coordinate: dict[Coordinate, Place] = {}
    for coordinate, place in coordinates(lake):
        assert coordinate not in by_coordinate, (
            f"{coordinate} lies in {by_coordinate[coordinate]} and in {place}"
        )
        by_coordinate[coordinate] = place
    return by_coordinate


def rows(lake: Path, day: date, pattern: str = "*.parquet") -> dict[Coordinate, dict[str, Any]]:
    """Return the whole rows of a day by their coordinates."""
    by_coordinate = {}
    for path in sorted(lake.glob(f"date={day}/{pattern}")):
        for row in pq.ParquetFile(path).read().to_pylist():
            by_coordinate[row["kafka_partition"], row["kafka_offset"]] = row
    return by_coordinate


def invalid(lake: Path, day: date) -> dict[Coordinate, dict[str, Any]]:
    """Return the invalid rows of a day's run."""
    return rows(lake, day, "_invalid/*.rows")


def manifest(lake: Path, day: date) -> dict[str, Any]:
    """Read a day's manifest."""
    return _read(lake / f"date={day}" / "_manifest.json")


def manifests(lake: Path) -> list[dict[str, Any]]:
    """Read all manifests, in the order of their days."""
    return [_read(path) for path in sorted(lake.glob("date=*/_manifest.json"))]


def _read(path: Path) -> dict[str, Any]:
    """Read a manifest; put the long sets of offsets in the file beside it into their places."""
    document: dict[str, Any] = json.loads(path.read_bytes())
    checkpoints = (*document["consumed"]["partitions"], *document["next"]["partitions"])
    for part, key in [
        *((part, "pending") for part in checkpoints),
        *((gap, "offsets") for gap in document["gaps"]),
    ]:
        if isinstance(listed := part[key], dict):
            text = path.with_name("_offsets.roaring").read_bytes()[listed["at"] :][: listed["bytes"]]
            part[key] = [[at, at + 1] for at in BitMap64.deserialize(text)]
    return document


def pending(lake: Path) -> set[Coordinate]:
    """Return the pending offsets of the last manifest."""
    return {
        (part["partition"], offset)
        for part in manifests(lake)[-1]["next"]["partitions"]
        for from_, until in part["pending"]
        for offset in range(from_, until)
    }


def gaps(document: dict[str, Any]) -> set[Coordinate]:
    """Return the offsets that Kafka did not deliver, by a manifest."""
    return {
        (part["partition"], offset)
        for part in document["gaps"]
        for from_, until in part["offsets"]
        for offset in range(from_, until)
    }


def verdicts(document: dict[str, Any]) -> dict[str, int]:
    """Sum up a manifest's tally by verdict."""
    rows: dict[str, int] = {}
    for tally in document["tally"]:
        rows[tally["verdict"]] = rows.get(tally["verdict"], 0) + tally["rows"]
    return rows
