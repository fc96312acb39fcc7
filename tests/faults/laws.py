"""The laws of a lake, each a function: what must hold after every step of every history.

Relies on the reference for what a lake should hold. Never uses the product to see what it does hold: folders
are walked, manifests are plain JSON, files are read again.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from tests.reference import Coordinate, Fate, Lake, Place, Settled, Topic, micros
from tests.support.lake import IN_FILES, place_of

VERDICTS: Final = {
    "skipped": (Fate.SKIPPED,),
    "invalid": (Fate.INVALID,),
    "before_first": (Fate.BEFORE_FIRST,),
    "later_day": (Fate.PENDING,),
    "late": (Fate.AMENDED, Fate.SET_ASIDE),
    "in_day": (Fate.IN_DAY,),
}
"""What a manifest calls the fates that it counts."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file; `what` is its id, or the raw value of an invalid one."""

    at: Coordinate
    event_time: int | None
    what: str | bytes | None


@dataclass(frozen=True, slots=True)
class File:
    """A file of the lake."""

    inode: int
    bytes: int
    sha256: str
    rows: tuple[Row, ...]


class Reader:
    """Reads files, each text once."""

    def __init__(self, rows: Callable[[Path], Iterable[Row]]) -> None:
        """Take a way to read rows."""
        self._rows = rows
        self._known: dict[tuple[int, int, int], File] = {}

    def read(self, path: Path) -> File:
        """Return a file; an unchanged one is not read again."""
        stat = path.stat()
        key = stat.st_ino, stat.st_size, stat.st_mtime_ns
        if key not in self._known:
            rows = tuple(self._rows(path)) if path.suffix in (".parquet", ".rows") else ()
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            self._known[key] = File(stat.st_ino, stat.st_size, digest, rows)
        return self._known[key]


@dataclass(frozen=True)
class Seen:
    """A lake as it is, beside what it should be.

    `moving` is whether the newest day may still have late files on their way; `upgrading` is whether days are
    of an earlier format, and an upgrade may have died before it renamed late files. `before` are the files of
    committed days when they were looked at last, by `todays_name`.
    """

    folder: Path
    lake: Lake
    topic: Topic
    produced: Mapping[Coordinate, tuple[bytes | None, int | None]]
    moving: bool
    upgrading: bool
    before: Mapping[str, str]
    files: Mapping[str, File]

    @classmethod
    def of(cls, folder: Path, reader: Reader, **known: Any) -> Seen:
        """Look at all that lies in a lake."""
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        names = {path.relative_to(folder).as_posix(): path for path in paths}
        kept = {name: reader.read(path) for name, path in names.items() if not name.startswith("_")}
        return cls(folder=folder, files=kept, **known)

    @cached_property
    def manifests(self) -> dict[date, Any]:
        """The manifests as JSON."""
        manifests = {}
        for day in self.days:
            path = self.folder / f"date={day}" / "_manifest.json"
            assert path.exists(), f"{day} has no manifest"
            manifests[day] = json.loads(path.read_bytes())
        return manifests

    @cached_property
    def days(self) -> list[date]:
        """The days that have a folder."""
        return sorted(date.fromisoformat(folder.name[5:]) for folder in self.folder.glob("date=*"))

    @cached_property
    def promised(self) -> Counter[Coordinate]:
        """What the promised way to read finds: `date=*/*.parquet`."""
        return Counter(row.at for name, file in self.files.items() if _is_data(name) for row in file.rows)

    def settled(self) -> Iterator[tuple[Settled, Any]]:
        """Yield each day of the reference that has not expired with its manifest."""
        for settled in self.lake.kept:
            yield settled, self.manifests[settled.day.date]

    @cached_property
    def expired(self) -> list[tuple[Settled, Any]]:
        """The days of the reference that have expired, with their entries in the ledger."""
        settled = self.lake.days[: len(self.lake.days) - len(self.lake.kept)]
        entries = [self.folder / "_ledger" / f"{each.day.date}.json" for each in settled]
        return [(each, json.loads(entry.read_bytes())) for each, entry in zip(settled, entries, strict=True)]

    def left(self, file: Any) -> bool:
        """Return whether a late file went with the day to which it was brought."""
        return bool(file["target"]) and date.fromisoformat(file["target"][5:15]) <= self.lake.expired

    def awaits_rename(self, day: date, file: Any) -> bool:
        """Return whether a late file has a link in its owner's day while it is renamed in its own."""
        target, source = file["target"], f"date={day}/{file['path']}"
        linked = bool(target) and self.upgrading and source in self.files
        return linked and bool({target, earlier_target(target)} & self.files.keys())

    def listed(self) -> Iterator[tuple[date, Any]]:
        """Yield each file that a manifest lists, with the day of that manifest."""
        for day, manifest in self.manifests.items():
            for file in manifest["files"]:
                yield day, file


def _is_data(name: str) -> bool:
    folder, _, file = name.partition("/")
    return folder.startswith("date=") and "/" not in file and file.endswith(".parquet")


def _offsets(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {offset for from_, until in ranges for offset in range(from_, until)}


def todays_name(name: str) -> str:
    """Return the name that a file of a day has by today's format."""
    folder, _, last = name.rpartition("/")
    last = f"part-{last}" if last.startswith("late-") else last
    return f"{folder}/{last.replace('.parquet', '.rows') if '/_' in folder else last}"


def earlier_target(target: str) -> str:
    """Return the name that a late file had in its day by earlier formats."""
    return target.replace("/part-late-", "/late-")


Law = Callable[[Seen], None]

# -- the laws


def whole_days_only(seen: Seen) -> None:
    """A day is there with its manifest and all its files, or not at all; and just the settled ones are."""
    assert seen.days == [settled.day.date for settled in seen.lake.kept], (
        f"the wrong days are there: {seen.days}"
    )
    for day, file in seen.listed():
        committed = f"date={day}/{file['path']}"
        there = {committed, file["target"]} & seen.files.keys()
        assert there or seen.left(file), f"{committed} is missing"


def no_coordinate_twice(seen: Seen) -> None:
    """The promised way to read never finds a record twice, not even while late rows are on their way."""
    twice = {at: count for at, count in seen.promised.items() if count > 1}
    assert not twice, f"read more than once: {twice}"


def every_record_has_its_place(seen: Seen) -> None:
    """Each record lies where the reference says, and nowhere else."""
    actual: dict[Coordinate, set[Place]] = {}
    for name, file in seen.files.items():
        for row in file.rows:
            actual.setdefault(row.at, set()).add(place_of(Path(name)))
    newest = seen.days[-1] if seen.days else None
    for at, place in seen.lake.places.items():
        if place.fate in IN_FILES:
            of_record = actual.pop(at, set())
            lawful = [{place}]
            if place.fate is Fate.AMENDED and seen.moving and place.day == newest:
                waiting = Place(Fate.SET_ASIDE, place.day, place.of)
                lawful += [{waiting}, {place, waiting}]
            if place.fate is Fate.AMENDED and seen.upgrading:
                lawful += [{place, Place(Fate.SET_ASIDE, place.day, place.of)}]
            assert of_record in lawful, f"{at} should be {place}, is {of_record or 'nowhere'}"
    assert not actual, f"in files, and should not be: {actual}"


def rows_hold_what_was_produced(seen: Seen) -> None:
    """A row is the record of its coordinate: its event time to the microsecond, its id or raw value."""
    for name, file in seen.files.items():
        for row in file.rows:
            value, event_time = seen.produced[row.at]
            assert not isinstance(row.what, str) or row.what == f"{row.at[0]}-{row.at[1]}", f"{row} in {name}"
            if "/_invalid/" in name:
                assert row.what == value, f"{row} in {name}"
            else:
                assert row.event_time == event_time, f"{row} in {name}"


def amended_rows_are_of_their_day(seen: Seen) -> None:
    """All rows that the promised way to read finds in a day are dated on it, by the bounds it recorded."""
    bounds = {settled.day.date: settled.day for settled in seen.lake.days}
    for name, file in seen.files.items():
        if _is_data(name):
            day = bounds[date.fromisoformat(name[5:15])]
            assert all(
                row.event_time is not None and day.start <= row.event_time < day.end for row in file.rows
            )


def files_are_those_that_were_committed(seen: Seen) -> None:
    """Each file is, byte for byte, the one that its manifest lists; or the one that a rebuild made for it."""
    remade = {file["target"]: file for manifest in seen.manifests.values() for file in manifest["remade"]}
    for day, committed in seen.listed():
        for name in {f"date={day}/{committed['path']}", committed["target"]} & seen.files.keys():
            file, listed = seen.files[name], remade.get(name, committed)
            assert (file.bytes, file.sha256) == (listed["bytes"], listed["sha256"]), f"{name} was changed"
            assert len(file.rows) == listed["rows"], name


def a_committed_day_never_changes(seen: Seen) -> None:
    """What was there is there, unless it moved on to its day; what is new, a later manifest lists."""
    files = {todays_name(name): file for name, file in seen.files.items()}
    assert len(files) == len(seen.files), "a file has two names"
    moved, new = dict[str, str](), set[str]()
    for day, listed in seen.listed():
        name = todays_name(f"date={day}/{listed['path']}")
        if listed["target"]:
            moved[name] = todays_name(listed["target"])
            new.add(moved[name])
        if seen.awaits_rename(day, listed) or (seen.upgrading and not listed["rows"]):
            new.add(name)
    for name, digest in seen.before.items():
        file = files.get(name) or files.get(moved.get(name, ""))
        assert file is not None, f"{name} is gone"
        assert file.sha256 == digest, f"{name} was changed"
    known = {name.partition("/")[0] for name in seen.before}
    for name in files.keys() - seen.before.keys():
        assert name.partition("/")[0] not in known or name in new, f"{name} is new in a committed day"


def nothing_left_but_orphans(seen: Seen) -> None:
    """Beside the days are lock, staging and the columns alone; manifests name every file in a day."""
    for path in seen.folder.iterdir():
        beside = ("_lock", "_schema.json", "_staging", "_ledger")
        assert path.name in beside or path.name.startswith("date="), f"{path} was left"
    named = {f"date={day}/_manifest.json" for day in seen.days}
    for day, file in seen.listed():
        named |= {f"date={day}/{file['path']}", file["target"]}
        if seen.awaits_rename(day, file):
            named.add(earlier_target(file["target"]))
    assert not seen.files.keys() - named, "no manifest names them"


def the_ledger_has_each_day(seen: Seen) -> None:
    """Each day's manifest is its entry in the ledger too, once its run published it; there is no other."""
    entries = {path.stem: path.read_bytes() for path in seen.folder.glob("_ledger/*")}
    known = {*seen.days, *(settled.day.date for settled, _ in seen.expired)}
    assert entries.keys() <= set(map(str, known)), "an entry of no day"
    staged = {path.name[:10] for path in seen.folder.glob("_staging/*")}
    for day in seen.days:
        being_published = str(day) in staged or (seen.moving and day == seen.days[-1])
        manifest = (seen.folder / f"date={day}" / "_manifest.json").read_bytes()
        assert entries.get(str(day)) == manifest or being_published, f"{day} is not in the ledger"


def days_go_on_where_the_last_one_ended(seen: Seen) -> None:
    """The recorded bounds are those of the zone rules of then, without a hole and without an overlap."""
    for settled, manifest in seen.settled():
        day = manifest["day"]
        assert (_micros(day["start"]), _micros(day["end"])) == (settled.day.start, settled.day.end), day


def _micros(text: str) -> int:
    return micros(datetime.fromisoformat(text))


def checkpoints_match_the_reference(seen: Seen) -> None:
    """Each day consumed the checkpoint before it, but for lost offsets; the last one is the reference's."""
    before: Any = seen.expired[-1][1] if seen.expired else None
    for settled, manifest in seen.settled():
        consumed = {part["partition"]: part for part in manifest["consumed"]["partitions"]}
        for part in before["next"]["partitions"] if before else ():
            mine = consumed[part["partition"]]
            lost = set(settled.offsets(part["partition"], Fate.LOST))
            assert _offsets(mine["pending"]) == _offsets(part["pending"]) - lost, f"pending of {mine}"
            assert mine["anchor"] == part["anchor"], f"anchor of {mine}"
            assert mine["seen_until"] == part["seen_until"] or lost, f"seen_until of {mine}"
        before = manifest
    if not seen.days:
        return
    parts = {part["partition"]: part for part in before["next"]["partitions"]}
    assert parts.keys() == seen.lake.seen_until.keys()
    for number, part in parts.items():
        assert part["seen_until"] == seen.lake.seen_until[number], f"seen_until of {part}"
        assert sorted(_offsets(part["pending"])) == seen.lake.pending(number), f"pending of {part}"
        anchor, last = part["anchor"], seen.lake.last.get(number)
        assert (anchor and anchor["offset"]) == (last and last[0])
        stamp = last[1].stamp if last else None
        assert anchor is None or anchor["timestamp"] == (-1 if stamp is None else stamp)
    starts = {first["partition"]: first["offset"] for first in before["first_offsets"]}
    assert starts == seen.lake.first


def every_offset_explained(seen: Seen) -> None:
    """What was read of a span is a verdict or a gap; counts and digests are of just the right offsets."""
    for settled, manifest in seen.settled():
        gaps = {gap["partition"]: gap for gap in manifest["gaps"]}
        for span in manifest["spans"]:
            number = span["partition"]
            tally = {t["verdict"]: t for t in manifest["tally"] if t["partition"] == number}
            missed, reads = _offsets(gaps[number]["offsets"]), _offsets(span["reads"])
            assert sum(t["rows"] for t in tally.values()) + len(missed) == len(reads), f"unexplained: {span}"
            assert gaps[number]["probed"] == len(gaps[number]["offsets"])
            for verdict, fates in VERDICTS.items():
                offsets = settled.offsets(number, *fates)
                counted = tally.pop(verdict, None)
                assert (counted["rows"] if counted else 0) == len(offsets), (
                    f"{settled.day.date} {number} {verdict}"
                )
                assert counted is None or counted["digest"] == _digest(offsets)
            assert not tally.keys() - {"already_settled"}
            new = {offset for part, offset in settled.placed if part == number}
            lost = set(settled.offsets(number, Fate.LOST))
            assert new - lost <= reads
            assert missed & new == set(settled.offsets(number, Fate.GAP)), (
                f"gaps of {settled.day.date} in {number}"
            )


def expired_days_are_counted(seen: Seen) -> None:
    """What is left of an expired day says what became of each offset, and how many rows went with it.

    Later days count the late rows that they did not bring there.
    """
    for settled, manifest in seen.settled():
        aside = [place.of for place in settled.placed.values() if place.fate is Fate.SET_ASIDE]
        late = sum(day is not None and day <= settled.expired for day in aside)
        assert manifest.get("late_expired", 0) == late, f"{settled.day.date} counts other late rows"
    for settled, entry in seen.expired:
        day = settled.day.date
        for (number, verdict), offsets in _verdicts(settled).items():
            tally = {t["verdict"]: t for t in entry["tally"] if t["partition"] == number}
            counted = tally.get(verdict)
            assert (counted["rows"] if counted else 0) == len(offsets), f"{day} {number} {verdict}"
            assert counted is None or counted["digest"] == _digest(offsets)
        went = seen.lake.went.get(day, 0)
        assert entry["removed"]["rows"] + entry["removed"]["amended"] == went, f"{day} counts other rows"


def _verdicts(settled: Settled) -> dict[tuple[int, str], list[int]]:
    numbers = {number for number, _ in settled.placed}
    return {
        (number, verdict): settled.offsets(number, *fates)
        for number in numbers
        for verdict, fates in VERDICTS.items()
    }


def _digest(offsets: list[int]) -> str:
    """Return the hash of a set of offsets, written as ranges."""
    ranges: list[list[int]] = []
    for offset in offsets:
        if ranges and ranges[-1][1] == offset:
            ranges[-1][1] += 1
        else:
            ranges.append([offset, offset + 1])
    text = ",".join(f"{from_}-{until}" for from_, until in ranges)
    return hashlib.sha256(text.encode()).hexdigest()


def losses_are_marked(seen: Seen) -> None:
    """A day that went on without offsets is marked for ever, and no other day is."""
    for settled, manifest in seen.settled():
        named = set[Coordinate]()
        for loss in manifest["accepted"]["loss"]:
            named |= {(loss["partition"], o) for o in range(loss["from_offset"], loss["until_offset"])}
        lost = {at for at, place in settled.placed.items() if place.fate is Fate.LOST}
        assert bool(named) == settled.lossy
        assert lost <= named
        for loss in manifest["accepted"]["loss"]:
            number = loss["partition"]
            assert loss["unsettled"] == len(settled.offsets(number, Fate.LOST)), f"lost in {number}"


def nothing_of_the_lake_lies_below_its_start(seen: Seen) -> None:
    """No valid record dated from the first day on lies below the offset at which the first day began."""
    if (
        not seen.lake.days or seen.expired or seen.manifests[seen.days[0]]["revision"] > 1
    ):  # other rules may be in force now
        return
    first = seen.lake.days[0]
    for number in first.ends:
        for offset, record in seen.topic.partitions[number].visible(0, seen.lake.first[number]):
            dated = record.event_time is not None and record.event_time >= first.day.start
            assert not (dated and first.request.rules.valid(record)), f"{number}-{offset} was passed over"


LAWS: Final[tuple[Law, ...]] = (
    whole_days_only,
    no_coordinate_twice,
    every_record_has_its_place,
    rows_hold_what_was_produced,
    amended_rows_are_of_their_day,
    files_are_those_that_were_committed,
    a_committed_day_never_changes,
    nothing_left_but_orphans,
    the_ledger_has_each_day,
    days_go_on_where_the_last_one_ended,
    checkpoints_match_the_reference,
    every_offset_explained,
    expired_days_are_counted,
    losses_are_marked,
    nothing_of_the_lake_lies_below_its_start,
)


def check(seen: Seen) -> None:
    """Check a lake by every law."""
    for law in LAWS:
        law(seen)
