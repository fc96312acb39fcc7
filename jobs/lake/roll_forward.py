"""What a run left undone after its commit: the next one finishes it first, under the lock.

A commit is one rename; all that comes after it is repeated until it is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from jobs.lake.expiry import finish_expiry
from jobs.lake.late import finish_moves
from jobs.lake.ledger import enter_days, not_entered
from jobs.lake.port import Lake
from jobs.lake.refusals import not_published
from offsets.commit_log import Ledger, read_ledger


def finish_last_run(lake: Lake, run_id: str) -> tuple[Ledger, Mapping[date, int]]:
    """Finish what the last run left undone; return the ledger, and the rows that each earlier day received.

    Raises:
        LedgerBroken, DayExists: the chain is broken.
        NotPublished, StoreFailed: the store refused.
    """
    ledger = read_ledger(lake)
    finish_expiry(lake, run_id)
    if missing := not_entered(lake, ledger.kept):  # by a dead run, or by an older version
        enter_days(lake, missing)
    amended = finish_moves(lake, ledger.newest) if ledger.newest else {}
    with not_published(f"{', '.join(map(str, missing))} to be finished"):
        for day in missing:
            lake.finish(day)
    return ledger, amended
