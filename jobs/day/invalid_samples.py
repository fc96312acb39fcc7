"""Choose a few invalid records of a day that is not committed, for the message that says so.

Relies on the files of invalid records in staging, which hold each value beside its cause. Never fails: what
cannot be read is not shown. A value may be personal data and a message goes into logs: the config decides
what of a record is shown (`invalid.samples`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.config.schema import Samples
from jobs.day.audit import InvalidMessage
from jobs.lake.port import Files
from jobs.record.hints import hint_of
from jobs.record.rules import Rules
from jobs.record.text import printable, text_of
from jobs.task.parquet_writer import UNREADABLE
from jobs.task.result import WrittenFile
from offsets.manifest import CauseCount
from offsets.verdict import Verdict

SHOWN: Final = 3
"""How many samples, and how many causes, a message shows."""
ROWS_AT_ONCE: Final = 64
"""How many invalid records are read at a time: each may be megabytes large."""
FILES: Final = 8
BATCHES: Final = 32
"""In how many files, and in how many batches of each, samples are looked for."""
VALUE_TEXT: Final = 120
"""How many characters of a value a message shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InvalidSample:
    """An invalid record; `timestamp` is Kafka's (ms)."""

    partition: int
    offset: int
    cause: str
    timestamp: int = -1
    value: bytes | None = None


def read_samples(
    lake: Files, files: Sequence[WrittenFile], causes: Sequence[CauseCount]
) -> list[InvalidSample]:
    """Return SHOWN samples: one of each of the commonest causes, then more of the first ones."""
    wanted = [cause.cause for cause in causes[:SHOWN]]
    by_cause: dict[str, list[InvalidSample]] = {cause: [] for cause in wanted}
    try:
        for sample in _invalid_records(lake, files):
            if sample.cause in by_cause and len(by_cause[sample.cause]) < SHOWN:
                by_cause[sample.cause].append(sample)
            if all(by_cause.values()) and sum(map(len, by_cause.values())) >= SHOWN:
                break
    except UNREADABLE:
        pass  # samples are an extra: the message holds each cause with the place of one record anyway
    for count in causes[:SHOWN]:
        example = InvalidSample(partition=count.partition, offset=count.offset, cause=count.cause)
        by_cause[count.cause] = by_cause[count.cause] or [example]
    first = [samples[0] for samples in by_cause.values()]
    more = [sample for samples in by_cause.values() for sample in samples[1:]]
    return [*first, *more][:SHOWN]


def _invalid_records(lake: Files, files: Sequence[WrittenFile]) -> Iterator[InvalidSample]:
    for written in [file for file in files if file.verdict is Verdict.INVALID][:FILES]:
        with lake.open_file(written.path) as file:
            batches = pq.ParquetFile(file).iter_batches(ROWS_AT_ONCE, use_threads=False)
            for _, batch in zip(range(BATCHES), batches, strict=False):
                # a timestamp as a number: some are no Python datetime
                stamps = batch["kafka_timestamp"].cast(pa.int64())
                rows = batch.drop_columns(["headers", "key"]).set_column(2, "kafka_timestamp", stamps)
                yield from map(_sample, rows.to_pylist())


def _sample(row: dict[str, Any]) -> InvalidSample:
    stamp = row["kafka_timestamp"]
    return InvalidSample(
        partition=row["kafka_partition"],
        offset=row["kafka_offset"],
        cause=row["cause"],
        timestamp=-1 if stamp is None else stamp // 1000,
        value=row["value"],
    )


def describe(
    causes: Sequence[CauseCount], samples: Sequence[InvalidSample], rules: Rules, shown: Samples
) -> InvalidMessage:
    """Return what a message shows of the causes and the samples, as far as the config allows."""
    hints = [hint_of(sample.value, sample.timestamp, rules) for sample in samples]
    distinct = list(dict.fromkeys(hint for hint in hints if hint))
    parts = []
    for count in causes[:SHOWN]:
        own = [_text(sample, shown) for sample in samples if sample.cause == count.cause]
        such = f" (such as {', '.join(own)})" if own and shown is not Samples.NONE else ""
        parts.append(f"{count.rows:,} x {count.cause}{such}")
    at = f"`show {samples[0].partition}:{samples[0].offset}` prints one" if samples else ""
    where = "invalid.samples: coordinates names some" if shown is Samples.NONE else at
    return InvalidMessage(
        causes="; ".join(parts),
        look="".join(f"Hint: {hint}. " for hint in distinct) + f"Look at those records: {where}.",
        facts={
            "causes": [_cause_facts(count, shown) for count in causes[:SHOWN]],
            "samples": [_facts(sample, shown) for sample in samples if shown is not Samples.NONE],
            "hints": distinct,
        },
    )


def _text(sample: InvalidSample, shown: Samples) -> str:
    place = f"{sample.partition}:{sample.offset}"
    return f"{place} {_value(sample)}" if shown is Samples.VALUES and sample.value is not None else place


def _value(sample: InvalidSample) -> str:
    found = text_of(sample.value or b"", VALUE_TEXT)
    return f"{'0x' if found.encoding == 'hex' else ''}{printable(found.text)}{'...' if found.cut else ''}"


def _cause_facts(count: CauseCount, shown: Samples) -> dict[str, object]:
    place = {} if shown is Samples.NONE else {"partition": count.partition, "offset": count.offset}
    return {"cause": count.cause, "rows": count.rows, **place}


def _facts(sample: InvalidSample, shown: Samples) -> dict[str, object]:
    facts = {"partition": sample.partition, "offset": sample.offset, "cause": sample.cause}
    return facts | ({"value": _value(sample)} if shown is Samples.VALUES else {})
