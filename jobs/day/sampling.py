"""Learn what a day's rows take in Parquet, from some of its own records, before it is cut into tasks.

Relies on the second client for the records, and on a task's own code for verdicts and files, so that rules,
columns and compression are just those of the day. Its files mean nothing: no report names them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import structlog

from jobs.day.sizing import PACKED
from jobs.day.stretches import batch_of
from jobs.lake.names import parent
from jobs.task.task import TaskSpec, rebatch, run_task
from offsets.day_plan import DayPlan
from offsets.errors import KafkaDailyError
from offsets.kafka.reader import FullRecord, TopicReader

log = structlog.get_logger(__name__)

PLACES: Final = 16
SAMPLE_ROWS: Final = 20_000
SAMPLE_BYTES: Final = 16 << 20
"""A sample is taken at PLACES places, evenly over what is read, up to so many rows and bytes in all."""
SECONDS: Final = 0.4
"""After this time no other place is read: a slow broker makes the sample small, not the run late."""
SHORTER: Final = 0.97
"""A row of a file takes this share of one of a sample, whose footer and dictionaries serve fewer rows.

Measured on the bench's orders, 1 M in a file: 20,000 rows take 2.7 to 3.9 % more a row, 5,000 take 6 to 8 %.
"""


class Place(NamedTuple):
    """Some offsets that lie together."""

    partition: int
    from_: int
    until: int


class Read(NamedTuple):
    """What was read at a place, up to `until`; `cut` where the limit of bytes ended it."""

    place: Place
    records: Sequence[FullRecord]
    until: int
    cut: bool


def sampled_row_bytes(reader: TopicReader, plan: DayPlan, spec: TaskSpec) -> float | None:
    """Return the bytes that an offset of the plan takes in files, or None where no sample can be had."""
    headers = "headers" in spec.rules.kafka_columns
    try:
        reads = _alike([*_reads(reader, plan, headers=headers)])
    except KafkaDailyError as stopped:
        log.warning("no sample could be read: sizes are a guess", error=str(stopped))
        return None
    offsets = sum(read.until - read.place.from_ for read in reads)
    # so that row groups are as large as those of a writer that already knows how well rows compress
    files = replace(spec.files, target_size=round(spec.files.target_size / PACKED))
    batches = rebatch(
        batch_of(read.place.partition, read.records, headers=headers) for read in reads if read.records
    )
    # beside the attempts' folder, in which only tasks write
    beside = replace(spec, files=files, attempts=parent(spec.attempts))
    report = run_task(beside, "sample", batches)
    size = sum(file.bytes for file in report.files)
    # places without a record, as in a stretch that was aborted, show nothing about the others
    return SHORTER * size / offsets if size and not report.failure else None


def places(plan: DayPlan) -> list[Place]:
    """Return places in the middle of equal shares of all that is read."""
    share = plan.offsets / PLACES
    rows = min(SAMPLE_ROWS // PLACES, int(share))
    ranks = [int(share * number + (share - rows) / 2) for number in range(PLACES)]
    return list(_at(plan, ranks, rows)) if rows else [Place(*each) for each in _ranges(plan)][:PLACES]


def _ranges(plan: DayPlan) -> Iterator[tuple[int, int, int]]:
    for span in plan.spans:
        for from_, until in span.reads:
            yield span.partition, from_, until


def _at(plan: DayPlan, ranks: Sequence[int], rows: int) -> Iterator[Place]:
    """Find the offsets at ascending ranks; a place ends with its range."""
    left, before = list(ranks), 0
    for partition, from_, until in _ranges(plan):
        while left and left[0] < before + until - from_:
            at = from_ + left.pop(0) - before
            yield Place(partition, at, min(at + rows, until))
        before += until - from_


def _reads(reader: TopicReader, plan: DayPlan, *, headers: bool) -> Iterator[Read]:
    """Read at places far apart first, so that some of them stand for all."""
    chosen, started = places(plan), time.monotonic()
    for place in (place for first in range(4) for place in chosen[first::4]):
        yield _read(reader, plan.topic.name, place, headers=headers)
        if time.monotonic() - started > SECONDS:
            return


def _read(reader: TopicReader, topic: str, place: Place, *, headers: bool) -> Read:
    records = reader.sample(topic, *place, SAMPLE_BYTES // PLACES, headers=headers)
    cut = bool(records) and sum(record.size for record in records) >= SAMPLE_BYTES // PLACES
    return Read(place, records, records[-1].offset + 1 if cut else place.until, cut)


def _alike(reads: Sequence[Read]) -> list[Read]:
    """Shorten all places to the shortest that bytes ended: large records must count as much as small ones."""
    rows = min((read.until - read.place.from_ for read in reads if read.cut), default=SAMPLE_ROWS)
    return [_shortened(read, min(read.until, read.place.from_ + rows)) for read in reads]


def _shortened(read: Read, until: int) -> Read:
    records = [record for record in read.records if record.offset < until]
    return read._replace(records=records, until=until)
