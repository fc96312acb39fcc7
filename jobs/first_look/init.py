"""Propose a configuration for a topic, write it, and try it on the sample.

Relies on the decoder and the verdict rule of the tasks for the trial, so that its result is what a run would
say. Writes one new file, and never over another.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Final

from jobs import config
from jobs.day.stretches import batch_of
from jobs.first_look.config_text import config_text
from jobs.first_look.propose import FUTURE, Proposal, propose
from jobs.first_look.sample import TopicSample, read_sample
from jobs.record.decode import Decoder
from jobs.record.hints import hint_of
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

    `rows` are records that a day keeps as rows. `causes` are why others are invalid, the commonest first.
    """

    path: str
    sampled: int
    rows: int
    before_first: int
    skipped: int
    invalid: int
    causes: tuple[CauseCount, ...]
    hints: tuple[str, ...]
    first: date


def init(reader: TopicReader, topic: str, servers: str, path: Path, zone: str) -> Proposed:
    """Propose a configuration, write it to `path`, and try it on the sample.

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
    _write(path, config_text(proposal, topic, servers))
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
    decoder, rules = Decoder(settings.rules), settings.rules
    days = [day_in(settings.day.zone, proposal.first)]
    bounds = DayBounds.through(days, rules)
    verdicts: list[Verdict] = []
    causes: list[CauseCount] = []
    hints: dict[str, None] = {}
    for partition, group in groupby(sample.records, key=lambda found: found[0]):
        records = [record for _, record in group]
        batch = Batch.of(batch_of(partition, records, headers=False))
        _, classified = judge(batch, decoder, bounds)
        verdicts += [VERDICTS[int(code)] for code in classified.code]
        for record, verdict, cause in zip(
            records, verdicts[-len(records) :], classified.cause.to_pylist(), strict=True
        ):
            if verdict is Verdict.INVALID:
                causes.append(CauseCount(cause=cause, rows=1, partition=partition, offset=record.offset))
                if hint := hint_of(record.value, record.timestamp, rules):
                    hints[hint] = None
    return Proposed(
        path=str(path),
        sampled=len(verdicts),
        rows=sum(verdict in (Verdict.IN_DAY, Verdict.LATE, Verdict.LATER_DAY) for verdict in verdicts),
        before_first=verdicts.count(Verdict.BEFORE_FIRST),
        skipped=verdicts.count(Verdict.SKIPPED),
        invalid=verdicts.count(Verdict.INVALID),
        causes=summed_causes(causes)[:SHOWN_CAUSES],
        hints=tuple(hints)[:SHOWN_CAUSES],
        first=proposal.first,
    )
