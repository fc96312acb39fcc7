"""Which columns each day has: the newest manifest records them, and the manifests of days built again since.

Relies on the store's own clock alone to see which days were built again. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime

from jobs.lake.port import Lake
from jobs.record.layout import columns_by_contract, day_columns
from jobs.record.rules import Rules
from offsets.columns import ColumnRuns, Columns, column_runs, columns_on
from offsets.commit_log import read_manifest
from offsets.day_plan import DayPlan
from offsets.days import days_of
from offsets.errors import DayExists, LedgerBroken
from offsets.manifest import Manifest


def with_columns(plan: DayPlan, lake: Lake, newest: Manifest | None, rules: Rules) -> DayPlan:
    """Return a plan with the columns of its day, and of all days before it."""
    earlier = [day.date for day in plan.earlier]
    own = plan.day.date, day_columns(rules)
    return replace(plan, columns=column_runs([*columns_before(lake, newest, earlier), own]))


def columns_before(lake: Lake, newest: Manifest | None, days: Sequence[date]) -> list[tuple[date, Columns]]:
    """Return the columns of earlier days, as the newest manifest records them.

    Manifests of days that were built again since are read, since another contract may have been accepted for
    them; so are all, if the newest is of a format without columns.
    """
    recorded: ColumnRuns = newest.columns if newest else ()
    since = lake.manifest_written(newest.day.date) if newest else None
    columns = []
    for day in days:
        known = columns_on(recorded, day)
        if newest and (not known or (day != newest.day.date and was_written_after(lake, day, since))):
            known = own_columns(lake, day) or known
        columns.append((day, known))
    return columns


def current_columns(lake: Lake, newest: Manifest) -> ColumnRuns:
    """Return the columns of all days up to the newest; none if its manifest has none."""
    if not newest.columns:
        return ()
    days = [day.date for day in days_of(newest.earlier or ())]
    own = newest.day.date, columns_on(newest.columns, newest.day.date)
    return column_runs([*columns_before(lake, newest, days), own])


def was_written_after(lake: Lake, day: date, since: datetime | None) -> bool:
    """Return whether a day may have been built after the newest manifest, which then cannot know it.

    Two writes within one tick of the store's clock have the same time.
    """
    written = lake.manifest_written(day)
    return bool(written and since and written >= since)


def own_columns(lake: Lake, day: date) -> Columns:
    """Return the columns of a day as its own manifest has them; none if that cannot be read.

    No run needs an old manifest, so a damaged one stops none.
    """
    with suppress(DayExists, LedgerBroken, ValueError):
        if manifest := read_manifest(lake, day):
            return columns_on(manifest.columns, day) or columns_by_contract(manifest.contract)
    return ()
