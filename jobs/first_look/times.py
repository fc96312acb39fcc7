"""Find the field that says when a record happened.

Pure. A candidate is a field that can be read as a time; how near its times lie to Kafka's timestamps, in how
many records it is, and its name decide. Never chooses a field that no event_time.format reads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from zoneinfo import ZoneInfo

from jobs.first_look.infer import fields_of, is_open
from jobs.record.event_time import FIRST, LAST, TimeReader
from jobs.record.hints import NEAR, unit_near
from jobs.record.time_format import NANOSECONDS, TimeFormat
from offsets.instants import MICROSECOND

UTC: Final = ZoneInfo("UTC")
DAY: Final = 86_400_000_000
DEEPEST: Final = 4
"""How deep an event time is looked for."""
ENOUGH: Final = 0.9
"""A field that is a time within NEAR of Kafka's in a smaller share of the records is no candidate."""
TEXTS: Final = (TimeFormat.ISO8601, TimeFormat.ISO8601_LENIENT)
DATE: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
ZONE: Final = r"([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$"
NAMES: Final = (
    r"event_?(time|ts|timestamp|date)(_ms|_us|_ns|_s)?|occurred(_?at|_?on)?|happened_?at",
    r"(measured|recorded|observed|booked|executed|ordered|sampled|logged)_?(at|on)|ts(_?(ms|us|ns|s))?|timestamp(_?(ms|us|ns|s))?",
    r"(created|inserted|placed|sent|received)_?(at|on|time|ts)?|time|datetime|date_?time|date",
    r".*(time|timestamp|date|_at|_ts|at_ms).*",
)
"""How well a name fits, the best first; without regard to case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A field that may be the event time.

    `share` is the share of records that it is a time in; `valid` of these lie as near Kafka's timestamp as
    the default of `validity` wants. `times` and `ages`, how much older each is than its stamp, are in
    microseconds.
    """

    path: tuple[str, ...]
    format: TimeFormat
    zoned: bool
    share: float
    valid: float
    ages: tuple[int, ...]
    times: tuple[int, ...]

    @property
    def rank(self) -> tuple[float, float, int, int]:
        """How well it fits; the largest is the best."""
        return (round(self.share, 2), round(self.valid, 1), -_name_rank(self.path[-1]), -len(self.path))


def candidates(records: Sequence[tuple[int, Mapping[str, Any]]]) -> list[Candidate]:
    """Return the fields that may be the event time, the best first; records have Kafka's timestamp (ms)."""
    stamps = [stamp for stamp, _ in records]
    found = [
        candidate
        for path, values in _leaves((), [record for _, record in records])
        if (candidate := _candidate(path, values, stamps))
    ]
    return sorted(found, key=lambda candidate: candidate.rank, reverse=True)


def _leaves(
    path: tuple[str, ...], records: Sequence[Mapping[str, Any] | None]
) -> Iterator[tuple[tuple[str, ...], list[Any]]]:
    """Yield the values of each field, and of fields of structs, with None where a record lacks it."""
    objects = [record for record in records if isinstance(record, Mapping)]
    fields = fields_of(objects)
    if path and (not fields or is_open(fields, len(objects))):
        return
    for name in fields:
        if not name.strip():
            continue
        values = [record.get(name) if isinstance(record, Mapping) else None for record in records]
        if any(isinstance(value, Mapping) for value in values):
            if len(path) < DEEPEST and all(value is None or isinstance(value, Mapping) for value in values):
                yield from _leaves((*path, name), values)
        else:
            yield (*path, name), values


def _candidate(path: tuple[str, ...], values: Sequence[Any], stamps: Sequence[int]) -> Candidate | None:
    present = [(value, stamp) for value, stamp in zip(values, stamps, strict=True) if value is not None]
    kinds = {type(value) for value, _ in present}
    if kinds == {str}:
        return _of_texts(path, present, len(values))
    return _of_numbers(path, present, len(values)) if kinds == {int} else None


def _of_texts(path: tuple[str, ...], present: Sequence[tuple[str, int]], of: int) -> Candidate | None:
    """Read texts by the first format that reads the most of them; a date does not say when one happened."""
    longer = [(text, stamp) for text, stamp in present if not re.fullmatch(DATE, text)]
    if len(longer) < ENOUGH * of:
        return None
    texts, stamps = zip(*longer, strict=True)
    times = {format: TimeReader(format=format, zone=UTC).read(texts)[0].to_pylist() for format in TEXTS}
    format = min(TEXTS, key=lambda each: times[each].count(None))
    read = [(time, stamp) for time, stamp in zip(times[format], stamps, strict=True) if time is not None]
    return _scored(path, format, read, of, zoned=all(re.search(ZONE, text[10:]) for text in texts))


def _of_numbers(path: tuple[str, ...], present: Sequence[tuple[int, int]], of: int) -> Candidate | None:
    units = Counter(unit_near(number, stamp) for number, stamp in present)
    unit, most = units.most_common(1)[0]
    if unit is None or unit is TimeFormat.EPOCH_D or most < ENOUGH * len(present):
        return None  # a date does not say when a record happened
    times = [(number * NANOSECONDS[unit] // 1000, stamp) for number, stamp in present]
    read = [(time, stamp) for time, stamp in times if FIRST <= time <= LAST]
    return _scored(path, unit, read, of, zoned=True)


def _scored(
    path: tuple[str, ...], format: TimeFormat, read: Sequence[tuple[int, int]], of: int, *, zoned: bool
) -> Candidate | None:
    ages = tuple(stamp * 1000 - time for time, stamp in read)
    if not ages or sum(abs(age) <= NEAR / MICROSECOND for age in ages) < ENOUGH * of:
        return None
    return Candidate(
        path=path,
        format=format,
        zoned=zoned,
        share=len(read) / of,
        valid=sum(-DAY <= age <= 30 * DAY for age in ages) / len(read),
        ages=ages,
        times=tuple(time for time, _ in read),
    )


def _name_rank(name: str) -> int:
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return next((at for at, names in enumerate(NAMES) if re.fullmatch(names, snake)), len(NAMES))
