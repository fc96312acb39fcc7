"""The files of a lake: each where a manifest says, as it was committed, and no others.

Relies on the manifests that can be read. A file is hashed whole; of what it holds only the footer is read
here, which has the number of rows, the offsets and the event times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq

from jobs.lake.posix import DAY_PREFIX, NFS, Lake, files_below, sha256_and_size
from jobs.lake.status import Whereabouts, whereabouts
from jobs.task.result import ReadBack
from jobs.verify.manifests import Chain, told
from offsets.errors import StoreFailed
from offsets.manifest import LISTS_NAME, MANIFEST_NAME, long_sets
from offsets.model import DataFile, Manifest, Verdict, micros

LINK: Final = "a symbolic link, and no file of this lake"
LATE_NAME = re.compile(r"late-(\d{4}-\d\d-\d\d)-")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A file that a manifest names, and where it lies; `path` is None where it is nowhere."""

    manifest: Manifest
    file: DataFile
    path: Path | None
    open_move: bool
    problem: str | None

    @property
    def filed_under(self) -> date:
        """The day to which its rows belong."""
        return self.file.day or self.manifest.day.date


def locate(lake: Lake, chain: Chain, manifest: Manifest, file: DataFile) -> NamedFile:
    """Find a file, and note whether it lies where it must; only the newest day may have open moves."""
    newest = manifest.day.date == chain.newest
    try:
        found = whereabouts(lake, manifest, file)
        problem = _misplaced(lake, manifest, file, found, newest)
    except OSError as error:
        found = Whereabouts(source=None, target=None, same=False)
        problem = told(error, f"{lake.day_folder(manifest.day.date) / file.path}: cannot be read ({error})")
    return NamedFile(
        manifest=manifest,
        file=chain.as_it_is(file),
        path=found.path,
        open_move=bool(file.target and found.source and newest and not problem),
        problem=problem,
    )


def _misplaced(
    lake: Lake, manifest: Manifest, file: DataFile, found: Whereabouts, newest: bool
) -> str | None:
    own = lake.day_folder(manifest.day.date) / file.path
    if file.target is None:
        return None if found.source else f"{own}: cannot be read (it is not there)"
    target = lake.root / file.target
    if file.verdict is not Verdict.LATE or file.target.split("/")[0] != f"{DAY_PREFIX}{file.day}":
        return f"{own}: its manifest brings it to {target}, which is not its day's folder"
    if found.path is None:
        return f"{target}: gone, and so is {own}, from where it is brought"
    day = manifest.day.date if found.target else file.day
    again = "" if newest else f"; build {day} again first (`run --date {day} --force`)"
    if found.source and found.target and not found.same:
        return f"{target}: another file than {own}, from where it is brought{again}"
    if found.source and not newest:
        return f"{own}: still there, though later days are committed; it belongs at {target}{again}"
    return None


def unknown_files(lake: Lake, chain: Chain, manifest: Manifest) -> Iterator[str]:
    """Yield a problem for each file in a committed day's folder that no manifest names."""
    folder = lake.day_folder(manifest.day.date)
    named = _names_in(chain, manifest)
    found: list[Path] = []
    try:
        found.extend(files_below(folder))
    except StoreFailed as refused:  # what was listed before that is reported too
        yield told(refused, f"{folder}: cannot be listed ({refused.found}, when trying {refused.expected})")
    for path in sorted(found):
        name = path.relative_to(folder).as_posix()
        if name in named or NFS.fullmatch(path.name):
            continue
        if path.is_symlink():
            yield f"{path}: {LINK}"
            continue
        by = _brought_by(path)
        if by is None or by in chain.known:
            yield f"{path}: no manifest names this file"
        elif by not in chain.broken:
            yield f"{path}: no manifest names this file; {by}, whose run brought it, is not committed"


def _names_in(chain: Chain, manifest: Manifest) -> set[str]:
    """Return the paths below a day's folder that manifests name."""
    own = {file.path for file in manifest.files}
    brought = chain.brought.get(f"{DAY_PREFIX}{manifest.day.date}", frozenset())
    listed = {LISTS_NAME for offsets in long_sets(manifest) if offsets.listing}
    return own | brought | listed | {MANIFEST_NAME}


def _brought_by(path: Path) -> date | None:
    found = LATE_NAME.match(path.name)
    try:
        return date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


def strange_folders(lake: Lake, chain: Chain) -> Iterator[str]:
    """Yield a problem for each name beside the days that readers of `date=*` would take for a day."""
    known = {lake.day_folder(day) for day in chain.days}
    for path in sorted(lake.root.glob(f"{DAY_PREFIX}*")):
        if path not in known:
            yield f"{path}: no day of this lake has this name, but readers of {DAY_PREFIX}* see it"


def read_footer(path: Path, sha256: str) -> ReadBack:
    """Hash a file whole and read its footer; which offsets it holds is not looked at.

    Event times are read where it is as it was written: some damaged statistics end the process in Arrow.
    """
    digest, size = sha256_and_size(path)
    footer = pq.read_metadata(path)
    times = [edges for edges in _event_times(footer) if edges] if digest == sha256 else []
    return ReadBack(
        rows=footer.num_rows,
        bytes=size,
        sha256=digest,
        offsets={},
        event_time_min=min((low for low, _ in times), default=None),
        event_time_max=max((high for _, high in times), default=None),
    )


def _event_times(footer: pq.FileMetaData) -> Iterator[tuple[int, int] | None]:
    names = [footer.schema.column(number).path for number in range(footer.num_columns)]
    if "event_time" not in names:
        return
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(names.index("event_time")).statistics
        yield (statistics.min_raw, statistics.max_raw) if statistics and statistics.has_min_max else None


def file_problems(named: NamedFile, back: ReadBack) -> Iterator[str]:
    """Compare a file as it is with its manifest."""
    file, path = named.file, named.path
    for what, expected, found in (
        ("bytes", file.bytes, back.bytes),
        ("sha256", file.sha256, back.sha256),
        ("rows", file.rows, back.rows),
        ("earliest event", file.event_time_min and micros(file.event_time_min), back.event_time_min),
        ("latest event", file.event_time_max and micros(file.event_time_max), back.event_time_max),
    ):
        if expected != found and (found is not None or file.sha256 == back.sha256):
            yield f"{path}: {what} should be {expected}, is {found}"


def footer_problems(named: NamedFile) -> Iterator[str]:
    """Check what the footer says about the file's origin."""
    assert named.path is not None
    manifest, file = named.manifest, named.file
    ranges = [[part.partition, part.from_offset, part.until_offset] for part in file.offsets]
    said = pq.read_metadata(named.path).metadata or {}
    for what, expected in (
        ("topic", manifest.topic.name),
        ("day", manifest.day.date.isoformat()),
        ("verdict", file.verdict.value),
        ("offsets", json.dumps(ranges)),
    ):
        found = said.get(f"kafka_daily.{what}".encode(), b"nothing").decode(errors="replace")
        if found != expected:
            yield f"{named.path}: its footer should name the {what} {expected}, and names {found}"
