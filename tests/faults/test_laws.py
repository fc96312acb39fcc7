"""Every law refuses a lake that was changed to break it, and accepts the same lake unchanged."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.faults import laws
from tests.faults.histories import History
from tests.faults.laws import LAWS, Law, Seen
from tests.faults.scripts import FIRST, Arrival, DayScript, Script
from tests.reference import DAY

SECOND, THIRD = FIRST + DAY, FIRST + 2 * DAY
Breaks = Callable[[History, Seen], Seen]


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """Three days; the last one brought a late row to each of the others, and leaves one pending."""
    made = History(tmp_path, Script(compacted=False, amend=True, days=[], afterwards=[]), Counter())
    with made.in_place():
        for number, kinds in enumerate((["on time"], ["on time"], ["late", "very late", "on time", "early"])):
            arrivals = [Arrival(0, 10, kind, 0, "") for kind in kinds]
            made.play_day(FIRST + number * DAY, DayScript(arrivals, [], [], 3, 1, failing=False))
        yield made


def look(history: History) -> Seen:
    return history.seen(history.lake, moving=False)


def a_file(history: History, day: date, prefix: str) -> Path:
    return min((history.folder / f"date={day}").glob(f"{prefix}-*.parquet"))


def edited(day: date, edit: Callable[[Any], object]) -> Breaks:
    """Edit a day's manifest."""

    def change(history: History, seen: Seen) -> Seen:
        path = history.folder / f"date={day}" / "_manifest.json"
        manifest = json.loads(path.read_bytes())
        edit(manifest)
        path.write_text(json.dumps(manifest))
        return look(history)

    return change


def removed(history: History, seen: Seen) -> Seen:
    a_file(history, SECOND, "part").unlink()
    return look(history)


def doubled(history: History, seen: Seen) -> Seen:
    path = a_file(history, SECOND, "part")
    shutil.copy(path, path.with_name("part-again.parquet"))
    return look(history)


def in_another_day(prefix: str) -> Breaks:
    def change(history: History, seen: Seen) -> Seen:
        path = a_file(history, FIRST, prefix)
        path.rename(history.folder / f"date={SECOND}" / path.name)
        return look(history)

    return change


def of_another_record(history: History, seen: Seen) -> Seen:
    value, event_time = seen.produced[0, 0]
    assert event_time is not None
    return replace(seen, produced={**seen.produced, (0, 0): (value, event_time + 1)})


def beside_the_days(history: History, seen: Seen) -> Seen:
    (history.folder / "part.tmp").touch()
    return look(history)


def expired_and_miscounted(history: History, seen: Seen) -> Seen:
    history._expire(0)
    path = history.folder / "_ledger" / f"{FIRST}.json"
    entry = json.loads(path.read_bytes())
    entry["removed"]["rows"] += 1
    path.unlink()
    path.write_text(json.dumps(entry))
    return look(history)


def not_entered(history: History, seen: Seen) -> Seen:
    (history.folder / "_ledger" / f"{SECOND}.json").unlink()
    return look(history)


def begun_too_late(history: History, seen: Seen) -> Seen:
    return replace(seen, lake=replace(seen.lake, first={0: 1, 1: 0}))


A_LOSS = {"partition": 0, "from_offset": 0, "until_offset": 1, "unsettled": 1}
BROKEN: dict[Law, Breaks] = {
    laws.whole_days_only: removed,
    laws.no_coordinate_twice: doubled,
    laws.every_record_has_its_place: in_another_day("part"),
    laws.rows_hold_what_was_produced: of_another_record,
    laws.amended_rows_are_of_their_day: in_another_day("part-late"),
    laws.files_are_those_that_were_committed: edited(
        SECOND, lambda manifest: manifest["files"][0].update(sha256="0")
    ),
    laws.a_committed_day_never_changes: doubled,
    laws.nothing_left_but_orphans: beside_the_days,
    laws.the_ledger_has_each_day: not_entered,
    laws.days_go_on_where_the_last_one_ended: edited(
        SECOND, lambda manifest: manifest["day"].update(end="2026-03-29T23:00:00Z")
    ),
    laws.checkpoints_match_the_reference: edited(
        THIRD, lambda manifest: manifest["next"]["partitions"][0].update(pending=[])
    ),
    laws.every_offset_explained: edited(
        THIRD, lambda manifest: manifest["tally"][0].update(digest=manifest["tally"][1]["digest"])
    ),
    laws.expired_days_are_counted: expired_and_miscounted,
    laws.losses_are_marked: edited(SECOND, lambda manifest: manifest["accepted"]["loss"].append(A_LOSS)),
    laws.nothing_of_the_lake_lies_below_its_start: begun_too_late,
}


@pytest.mark.parametrize("law", LAWS, ids=[law.__name__ for law in LAWS])
def test_a_lake_that_breaks_a_law_is_told(history: History, law: Law) -> None:
    untouched = look(history)
    law(untouched)
    broken = BROKEN[law](history, untouched)
    with pytest.raises(AssertionError):
        law(broken)
