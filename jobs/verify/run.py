"""Verify a lake: first its manifests, then files, then records, then Kafka.

Relies on the lake, and on a broker only for the last level. Changes nothing, takes no lock, and continues
after errors with what can be read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache, partial
from typing import Final

import structlog

from jobs.day.columns import current_columns
from jobs.day.schema_file import SCHEMA_NAME, read_schema, schema_text
from jobs.lake.files import is_link
from jobs.lake.ledger import entry_problems, folder_gone, not_entered
from jobs.lake.names import LEDGER_NAME, brought_by, day_ref, entry_ref
from jobs.lake.port import Lake
from jobs.task.parquet_writer import UNREADABLE, read_back
from jobs.task.result import ReadBack
from jobs.verify.advice import LINK, Damage
from jobs.verify.damage import find_damage
from jobs.verify.expired import count_expired, is_expired
from jobs.verify.files import (
    NamedFile,
    file_problems,
    footer_problems,
    locate,
    read_footer,
    unknown_day_folders,
    unknown_files,
)
from jobs.verify.kafka import compare, count_unread
from jobs.verify.level import Level
from jobs.verify.manifests import (
    Chain,
    RefusedRead,
    as_problem,
    column_problems,
    day_problems,
    read_again,
    read_chain,
    shape_problems,
    sum_problems,
    uncounted,
)
from jobs.verify.records import Coordinates, explain, row_problems
from jobs.verify.result import Account, AgainstKafka, DayLedger, Verified, account, day_ledger
from offsets.commit_log import read_manifest
from offsets.errors import ConfigError, DayExists, LedgerBroken, StoreFailed
from offsets.kafka.reader import TopicReader
from offsets.manifest import DataFile, Manifest
from offsets.ranges import Offsets
from offsets.verdict import Verdict

log = structlog.get_logger(__name__)
Progress = Callable[[int, int], None]
MAX_LOOKS: Final = 5
"""How often a problem is checked again while each look finds different ones."""


def verify(
    lake: Lake,
    only: date | None,
    progress: Progress,
    level: Level = Level.FILES,
    reader: Callable[[], TopicReader] | None = None,
) -> Verified:
    """Compare committed days with their manifests, and at the last level with Kafka.

    `only` restricts it to one day and the amendments in its folder. `progress` is called with the number of
    steps done and the total. `reader` returns the broker, and is called only at the level `kafka`.

    Raises:
        ConfigError: the lake has no committed day, or `only` lies outside its days.
    """
    if level is Level.KAFKA and reader is None:
        raise ValueError("a broker is needed to verify against Kafka")
    chain = read_chain(lake)
    _require_committed(lake, chain, only)
    run = _Run(lake, chain, level, progress, reader)
    run.check(only)
    return replace(run.verified(), notes=() if only else tuple(_notes(lake)))


def _notes(lake: Lake) -> Iterator[str]:
    """Yield a note if the file of columns is not what the manifests make of it."""
    with suppress(DayExists, LedgerBroken, StoreFailed):  # what is told of them, the day's own check tells
        newest = read_manifest(lake, lake.days()[-1])
        try:
            runs = current_columns(lake, newest) if newest else ()
            expected = schema_text(newest, runs) if newest and runs else None
            found = read_schema(lake)
        except StoreFailed as refused:
            yield f"{lake.place(SCHEMA_NAME)}: {refused.found}; no day depends on it"
            return
        if expected and found != expected:
            what = "is not there" if found is None else "tells other columns than the manifests"
            yield f"{lake.place(SCHEMA_NAME)} {what}; no day depends on it, and the next run writes it again"


def _require_committed(lake: Lake, chain: Chain, only: date | None) -> None:
    """Check that there is something to verify: an empty lake would pass every check."""
    if not chain.days:
        found, do = "no such folder", "Correct `lake.path`, or run a day first."
        if lake.entries():
            found, do = "entries of them in its _ledger alone", "`plan` says how to bring them back."
        elif lake.exists():
            found = "a folder without any"
        raise ConfigError(expected=f"a lake with committed days at {lake.place('')}", found=found, do=do)
    first, last = chain.first or chain.days[0], max([chain.days[-1], *lake.entries()])
    if only and not first <= only <= last:
        raise ConfigError(
            expected="--date with a committed day",
            found=f"{only}, and days from {first} to {last} in {lake.place('')}",
            do="Name one of these days, or correct `lake.path`.",
        )


def _rows_by_partition(files: Iterable[DataFile]) -> Counter[int]:
    rows = Counter[int]()
    for file in files:
        rows.update({part.partition: part.rows for part in file.offsets})
    return rows


@dataclass(slots=True, kw_only=True)
class _Findings:
    """The findings of one look at a day, or at the names beside the days."""

    problems: list[str] = field(default_factory=list)
    unfinished_moves: list[str] = field(default_factory=list)
    held: list[tuple[str, int, Offsets]] = field(default_factory=list)
    from_kafka: set[str] = field(default_factory=set)
    ledger: DayLedger | None = None


class _Run:
    """A running verification, with its findings by day; those under None are of names beside the days."""

    def __init__(
        self,
        lake: Lake,
        chain: Chain,
        level: Level,
        progress: Progress,
        reader: Callable[[], TopicReader] | None,
    ) -> None:
        self._lake, self._level, self._progress, self._reader = lake, level, progress, reader
        self._findings: dict[date | None, _Findings] = {}
        self._current = _Findings()
        self._refused: list[str] = []
        self._done = self._total = 0
        self._use_chain(chain)

    def _use_chain(self, chain: Chain) -> None:
        self._chain = chain
        # only two manifests are held in memory: of a day and of the one before it
        self._read_again = lru_cache(maxsize=2)(partial(read_again, self._lake, chain))
        self._days = {day: summary.day for day, summary in chain.known.items()}
        self._compacted = any(summary.compacted for summary in chain.known.values())

    def check(self, only: date | None) -> None:
        """Check one day, or the whole lake, and check days with problems again.

        A run may commit, bring late files to their days or exchange a folder meanwhile. Only a problem that
        is found twice in a row, or a read that the store refused, is reported; other problems are logged.
        """
        self._check_days([only] if only else [*self._chain.days, None], only)
        for _ in range(MAX_LOOKS):
            wrong = {day: findings.problems for day, findings in self._findings.items() if findings.problems}
            if not wrong:
                return
            self._use_chain(read_chain(self._lake))
            self._check_days(list(wrong), only)
            self._log_vanished(wrong)
            if all(self._findings[day].problems == problems for day, problems in wrong.items()):
                return

    def _log_vanished(self, wrong: Mapping[date | None, list[str]]) -> None:
        for day, problems in wrong.items():
            for problem in problems:
                if problem not in self._findings[day].problems and problem not in self._refused:
                    log.warning(
                        "wrong at one look and not at the next: a run may be at work", problem=problem
                    )

    def _check_days(self, days: list[date | None], only: date | None) -> None:
        known = [self._chain.known[day] for day in days if day and day in self._chain.known]
        self._total += sum(summary.files + (self._level is Level.KAFKA) for summary in known)
        entries = self._entry_problems()
        for day in days:
            self._current = self._findings[day] = _Findings(problems=entries.pop(day, []))
            with self._errors_as_problems(f"{day}" if day else self._lake.place("")):
                if day is None:
                    self._current.problems += count_expired(self._lake, self._chain)[1]
                    self._current.problems += [self._chain.unreadable] if self._chain.unreadable else []
                    self._current.problems += unknown_day_folders(self._lake, self._chain)
                    lost = (of for day, of in entries.items() if day and day not in self._chain.days)
                    self._current.problems += [problem for of in lost for problem in of]
                elif self._chain.has_expired(day):
                    pass  # it expired between two looks
                elif day not in self._chain.days:
                    entered = self._lake.stat(entry_ref(day))
                    gone = folder_gone(self._lake, day) if entered else f"{day} is not committed"
                    self._current.problems = [gone]
                else:
                    self._check_committed(day)
        if only:
            with self._errors_as_problems(f"{only}"):
                self._check_brought_to(only)
        problems = [problem for day in days for problem in self._findings[day].problems]
        self._refused += [problem for problem in problems if isinstance(problem, RefusedRead)]

    def _entry_problems(self) -> dict[date | None, list[str]]:
        """Compare the entries in the ledger with the days."""
        self._current = _Findings()
        problems: dict[date | None, list[str]] = {None: self._current.problems}
        with self._errors_as_problems(self._lake.place(LEDGER_NAME)):
            first, newest = self._chain.first, self._chain.newest
            if first is None or newest is None:
                return problems
            for day, problem in entry_problems(self._lake, first, newest, self._chain.known):
                problems.setdefault(day, []).append(problem)
        return problems

    @contextmanager
    def _errors_as_problems(self, what: str) -> Iterator[None]:
        """Turn an error of reading into a problem."""
        try:
            yield
        except (LedgerBroken, StoreFailed, OSError) as error:
            self._current.problems.append(as_problem(error, f"{what}: {error}"))

    def _read_manifest(self, day: date | None) -> Manifest | None:
        """Read a manifest; None if it cannot be read, or has changed since the chain was read."""
        if day is None or day not in self._chain.known:
            return None
        manifest = self._read_again(day)
        if isinstance(manifest, str):
            self._current.problems.append(manifest)
            return None
        return manifest

    def _check_committed(self, day: date) -> None:
        before, own = self._read_manifest(self._chain.previous_day(day)), self._read_manifest(day)
        self._current.problems += day_problems(self._chain, own, before, day)
        if own:
            self._check_day(own)

    def _check_brought_to(self, day: date) -> None:
        """Check the amendments of a day, and report broken manifests that concern it."""
        for amended in self._chain.amended.get(day, ()):
            if manifest := self._read_manifest(amended.by):
                files = [file for file in manifest.files if file.target and file.day == day]
                self._total += len(files)
                self._check_files(
                    manifest, [locate(self._lake, self._chain, manifest, file) for file in files]
                )
        if (previous_day := self._chain.previous_day(day)) in self._chain.broken:
            self._current.problems.append(
                f"{day}: whether it goes on from {previous_day} could not be looked at: that manifest cannot "
                "be read"
            )
        brought = (
            {brought_by(ref) for ref in self._lake.files_below(day_ref(day))} if self._chain.broken else ()
        )
        self._current.problems += [
            f"{day}: what {by} brought here could not be looked at: its manifest cannot be read"
            for by in self._chain.broken
            if by in brought
        ]

    def _check_day(self, manifest: Manifest) -> None:
        """Check one day: its manifest, its folder, its files, its offsets."""
        shape = list(shape_problems(manifest))
        self._current.problems += [*shape, *sum_problems(manifest)]
        if manifest.day.date == self._chain.newest:
            self._current.problems += column_problems(self._lake, self._chain, manifest)
        self._current.problems += unknown_files(self._lake, self._chain, manifest)
        gone = [file for file in manifest.files if is_expired(self._chain, file)]
        named = [
            locate(self._lake, self._chain, manifest, file) for file in manifest.files if file not in gone
        ]
        for _ in gone:
            self._step()
        self._current.unfinished_moves += [
            str(named_file.file.target) for named_file in named if named_file.open_move
        ]
        held = self._check_files(manifest, named)
        unexplained = sum(abs(lost) for _, lost in uncounted(manifest))
        if self._level is not Level.FILES and not shape:
            unexplained, contradictions = explain(manifest, held, _rows_by_partition(gone))
            self._current.problems += contradictions
        self._current.ledger = day_ledger(
            manifest,
            amended=sum(amended.rows for amended in self._chain.amended.get(manifest.day.date, ())),
            unexplained=unexplained,
            kafka=self._compare_with_kafka(manifest, whole=not shape),
        )

    def _check_files(
        self, manifest: Manifest, named: Iterable[NamedFile]
    ) -> dict[tuple[int, Verdict], Offsets]:
        """Check files of one manifest, and return the offsets that they hold, if the level reads them."""
        held: dict[tuple[int, Verdict], Offsets] = {}
        named = list(named)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for named_file, (back, problems) in zip(named, pool.map(self._check_file, named), strict=True):
                self._step()
                self._current.problems += problems
                for partition, offsets in back.offsets.items() if back else ():
                    if offsets is not None:
                        where = (partition, named_file.file.verdict)
                        held[where] = held.get(where, Offsets()) | offsets
                        self._current.held.append((named_file.place, partition, offsets))
        return held

    def _check_file(self, named: NamedFile) -> tuple[ReadBack | None, list[str]]:
        problems = [named.problem] if named.problem else []
        if named.ref is None:
            return None, problems
        try:
            if is_link(self._lake, named.ref):
                return None, [*problems, f"{named.place}: {LINK}"]
            back = self._read_back(named.ref, named.file.sha256)
            problems += file_problems(named, back)
            problems += footer_problems(self._lake, named)
            if self._level is not Level.FILES:
                problems += row_problems(self._lake, named, back, self._days)
        except (*UNREADABLE, StoreFailed) as error:
            problems.append(as_problem(error, f"{named.place}: cannot be read ({error})"))
            return None, problems
        return back, problems

    def _read_back(self, ref: str, sha256: str) -> ReadBack:
        if self._level is Level.FILES:
            return read_footer(self._lake, ref, sha256)
        return read_back(self._lake, ref)

    def _compare_with_kafka(self, manifest: Manifest, whole: bool) -> AgainstKafka | None:
        """Compare a day with Kafka, if the level asks for it and the parts of the manifest agree."""
        if self._level is not Level.KAFKA or self._reader is None:
            return None
        self._step()
        if not whole:
            return None
        reader = self._reader()
        against, problems = compare(reader, manifest, compacted=self._compacted)
        reader.release()  # the next request comes only after the next day's files
        self._current.problems += problems
        self._current.from_kafka.update(problems)
        return against

    def _step(self) -> None:
        self._done += 1
        self._progress(self._done, self._total)

    def verified(self) -> Verified:
        """Return the sum of all findings."""
        ledger = tuple(findings.ledger for findings in self._findings.values() if findings.ledger)
        everywhere = Coordinates()
        for findings in self._findings.values():
            for name, partition, offsets in findings.held:
                everywhere.add(name, partition, offsets)
        by_day = {day: findings.problems for day, findings in self._findings.items()}
        lost = by_day.pop(None, [])  # of names beside the days, such as that of a day that is gone
        problems = [*lost, *(problem for of_day in by_day.values() for problem in of_day)]
        problems = list(map(str, dict.fromkeys([*problems, *self._refused, *everywhere.twice()])))
        return Verified(
            level=self._level,
            days=len(ledger),
            files=sum(day.files for day in ledger),
            rows=sum(day.rows for day in ledger),
            bytes=sum(day.bytes for day in ledger),
            ledger=ledger,
            unfinished_moves=tuple(
                move for findings in self._findings.values() for move in findings.unfinished_moves
            ),
            expired=count_expired(self._lake, self._chain)[0],
            not_entered=self._not_entered(),
            problems=tuple(problems),
            damage=self._damage(),
            account=self._account(ledger) if None in self._findings and not problems else None,
        )

    def _not_entered(self) -> tuple[date, ...]:
        with suppress(StoreFailed):  # the check of the entries has told it
            return not_entered(self._lake, list(self._chain.known))
        return ()

    def _damage(self) -> Damage:
        """Sort the days with problems; what Kafka does not show any more is no damage of the lake."""
        problems = {day: set(of.problems) - of.from_kafka for day, of in self._findings.items()}
        return find_damage(self._lake, self._chain, problems)

    def _account(self, ledger: Sequence[DayLedger]) -> Account | None:
        newest = self._read_manifest(self._chain.newest)
        if newest is None:
            return None
        asks = self._level is Level.KAFKA and self._reader
        return account(ledger, newest, count_unread(asks(), newest) if asks else None)
