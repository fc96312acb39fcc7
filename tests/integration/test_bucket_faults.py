"""A day in a real store whose answers or requests are lost, refused or late, at each change of a run.

After that, one more run: the lake then holds each record once, and `verify` has nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from jobs.config import Late
from jobs.daily import run_day
from jobs.lake.clean import clean
from jobs.lake.objects.lake import ObjectLake
from jobs.lake.objects.lease import LOCK_NAME
from jobs.lake.port import LockHolder
from offsets.errors import LakeLocked, NotPublished, StoreFailed
from tests.support import lake as lakes
from tests.support.fault_proxy import (
    ANSWER_LOST,
    PASSED,
    REQUEST_LATE,
    REQUEST_LOST,
    Asked,
    Fate,
    FaultProxy,
    answered_wrongly,
    refused,
)
from tests.support.memory_topic import MemoryTopic
from tests.support.object_servers import StoredLake
from tests.support.sampled import Record, drawn
from tests.support.stored_days import NOW, downloaded, in_a_folder, made, problems, three_days_of_records
from tests.support.three_days import FIRST, SECOND

DRAWN: Final = 16
AT_ONCE: Final = timedelta(0)
"""The patience of a run whose network is gone, so that it tries nothing twice."""
PATIENT: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What becomes of one change, and then of all that is asked."""

    name: str
    fate: Fate
    after: Fate = PASSED

    @property
    def patience(self) -> timedelta:
        return PATIENT if self.after is PASSED else AT_ONCE


TROUBLES: Final = [
    Trouble(name="the answer is lost", fate=ANSWER_LOST),
    Trouble(name="the request is lost", fate=REQUEST_LOST),
    Trouble(name="503", fate=refused(503, "SlowDown")),
    Trouble(name="429", fate=refused(429)),
    Trouble(name="409", fate=refused(409, "ConditionalRequestConflict")),
    Trouble(name="done, and 500", fate=answered_wrongly(500, "InternalError")),
    Trouble(name="refused for good", fate=refused(403, "AccessDenied")),
    Trouble(name="the network is gone before it", fate=REQUEST_LOST, after=REQUEST_LOST),
    Trouble(name="the network is gone after it", fate=ANSWER_LOST, after=REQUEST_LOST),
    Trouble(name="it lands after the next run", fate=REQUEST_LATE, after=REQUEST_LOST),
]


@pytest.fixture(scope="module")
def records() -> MemoryTopic:
    return three_days_of_records()


@pytest.fixture(scope="module")
def right(records: MemoryTopic, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return in_a_folder(tmp_path_factory.mktemp("right") / "lake", records, Late.AMEND, (FIRST, SECOND))


def test_after_each_trouble_one_run_makes_the_lake_whole(
    stored: StoredLake, records: MemoryTopic, right: Path, tmp_path: Path, record_property: Record
) -> None:
    run_day(made(stored.lake(), records), FIRST)
    first = [(each.key, stored.bucket().get(each.key) or b"") for each in stored.bucket().find("")]
    with FaultProxy(stored.server.endpoint) as proxy:
        other = replace(stored, prefix=f"{stored.prefix}-undisturbed")
        _put_all(other, first)
        run_day(made(other.with_store(endpoint=proxy.endpoint).lake(), records), SECOND)
    cases = list(product(TROUBLES, range(proxy.changes)))
    assert len(cases) > 10 * len(TROUBLES)
    ends: dict[str, list[str]] = {}
    for trouble, number in drawn(cases, DRAWN, record_property):
        place = replace(stored, prefix=f"{stored.prefix}-{TROUBLES.index(trouble)}-{number}")
        _put_all(place, first)
        with FaultProxy(stored.server.endpoint) as proxy:
            ends.setdefault(trouble.name, []).append(_run_with(proxy, trouble, number, place, records))
            _be_dead(place)
            said = f"{trouble.name}, at change {number}: {[str(asked) for asked in proxy.asked]}"
            run_day(made(place.lake(), records), SECOND)
            _assert_whole(place, right, tmp_path / "there", said)
            if proxy.land():
                _be_dead(place)
                _assert_whole(place, right, tmp_path / "there", said)
                assert run_day(made(place.lake(), records), SECOND).already, said
            clean(place.lake(), LockHolder(run_id="clean", host="here", pid=1, since=NOW))
            _assert_whole(place, right, tmp_path / "there", said)
            assert not place.bucket().folders("_staging"), said
    print(*(f"{name}: {each}\n" for name, each in ends.items()))


def _put_all(place: StoredLake, objects: Iterable[tuple[str, bytes]]) -> None:
    bucket = place.bucket()
    for key, text in objects:
        bucket.put(key, text)


def _run_with(
    proxy: FaultProxy, trouble: Trouble, number: int, place: StoredLake, records: MemoryTopic
) -> str:
    """Run the second day with one trouble, and return how it ended."""
    gone = False

    def rule(asked: Asked) -> Fate:
        nonlocal gone
        if asked.change == number:
            gone = True
            return trouble.fate
        return trouble.after if gone else PASSED

    proxy.rule = rule
    there = place.with_store(endpoint=proxy.endpoint)
    try:
        run_day(made(ObjectLake(there.bucket(trouble.patience)), records), SECOND)
    except (StoreFailed, NotPublished, LakeLocked) as stopped:
        return type(stopped).__name__
    assert gone, "the trouble did not come"
    return "done"


def _be_dead(place: StoredLake) -> None:
    """Free the lock: its holder is this process, which the next run would take as alive."""
    place.bucket().delete([LOCK_NAME])


def _assert_whole(place: StoredLake, right: Path, folder: Path, said: str) -> None:
    there = downloaded(place, folder)
    assert lakes.places(there) == lakes.places(right), said
    assert not problems(place.lake()), said
