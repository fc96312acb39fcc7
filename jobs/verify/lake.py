"""The story of a verification: manifests, then files, then records, then Kafka.

Relies on the lake, and on a broker for the last level alone. Changes nothing, takes no lock, and goes on
with what can be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

from jobs.inspect import amendments
from jobs.parquet import read_back
from jobs.report import ReadBack
from jobs.storage import Lake
from jobs.verify.chain import Chain, day_problems, read_chain, shape_problems, sum_problems, uncounted
from jobs.verify.figures import AgainstKafka, DayLedger, Verified, day_ledger
from jobs.verify.files import (
    UNREADABLE,
    NamedFile,
    file_problems,
    footer_problems,
    locate,
    skim,
    strange_folders,
    strangers,
)
from jobs.verify.level import Level
from jobs.verify.records import Coordinates, explain, row_problems
from jobs.verify.topic import compare
from offsets.model import Manifest, Verdict, is_compacted
from offsets.ranges import Offsets
from offsets.topic import TopicReader

Seen = Callable[[int, int], None]


def verify(
    lake: Lake,
    only: date | None,
    seen: Seen,
    level: Level = Level.FILES,
    reader: Callable[[], TopicReader] | None = None,
) -> Verified:
    """Hold committed days against their manifests, and at the last level against Kafka.

    `only` restricts it to one day, with the amendments that lie there. `seen` is told how much is done, of
    how much. `reader` gives the broker, and is asked for it at the level `kafka` only.
    """
    if level is Level.KAFKA and reader is None:
        raise ValueError("a broker is needed to verify against Kafka")
    run = _Run(lake, read_chain(lake), level, seen, reader)
    run.look(only)
    return run.verified()


class _Run:
    """One verification under way: what was found so far."""

    def __init__(
        self,
        lake: Lake,
        chain: Chain,
        level: Level,
        seen: Seen,
        reader: Callable[[], TopicReader] | None,
    ) -> None:
        self._lake, self._chain, self._level, self._seen, self._reader = lake, chain, level, seen, reader
        self._days = {day: manifest.day for day, manifest in chain.manifests.items()}
        self._amended = amendments(chain.manifests.values())
        self._everywhere = Coordinates()
        self._problems: list[str] = []
        self._open: list[str] = []
        self._ledger: list[DayLedger] = []
        self._done = self._total = 0

    def look(self, only: date | None) -> None:
        """Look at one day, or at the whole lake."""
        chain = self._chain
        if only and only not in chain.days:
            self._problems.append(f"{only} is not committed")
            return
        days = [only] if only else chain.days
        manifests = [chain.manifests[day] for day in days if day in chain.manifests]
        brought = list(self._brought_to(only)) if only else []
        self._total = sum(len(each.files) for each in manifests) + len(brought)
        self._total += len(manifests) * (self._level is Level.KAFKA)
        for day in days:
            self._problems += day_problems(chain, day)
            if day in chain.manifests:
                self._day(chain.manifests[day])
        for manifest, files in brought:
            self._files(manifest, files)
        if only is None:
            self._problems += strange_folders(self._lake, chain)
        self._problems += self._everywhere.twice()

    def _brought_to(self, day: date) -> Iterator[tuple[Manifest, list[NamedFile]]]:
        """Give the amendments that lie in a day's folder, by the manifest that names them."""
        for manifest in self._chain.manifests.values():
            named = [
                locate(self._lake, self._chain, manifest, file)
                for file in manifest.files
                if file.target and file.day == day
            ]
            if named:
                yield manifest, named

    def _day(self, manifest: Manifest) -> None:
        """Look at one day: its manifest, its folder, its files, its offsets."""
        shape = list(shape_problems(manifest))
        self._problems += [*shape, *sum_problems(manifest)]
        self._problems += strangers(self._lake, self._chain, manifest.day.date)
        named = [locate(self._lake, self._chain, manifest, file) for file in manifest.files]
        self._open += [str(each.file.target) for each in named if each.open_move]
        held = self._files(manifest, named)
        unexplained = sum(abs(lost) for _, lost in uncounted(manifest))
        if self._level is not Level.FILES and not shape:
            unexplained, odd = explain(manifest, held)
            self._problems += odd
        self._ledger.append(
            day_ledger(
                manifest,
                amended=sum(each.rows for each in self._amended.get(manifest.day.date, ())),
                unexplained=unexplained,
                kafka=self._kafka(manifest, whole=not shape),
            )
        )

    def _files(self, manifest: Manifest, named: Iterable[NamedFile]) -> dict[tuple[int, Verdict], Offsets]:
        """Look at files of one manifest; give the offsets that they hold, where these are read."""
        held: dict[tuple[int, Verdict], Offsets] = {}
        named = list(named)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for each, (back, problems) in zip(named, pool.map(self._file, named), strict=True):
                self._step()
                self._problems += problems
                for partition, offsets in back.offsets.items() if back else ():
                    if offsets is not None:
                        where = (partition, each.file.verdict)
                        held[where] = held.get(where, Offsets()) | offsets
                        self._everywhere.add(str(each.path), partition, offsets)
        return held

    def _file(self, named: NamedFile) -> tuple[ReadBack | None, list[str]]:
        problems = [named.problem] if named.problem else []
        if named.path is None:
            return None, problems
        try:
            back = self._read(named.path)
            problems += file_problems(named, back)
            problems += footer_problems(named)
            if self._level is not Level.FILES:
                problems += row_problems(named, back, self._days)
        except UNREADABLE as error:
            return None, [*problems, f"{named.path}: cannot be read ({error})"]
        return back, problems

    def _read(self, path: Path) -> ReadBack:
        return skim(path) if self._level is Level.FILES else read_back(path)

    def _kafka(self, manifest: Manifest, whole: bool) -> AgainstKafka | None:
        """Hold a day against Kafka, where that is asked for and the manifest's parts go together."""
        if self._level is not Level.KAFKA or self._reader is None:
            return None
        self._step()
        if not whole:
            return None
        compacted = any(is_compacted(each.cleanup_policy) for each in self._chain.manifests.values())
        against, problems = compare(self._reader(), manifest, compacted=compacted)
        self._problems += problems
        return against

    def _step(self) -> None:
        self._done += 1
        self._seen(self._done, self._total)

    def verified(self) -> Verified:
        """Sum up."""
        return Verified(
            level=self._level,
            days=len(self._ledger),
            files=sum(day.files for day in self._ledger),
            rows=sum(day.rows for day in self._ledger),
            bytes=sum(day.bytes for day in self._ledger),
            ledger=tuple(self._ledger),
            open_moves=tuple(self._open),
            problems=tuple(self._problems),
        )
