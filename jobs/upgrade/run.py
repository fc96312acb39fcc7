"""Upgrade a lake: the newest day first, each exchanged for itself in one step, as in a rebuild.

Relies on the lake alone, without Kafka and Spark. A day that brought late files is exchanged with the moves
of these files open again, to their new names; each move is one rename in the day that the file lies in. A day
that is not as it was committed stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Final

import structlog

from jobs.context import Pipeline
from jobs.day.schema_file import write_schema
from jobs.lake.earlier_formats import is_of_today
from jobs.lake.expiry import finish_expiry
from jobs.lake.late import finish_moves, late_moves
from jobs.lake.ledger import enter_days, not_entered
from jobs.lake.names import STAGED_DAY
from jobs.lake.port import Lake
from jobs.lake.refusals import advising
from jobs.upgrade.chain import Upgradable, UpgradeChain, read_upgrade_chain
from jobs.upgrade.day import UpgradedDay
from offsets.commit_log import first_kept, read_ledger, read_manifest
from offsets.errors import LedgerBroken, StoreFailed, VerifyFailed
from offsets.manifest import DataFile, Manifest
from offsets.verdict import Verdict

log = structlog.get_logger(__name__)
GO_ON: Final = "Each day is as it was, or upgraded. Mend the store, then run `upgrade --execute` again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """The days that were upgraded, and why each other one was left as it is."""

    days: tuple[Upgradable, ...] = ()
    left: Mapping[date, str]


def upgrade(pipeline: Pipeline, progress: Callable[[int, int], None] = lambda done, total: None) -> Upgraded:
    """Upgrade each day that is as it was committed; finish first what a dead run left.

    Raises:
        KafkaDailyError: one of its kinds; each day is as it was, or upgraded, and a rerun goes on.
    """
    lake = pipeline.lake
    if not lake.days():  # a lock would make the folder
        return Upgraded(left={})
    with pipeline.lock_lake():
        with advising(GO_ON):
            ledger = read_ledger(lake)
            finish_expiry(lake, pipeline.run_id)
            # the newest is entered once more: what a dead upgrade entered need not be durable
            enter_days(lake, sorted({*not_entered(lake, ledger.kept), ledger.kept[-1]}))
            # moves of all days, since a dead upgrade may have left some of any
            move = partial(finish_moves, lake, rebuilding=True, kept_from=first_kept(lake))
            chain = read_upgrade_chain(lake, move)
        if chain.todo:
            _require_store(pipeline, max(chain.todo))
        with advising(GO_ON):
            return _Upgrade(pipeline, chain, progress).run(ledger.kept)


class _Upgrade:
    """An upgrade at work; needs the lock."""

    def __init__(self, pipeline: Pipeline, chain: UpgradeChain, progress: Callable[[int, int], None]) -> None:
        """Take what was read of all days."""
        self._pipeline, self._lake, self._chain, self._progress = pipeline, pipeline.lake, chain, progress
        self._kept_from = first_kept(pipeline.lake)
        self._received = defaultdict[date, dict[str, DataFile]](dict)
        self._checked, self._files = 0, sum(day.files for day in chain.todo.values())

    def run(self, days: list[date]) -> Upgraded:
        """Upgrade the days to be upgraded, from the newest to the oldest."""
        left = dict[date, str]()
        for day in reversed(days) if self._chain.todo else ():
            manifest = read_manifest(self._lake, day)
            assert manifest is not None  # the chain was read under the lock
            if day in self._chain.todo:
                try:
                    manifest = self._upgraded(manifest)
                except (LedgerBroken, VerifyFailed) as refused:
                    left[day] = f"{refused.expected}: {refused.found}. {refused.do}".rstrip(". ")
                    log.warning("left as it is", day=str(day), found=left[day])
            self._received.pop(day, None)  # no older day needs them
            for file, _, target in late_moves(manifest):
                if file.day:
                    self._received[file.day][target] = file
        newest = read_manifest(self._lake, days[-1])
        if newest and newest.columns:
            write_schema(self._lake, newest, self._chain.recorded[newest.day.date].columns)
        done = tuple(of for day, of in self._chain.todo.items() if day not in left)
        return Upgraded(days=done, left=dict(sorted(left.items())))

    def _upgraded(self, old: Manifest) -> Manifest:
        """Return the manifest of a day after its upgrade.

        Raises:
            LedgerBroken, VerifyFailed: the day is not as it was committed, and stays as it is.
        """
        if is_of_today(old):  # its moves alone were open; one that cannot be made stops the day here
            finish_moves(self._lake, old, kept_from=self._kept_from)
            return old
        day = UpgradedDay(
            lake=self._lake,
            settings=self._pipeline.settings.lake,
            old=old,
            recorded=self._chain.recorded[old.day.date],
            received=self._received[old.day.date],
            remade=self._chain.remade,
            kept_from=self._kept_from,
        )
        new = day.manifest(tuple(map(self._counted, day.intact_files())))
        day.require_ours()
        new = self._exchange(day, new)
        finish_moves(self._lake, new, kept_from=self._kept_from)
        log.info("upgraded", day=str(new.day.date), revision=new.revision, files=len(new.files))
        return new

    def _exchange(self, day: UpgradedDay, new: Manifest) -> Manifest:
        """Exchange the day for the new one, and enter that in the ledger."""
        with self._staging(day) as staged:
            moved = {}
            if not new.files_of(Verdict.IN_DAY):
                file, ref = day.file_without_rows(new, staged)
                new, moved = replace(new, files=(file, *new.files)), {file.path: ref}
            self._lake.replace(staged, new.day.date, day.contents(new, moved))
            enter_days(self._lake, [new.day.date])  # as long as staging shows that the day was replaced
        return new

    @contextmanager
    def _staging(self, day: UpgradedDay) -> Iterator[str]:
        """Yield a staging folder, and remove it, but for an old day that a power loss could bring back."""
        lake, date_ = self._lake, day.old.day.date
        staged = lake.stage(date_, self._pipeline.run_id)
        try:
            yield staged
        except BaseException:
            if not _was_replaced(lake, day.old):
                lake.discard(staged)
            raise
        if unknown := day.unknown_files(f"{staged}/{STAGED_DAY}"):
            log.warning(
                "files of somebody else came into the day meanwhile: staging keeps them", files=unknown
            )
        else:
            lake.discard(staged)

    def _counted(self, file: DataFile) -> DataFile:
        self._checked += 1
        self._progress(self._checked, self._files)
        return file


def _was_replaced(lake: Lake, old: Manifest) -> bool:
    """Return whether a day is exchanged, perhaps not durably; True where that is not known."""
    try:
        current = read_manifest(lake, old.day.date)
    except (LedgerBroken, StoreFailed):
        return True
    return current is None or current.revision != old.revision


def _require_store(pipeline: Pipeline, day: date) -> None:
    """Check that the store can exchange two names and has hard links, before anything is changed.

    Raises:
        StoreFailed: it cannot, or has none.
    """
    lake = pipeline.lake
    staged = lake.stage(day, pipeline.run_id)
    try:
        lake.require_replace(staged)
        lake.require_late_moves(staged)
    except StoreFailed as refused:
        raise StoreFailed(
            expected=f"hard links in {lake.place('')}, and to exchange two names there in one step",
            found=refused.found,
            do="No day was changed, and a lake of an earlier format goes on as it is. To upgrade it, copy it "
            "to a file system that has both, such as ext4, XFS or Btrfs.",
        ) from refused
    finally:
        lake.discard(staged)
