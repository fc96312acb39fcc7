"""Every offset of a day's spans has exactly one class, and every row of the lake lies where it must.

Relies on the files as they are read now and on the manifests' sets of offsets. Offsets are held as ranges,
and for the whole lake as arrays of ranges: never a record, and never a number for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.report import Longs, ReadBack
from jobs.verify.files import NamedFile
from offsets.model import IN_FILES, Day, Manifest, Span, Tally, Verdict, micros
from offsets.ranges import Offsets, Range

COUNTED_ALONE = (Verdict.SKIPPED, Verdict.BEFORE_FIRST)
"""The verdicts whose offsets are named nowhere: they are what is left."""
Held = Mapping[tuple[int, Verdict], list[Range]]
"""The ranges that a day's files hold, by partition and verdict."""


def row_problems(named: NamedFile, back: ReadBack, days: Mapping[date, Day]) -> Iterator[str]:
    """Check that a file's rows are those that its manifest names, each once, and of the right day."""
    file, path = named.file, named.path
    spans = {span.partition: span.reads for span in named.manifest.spans}
    for part in file.offsets:
        held = back.offsets.get(part.partition)
        if held is None or len(held) != part.rows:
            yield f"{path}: partition {part.partition} should hold {part.rows} distinct offsets"
        elif (held.ranges[0][0], held.ranges[-1][1]) != (part.from_offset, part.until_offset):
            edges = f"[{part.from_offset}, {part.until_offset})"
            yield f"{path}: partition {part.partition} holds other offsets than {edges}"
        elif outside := held - spans.get(part.partition, Offsets()):
            yield f"{path}: partition {part.partition} holds offsets outside the day's span, {outside}"
    if others := back.offsets.keys() - {part.partition for part in file.offsets}:
        yield f"{path}: holds rows of partitions {sorted(others)}, which its manifest does not name"
    yield from _cause_problems(named) if file.verdict is Verdict.INVALID else _day_problems(named, back, days)


def _day_problems(named: NamedFile, back: ReadBack, days: Mapping[date, Day]) -> Iterator[str]:
    day = days.get(named.filed_under)
    low, high = back.event_time_min, back.event_time_max
    if low is None or high is None:
        yield f"{named.path}: has rows without an event time"
    elif day is not None and not micros(day.start) <= low <= high < micros(day.end):
        yield f"{named.path}: holds events outside of {day}, under which it is filed"


def _cause_problems(named: NamedFile) -> Iterator[str]:
    without = 0
    for batch in pq.ParquetFile(named.path).iter_batches(columns=["cause"]):
        told = pc.fill_null(pc.greater(pc.utf8_length(batch["cause"]), 0), False)
        without += batch.num_rows - int(pc.sum(told).as_py() or 0)
    if without:
        yield f"{named.path}: {without} invalid rows have no cause"


def explain(manifest: Manifest, held: Held) -> tuple[int, list[str]]:
    """Give each offset that a day read its class; count those that are left, and tell all that is odd.

    The manifest's own parts must go together (`chain.shape_problems`).
    """
    day, unexplained, problems = manifest.day.date, 0, list[str]()
    for span in manifest.spans:
        classes = _classes(manifest, span, held)
        rest = span.reads
        for name, offsets in classes.items():
            left = rest - offsets
            if len(left) != len(rest) - len(offsets):
                problems.append(
                    f"{day}: partition {span.partition}: {offsets - rest} are {name}, and have another fate "
                    "too or were not read"
                )
            rest = left
        tally = {each.verdict: each for each in manifest.tally if each.partition == span.partition}
        counted = sum(tally[verdict].rows for verdict in COUNTED_ALONE if verdict in tally)
        unexplained += max(len(rest) - counted, 0)
        if len(rest) != counted:
            problems.append(
                f"{day}: partition {span.partition}: {counted} offsets are counted as skipped or before the "
                f"first day, and {len(rest)} have no other class: {rest}"
            )
        problems += [f"{day}: partition {span.partition}: {each}" for each in _odd(classes, rest, tally)]
    strangers = {part for part, _ in held} - {span.partition for span in manifest.spans}
    if strangers:
        problems.append(
            f"{day}: its files hold rows of partitions {sorted(strangers)}, which it did not read"
        )
    return unexplained, problems


def _classes(manifest: Manifest, span: Span, held: Held) -> dict[str, Offsets]:
    """Give the offsets of one span by class, all that are named somewhere."""
    part = span.partition
    gaps = next((gap.offsets for gap in manifest.gaps if gap.partition == part), Offsets())
    known, next_ = manifest.consumed.of(part), manifest.next.of(part)
    pending = known.pending if known else Offsets()
    settled = (span.reads & Offsets.between(0, span.seen_until)) - pending
    return {
        "gaps": gaps,
        Verdict.ALREADY_SETTLED.value: settled - gaps,
        Verdict.LATER_DAY.value: next_.pending if next_ else Offsets(),
        **{verdict.value: union(held.get((part, verdict), ())) for verdict in IN_FILES},
    }


def _odd(classes: Mapping[str, Offsets], rest: Offsets, tally: Mapping[Verdict, Tally]) -> Iterator[str]:
    """Hold each verdict's exact offsets against the tally, by count and by digest."""
    found = {verdict: classes[verdict.value] for verdict in Verdict if verdict not in COUNTED_ALONE}
    left = [verdict for verdict in COUNTED_ALONE if verdict in tally]
    if len(left) == 1:
        found[left[0]] = rest
    for verdict, offsets in found.items():
        counted = tally.get(verdict)
        if len(offsets) != (counted.rows if counted else 0):
            yield f"{len(offsets)} rows {verdict} found, {counted.rows if counted else 0} counted"
        elif counted and counted.digest and counted.digest != offsets.digest():
            yield f"the rows {verdict} are of other offsets than the audit counted"


def union(ranges: Iterable[Range]) -> Offsets:
    """Join ranges that may overlap."""
    joined: list[Range] = []
    for from_, until in sorted(ranges):
        if joined and from_ <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], until))
        else:
            joined.append((from_, until))
    return Offsets(joined)


class Coordinates:
    """The offsets of all files of a lake, sixteen bytes a range, to find those that lie twice."""

    def __init__(self) -> None:
        """Start empty."""
        self._names: list[str] = []
        self._held: dict[int, list[Longs]] = {}

    def add(self, name: str, partition: int, offsets: Offsets) -> None:
        """Take what a file holds of a partition."""
        if offsets.ranges:
            ranges = np.array(offsets.ranges, np.int64)
            number = np.full((len(ranges), 1), len(self._names), np.int64)
            self._held.setdefault(partition, []).append(np.hstack((ranges, number)))
            self._names.append(name)

    def twice(self) -> Iterator[str]:
        """Tell of each range that begins before another one's end."""
        for partition, held in sorted(self._held.items()):
            table = np.concatenate(held)
            table = table[np.argsort(table[:, 0], kind="stable")]
            reach = np.maximum.accumulate(table[:, 1])
            for at in np.flatnonzero(table[1:, 0] < reach[:-1]) + 1:
                from_, until, file = table[at].tolist()
                other = int(table[int(np.argmax(table[:at, 1])), 2])
                end = min(until, int(reach[at - 1]))
                yield (
                    f"{self._names[file]}: partition {partition} offsets [{from_}, {end}) "
                    f"lie in {self._names[other]} too"
                )
