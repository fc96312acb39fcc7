"""The manifest of a committed day: what was planned, what became of each offset, and the next checkpoint.

Pure. Constructors reject values that contradict themselves. `manifest_text` reads and writes the JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime

from offsets.checkpoint import Checkpoint, TopicIdentity
from offsets.columns import ColumnRuns, check_column_runs
from offsets.contract import Accepted, Contract
from offsets.day_plan import PartitionStart, Span
from offsets.days import Day, Runs, check_runs
from offsets.ranges import Offsets
from offsets.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The number of rows of one partition with one verdict, and the range of their offsets."""

    partition: int
    """The partition."""
    verdict: Verdict
    """What became of the rows."""
    rows: int
    """The number of rows."""
    from_offset: int
    """The first offset among them."""
    until_offset: int
    """The offset after the last."""
    digest: str = ""
    """The SHA-256 of exactly these offsets as ranges, since equal counts can be of other records. Empty until
    the audit, and of a day that was settled under format 1."""

    def __post_init__(self) -> None:
        if not 0 < self.rows <= self.until_offset - self.from_offset:
            raise ValueError(f"{self.rows} rows cannot lie in [{self.from_offset}, {self.until_offset})")


def tally_by_partition(tally: Iterable[Tally]) -> dict[int, list[Tally]]:
    """Return the entries of each partition; to look through all for each would take minutes for thousands."""
    entries: dict[int, list[Tally]] = {}
    for entry in tally:
        entries.setdefault(entry.partition, []).append(entry)
    return entries


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOffsets:
    """The offsets of one partition in a file."""

    partition: int
    """The partition."""
    rows: int
    """How many of its rows the file holds."""
    from_offset: int
    """The first offset among them."""
    until_offset: int
    """The offset after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """One Parquet file of a day."""

    path: str
    """Its path below the day's folder."""
    verdict: Verdict
    """`in_day`, `late` or `invalid`."""
    rows: int
    """How many rows it holds."""
    bytes: int
    """Its size in bytes."""
    sha256: str
    """The SHA-256 of its bytes."""
    offsets: tuple[FileOffsets, ...]
    """The offsets that it holds, one entry per partition."""
    event_time_min: datetime | None = None
    """The earliest event time in it; null for invalid records."""
    event_time_max: datetime | None = None
    """The latest event time in it; null for invalid records."""
    day: date | None = None
    """The day that its rows belong to; null except for late ones."""
    target: str | None = None
    """The path below the lake to which its late rows are brought; null if they stay set aside, and for all
    other files."""

    def __post_init__(self) -> None:
        if self.rows != sum(part.rows for part in self.offsets):
            raise ValueError(f"{self.path}: {self.rows} rows, but its offset ranges say otherwise")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """The offsets of a span that Kafka did not deliver: transaction markers, aborted or compacted records."""

    partition: int
    """The partition."""
    offsets: Offsets
    """The offsets that were not delivered."""
    probed: int = 0
    """The number of ranges in which a second client found no record either: all of them, or a sample; none
    that an earlier day settled and that retention removed before the look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseCount:
    """How many records are invalid for one cause, with the coordinate of one of them."""

    cause: str
    """The cause, as a sentence."""
    rows: int
    """How many records are invalid for it."""
    partition: int
    """The partition of one of them."""
    offset: int
    """The offset of that one."""


FORMAT_VERSION = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The commit record of one day: what was planned, read and written, and where the next day starts.

    docs/MANIFEST.md is generated from the text below each field, here and in the nested values.
    """

    run_id: str
    """The run that wrote it; the names of its files hold it too."""
    revision: int
    """How often the day was built, counted from 1."""
    day: Day
    """The day and its bounds."""
    earlier: Runs | None
    """The bounds of all days before this one, from the lake's first; null if an older format lacked them."""
    topic: TopicIdentity
    """The topic that was read."""
    contract: Contract
    """All that decides a record's verdict and bytes: the decoder's version, and keys of the config."""
    columns: ColumnRuns
    """Which columns the day's own files have, and those of each day before it, as its run knew them; empty if
    an older format lacked them. Late files also have today's columns."""
    accepted: Accepted
    """What a person accepted, in this run or in an earlier build of the day."""
    consumed: Checkpoint
    """The checkpoint that the run started from: the `next` of the day before, without accepted losses."""
    first_offsets: tuple[PartitionStart, ...]
    """The first offset of each partition that belongs to the lake."""
    spans: tuple[Span, ...]
    """What was read, one entry per partition."""
    cleanup_policy: str | None
    """The topic's `cleanup.policy`; null if the broker did not show it. An earlier compaction is marked."""
    transactional: bool | None
    """Whether the day's gaps show transactions; null if compaction may have made them."""
    gaps: tuple[Gaps, ...]
    """The offsets that Kafka did not deliver, one entry per partition."""
    missing_pending: int
    """The number of pending offsets of `consumed` that compaction removed."""
    tally: tuple[Tally, ...]
    """The number of rows with each verdict, by partition."""
    late_expired: int
    """How many of the late rows are of days that had expired by policy: these rows stay below `_late/`."""
    causes: tuple[CauseCount, ...]
    """Why records are invalid, the commonest first."""
    files: tuple[DataFile, ...]
    """The files of the day, and the late ones that its run wrote, which may have moved to their `target`."""
    remade: tuple[DataFile, ...]
    """Amendments of this day that an older version rebuilt here: their size and SHA-256 are those here, not
    those in the manifest of the day that brought them. By now that day rebuilds them: none is added."""
    next: Checkpoint
    """The checkpoint that the next day starts from."""
    started: datetime
    """When the tasks were started."""
    audited: datetime
    """When the audit passed."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of Python, of kafka-daily and of the packages that read and wrote."""

    def __post_init__(self) -> None:
        if self.earlier is not None:
            check_runs(self.earlier, self.day)
        check_column_runs(self.columns, self.day.date)

    @property
    def lossy(self) -> bool:
        """Whether Kafka lost offsets that this day should have settled."""
        return bool(self.accepted.loss)

    def rows(self, verdict: Verdict) -> int:
        """Count the rows with a verdict."""
        return sum(tally.rows for tally in self.tally if tally.verdict is verdict)

    def files_of(self, verdict: Verdict) -> tuple[DataFile, ...]:
        """Return the files that hold rows with a verdict."""
        return tuple(file for file in self.files if file.verdict is verdict)
