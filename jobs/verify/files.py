"""Check that each file of a lake lies where a manifest says, is unchanged, and that there are no others.

Relies on the manifests that can be read. A file is hashed whole, but only its footer is parsed here, which
holds the number of rows, the offsets and the event times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import pyarrow.parquet as pq

from jobs.lake.files import awaits_rename, is_link, is_success_file, sha256_and_size
from jobs.lake.names import (
    DAY_PREFIX,
    NFS,
    below,
    brought_by,
    day_ref,
    in_day,
    last,
    late_source,
    todays_name,
)
from jobs.lake.port import Files, Lake
from jobs.lake.status import FileLocation, locate_file
from jobs.task.result import ReadBack
from jobs.verify.advice import LINK, UNNAMED
from jobs.verify.manifests import Chain, as_problem
from offsets.errors import StoreFailed
from offsets.instants import micros
from offsets.manifest import DataFile, Manifest
from offsets.manifest_text import LISTS_NAME, MANIFEST_NAME, long_sets
from offsets.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFile:
    """A file that a manifest names, and where it lies; `ref` is None if it is gone."""

    manifest: Manifest
    file: DataFile
    ref: str | None
    place: str
    open_move: bool
    problem: str | None

    @property
    def filed_under(self) -> date:
        """The day to which its rows belong."""
        return self.file.day or self.manifest.day.date


def locate(lake: Lake, chain: Chain, manifest: Manifest, file: DataFile) -> NamedFile:
    """Find a file, and check that it lies where it must; only the newest day may have open moves."""
    newest = manifest.day.date == chain.newest
    try:
        location = locate_file(lake, manifest, file)
        problem = _misplaced(lake, manifest, file, location, newest)
    except StoreFailed as refused:
        location = FileLocation(source=None, target=None, same=False)
        own = lake.place(in_day(manifest.day.date, file.path))
        problem = as_problem(refused, f"{own}: cannot be read ({refused.found})")
    return NamedFile(
        manifest=manifest,
        file=chain.as_last_written(file),
        ref=location.ref,
        place=lake.place(location.ref or ""),
        open_move=bool(file.target and location.source and newest and not problem),
        problem=problem,
    )


def _misplaced(
    lake: Lake, manifest: Manifest, file: DataFile, location: FileLocation, newest: bool
) -> str | None:
    source = in_day(manifest.day.date, file.path)
    own = lake.place(source)
    if file.target is None:
        return None if location.source else f"{own}: cannot be read (it is not there)"
    target = lake.place(file.target)
    if file.verdict is not Verdict.LATE or file.target.split("/")[0] != day_ref(file.day):
        return f"{own}: its manifest brings it to {target}, which is not its day's folder"
    if not (location.source and newest) and awaits_rename(lake, source, file.target):
        return f"{target}: has its earlier name still, since an upgrade died: run `upgrade --execute` again"
    if location.ref is None:
        return f"{target}: gone, and so is {own}, from where it is brought"
    day = manifest.day.date if location.target else file.day
    again = "" if newest else f"; build {day} again first (`run --date {day} --force`)"
    if location.source and location.target and not location.same:
        return f"{target}: another file than {own}, from where it is brought{again}"
    if location.source and not newest:
        return f"{own}: still there, though later days are committed; it belongs at {target}{again}"
    return None


def unknown_files(lake: Lake, chain: Chain, manifest: Manifest) -> Iterator[str]:
    """Yield a problem for each file in a committed day's folder that no manifest names."""
    folder = day_ref(manifest.day.date)
    named = _names_in(chain, manifest)
    refs: list[str] = []
    try:
        refs.extend(lake.files_below(folder))
    except StoreFailed as refused:  # the files that were listed before are checked nevertheless
        problem = f"cannot be listed ({refused.found}, when trying {refused.expected})"
        yield as_problem(refused, f"{lake.place(folder)}: {problem}")
    for ref in sorted(refs):
        if below(ref, folder) in named or NFS.fullmatch(last(ref)):
            continue
        path = lake.place(ref)
        if is_link(lake, ref):
            yield f"{path}: {LINK}"
            continue
        if is_success_file(lake, ref, folder):
            continue
        by, renamed = brought_by(ref), todays_name(ref)
        is_named = by and below(renamed, folder) in named  # by the manifest of the day that brought it
        if by and is_named and awaits_rename(lake, in_day(by, late_source(renamed)), renamed):
            continue
        if by is None or by in chain.known:
            yield f"{path}: {UNNAMED}"
        elif by not in chain.broken:
            yield f"{path}: {UNNAMED}; {by}, whose run brought it, is not committed"


def _names_in(chain: Chain, manifest: Manifest) -> set[str]:
    """Return the paths below a day's folder that manifests name."""
    own = {file.path for file in manifest.files}
    brought = chain.brought.get(day_ref(manifest.day.date), frozenset())
    listed = {LISTS_NAME for offsets in long_sets(manifest) if offsets.listing}
    return own | brought | listed | {MANIFEST_NAME}


def unknown_day_folders(lake: Lake, chain: Chain) -> Iterator[str]:
    """Yield a problem for each name that is no day, but that readers of `date=*` would take for one."""
    known = {day_ref(day) for day in chain.days}
    if chain.expired:  # a run that died may have left it; the next one removes it
        known.add(day_ref(chain.expired.day.date))
    for name in lake.day_names():
        if name not in known:
            path = lake.place(name)
            yield f"{path}: no day of this lake has this name, but readers of {DAY_PREFIX}* see it"


def read_footer(lake: Files, ref: str, sha256: str) -> ReadBack:
    """Hash a whole file and read its footer, but not its offsets.

    Event times are read only if the hash is right: Arrow ends the process on some damaged statistics.
    """
    with lake.open_file(ref) as file:
        digest, size = sha256_and_size(file)
        footer = pq.read_metadata(file)
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
    """Yield a problem for each figure of a file that differs from its manifest."""
    file, path = named.file, named.place
    for what, expected, actual in (
        ("bytes", file.bytes, back.bytes),
        ("sha256", file.sha256, back.sha256),
        ("rows", file.rows, back.rows),
        ("earliest event", file.event_time_min and micros(file.event_time_min), back.event_time_min),
        ("latest event", file.event_time_max and micros(file.event_time_max), back.event_time_max),
    ):
        if expected != actual and (actual is not None or file.sha256 == back.sha256):
            yield f"{path}: {what} should be {expected}, is {actual}"


def footer_problems(lake: Files, named: NamedFile) -> Iterator[str]:
    """Yield a problem for each entry of a footer about the file's origin that differs from its manifest."""
    assert named.ref is not None
    manifest, file = named.manifest, named.file
    ranges = [[part.partition, part.from_offset, part.until_offset] for part in file.offsets]
    with lake.open_file(named.ref) as opened:
        metadata = pq.read_metadata(opened).metadata or {}
    for what, expected in (
        ("topic", manifest.topic.name),
        ("day", manifest.day.date.isoformat()),
        ("verdict", file.verdict.value),
        ("offsets", json.dumps(ranges)),
    ):
        actual = metadata.get(f"kafka_daily.{what}".encode(), b"nothing").decode(errors="replace")
        if actual != expected:
            yield f"{named.place}: its footer should name the {what} {expected}, and names {actual}"
