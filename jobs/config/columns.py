"""Reads the entries of record.columns: a type, or a mapping of where and how the record holds the value.

Pure. Notes every problem at the path of its key. Never repeats a value that came from a reference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jobs.config.problems import KeyPath, Problems, shown
from jobs.config.read import keys_of, read
from jobs.config.schema import ColumnSection
from jobs.config.secrets import ResolvedText
from jobs.record.columns import Column, ColumnType, Kind, Scalar, kinds_in, name_problem, parse_type
from jobs.record.time_format import TimeFormat, TimePattern, Written


def read_columns(entries: Mapping[str, object], path: KeyPath, problems: Problems) -> tuple[Column, ...]:
    """Return the columns of a mapping; one whose type has a problem is a string."""
    seen: dict[str, str] = {}
    for name in entries:
        first = seen.setdefault(name.casefold(), name)
        twin = f"differs from {first} in case only, which most readers of Parquet ignore"
        if wrong := name_problem(name) or (twin if first != name else None):
            problems.add((*path, name), wrong)
    return tuple(_column(name, entry, (*path, name), problems) for name, entry in entries.items())


def _column(name: str, entry: object, path: KeyPath, problems: Problems) -> Column:
    if not isinstance(entry, dict) or not entry.keys() & set(keys_of(ColumnSection)):
        return Column(name, _type(entry, path, problems))
    section = read(ColumnSection, entry, problems, path)
    # as it was written, since the section's text no longer knows that it came from a reference
    type = _type(entry.get("type") if hasattr(section, "type") else "string", (*path, "type"), problems)
    if not problems.touch((*path, "type")):
        for key, problem in _misused(section, kinds_in(type)):
            problems.add((*path, key), problem)
    source = section.from_ if section.from_ and section.from_ != (name,) else ()
    written = Written(section.format, section.zone) if section.format else None
    if written == Written(TimeFormat.ISO8601) and Kind.DATE not in kinds_in(type):
        written = None  # timestamps are read so in any case
    return Column(name, type, source, written)


def _misused(section: ColumnSection, kinds: set[Kind]) -> Iterator[tuple[str, str]]:
    """Yield the keys that mean nothing for a type made of these kinds."""
    if section.format and not kinds & {Kind.TIMESTAMP, Kind.DATE}:
        yield "format", "is for timestamp and date; the type has neither"
    if section.zone and Kind.TIMESTAMP not in kinds:
        yield "zone", "is for timestamp; the type has none"
    elif section.zone and not section.format:
        yield "zone", "needs format, such as format: iso8601"
    elif section.zone and section.format and section.format.is_count:
        yield "zone", f"plays no part: {section.format.value} needs none"
    elif isinstance(section.format, TimePattern) and section.format.has_zone == bool(section.zone):
        has = (
            "plays no part: the format has an offset"
            if section.zone
            else "is missing: the format has no offset"
        )
        if section.zone or Kind.TIMESTAMP in kinds:
            yield "zone", has


def _type(text: object, path: KeyPath, problems: Problems) -> ColumnType:
    try:
        if isinstance(text, str):
            return parse_type(text)
        other = "; an object inside another is struct<name:type,...>" if isinstance(text, dict) else ""
        expected = "a type such as string or array<bigint>, or a mapping of from and type"
        problems.add(path, f"expected {expected}, found {shown(text)}{other}")
    except ValueError as error:
        problems.add(path, f"{text.origin} is no type" if isinstance(text, ResolvedText) else str(error))
    return Scalar(Kind.STRING)
