"""The oracle: checks with what was produced and the lake's files whether each record is where it belongs.

Relies on what the producer states, on the promised globs and names, and on `_manifest.json` for what no file
shows: which run saw an offset first, what is pending, what was only counted, where a late file is to go.
Never imports the job's classify, decode, commit or audit, nor `offsets`: it would share their mistakes.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from jobs.demo.expected import Belonging
from jobs.demo.lakefiles import History, Row, read_history, rows_of
from jobs.demo.locations import Place, Where
from jobs.demo.produced import Produced

SHOWN: Final = 10
FOUND: Final = frozenset({Where.IN_DAY, Where.LATE, Where.AMENDED, Where.INVALID, Where.PENDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One record that is not where it belongs, or not what was produced."""

    partition: int
    offset: int | None
    kind: str
    expected: str
    found: tuple[str, ...]

    def __str__(self) -> str:
        """Return it in one line."""
        at = f"partition {self.partition}" + (f" offset {self.offset}" if self.offset is not None else "")
        return f"{at} ({self.kind}): expected {self.expected}; found {' and '.join(self.found) or 'nothing'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Where everything produced belongs, how many records differ, and the first of those."""

    produced: int
    counts: Mapping[Where, int]
    by_day: Mapping[date, Mapping[Where, int]]
    different: int
    differences: tuple[Difference, ...]

    @property
    def right(self) -> bool:
        """Whether every record is in its one right place."""
        return self.different == 0

    @property
    def equation(self) -> str:
        """All that was produced as the sum of what became of it."""
        return f"{self.produced:,} produced = " + " + ".join(
            f"{rows:,} {where.value}" for where, rows in self.counts.items() if rows
        )


def judge(
    produced: Sequence[Produced],
    lake: Path,
    *,
    zone: str,
    first: date,
    amend: bool,
    moving: bool = False,
    skip_tombstones: bool = False,
) -> Report:
    """Compare what was produced with a lake: each record must be there once, in its right place.

    With `amend` a late row's place is its own day. With `moving`, after a kill, the moves of the newest day
    may be open.
    """
    history = read_history(lake)
    rule = Belonging(history, zone=zone, first=first, skip_tombstones=skip_tombstones, amend=amend)
    expected = {(record.partition, record.offset): rule.place(record) for record in produced}
    rows = rows_of(lake, history, moving=moving)
    differences = [*_misplaced(produced, expected, rows, history), *_miscounted(expected, history)]
    by_day: dict[date, Counter[Where]] = {day: Counter() for day in history.days}
    for place in expected.values():
        if place.day is not None:
            by_day.setdefault(place.day, Counter())[place.where] += 1
    counts = Counter(place.where for place in expected.values())
    return Report(
        produced=len(produced),
        counts={where: counts[where] for where in Where if counts[where]},
        by_day=by_day,
        different=len(differences),
        differences=tuple(differences[:SHOWN]),
    )


def _misplaced(
    produced: Sequence[Produced],
    expected: Mapping[tuple[int, int], Place],
    lie: Iterator[Row],
    history: History,
) -> Iterator[Difference]:
    found: dict[tuple[int, int], list[Row | None]] = {}
    for row in lie:
        found.setdefault((row.partition, row.offset), []).append(row)
    for at in history.pending:
        found.setdefault(at, []).append(None)
    for record in produced:
        place = expected[record.partition, record.offset]
        wants = [place] if place.where in FOUND else []
        rows = found.pop((record.partition, record.offset), [])
        places = [row.place if row else Place(Where.PENDING) for row in rows]
        if places != wants or place.where is Where.NOWHERE:
            yield _difference(record, str(place), tuple(map(str, places)))
        elif rows and (only := rows[0]) and (wrong := _wrong_values(record, only)):
            yield _difference(record, *wrong)
    for (partition, offset), extra in found.items():
        # A pending range may hold a transaction marker, which is no record: only rows count as too many.
        if says := tuple(str(row.place) for row in extra if row):
            yield Difference(
                partition=partition, offset=offset, kind="never produced", expected="nothing", found=says
            )


def _difference(record: Produced, expected: str, found: tuple[str, ...]) -> Difference:
    return Difference(
        partition=record.partition, offset=record.offset, kind=record.kind, expected=expected, found=found
    )


def _wrong_values(record: Produced, row: Row) -> tuple[str, tuple[str, ...]] | None:
    pairs: dict[str, tuple[object, object]] = {
        "kafka_timestamp": (record.kafka_timestamp, row.kafka_timestamp)
    }
    if row.place.where is Where.INVALID:
        crc = None if row.value is None else zlib.crc32(row.value)
        pairs["CRC-32 of the value"] = (record.value_crc, crc)
    else:
        pairs["event_time"] = (record.event_time, row.event_time)
        pairs["order_id"] = (record.order_id, row.order_id)
        pairs["amount"] = (record.amount, row.amount)
    wrong = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if not wrong:
        return None
    expected = ", ".join(f"{name} {pair[0]!r}" for name, pair in wrong.items())
    return expected, tuple(f"{name} {pair[1]!r}" for name, pair in wrong.items())


def _miscounted(expected: Mapping[tuple[int, int], Place], history: History) -> Iterator[Difference]:
    counted: Counter[tuple[date, int, Where]] = Counter(
        (place.day, partition, place.where)
        for (partition, _), place in expected.items()
        if place.day is not None and place.where in (Where.SKIPPED, Where.BEFORE_FIRST)
    )
    for key in sorted(counted.keys() | history.counted.keys()):
        day, partition, where = key
        if counted[key] != history.counted.get(key, 0):
            yield Difference(
                partition=partition,
                offset=None,
                kind=f"counted by the run of {day}",
                expected=f"{counted[key]} {where.value}",
                found=(f"{history.counted.get(key, 0)}",),
            )
