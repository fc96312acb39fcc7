"""What a verification reports: each day's ledger, in which every offset that was read has one class.

Pure values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from jobs.lake.status import state_of
from jobs.verify.level import Level
from offsets.manifest import Gaps, Manifest
from offsets.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstKafka:
    """What Kafka still shows of a day's reads.

    `visible` offsets were found, `gone` lie below the log start now, `compacted` were delivered once and
    have vanished from inside a compacted log.
    """

    visible: int = 0
    gone: int = 0
    compacted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLedger:
    """One committed day: its files, and what became of each of the `offsets` that it read.

    `rows` lie in its own files, late and invalid ones too; `amended` were brought to it by later runs.
    `verdicts` and the gaps make up the offsets; `unexplained` have no class. `gaps_proved` are proved to be
    invisible; `gaps_sampled` lie in partitions where `sampled` of `sampled_of` ranges were probed. `lost` is
    what Kafka lost before the day could settle it. `kafka` is None where Kafka was not asked.
    """

    date: date
    state: str
    revision: int
    files: int
    rows: int
    bytes: int
    amended: int
    offsets: int
    verdicts: Mapping[str, int]
    gaps_proved: int
    gaps_sampled: int
    sampled: int
    sampled_of: int
    unexplained: int
    lost: tuple[str, ...]
    kafka: AgainstKafka | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a verification looked at, and all that it found wrong.

    `unfinished_moves` are the places that late files of the newest day have still to be brought to, by the
    next run; that is no problem.
    """

    level: Level
    days: int
    files: int
    rows: int
    bytes: int
    ledger: tuple[DayLedger, ...]
    unfinished_moves: tuple[str, ...]
    problems: tuple[str, ...]


def day_ledger(
    manifest: Manifest, *, amended: int, unexplained: int, kafka: AgainstKafka | None
) -> DayLedger:
    """Make one day's ledger of its manifest and of what was found."""
    sampled = [gap for gap in manifest.gaps if not _proved(gap)]
    return DayLedger(
        date=manifest.day.date,
        state=state_of(manifest),
        revision=manifest.revision,
        files=len(manifest.files),
        rows=sum(file.rows for file in manifest.files),
        bytes=sum(file.bytes for file in manifest.files),
        amended=amended,
        offsets=sum(len(span.reads) for span in manifest.spans),
        verdicts={verdict.value: manifest.rows(verdict) for verdict in Verdict},
        gaps_proved=sum(len(gap.offsets) for gap in manifest.gaps if _proved(gap)),
        gaps_sampled=sum(len(gap.offsets) for gap in sampled),
        sampled=sum(gap.probed for gap in sampled),
        sampled_of=sum(gap.offsets.range_count for gap in sampled),
        unexplained=unexplained,
        lost=tuple(str(lost) for lost in manifest.accepted.loss),
        kafka=kafka,
    )


def _proved(gap: Gaps) -> bool:
    return gap.probed == gap.offsets.range_count
