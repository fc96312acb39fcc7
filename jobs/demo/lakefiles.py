"""What a lake holds, read as any other program would: files by the promised globs, manifests as plain JSON.

Relies on pyarrow to read a Parquet file, and on names for a row's place.
Never trusts a manifest about rows in files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from jobs.demo.locations import Place, Where

LATE_NAME: Final = re.compile(r"(?:part-)?late-(\d{4}-\d\d-\d\d)-[^/]+-\d+\.(?:parquet|rows)")
"""The late files of today, and those of manifests up to format 3, whose names begin with `late-`."""
SUFFIXES: Final = (".parquet", ".rows")
COUNTED: Final = {"skipped": Where.SKIPPED, "before_first": Where.BEFORE_FIRST}


class Row(NamedTuple):
    """One row of a file: its coordinate, its place, and what it shows; instants are microseconds."""

    partition: int
    offset: int
    place: Place
    kafka_timestamp: int | None
    event_time: int | None
    order_id: str | None
    amount: float | None
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The offsets `[seen_until, until_offset)` of one partition that a day's run saw first."""

    day: date
    partition: int
    from_offset: int
    seen_until: int
    until_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the manifests say about runs: days, spans in order, the last pending offsets, rows only counted.

    `targets` are the moves of late files, by their paths below the lake.
    """

    days: tuple[date, ...]
    seen: tuple[Seen, ...]
    pending: frozenset[tuple[int, int]]
    counted: dict[tuple[date, int, Where], int]
    targets: Mapping[str, str]


def _offsets(told: Any, lake: Path, manifest: dict[str, Any]) -> Iterable[int]:
    """Read a set of offsets: ranges in the manifest, or its place in the file of long sets."""
    if isinstance(told, list):
        return (offset for from_offset, until_offset in told for offset in range(from_offset, until_offset))
    with _lists_of(lake, manifest).open("rb") as file:
        file.seek(told["at"])
        return BitMap64.deserialize(file.read(told["bytes"]))


def _lists_of(lake: Path, manifest: dict[str, Any]) -> Path:
    """Return the file of a manifest's long sets: beside it, or in a bucket beside its entry."""
    beside = lake / f"date={_day(manifest)}" / "_offsets.roaring"
    return (
        beside if beside.exists() else lake / "_ledger" / str(_day(manifest)) / f"{manifest['run_id']}.lists"
    )


def read_history(lake: Path) -> History:
    """Read all manifests of a lake."""
    manifests = [json.loads(path.read_bytes()) for path in sorted(lake.glob("date=*/_manifest.json"))]
    pending: set[tuple[int, int]] = set()
    for part in manifests[-1]["next"]["partitions"] if manifests else []:
        offsets = _offsets(part["pending"], lake, manifests[-1])
        pending.update((part["partition"], offset) for offset in offsets)
    return History(
        days=tuple(_day(manifest) for manifest in manifests),
        seen=tuple(
            Seen(day=_day(manifest), **{name: span[name] for name in Seen.__slots__ if name != "day"})
            for manifest in manifests
            for span in manifest["spans"]
        ),
        pending=frozenset(pending),
        counted={
            (_day(manifest), tally["partition"], COUNTED[tally["verdict"]]): tally["rows"]
            for manifest in manifests
            for tally in manifest["tally"]
            if tally["verdict"] in COUNTED
        },
        targets={
            f"date={_day(manifest)}/{file['path']}": file["target"]
            for manifest in manifests
            for file in manifest["files"]
            if file["target"]
        },
    )


def _day(manifest: dict[str, Any]) -> date:
    return date.fromisoformat(manifest["day"]["date"])


def rows_of(lake: Path, history: History, *, moving: bool) -> Iterator[Row]:
    """Yield every row that a reader can find: of the days, the late ones and the invalid ones.

    With `moving` the newest day's late files may be on their way: each counts as moved, whether it has its
    old name, its new one, or both.
    """
    under_way = f"date={history.days[-1]}/" if moving and history.days else None
    for path in parquet_files(lake):
        name = path.relative_to(lake).as_posix()
        target = history.targets.get(name)
        if target is None or under_way is None or not name.startswith(under_way):
            yield from _rows(path, _borne_out(Path(name), history.targets))
        elif not ((lake / target).exists() and path.samefile(lake / target)):
            yield from _rows(path, _borne_out(Path(target), history.targets))


def parquet_files(lake: Path) -> list[Path]:
    """List the Parquet files of all days, also those whose names hide them from readers."""
    return sorted(path for path in lake.glob("date=*/**/*") if path.suffix in SUFFIXES)


def _borne_out(path: Path, targets: Mapping[str, str]) -> Place:
    """Return what a file's rows are: a late file's name counts only where a manifest confirms it."""
    name, place = path.as_posix(), place_of(path)
    borne_out = {Where.AMENDED: name in targets.values(), Where.LATE: name not in targets}
    return place if borne_out.get(place.where, True) else Place(Where.ASTRAY, path=name)


def place_of(path: Path) -> Place:
    """Return what a file's rows are, from its path below the lake and the promised names."""
    day = _dated(path.parts[0])
    match path.parts[1:]:
        case [name] if name.endswith(".parquet") and (run := _brought_by(name)):
            return Place(Where.AMENDED, run, day)
        case [name] if name.startswith("part-") and name.endswith(".parquet"):
            return Place(Where.IN_DAY, day)
        case ["_invalid", name] if name.startswith("invalid-"):
            return Place(Where.INVALID, day)
        case ["_late", happened, name] if _brought_by(name) == day:
            return Place(Where.LATE, day, _dated(happened))
        case _:
            return Place(Where.ASTRAY, path=str(path))


def _brought_by(name: str) -> date | None:
    """Return the day whose run a late file names, or None."""
    named = LATE_NAME.fullmatch(name)
    return date.fromisoformat(named[1]) if named else None


def _dated(folder: str) -> date:
    return date.fromisoformat(folder.removeprefix("date="))


def _rows(path: Path, place: Place) -> Iterator[Row]:
    # A file alone, never a folder: pyarrow would add columns that it reads from the path.
    table = pq.ParquetFile(path).read()
    names = set(table.schema.names)

    def column(name: str, type: pa.DataType | None = None) -> list[Any]:
        if name not in names:
            return [None] * table.num_rows
        values: Any = table[name]
        return list((values.cast(type) if type else values).to_pylist())

    yield from map(
        Row,
        column("kafka_partition"),
        column("kafka_offset"),
        [place] * table.num_rows,
        column("kafka_timestamp", pa.int64()),
        column("event_time", pa.int64()),
        column("order_id"),
        column("amount"),
        column("value"),
    )
