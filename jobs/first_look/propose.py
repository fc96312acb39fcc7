"""Propose a configuration from sampled records.

Pure. The columns keep the data as they are: objects become structs, and what has no one type its text. What
a person should look at stands beside it as a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import msgspec

from jobs.config.schema import ValiditySection
from jobs.first_look.infer import Inferred, fields_of, infer, unwritable
from jobs.first_look.times import Candidate, candidates
from jobs.record.columns import Column, ColumnType, name_problem
from jobs.record.formats import DECODERS
from jobs.record.rules import EventTimeRule, RecordFormat, Rules, Tombstones
from offsets.days import date_in
from offsets.instants import EPOCH, MICROSECOND, micros
from offsets.kafka.reader import FullRecord

WIDEST: Final = 500
"""How many columns are proposed, the fields that most records have."""
PAST: Final = ValiditySection().past
"""validity.past where it is not written."""
LONGEST_PAST: Final = timedelta(days=7_300)
"""The longest validity.past that is proposed."""
FUTURE: Final = ValiditySection().future
"""validity.future where it is not written."""
MOST: Final = 0.995
"""The share of events whose age counts."""
_IN_USE: Final = range(micros(datetime(2200, 1, 1, tzinfo=UTC)))
"""The instants that may be the begin of a lake."""
LONG_KEY: Final = 256
"""A longer key (bytes) is not proposed as a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedColumn:
    """A column with what a person should know of it."""

    name: str
    type: ColumnType
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a configuration says of a topic's records; `others` are fields that may be the event time too.

    `left_out` are fields that are no columns, each with the reason. `past` is validity.past.
    """

    records: int
    first: date
    zone: str
    event_time: Candidate | None
    others: tuple[Candidate, ...]
    past: timedelta
    columns: tuple[ProposedColumn, ...]
    left_out: Mapping[str, str]
    tombstones: bool
    key: bool


def decoded_objects(records: Sequence[FullRecord]) -> list[tuple[int, dict[str, Any]]]:
    """Return Kafka's timestamp and the object of each record that is a JSON object."""
    found = []
    for record in records:
        try:
            value = msgspec.json.decode((record.value or b"").decode())
        except (ValueError, RecursionError):  # msgspec's own errors are ValueErrors
            continue
        if isinstance(value, dict):
            found.append((record.timestamp, value))
    return found


def propose(records: Sequence[FullRecord], zone: str, earliest: date | None) -> Proposal | None:
    """Return a proposal; None where no record is a JSON object.

    `earliest` is the first day whose records cannot have been taken by retention, if some may have been.
    """
    objects = decoded_objects(records)
    if not objects:
        return None
    columns, left_out = _columns([value for _, value in objects])
    times = [found for found in candidates(objects) if _fits(columns, found)]
    event_time = times[0] if times else None
    return Proposal(
        records=len(records),
        first=_first_day(event_time, [stamp for stamp, _ in objects], zone, earliest),
        zone=zone,
        event_time=event_time,
        others=tuple(times[1:4]),
        past=_past(event_time),
        columns=tuple(columns),
        left_out=left_out,
        tombstones=any(record.value is None for record in records),
        key=all(record.key is not None and len(record.key) <= LONG_KEY for record in records),
    )


def _columns(objects: Sequence[Mapping[str, Any]]) -> tuple[list[ProposedColumn], dict[str, str]]:
    fields = fields_of(objects)
    columns: dict[str, ProposedColumn] = {}
    left_out: dict[str, str] = {}
    commonest = set(sorted(fields, key=lambda name: -len(fields[name]))[:WIDEST])
    for name, values in fields.items():
        twin = columns.get(name.casefold())
        if problem := name_problem(name) or unwritable(name):
            left_out[name] = problem
        elif twin:
            left_out[name] = f"differs from {twin.name} in case only"
        elif name not in commonest:
            left_out[name] = f"is not among the {WIDEST} commonest fields"
        else:
            columns[name.casefold()] = _column(name, infer(values))
    return list(columns.values()), left_out


def _column(name: str, inferred: Inferred) -> ProposedColumn:
    return ProposedColumn(name=name, type=inferred.type, note=inferred.note)


def _fits(columns: Sequence[ProposedColumn], candidate: Candidate) -> bool:
    """Return whether the columns leave a field to be read as the event time."""
    rules = Rules(
        format=RecordFormat.JSON,
        columns=tuple(Column(column.name, column.type) for column in columns),
        kafka_columns=frozenset(),
        event_time=EventTimeRule(path=candidate.path, format=candidate.format, zone="UTC"),
        past=PAST,
        future=FUTURE,
        tombstones=Tombstones.QUARANTINE,
    )
    return not any(problem.path[0] == "event_time" for problem in DECODERS[rules.format].problems(rules))


def _past(event_time: Candidate | None) -> timedelta:
    """Return validity.past: the default, or twice the age of most of the oldest events, as in replays.

    A few that are older still do not count: a clock that was never set writes year 1 or 1970.
    """
    if event_time is None:
        return PAST
    ages = sorted(event_time.ages)
    oldest = timedelta(microseconds=ages[int((len(ages) - 1) * MOST)])
    return PAST if oldest <= PAST else min(timedelta(days=2 * (oldest.days + 1)), LONGEST_PAST)


def _first_day(event_time: Candidate | None, stamps: Sequence[int], zone: str, earliest: date | None) -> date:
    """Return the day of the oldest event that is valid, or the earliest day that can be whole."""
    if event_time:
        past, future = _past(event_time) // MICROSECOND, FUTURE // MICROSECOND
        times = zip(event_time.times, event_time.ages, strict=True)
        instants = [time for time, age in times if -future <= age <= past]
    else:
        instants = [stamp * 1000 for stamp in stamps]
    oldest = min(filter(_IN_USE.__contains__, instants), default=_IN_USE.start)
    day = max(date_in(zone, EPOCH + oldest * MICROSECOND), EPOCH.date())  # the config takes no earlier one
    return max(day, earliest) if earliest else day
