"""The result of a task: what it was given, what it did, and its files.

Pure. Spark returns the result of one successful attempt per task. So a result is neither lost nor counted
twice; accumulators and observed metrics cannot promise that.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from offsets.checkpoint import Anchor
from offsets.errors import AuditFailed, KafkaDailyError
from offsets.manifest import CauseCount, FileOffsets, Tally
from offsets.ranges import Gathering, Offsets, Range, joined
from offsets.verdict import Verdict

if TYPE_CHECKING:
    import pyarrow as pa

Longs = npt.NDArray[np.int64]
UNFILED = (Verdict.SKIPPED, Verdict.BEFORE_FIRST, Verdict.LATER_DAY)
"""The verdicts of records that are seen for the first time and written to no file."""
FEW_BREAKS = 64
"""With up to this many breaks in a batch's offsets, adding ranges is cheaper than adding single offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A finished file of a task or of a merge.

    `path` is its reference in staging; event times are microseconds, UTC.
    """

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
    """What a file holds when it is read again; a partition's `offsets` are None where one occurs twice.

    `schema` is None where only the footer was read.
    """

    rows: int
    bytes: int
    sha256: str
    offsets: Mapping[int, Offsets | None]
    event_time_min: int | None
    event_time_max: int | None
    schema: pa.Schema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What one task, or all, was given and did; `failure` is the error that stopped it.

    `unfiled` are the offsets of the records that a verdict of UNFILED left out of all files.
    """

    delivered: Mapping[int, Offsets] = field(default_factory=dict)
    unfiled: Mapping[Verdict, Mapping[int, Offsets]] = field(default_factory=dict)
    tally: tuple[Tally, ...] = ()
    causes: tuple[CauseCount, ...] = ()
    last: Mapping[int, Anchor] = field(default_factory=dict)
    files: tuple[WrittenFile, ...] = ()
    failure: KafkaDailyError | None = None


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


def offsets_in(column: Longs) -> Offsets:
    """Make a set of a column of offsets, in any order; raise ValueError where one occurs twice."""
    breaks = np.flatnonzero(np.diff(column) != 1)
    if len(breaks) <= FEW_BREAKS:
        return Offsets.of(ranges_of(column))
    return Offsets.holding(array("Q", column.astype(np.uint64).tobytes()))


class RangeLog:
    """Offsets seen so far, per partition, as compressed sets."""

    def __init__(self) -> None:
        """Start empty."""
        self._seen: dict[int, Gathering] = {}

    def add(self, partition: int, offsets: Longs) -> None:
        """Add offsets; raise ValueError where one was added before."""
        if len(offsets):
            self._seen.setdefault(partition, Gathering()).add(offsets_in(offsets))

    def ranges(self) -> dict[int, Offsets]:
        """Return the offsets of each partition."""
        return {partition: seen.gathered() for partition, seen in self._seen.items()}


def join_results(results: Sequence[TaskResult]) -> TaskResult:
    """Join the results of all tasks.

    Raises:
        KafkaDailyError: the failure of a task.
        AuditFailed: two tasks report one offset.
    """
    for failure in filter(None, (result.failure for result in results)):
        raise failure
    with each_once("delivered"):
        return TaskResult(
            delivered=joined_by_partition(result.delivered for result in results),
            unfiled={
                verdict: joined_by_partition(result.unfiled.get(verdict, {}) for result in results)
                for verdict in UNFILED
            },
            tally=summed(entry for result in results for entry in result.tally),
            causes=summed_causes(cause for result in results for cause in result.causes),
            last=_last_anchors(results),
            files=tuple(file for result in results for file in result.files),
        )


def _last_anchors(results: Iterable[TaskResult]) -> dict[int, Anchor]:
    anchors = [entry for result in results for entry in result.last.items()]
    return dict(sorted(anchors, key=lambda entry: entry[1].offset))


@contextmanager
def each_once(what: str) -> Iterator[None]:
    """Raise AuditFailed where an offset is added twice."""
    try:
        yield
    except ValueError as error:
        raise audit_failed(f"each offset to be {what} once", str(error)) from None


def audit_failed(expected: str, found: str, recurs: str = "") -> AuditFailed:
    """Return the error of a day whose parts do not agree; `recurs` is what to do if it comes again."""
    return AuditFailed(
        expected=expected,
        found=found,
        do="Nothing was committed; staging is kept as evidence. Run the day again; "
        + (f"if it recurs: {recurs}" if recurs else "report it if it recurs."),
    )


def joined_by_partition(reports: Iterable[Mapping[int, Offsets]]) -> dict[int, Offsets]:
    """Join the offsets of all tasks; raise ValueError where two tasks report one offset."""
    everything: dict[int, list[Offsets]] = {}
    for report in reports:
        for partition, offsets in report.items():
            everything.setdefault(partition, []).append(offsets)
    return {partition: joined(sets) for partition, sets in everything.items()}


def summed(tallies: Iterable[Tally]) -> tuple[Tally, ...]:
    """Add up tallies of one partition and verdict."""
    sums: dict[tuple[int, Verdict], Tally] = {}
    for tally in tallies:
        key = (tally.partition, tally.verdict)
        if old := sums.get(key):
            tally = replace(
                old,
                rows=old.rows + tally.rows,
                from_offset=min(old.from_offset, tally.from_offset),
                until_offset=max(old.until_offset, tally.until_offset),
            )
        sums[key] = tally
    order = list(Verdict)
    return tuple(sorted(sums.values(), key=lambda tally: (tally.partition, order.index(tally.verdict))))


def summed_causes(causes: Iterable[CauseCount]) -> tuple[CauseCount, ...]:
    """Add up the rows of each cause, commonest first; the first example is kept."""
    sums: dict[str, CauseCount] = {}
    for count in causes:
        first = sums.get(count.cause)
        sums[count.cause] = replace(first, rows=first.rows + count.rows) if first else count
    return tuple(sorted(sums.values(), key=lambda count: (-count.rows, count.cause)))
