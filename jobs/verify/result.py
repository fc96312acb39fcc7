"""The result of a verification: a ledger of each day, in which every offset that was read has one class.

Pure values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from jobs.lake.status import state_of
from jobs.verify.expired import Expired
from jobs.verify.level import Level
from offsets.manifest import Gaps, Manifest
from offsets.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstKafka:
    """What Kafka still shows of the offsets that a day read.

    `visible` were found. `gone` now lie below the log start. `compacted` were delivered to the day, but are
    no longer in a compacted log.
    """

    visible: int = 0
    gone: int = 0
    compacted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLedger:
    """One committed day: its files, and what became of each of the `offsets` that it read.

    `rows` are in its own files, including late and invalid ones; later runs brought the `amended` ones.
    `verdicts` and the gaps add up to `offsets`; `unexplained` have no class. `gaps_proved` are proved to be
    invisible; `gaps_sampled` lie in partitions where `sampled` of `sampled_of` ranges were probed. `lost` are
    the ranges in which Kafka lost `lost_offsets` before the day settled them; None if its manifest does not
    say how many. `kafka` is None if Kafka was not asked.
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
    lost_offsets: int | None
    kafka: AgainstKafka | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What became of all offsets that the days of a lake have read, each counted once; `read` is their sum.

    `pending` wait for the run of a later day. `unread` lie behind what was read; None if Kafka was not asked.
    """

    read: int
    verdicts: Mapping[str, int]
    gaps: int
    pending: int
    unread: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a verification checked, and all problems that it found.

    `unfinished_moves` are the targets of late files that the next run will bring there, `not_entered` the
    days that it will enter in the ledger; these are no problem.
    `expired` is what was removed by policy: it is counted, and not missing.
    `notes` are about what can be made of the manifests at any time. `damaged` are the days that a rebuild
    makes anew, the first to be built first. `account` is None of a single day, or where days are damaged.
    """

    level: Level
    days: int
    files: int
    rows: int
    bytes: int
    ledger: tuple[DayLedger, ...]
    unfinished_moves: tuple[str, ...]
    not_entered: tuple[date, ...]
    expired: Expired
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    damaged: tuple[date, ...] = ()
    account: Account | None = None


def day_ledger(
    manifest: Manifest, *, amended: int, unexplained: int, kafka: AgainstKafka | None
) -> DayLedger:
    """Return one day's ledger, from its manifest and the figures of the verification."""
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
        lost_offsets=manifest.accepted.lost_offsets,
        kafka=kafka,
    )


def account(ledger: Sequence[DayLedger], newest: Manifest, unread: int | None) -> Account:
    """Add up the days of a lake; what a day left for a later one is counted where it was settled."""
    passed_on = (Verdict.LATER_DAY, Verdict.ALREADY_SETTLED)
    verdicts = {
        verdict.value: sum(day.verdicts[verdict] for day in ledger)
        for verdict in Verdict
        if verdict not in passed_on
    }
    gaps = sum(day.gaps_proved + day.gaps_sampled for day in ledger)
    pending = sum(len(part.pending) for part in newest.next.partitions)
    read = sum(verdicts.values()) + gaps + pending
    return Account(read=read, verdicts=verdicts, gaps=gaps, pending=pending, unread=unread)


def _proved(gap: Gaps) -> bool:
    return gap.probed == gap.offsets.range_count
