"""What a task reports of the rows it was given, as its result.

Pure. Spark hands back the result of one successful attempt per task, so a report can neither be lost nor
counted twice, which accumulators and observed metrics cannot promise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from offsets.model import Anchor, CauseCount, FileOffsets, Tally, Verdict
from offsets.ranges import Offsets, Range

Longs = npt.NDArray[np.int64]
UNFILED = (Verdict.SKIPPED, Verdict.BEFORE_FIRST, Verdict.LATER_DAY)
"""The verdicts of records that are seen for the first time and written to no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A finished file of a task or of a merge, where it lies now; event times in microseconds, UTC."""

    path: str
    verdict: Verdict
    day: date | None
    rows: int
    bytes: int
    sha256: str
    offsets: tuple[FileOffsets, ...]
    event_time_min: int | None
    event_time_max: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """What a file says when it is read again; `offsets` is None per partition where one occurs twice."""

    rows: int
    bytes: int
    sha256: str
    offsets: Mapping[int, Offsets | None]
    event_time_min: int | None
    event_time_max: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What one task was given and what it did; `failure` is the document of an error that stopped it.

    `unfiled` are the offsets of the records that a verdict of UNFILED left out of all files.
    """

    delivered: Mapping[int, tuple[Range, ...]] = field(default_factory=dict)
    unfiled: Mapping[Verdict, Mapping[int, tuple[Range, ...]]] = field(default_factory=dict)
    tally: tuple[Tally, ...] = ()
    causes: tuple[CauseCount, ...] = ()
    last: Mapping[int, Anchor] = field(default_factory=dict)
    files: tuple[WrittenFile, ...] = ()
    failure: Mapping[str, object] | None = None


def slices(partitions: Longs) -> Iterator[tuple[int, int, int]]:
    """Cut a column of partitions into runs of one partition: (partition, first row, row after the last)."""
    edges = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    for at, end in pairwise(edges):
        if at < end:
            yield int(partitions[at]), at, end


def ranges_of(offsets: Longs) -> list[Range]:
    """Turn ascending offsets into half-open ranges."""
    if not len(offsets):
        return []
    breaks = np.flatnonzero(np.diff(offsets) != 1)
    starts = offsets[np.concatenate(([0], breaks + 1))]
    ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


class RangeLog:
    """Offsets seen so far, per partition, as ranges; adjoining ranges join."""

    def __init__(self) -> None:
        """Start empty."""
        self._ranges: dict[int, list[Range]] = {}

    def add(self, partition: int, offsets: Longs) -> None:
        """Append offsets in the order in which they came."""
        known = self._ranges.setdefault(partition, [])
        for from_, until in ranges_of(offsets):
            if known and known[-1][1] == from_:
                known[-1] = (known[-1][0], until)
            else:
                known.append((from_, until))

    def ranges(self) -> dict[int, tuple[Range, ...]]:
        """Give the ranges of each partition."""
        return {partition: tuple(ranges) for partition, ranges in self._ranges.items() if ranges}


def joined(reports: Iterable[Mapping[int, tuple[Range, ...]]]) -> dict[int, Offsets]:
    """Join the ranges of all tasks; an offset that two tasks report is a ValueError."""
    everything: dict[int, list[Range]] = {}
    for report in reports:
        for partition, ranges in report.items():
            everything.setdefault(partition, []).extend(ranges)
    return {partition: Offsets.of(ranges) for partition, ranges in everything.items()}


def summed(tallies: Iterable[Tally]) -> tuple[Tally, ...]:
    """Add up tallies of one partition and verdict."""
    sums: dict[tuple[int, Verdict], Tally] = {}
    for each in tallies:
        key = (each.partition, each.verdict)
        old = sums.get(key)
        sums[key] = (
            each
            if old is None
            else Tally(
                partition=each.partition,
                verdict=each.verdict,
                rows=old.rows + each.rows,
                from_offset=min(old.from_offset, each.from_offset),
                until_offset=max(old.until_offset, each.until_offset),
            )
        )
    order = list(Verdict)
    return tuple(sorted(sums.values(), key=lambda each: (each.partition, order.index(each.verdict))))


def summed_causes(causes: Iterable[CauseCount]) -> tuple[CauseCount, ...]:
    """Add up the rows of each cause, commonest first; the first example stands."""
    sums: dict[str, CauseCount] = {}
    for each in causes:
        old = sums.get(each.cause)
        sums[each.cause] = (
            each
            if old is None
            else CauseCount(
                cause=each.cause, rows=old.rows + each.rows, partition=old.partition, offset=old.offset
            )
        )
    return tuple(sorted(sums.values(), key=lambda each: (-each.rows, each.cause)))
