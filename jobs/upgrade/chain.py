"""Read which days of a lake an upgrade changes, and what it needs to know of the others.

Reads the manifests alone, oldest first, one by one; changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date

from jobs.lake.earlier_formats import is_of_today, with_todays_name
from jobs.lake.late import is_unfinished, late_moves
from jobs.lake.port import Lake
from jobs.record.layout import columns_by_contract
from offsets.columns import ColumnRuns, Columns, column_runs, columns_on
from offsets.commit_log import Ledger, first_kept, read_chain, read_ledger, read_twice
from offsets.day_plan import after_compaction
from offsets.days import Runs, with_next
from offsets.manifest import DataFile, Manifest
from offsets.manifest_text import format_of
from offsets.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgradable:
    """A day that an upgrade changes: the format of its manifest, its files, how many get another name.

    `rows` are those in its files. A day `without_file` has no rows of its own, and gets a file without rows.
    """

    date: date
    format: int
    files: int
    renamed: int
    rows: int
    without_file: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What today's manifest of a day records, and manifests of older formats did not."""

    earlier: Runs
    columns: ColumnRuns
    cleanup_policy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeChain:
    """The days to upgrade, what all days record of each, and the amendments that were `remade`, by target."""

    todo: Mapping[date, Upgradable]
    recorded: Mapping[date, Recorded]
    remade: Mapping[str | None, DataFile]


def upgradable(lake: Lake) -> tuple[Upgradable, ...]:
    """List the days that an upgrade would change; takes no lock.

    Raises:
        DayExists, LedgerBroken: the chain is broken.
    """
    return tuple(read_twice(read_upgrade_chain)(lake).todo.values())


def read_upgrade_chain(
    lake: Lake, each: Callable[[Manifest], object] = lambda manifest: None
) -> UpgradeChain:
    """Read all manifests, and call `each` with one after the other, since all may take gigabytes.

    Raises:
        DayExists, LedgerBroken: the chain is broken.
    """
    kept_from = first_kept(lake)
    todo, recorded, remade = dict[date, Upgradable](), dict[date, Recorded](), dict[str | None, DataFile]()
    runs, columns = _of_expired(read_ledger(lake))
    policy: str | None = None
    for manifest in read_chain(lake):
        day = manifest.day.date
        runs = runs if manifest.earlier is None else manifest.earlier
        columns = _followed(columns, day, own_columns(manifest))
        if manifest.earlier is None:  # a run has marked the policies of later formats
            policy = after_compaction(manifest.cleanup_policy, policy)
        else:
            policy = manifest.cleanup_policy
        # a day that was built again since has other columns than later manifests record of it
        recorded[day] = Recorded(earlier=runs, columns=columns or manifest.columns, cleanup_policy=policy)
        remade |= {file.target: file for file in manifest.remade}
        if not is_of_today(manifest) or _has_open_moves(lake, manifest, kept_from):
            todo[day] = _described(manifest, lake.manifest_text(day) or b"")
        runs = with_next(runs, manifest.day)
        each(manifest)
    return UpgradeChain(todo=todo, recorded=recorded, remade=remade)


def own_columns(manifest: Manifest) -> Columns:
    """Return the columns of a day; none if another decoder made it."""
    with suppress(ValueError):
        return columns_on(manifest.columns, manifest.day.date) or columns_by_contract(manifest.contract)
    return ()


def _of_expired(ledger: Ledger) -> tuple[Runs, ColumnRuns]:
    """Return the bounds and columns of the days that expired, of which the newest manifest tells."""
    runs: Runs = ()
    columns: ColumnRuns = ()
    for day in ledger.days[: len(ledger.days) - len(ledger.kept)]:
        runs = with_next(runs, day)
        of_day = columns_on(ledger.newest.columns, day.date) if ledger.newest else ()
        columns = _followed(columns, day.date, of_day)
    return runs, columns


def _followed(runs: ColumnRuns, day: date, columns: Columns) -> ColumnRuns:
    return column_runs([*((run.from_date, run.columns) for run in runs), (day, columns)])


def _has_open_moves(lake: Lake, manifest: Manifest, kept_from: date) -> bool:
    """Return whether a late file still waits to reach its day; of a day that expired none does."""
    return any(
        file.day and file.day >= kept_from and is_unfinished(lake, source, target)
        for file, source, target in late_moves(manifest)
    )


def _described(manifest: Manifest, text: bytes) -> Upgradable:
    return Upgradable(
        date=manifest.day.date,
        format=format_of(text),
        files=len(manifest.files),
        renamed=sum(with_todays_name(file) != file for file in manifest.files),
        rows=sum(file.rows for file in manifest.files),
        without_file=not manifest.files_of(Verdict.IN_DAY),
    )
