"""Check that every offset of a day's spans has exactly one class, and that every row lies where it must.

Relies on the files, read again, and on the manifests' sets of offsets. Memory holds compressed sets of
offsets, never whole records, and never one number per record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from itertools import islice
from typing import Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from jobs.lake.port import Files
from jobs.task.result import ReadBack
from jobs.verify.files import NamedFile
from offsets.day_plan import Span
from offsets.days import Day
from offsets.instants import micros
from offsets.manifest import Manifest, Tally, tally_by_partition
from offsets.ranges import Gathering, Offsets
from offsets.verdict import IN_FILES, Verdict

COUNTED_ALONE = (Verdict.SKIPPED, Verdict.BEFORE_FIRST)
"""The verdicts whose offsets are recorded nowhere: the remaining offsets are theirs."""
MOST_SENTENCES: Final = 100
"""The most ranges that are named for two files that hold the same offsets."""
Held = Mapping[tuple[int, Verdict], Offsets]
"""The offsets that a day's files hold, by partition and verdict."""


def row_problems(lake: Files, named: NamedFile, back: ReadBack, days: Mapping[date, Day]) -> Iterator[str]:
    """Check that a file holds the rows that its manifest names, each once, and all of the right day."""
    file, path = named.file, named.place
    spans = {span.partition: span.reads for span in named.manifest.spans}
    for part in file.offsets:
        held = back.offsets.get(part.partition)
        if held is None or len(held) != part.rows:
            yield f"{path}: partition {part.partition} should hold {part.rows} distinct offsets"
        elif (held.first, held.until) != (part.from_offset, part.until_offset):
            edges = f"[{part.from_offset}, {part.until_offset})"
            yield f"{path}: partition {part.partition} holds other offsets than {edges}"
        elif outside := held - spans.get(part.partition, Offsets()):
            yield f"{path}: partition {part.partition} holds offsets outside the day's span, {outside}"
    if others := back.offsets.keys() - {part.partition for part in file.offsets}:
        yield f"{path}: holds rows of partitions {sorted(others)}, which its manifest does not name"
    yield from (
        _cause_problems(lake, named) if file.verdict is Verdict.INVALID else _day_problems(named, back, days)
    )


def _day_problems(named: NamedFile, back: ReadBack, days: Mapping[date, Day]) -> Iterator[str]:
    day = days.get(named.filed_under)
    low, high = back.event_time_min, back.event_time_max
    if not back.rows:
        return
    if low is None or high is None:
        yield f"{named.place}: has rows without an event time"
    elif day is not None and not micros(day.start) <= low <= high < micros(day.end):
        yield f"{named.place}: holds events outside of {day}, under which it is filed"


def _cause_problems(lake: Files, named: NamedFile) -> Iterator[str]:
    assert named.ref is not None
    without = 0
    with lake.open_file(named.ref) as file:
        for batch in pq.ParquetFile(file).iter_batches(columns=["cause"]):
            has_cause = pc.fill_null(pc.greater(pc.utf8_length(batch["cause"]), 0), False)
            without += batch.num_rows - int(pc.sum(has_cause).as_py() or 0)
    if without:
        yield f"{named.place}: {without} invalid rows have no cause"


def explain(manifest: Manifest, held: Held, expired: Mapping[int, int]) -> tuple[int, list[str]]:
    """Return the number of a day's offsets that have no class, and a sentence for each contradiction.

    The parts of the manifest must agree (`manifests.shape_problems`). `expired` late rows of each partition
    went with other days: they are counted, and their offsets cannot be compared.
    """
    day, unexplained, problems = manifest.day.date, 0, list[str]()
    entries = tally_by_partition(manifest.tally)
    for span, classes in _classes(manifest, held):
        rest = span.reads
        for name, offsets in classes.items():
            remaining = rest - offsets
            if len(remaining) != len(rest) - len(offsets):
                problems.append(
                    f"{day}: partition {span.partition}: {offsets - rest} are {name}, and have another fate "
                    "too or were not read"
                )
            rest = remaining
        tally = {entry.verdict: entry for entry in entries.get(span.partition, ())}
        gone = expired.get(span.partition, 0)
        counted = gone + sum(tally[verdict].rows for verdict in COUNTED_ALONE if verdict in tally)
        unexplained += max(len(rest) - counted, 0)
        if len(rest) != counted:
            problems.append(
                f"{day}: partition {span.partition}: {len(rest)} offsets are in no file, and {counted} were "
                f"counted as skipped or before the first day: {rest}"
            )
        problems += [
            f"{day}: partition {span.partition}: {problem}"
            for problem in _digest_mismatches(classes, rest, tally, gone)
        ]
    unplanned = {part for part, _ in held} - {span.partition for span in manifest.spans}
    if unplanned:
        problems.append(
            f"{day}: its files hold rows of partitions {sorted(unplanned)}, which it did not read"
        )
    return unexplained, problems


def _classes(manifest: Manifest, held: Held) -> Iterator[tuple[Span, dict[str, Offsets]]]:
    """Yield each span with its offsets by class, for the classes that are recorded somewhere."""
    all_gaps = {gap.partition: gap.offsets for gap in manifest.gaps}
    consumed, next_ = (
        {part.partition: part.pending for part in checkpoint.partitions}
        for checkpoint in (manifest.consumed, manifest.next)
    )
    for span in manifest.spans:
        part = span.partition
        gaps = all_gaps.get(part, Offsets())
        settled = span.reads.within(0, span.seen_until) - consumed.get(part, Offsets())
        yield (
            span,
            {
                "gaps": gaps,
                Verdict.ALREADY_SETTLED.value: settled - gaps,
                Verdict.LATER_DAY.value: next_.get(part, Offsets()),
                **{verdict.value: held.get((part, verdict), Offsets()) for verdict in IN_FILES},
            },
        )


def _digest_mismatches(
    classes: Mapping[str, Offsets], rest: Offsets, tally: Mapping[Verdict, Tally], expired: int
) -> Iterator[str]:
    """Compare each verdict's offsets with the tally, by count and by digest."""
    by_verdict = {verdict: classes[verdict.value] for verdict in Verdict if verdict not in COUNTED_ALONE}
    alone = [verdict for verdict in COUNTED_ALONE if verdict in tally]
    if len(alone) == 1 and not expired:
        by_verdict[alone[0]] = rest
    for verdict, offsets in by_verdict.items():
        counted = tally.get(verdict)
        if expired and verdict is Verdict.LATE:
            if len(offsets) + expired != (counted.rows if counted else 0):
                yield f"{len(offsets)} rows {verdict} found and {expired} expired, of another number counted"
            continue
        if len(offsets) != (counted.rows if counted else 0):
            yield f"{len(offsets)} rows {verdict} found, {counted.rows if counted else 0} counted"
        elif counted and counted.digest and counted.digest != offsets.digest():
            yield f"the rows {verdict} are of other offsets than the audit counted"


class Coordinates:
    """The offsets of all files of a lake, to find those that lie in two files."""

    def __init__(self) -> None:
        """Start empty."""
        self._everywhere: dict[int, Gathering] = {}
        self._files: dict[int, list[tuple[str, Offsets]]] = {}
        self._twice: list[str] = []

    def add(self, name: str, partition: int, offsets: Offsets) -> None:
        """Add the offsets of one partition in a file."""
        known = self._everywhere.setdefault(partition, Gathering())
        if again := known.overlap(offsets):
            self._twice += self._places(name, partition, again)
        known.add(offsets - again)
        self._files.setdefault(partition, []).append((name, offsets))

    def _places(self, name: str, partition: int, again: Offsets) -> Iterator[str]:
        """Yield a sentence for each range of offsets and each other file that holds it."""
        for other_name, offsets in self._files[partition]:
            for from_, until in islice(again & offsets, MOST_SENTENCES):
                yield f"{name}: partition {partition} offsets [{from_}, {until}) lie in {other_name} too"

    def twice(self) -> Iterator[str]:
        """Yield a sentence for each range of offsets that lies in two files."""
        yield from self._twice
