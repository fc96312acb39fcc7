"""A store that refuses: each refusal has its own error, and a plain rerun ends in the reference."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from jobs.config import Late
from jobs.lake.clean import orphans
from jobs.lake.posix import PosixLake
from jobs.lake.refusals import NEXT_STEP
from offsets.errors import NotPublished, StoreFailed
from tests.faults.store import Fault
from tests.faults.story import Trial, four_days, memory_folder, states
from tests.support.local_engine import LocalEngine

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Arrow's writer closes its file when it is collected, and meets the fault again."""

Record = Callable[[str, object], None]
TAKES_SPACE = frozenset({"mkdir", "open", "write", "pwrite", "rename", "link", "fsync"})
LINKS = frozenset({"link"})


def refused(
    error: int, of: frozenset[str] | None, *, lasting: bool, tasks: int
) -> Iterator[tuple[Trial, Exception]]:
    """Yield each refused run of the third day: a change fails, or that one and all of its kind after it."""
    for n in count(1):
        with memory_folder() as folder:
            trial = Trial(folder, four_days(tasks), 2)
            ended = trial.stopped(Fault(at=n, within=7 * n % 30, error=error, of=of, lasting=lasting))
            if not trial.store.injected:
                trial.require()
                return
            if ended is None:  # removing staging and the lock's text may fail
                trial.require()
            else:
                yield trial, ended
            trial.settle()


def require_told(trial: Trial, ended: Exception, error: int) -> None:
    """Check that a refusal names its cause, and what is true after it."""
    assert isinstance(ended, StoreFailed | NotPublished)
    assert os.strerror(error) in str(ended)
    match ended:
        case NotPublished():
            assert ended.exit_code == 13
            assert trial.committed
        case StoreFailed():
            assert ended.exit_code == 27
            # only the sync of the rename may fail with the day there: for the disk its message is still true
            assert not trial.committed or ended.expected == f"to sync {trial.lake}"


@pytest.mark.parametrize(
    "error, of, lasting, tasks",
    [
        (errno.ENOSPC, TAKES_SPACE, True, 2),
        (errno.EDQUOT, TAKES_SPACE, False, 1),
        (errno.EIO, frozenset({"fsync"}), False, 2),
        (errno.EROFS, None, True, 1),
    ],
    ids=["ENOSPC", "EDQUOT", "EIO on fsync", "EROFS"],
)
def test_a_refused_change_ends_the_run_in_order_and_a_plain_rerun_is_exact(
    error: int, of: frozenset[str] | None, lasting: bool, tasks: int, record_property: Record
) -> None:
    kinds: list[str] = []
    faults, known = 0, states()
    for trial, ended in refused(error, of, lasting=lasting, tasks=tasks):
        require_told(trial, ended, error)
        kinds.append(type(ended).__name__)
        faults += trial.store.injected
    record_property("faults", faults)
    by_kind = {kind: kinds.count(kind) for kind in sorted(set(kinds))}
    print(f"{errno.errorcode[error]}: {faults} faults, {by_kind}, {states() - known} different disks settled")
    assert kinds.count("StoreFailed") >= 16
    assert kinds.count("NotPublished") >= 4, "two late files are moved, by four changes and four syncs"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EROFS], ids=errno.errorcode.get)
def test_a_full_store_is_not_told_to_be_one_without_links(error: int, tmp_path: Path) -> None:
    ended = Trial(tmp_path, four_days(1), 2).stopped(Fault(at=1, error=error, of=LINKS))
    assert isinstance(ended, StoreFailed)
    assert ended.do == NEXT_STEP[error]
    assert "set_aside" not in str(ended)


NO_LINKS = [errno.EPERM, errno.ENOTSUP, errno.ENOSYS]


@pytest.mark.parametrize("error", NO_LINKS, ids=errno.errorcode.get)
def test_a_store_without_links_is_refused_before_anything_is_read(error: int, tmp_path: Path) -> None:
    trial = Trial(tmp_path, four_days(1), 2)
    engine = LocalEngine(trial.story.topic)
    ended = trial.stopped(Fault(at=1, error=error, of=LINKS, lasting=True), engine=engine)
    assert isinstance(ended, StoreFailed)
    assert "hard links" in str(ended)
    assert "late: set_aside" in ended.do
    assert engine.jobs == 0
    assert not trial.committed
    assert orphans(PosixLake(trial.lake)) == []
    trial.settle()


@pytest.mark.parametrize("error", NO_LINKS, ids=errno.errorcode.get)
def test_a_store_without_links_can_set_late_rows_aside(error: int, tmp_path: Path) -> None:
    trial = Trial(tmp_path, four_days(1), 2)
    trial.store.arm(Fault(at=1, error=error, of=LINKS, lasting=True))
    done = trial.run(late=Late.SET_ASIDE)
    assert trial.store.injected == 1, "the ledger gets a copy"
    entry = trial.lake / "_ledger" / f"{trial.day}.json"
    assert entry.read_bytes() == (trial.lake / f"date={trial.day}" / "_manifest.json").read_bytes()
    assert done.amended == {}
    assert len(list(trial.lake.glob("date=*/_late/*/*.rows"))) == 2
    assert not list(trial.lake.glob("date=*/part-late-*"))


def test_a_lake_that_lost_its_links_after_the_commit_says_so_until_it_has_them_again(tmp_path: Path) -> None:
    trial = Trial(tmp_path, four_days(1), 2)
    without = Fault(
        at=2, error=errno.EPERM, of=LINKS, lasting=True
    )  # the first link is a trial whether the store has links
    assert isinstance(trial.stopped(without), NotPublished)
    assert trial.committed
    for late in (Late.AMEND, Late.SET_ASIDE):
        none = Fault(at=1, error=errno.EPERM, of=LINKS, lasting=True)
        ended = trial.stopped(none, late=late)
        assert isinstance(ended, NotPublished)
        assert "EPERM" in str(ended)
    trial.settle()
