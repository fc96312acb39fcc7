"""Propose a configuration from sampled records.

Pure. The columns keep the data as they are: objects become structs, and what has no one type its text. What
a person should look at stands beside it as a note.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import chain, count
from typing import Any, Final

import msgspec

from jobs.config.schema import InvalidSection, ValiditySection
from jobs.first_look.infer import FEW, NO_TIME, Inferred, fields_of, infer, unwritable, within
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
NEARLY_ALL: Final = 0.999
"""The share of the events whose age counts: by default a day with more invalid records is not committed."""
LIMIT: Final = InvalidSection().limit
"""invalid.limit where it is not written."""
SHOWN_MISFITS: Final = 3
"""How many kinds of misfits a note names."""
OTHERS: Final = 3
"""How many other fields are named that may be the event time."""
_IN_USE: Final = range(micros(datetime(2200, 1, 1, tzinfo=UTC)))
"""The instants that may be the begin of a lake."""
LONG_KEY: Final = 256
"""A longer key (bytes) is not proposed as a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedColumn:
    """A column with what a person should know of it; `field` is what the record calls it.

    Where it has `misfits`, records of the sample are invalid by its type.
    """

    name: str
    field: str
    type: ColumnType
    about: str
    misfits: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """Return what to look at, in one line; empty if there is nothing."""
        more = len(self.misfits) - SHOWN_MISFITS
        shown = (*self.misfits[:SHOWN_MISFITS], f"and {more} more such fields" if more > 0 else "")
        return "; ".join(filter(None, (self.about, *shown)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What a configuration says of a topic's records.

    `others` are fields that may be the event time too, each with the lake's first day by it. `limit` is
    invalid.limit. `nearest` is the field that is a time in the most records, whether or not a configuration
    can name it. `left_out` are fields that are no columns, each with the reason. `past` is validity.past. Of
    the records `keys` have a key; `key` is whether all do, and none is long. `key_column` is the name of a
    column of whole numbers that would hold them all, if there is one.
    """

    records: int
    first: date
    zone: str
    event_time: Candidate | None
    others: tuple[tuple[Candidate, date], ...]
    nearest: Candidate | None
    past: timedelta
    limit: float
    columns: tuple[ProposedColumn, ...]
    left_out: Mapping[str, str]
    tombstones: bool
    keys: int
    key: bool
    key_column: str | None

    @property
    def has_misfits(self) -> bool:
        """Return whether some records are invalid by a type, or by the event time, that most others have."""
        odd_times = self.event_time is not None and self.event_time.share < 1
        return odd_times or any(column.misfits for column in self.columns)


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
    nearest = candidates(objects)
    times = [found for found in nearest if _fits(columns, found)]
    event_time = next(filter(_in_all_but_few, times), None)
    others = [found for found in times if found is not event_time]
    stamps = [stamp for stamp, _ in objects]
    if event_time and event_time.path == ("event_time",) and len(columns) > 1:
        columns = [column for column in columns if column.field != "event_time"]
        left_out["event_time"] = "is the event time, which each row has under this name"
    if event_time:
        columns = [_by_its_rule(column, event_time) for column in columns]
    return Proposal(
        records=len(records),
        first=_first_day(event_time, stamps, zone, earliest),
        zone=zone,
        event_time=event_time,
        others=tuple((other, _first_day(other, stamps, zone, earliest)) for other in others[:OTHERS]),
        nearest=nearest[0] if nearest else None,
        past=_past(event_time),
        limit=_limit(event_time),
        columns=tuple(columns),
        left_out=left_out,
        tombstones=any(record.value is None for record in records),
        keys=len(keys := [record.key for record in records if record.key is not None]),
        key_column=_key_column(columns) if keys and all(map(_is_number, keys)) else None,
        key=all(record.key is not None and len(record.key) <= LONG_KEY for record in records),
    )


def _in_all_but_few(found: Candidate) -> bool:
    """Return whether a field is a time in all records but a few: these become invalid, and say why.

    Days by Kafka's timestamps instead would file every late record by its arrival, without a word.
    """
    return len(found.times) >= (1 - FEW) * found.records


def _limit(event_time: Candidate | None) -> float:
    """Return invalid.limit: the default, or twice the share of records without an event time, if it is more.

    Else a day of such records alone would not be committed.
    """
    lacking = 1 - event_time.present / event_time.records if event_time else 0.0
    return LIMIT if lacking <= LIMIT else math.ceil(2_000 * lacking) / 1_000


def _is_number(key: bytes) -> bool:
    return bool(re.fullmatch(rb"0|[1-9][0-9]{0,17}", key))


def _key_column(columns: Sequence[ProposedColumn]) -> str:
    """Return a free name for a column of the key."""
    taken = {column.name.casefold() for column in columns}
    names = chain(("key", "record_key"), (f"record_key_{number}" for number in count(2)))
    return next(name for name in names if name not in taken)


def _columns(objects: Sequence[Mapping[str, Any]]) -> tuple[list[ProposedColumn], dict[str, str]]:
    fields = fields_of(objects)
    left_out = {name: problem for name in fields if (problem := unwritable(name))}
    commonest = set(sorted(fields, key=lambda name: -len(fields[name]))[:WIDEST])
    left_out |= {
        name: f"is not among the {WIDEST} commonest fields" for name in fields if name not in commonest
    }
    names = _Names(name for name in fields if name not in left_out)
    return [_column(names, name, infer(fields[name])) for name in fields if name not in left_out], left_out


class _Names:
    """The names of columns: those of the fields, but where readers or the lake would take two for one."""

    def __init__(self, fields: Iterable[str]) -> None:
        self._taken: dict[str, str] = {}
        for field in fields:
            if not name_problem(field):
                self._taken.setdefault(field.casefold(), field)

    def of(self, field: str) -> tuple[str, str]:
        """Return a field's column, and why it has another name; an empty text where it has not."""
        twin = self._taken.get(field.casefold())
        if twin == field:
            return field, ""
        base = field if twin else f"record_{field}"
        names = chain([] if twin else [base], (f"{base}_{number}" for number in count(2)))
        name = next(name for name in names if name.casefold() not in self._taken)
        self._taken[name.casefold()] = name
        return name, f"differs from {twin} in case only" if twin else "the lake keeps that name for itself"


def _column(names: _Names, field: str, inferred: Inferred) -> ProposedColumn:
    name, renamed = names.of(field)
    about = "; ".join(filter(None, (renamed, inferred.note)))
    return ProposedColumn(name=name, field=field, type=inferred.type, about=about, misfits=inferred.misfits)


def _by_its_rule(column: ProposedColumn, event_time: Candidate) -> ProposedColumn:
    """Leave out what a column says of the event time: that is read by its own rule, in its own zone."""
    if column.field != event_time.path[0]:
        return column
    there = "".join(within(name) for name in event_time.path[1:])
    misfits = tuple(text for text in column.misfits if not (text.startswith(there) and NO_TIME in text))
    return replace(column, misfits=misfits)


def _fits(columns: Sequence[ProposedColumn], candidate: Candidate) -> bool:
    """Return whether the columns leave a field to be read as the event time."""
    rules = Rules(
        format=RecordFormat.JSON,
        columns=tuple(Column(column.name, column.type, (column.field,)) for column in columns),
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
    ages = sorted(age for age in event_time.ages if age <= LONGEST_PAST // MICROSECOND)
    oldest = ages[int((len(ages) - 1) * NEARLY_ALL)] * MICROSECOND if ages else PAST
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
