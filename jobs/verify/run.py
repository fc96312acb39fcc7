"""The order of a verification: manifests, then files, then records, then Kafka.

Relies on the lake, and on a broker for the last level alone. Changes nothing, takes no lock, and goes on
with what can be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache, partial
from typing import Final

import structlog

from jobs.lake.names import brought_by, day_ref
from jobs.lake.port import Lake
from jobs.task.parquet_writer import UNREADABLE, read_back
from jobs.task.result import ReadBack
from jobs.verify.files import (
    LINK,
    NamedFile,
    file_problems,
    footer_problems,
    locate,
    read_footer,
    strange_folders,
    unknown_files,
)
from jobs.verify.kafka import compare
from jobs.verify.level import Level
from jobs.verify.manifests import (
    Chain,
    Refused,
    day_problems,
    read_again,
    read_chain,
    shape_problems,
    sum_problems,
    told,
    uncounted,
)
from jobs.verify.records import Coordinates, explain, row_problems
from jobs.verify.result import AgainstKafka, DayLedger, Verified, day_ledger
from offsets.errors import ConfigError, LedgerBroken, StoreFailed
from offsets.kafka.reader import TopicReader
from offsets.manifest import Manifest
from offsets.ranges import Offsets
from offsets.verdict import Verdict

log = structlog.get_logger(__name__)
Seen = Callable[[int, int], None]
LOOKS: Final = 5
"""How often a problem is looked at again while each look shows something else."""


def verify(
    lake: Lake,
    only: date | None,
    seen: Seen,
    level: Level = Level.FILES,
    reader: Callable[[], TopicReader] | None = None,
) -> Verified:
    """Compare committed days with their manifests, and at the last level with Kafka.

    `only` restricts it to one day, with the amendments that lie there. `seen` is called with how much is
    done, and of how much. `reader` returns the broker, and is called at the level `kafka` only.

    Raises:
        ConfigError: the lake has no committed day, or `only` lies outside its days.
    """
    if level is Level.KAFKA and reader is None:
        raise ValueError("a broker is needed to verify against Kafka")
    chain = read_chain(lake)
    _require_committed(lake, chain, only)
    run = _Run(lake, chain, level, seen, reader)
    run.look(only)
    return run.verified()


def _require_committed(lake: Lake, chain: Chain, only: date | None) -> None:
    """Check that there is something to verify: an empty lake would pass every check."""
    if not chain.days:
        raise ConfigError(
            expected=f"a lake with committed days at {lake.place('')}",
            found="a folder without any" if lake.exists() else "no such folder",
            do="Correct `lake.path`, or run a day first.",
        )
    first, last = chain.first or chain.days[0], chain.days[-1]
    if only and not first <= only <= last:
        raise ConfigError(
            expected="--date with a committed day",
            found=f"{only}, and days from {first} to {last} in {lake.place('')}",
            do="Name one of these days, or correct `lake.path`.",
        )


@dataclass(slots=True, kw_only=True)
class _Look:
    """What one look at a day found, or at what lies beside the days."""

    problems: list[str] = field(default_factory=list)
    unfinished_moves: list[str] = field(default_factory=list)
    held: list[tuple[str, int, Offsets]] = field(default_factory=list)
    ledger: DayLedger | None = None


class _Run:
    """One verification under way: what was found so far, by day; under None what lies beside the days."""

    def __init__(
        self,
        lake: Lake,
        chain: Chain,
        level: Level,
        seen: Seen,
        reader: Callable[[], TopicReader] | None,
    ) -> None:
        self._lake, self._level, self._seen, self._reader = lake, level, seen, reader
        self._looks: dict[date | None, _Look] = {}
        self._now = _Look()
        self._refused: list[str] = []
        self._done = self._total = 0
        self._take(chain)

    def _take(self, chain: Chain) -> None:
        self._chain = chain
        # a day and the one before it are all that is held of the manifests
        self._read_again = lru_cache(maxsize=2)(partial(read_again, self._lake, chain))
        self._days = {day: summary.day for day, summary in chain.known.items()}
        self._compacted = any(each.compacted for each in chain.known.values())

    def look(self, only: date | None) -> None:
        """Look at one day, or at the whole lake; look again at what is wrong, as the lake is by then.

        A run may commit, bring late files to their days or exchange a folder meanwhile. Only what is wrong
        twice in a row, or what the store refused to read once, is reported; the rest is logged.
        """
        self._look_at([only] if only else [*self._chain.days, None], only)
        for _ in range(LOOKS):
            wrong = {day: look.problems for day, look in self._looks.items() if look.problems}
            if not wrong:
                return
            self._take(read_chain(self._lake))
            self._look_at(list(wrong), only)
            self._log_gone(wrong)
            if all(self._looks[day].problems == problems for day, problems in wrong.items()):
                return

    def _log_gone(self, wrong: Mapping[date | None, list[str]]) -> None:
        for day, problems in wrong.items():
            for problem in problems:
                if problem not in self._looks[day].problems and problem not in self._refused:
                    log.warning(
                        "wrong at one look and not at the next: a run may be at work", problem=problem
                    )

    def _look_at(self, days: list[date | None], only: date | None) -> None:
        known = [self._chain.known[day] for day in days if day and day in self._chain.known]
        self._total += sum(each.files + (self._level is Level.KAFKA) for each in known)
        for day in days:
            self._now = self._looks[day] = _Look()
            with self._telling(f"{day}" if day else self._lake.place("")):
                if day is None:
                    self._now.problems += strange_folders(self._lake, self._chain)
                elif day not in self._chain.days:
                    self._now.problems.append(f"{day} is not committed")
                else:
                    self._committed(day)
        if only:
            with self._telling(f"{only}"):
                self._brought_to(only)
        found = [problem for day in days for problem in self._looks[day].problems]
        self._refused += [problem for problem in found if isinstance(problem, Refused)]

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        """Make what cannot be read a problem, and go on with the rest."""
        try:
            yield
        except (LedgerBroken, StoreFailed, OSError) as error:
            self._now.problems.append(told(error, f"{what}: {error}"))

    def _manifest(self, day: date | None) -> Manifest | None:
        """Read a manifest; None where it cannot be read, or is not the one that the chain was read with."""
        if day is None or day not in self._chain.known:
            return None
        found = self._read_again(day)
        if isinstance(found, str):
            self._now.problems.append(found)
            return None
        return found

    def _committed(self, day: date) -> None:
        before, own = self._manifest(self._chain.older(day)), self._manifest(day)
        self._now.problems += day_problems(self._chain, own, before, day)
        if own:
            self._day(own)

    def _brought_to(self, day: date) -> None:
        """Look at what concerns a day beside its own manifest: amendments, and the day before."""
        for amended in self._chain.amended.get(day, ()):
            if manifest := self._manifest(amended.by):
                files = [file for file in manifest.files if file.target and file.day == day]
                self._total += len(files)
                self._files(manifest, [locate(self._lake, self._chain, manifest, file) for file in files])
        if (older := self._chain.older(day)) in self._chain.broken:
            self._now.problems.append(
                f"{day}: whether it goes on from {older} could not be looked at: that manifest cannot be read"
            )
        brought = (
            {brought_by(ref) for ref in self._lake.files_below(day_ref(day))} if self._chain.broken else ()
        )
        self._now.problems += [
            f"{day}: what {by} brought here could not be looked at: its manifest cannot be read"
            for by in self._chain.broken
            if by in brought
        ]

    def _day(self, manifest: Manifest) -> None:
        """Look at one day: its manifest, its folder, its files, its offsets."""
        shape = list(shape_problems(manifest))
        self._now.problems += [*shape, *sum_problems(manifest)]
        self._now.problems += unknown_files(self._lake, self._chain, manifest)
        named = [locate(self._lake, self._chain, manifest, file) for file in manifest.files]
        self._now.unfinished_moves += [str(each.file.target) for each in named if each.open_move]
        held = self._files(manifest, named)
        unexplained = sum(abs(lost) for _, lost in uncounted(manifest))
        if self._level is not Level.FILES and not shape:
            unexplained, odd = explain(manifest, held)
            self._now.problems += odd
        self._now.ledger = day_ledger(
            manifest,
            amended=sum(each.rows for each in self._chain.amended.get(manifest.day.date, ())),
            unexplained=unexplained,
            kafka=self._kafka(manifest, whole=not shape),
        )

    def _files(self, manifest: Manifest, named: Iterable[NamedFile]) -> dict[tuple[int, Verdict], Offsets]:
        """Look at files of one manifest; return the offsets that they hold, where these are read."""
        held: dict[tuple[int, Verdict], Offsets] = {}
        named = list(named)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for each, (back, problems) in zip(named, pool.map(self._file, named), strict=True):
                self._step()
                self._now.problems += problems
                for partition, offsets in back.offsets.items() if back else ():
                    if offsets is not None:
                        where = (partition, each.file.verdict)
                        held[where] = held.get(where, Offsets()) | offsets
                        self._now.held.append((each.place, partition, offsets))
        return held

    def _file(self, named: NamedFile) -> tuple[ReadBack | None, list[str]]:
        problems = [named.problem] if named.problem else []
        if named.ref is None:
            return None, problems
        try:
            if (there := self._lake.stat(named.ref)) and there.is_link:
                return None, [*problems, f"{named.place}: {LINK}"]
            back = self._read(named.ref, named.file.sha256)
            problems += file_problems(named, back)
            problems += footer_problems(self._lake, named)
            if self._level is not Level.FILES:
                problems += row_problems(self._lake, named, back, self._days)
        except (*UNREADABLE, StoreFailed) as error:
            problems.append(told(error, f"{named.place}: cannot be read ({error})"))
            return None, problems
        return back, problems

    def _read(self, ref: str, sha256: str) -> ReadBack:
        if self._level is Level.FILES:
            return read_footer(self._lake, ref, sha256)
        return read_back(self._lake, ref)

    def _kafka(self, manifest: Manifest, whole: bool) -> AgainstKafka | None:
        """Compare a day with Kafka, where that is asked for and the manifest's parts agree."""
        if self._level is not Level.KAFKA or self._reader is None:
            return None
        self._step()
        if not whole:
            return None
        reader = self._reader()
        against, problems = compare(reader, manifest, compacted=self._compacted)
        reader.rest()  # the next day's files come first
        self._now.problems += problems
        return against

    def _step(self) -> None:
        self._done += 1
        self._seen(self._done, self._total)

    def verified(self) -> Verified:
        """Return what was found, summed up."""
        ledger = tuple(look.ledger for look in self._looks.values() if look.ledger)
        everywhere = Coordinates()
        for look in self._looks.values():
            for name, partition, offsets in look.held:
                everywhere.add(name, partition, offsets)
        problems = [problem for look in self._looks.values() for problem in look.problems]
        return Verified(
            level=self._level,
            days=len(ledger),
            files=sum(day.files for day in ledger),
            rows=sum(day.rows for day in ledger),
            bytes=sum(day.bytes for day in ledger),
            ledger=ledger,
            unfinished_moves=tuple(move for look in self._looks.values() for move in look.unfinished_moves),
            problems=tuple(map(str, dict.fromkeys([*problems, *self._refused, *everywhere.twice()]))),
        )
