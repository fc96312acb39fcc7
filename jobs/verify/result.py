"""The result of a verification: a ledger of each day, in which every offset that was read has one class.

Pure values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from jobs.lake.status import state_of
from jobs.verify.advice import Damage
from jobs.verify.expired import Expired
from jobs.verify.level import Level
from offsets.manifest import Gaps, Manifest
from offsets.ranges import Offsets
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
    `verdicts` and the gaps add up to `offsets`; `unexplained` have no class. Of the gaps `gaps_again` lie
    between pending offsets, and an earlier day counted them. `gaps_proved` are proved to be invisible;
    `gaps_sampled` lie in partitions where `sampled` of `sampled_of` ranges were probed. `lost` are the ranges
    in which Kafka lost `lost_offsets` before the day settled them; None if its manifest says no number.
    `kafka` is None if Kafka was not asked.
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
    gaps_again: int
    sampled: int
    sampled_of: int
    unexplained: int
    lost: tuple[str, ...]
    lost_offsets: int | None
    kafka: AgainstKafka | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What became of all `offsets` up to where the newest day ended, each counted once.

    They begin where the first day that is there began. `pending` wait for the run of a later day, `lost` ones
    a person gave up. `unread` lie behind them; None if Kafka was not asked.
    """

    offsets: int
    verdicts: Mapping[str, int]
    gaps: int
    lost: int
    pending: int
    unread: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What a verification checked, and all problems that it found.

    `unfinished_moves` are the targets of late files that the next run will bring there, `not_entered` the
    days that it will enter in the ledger; these are no problem.
    `expired` is what was removed by policy: it is counted, and not missing.
    `notes` are about what can be made of the manifests at any time. `damage` says which
    days are not as committed. `account` is None of a single day, or where there are problems.
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
    damage: Damage = field(default_factory=Damage)
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
        gaps_again=sum(map(len, _settled_gaps(manifest))),
        sampled=sum(gap.probed for gap in sampled),
        sampled_of=sum(gap.offsets.range_count for gap in sampled),
        unexplained=unexplained,
        lost=tuple(str(lost) for lost in manifest.accepted.loss),
        lost_offsets=manifest.accepted.lost_offsets,
        kafka=kafka,
    )


def account(ledger: Sequence[DayLedger], newest: Manifest, unread: int | None) -> Account | None:
    """Add up the days of a lake; what a day left for a later one is counted where it was settled.

    None where a manifest up to format 3 does not say how many offsets were lost.
    """
    passed_on = (Verdict.LATER_DAY, Verdict.ALREADY_SETTLED)
    verdicts = {
        verdict.value: sum(day.verdicts[verdict] for day in ledger)
        for verdict in Verdict
        if verdict not in passed_on
    }
    given_up = [day.lost_offsets for day in ledger]
    if None in given_up:
        return None
    gaps = sum(day.gaps_proved + day.gaps_sampled - day.gaps_again for day in ledger)
    lost = sum(filter(None, given_up))
    pending = sum(len(part.pending) for part in newest.next.partitions)
    offsets = sum(verdicts.values()) + gaps + lost + pending
    return Account(offsets=offsets, verdicts=verdicts, gaps=gaps, lost=lost, pending=pending, unread=unread)


def _settled_gaps(manifest: Manifest) -> Iterator[Offsets]:
    """Yield the gaps of each partition that an earlier day counted, between offsets that it left pending."""
    pending = {part.partition: part.pending for part in manifest.consumed.partitions}
    for span, gap in zip(manifest.spans, manifest.gaps, strict=False):
        yield gap.offsets.within(0, span.seen_until) - pending.get(span.partition, Offsets())


def _proved(gap: Gaps) -> bool:
    return gap.probed == gap.offsets.range_count
