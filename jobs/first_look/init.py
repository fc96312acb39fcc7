"""Propose a configuration for a topic, write it, and try it on the sample.

Relies on the decoder and the verdict rule of the tasks for the trial, so that its result is what a run would
say. Writes one new file, and never over another.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from jobs import config
from jobs.config import Settings
from jobs.config.strict_yaml import Tree
from jobs.day.stretches import batch_of
from jobs.first_look.config_text import config_text, path_text, share_of
from jobs.first_look.propose import FUTURE, Proposal, propose
from jobs.first_look.sample import TopicSample, read_sample
from jobs.record.decode import Decoder
from jobs.record.hints import IF_MOST, hint_of
from jobs.record.rules import EventTimeRule, RecordFormat, Rules, Tombstones
from jobs.record.time_format import TimeFormat
from jobs.task.classify import VERDICTS, DayBounds
from jobs.task.result import summed_causes
from jobs.task.task import Batch, judge
from offsets.days import ONE_DAY, date_in, day_in
from offsets.errors import ConfigError
from offsets.instants import EPOCH, millis
from offsets.kafka.reader import FullRecord, TopicReader
from offsets.manifest import CauseCount
from offsets.verdict import Verdict

SHOWN_CAUSES: Final = 5
LATEST: Final = millis(datetime(2200, 1, 1, tzinfo=UTC))
"""The latest stamp (ms) at a log's start that may decide the first day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """The file that was written, and what its configuration makes of the sampled records.

    `lake` is where its lake will be. `rows` are records that a day keeps as rows. `causes` are why others are
    invalid, the commonest first.
    """

    path: str
    lake: str
    sampled: int
    rows: int
    before_first: int
    skipped: int
    invalid: int
    causes: tuple[CauseCount, ...]
    hints: tuple[str, ...]
    first: date


def init(reader: TopicReader, topic: str, kafka: Mapping[str, Tree], path: Path, zone: str) -> Proposed:
    """Propose a configuration, write it to `path`, and try it on the sample; `kafka` is its section.

    Raises:
        ConfigError: the file exists or cannot be written, or no configuration can be proposed.
    """
    require_new(path)
    sample = read_sample(reader, topic)
    records = [record for _, record in sample.records]
    proposal = propose(records, zone, _earliest(sample, zone))
    if proposal is None:
        raise _no_json(topic, records)
    if not proposal.columns:
        raise ConfigError(
            expected=f"fields in the records of topic {topic} that can be columns",
            found=f"none among {len(records):,} sampled records",
            do="Copy conf/example.yaml and write the configuration by hand, or set record.format: raw.",
        )
    _write(path, config_text(proposal, topic, kafka, _lake(path, topic)))
    return _tried(path, sample, proposal)


def require_new(path: Path) -> None:
    """Check that a file can be written, and is not there yet.

    Raises:
        ConfigError: it cannot, or it is.
    """
    if os.path.lexists(path):
        raise ConfigError(
            expected=f"no file at {path}, since `init` writes over nothing",
            found="one",
            do="Name another with --out, or move that one away.",
        )
    if not path.parent.is_dir():
        raise ConfigError(
            expected=f"a folder {path.parent}", found="none", do="Make it, or name another file with --out."
        )


def _earliest(sample: TopicSample, zone: str) -> date | None:
    """Return the first day that retention left whole, where it took records."""
    if not sample.oldest:
        return None
    latest = EPOCH + timedelta(milliseconds=min(max(0, *sample.oldest), LATEST)) + FUTURE
    return date_in(zone, latest) + ONE_DAY


def _no_json(topic: str, records: Sequence[FullRecord]) -> ConfigError:
    rules = Rules(
        format=RecordFormat.JSON,
        columns=(),
        kafka_columns=frozenset(),
        event_time=EventTimeRule(path=(), format=TimeFormat.ISO8601, zone="UTC"),
        past=timedelta(),
        future=timedelta(),
        tombstones=Tombstones.QUARANTINE,
    )
    hints = [hint_of(record.value, record.timestamp, rules) for record in records]
    why = next(filter(None, hints), "they are no JSON")
    return ConfigError(
        expected=f"JSON objects in topic {topic}",
        found=f"none among {len(records):,} sampled records: {why}",
        do="For records of any bytes copy conf/example.yaml and set record.format: raw, without columns.",
    )


def _lake(path: Path, topic: str) -> str:
    """Return lake.path, which counts from the file's folder: a lake lies beside `conf`, not in it."""
    return f"{'..' if path.absolute().parent.name == 'conf' else '.'}/lake/{topic}"


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(
            expected=f"to write {path}", found=str(error.strerror), do="Name another file with --out."
        ) from None


def _tried(path: Path, sample: TopicSample, proposal: Proposal) -> Proposed:
    """Return what the written configuration makes of the sample."""
    settings = config.load(path, os.environ)
    judged = list(_judged(sample, settings, proposal.first))
    verdicts = Counter(each.verdict for each in judged)
    invalid = [each for each in judged if each.verdict is Verdict.INVALID]
    hints = Counter(hint_of(each.record.value, each.record.timestamp, settings.rules) for each in invalid)
    of_most = [hint for hint in hints if hint and (IF_MOST not in hint or 2 * hints[hint] > len(judged))]
    causes = summed_causes([each.as_cause() for each in invalid])
    return Proposed(
        path=str(path),
        lake=_shown(settings.lake.folder),
        sampled=len(judged),
        rows=sum(verdicts[row] for row in (Verdict.IN_DAY, Verdict.LATE, Verdict.LATER_DAY)),
        before_first=verdicts[Verdict.BEFORE_FIRST],
        skipped=verdicts[Verdict.SKIPPED],
        invalid=verdicts[Verdict.INVALID],
        causes=causes[:SHOWN_CAUSES],
        hints=(*_warnings(proposal, settings, len(invalid), len(judged)), *of_most[:SHOWN_CAUSES]),
        first=proposal.first,
    )


def _shown(lake: Path) -> str:
    """Return a path from here on, without its `..`, where it lies below."""
    real, here = lake.resolve(), Path.cwd().resolve()
    return str(real.relative_to(here) if real.is_relative_to(here) else real)


def _warnings(proposal: Proposal, settings: Settings, invalid: int, judged: int) -> Iterator[str]:
    """Yield what a person must know before the first run, whatever single records say."""
    if proposal.event_time is None:
        near = proposal.nearest
        nearest = f". Nearest: {path_text(near.path)}, {near.format} {share_of(near)}" if near else ""
        yield f"no event time was found: days are by Kafka's timestamps{nearest}"
    limits = settings.invalid
    if proposal.has_misfits and invalid > limits.limit * judged:
        yield (
            f"{invalid:,} of {judged:,} is a larger share than invalid.limit, {limits.limit:.1%}: a day with "
            f"more than {limits.floor} of them ends with 26. Mend the producer, or set that limit"
            f"{_may_be_json(proposal)}"
        )


def _may_be_json(proposal: Proposal) -> str:
    """Return which columns would take all values as json; that of the event time would not help."""
    at = proposal.event_time.path[0] if proposal.event_time else None
    odd = [column.name for column in proposal.columns if column.misfits and column.field != at]
    named = f"{', '.join(odd[:SHOWN_CAUSES])}{' and others' if len(odd) > SHOWN_CAUSES else ''}"
    return f"; or give {named} the type json, which takes any value" if odd else ""


@dataclass(frozen=True, slots=True)
class _Judged:
    """A sampled record with its verdict; an invalid one has a cause."""

    partition: int
    record: FullRecord
    verdict: Verdict
    cause: str

    def as_cause(self) -> CauseCount:
        return CauseCount(cause=self.cause, rows=1, partition=self.partition, offset=self.record.offset)


def _judged(sample: TopicSample, settings: Settings, first: date) -> Iterator[_Judged]:
    decoder = Decoder(settings.rules)
    bounds = DayBounds.through([day_in(settings.day.zone, first)], settings.rules)
    for partition, group in groupby(sample.records, key=itemgetter(0)):
        records = [record for _, record in group]
        _, classified = judge(Batch.of(batch_of(partition, records, headers=False)), decoder, bounds)
        found = zip(records, classified.code, classified.cause.to_pylist(), strict=True)
        for record, code, cause in found:
            yield _Judged(partition, record, VERDICTS[int(code)], cause or "")
