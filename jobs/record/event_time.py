"""Reads the times of records, to microseconds since the epoch in UTC.

Relies on RFC 3339, section 5.6, whose note allows a space for the T, and on PEP 495 for local times.
Never rounds: a fraction is cut to microseconds. Arrow's fast path and `instant` read every time alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.record.schema import INSTANT
from jobs.record.time_format import NANOSECONDS, TimeForm, TimeFormat, TimePattern, Written
from jobs.record.without_pandas import without_pandas

Faults = dict[int, str]
"""Why values cannot be read, by their index."""

FIRST = -62_135_596_800_000_000
"""0001-01-01T00:00:00Z."""
LAST = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999Z."""

NOT_A_TIME = "Not an RFC 3339 time"
NOT_ISO8601 = "Not an ISO 8601 time"
NO_SUCH_TIME = "No such date or time of day"
LEAP_SECOND = "A leap second, which no column can hold"
NO_ZONE = "A time without a zone"
NO_EVENT_TIME = "No event time"
OUT_OF_YEARS = "Outside the years 1 to 9999"

DAY = 86_400_000_000

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})"
    r"(?:\.([0-9]+))?(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))?"
)
_ISO8601 = (
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})(?:[Tt ](?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?"
    r"(?:(?P<utc>[Zz])|(?P<hours>[+-][0-9]{2})(?::?(?P<minutes>[0-9]{2}))?)?)?"
)
_OFFSET = r"^....-..-..T..:..:..(?:\.[0-9]{1,6})?[+-]..:..$"
_LOCAL = r"^....-..-..T..:..:..(?:\.[0-9]{1,6})?$"
_LONG = r"^(.{19}\.[0-9]{6})[0-9]+"
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_HOUR = 3_600_000_000
_FEW = 32
with without_pandas():
    _NO_TEXT = pa.scalar(None, pa.string())


def faults_where(flags: pa.BooleanArray, cause: str) -> Faults:
    """Return a fault for each index whose flag is set; null is not set."""
    return dict.fromkeys(pc.indices_nonzero(flags).to_pylist(), cause)


def with_path(path: str, faults: Faults) -> Faults:
    """Add the path of the value to each cause, as msgspec does."""
    return {index: f"{cause} - at `{path}`" for index, cause in faults.items()}


def instant(text: str, zone: ZoneInfo | None) -> int:
    """Read one time exactly; raise ValueError with a fixed sentence where it cannot be read.

    A time without a zone is read in `zone`: as the first of two instants, and in a gap by the offset before
    the gap (PEP 495, fold=0). It is refused where `zone` is None.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(NOT_A_TIME)
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    fraction, utc, sign, hours, minutes = match.groups()[6:]
    if year == 0:
        raise ValueError(OUT_OF_YEARS)
    if second == 60:
        raise ValueError(LEAP_SECOND)
    try:
        local = datetime(year, month, day, hour, minute, second)
    except ValueError:
        raise ValueError(NO_SUCH_TIME) from None
    micros = (local - _EPOCH) // _MICROSECOND + int((fraction or "")[:6].ljust(6, "0"))
    if sign:
        micros -= _offset(sign, int(hours), int(minutes))
    elif not utc:
        micros -= _local_offset(local, zone)
    if not FIRST <= micros <= LAST:
        raise ValueError(OUT_OF_YEARS)
    return micros


def _offset(sign: str, hours: int, minutes: int) -> int:
    if hours > 23 or minutes > 59:
        raise ValueError(NO_SUCH_TIME)
    micros = (hours * 60 + minutes) * 60_000_000
    return -micros if sign == "-" else micros


def _local_offset(local: datetime, zone: ZoneInfo | None) -> int:
    if zone is None:
        raise ValueError(NO_ZONE)
    return (local.replace(tzinfo=zone).utcoffset() or timedelta()) // _MICROSECOND


def instants(texts: pa.StringArray, zone: ZoneInfo | None) -> tuple[pa.Int64Array, Faults]:
    """Read many times; null stays null, and a time that cannot be read is null with its reason."""
    micros = within_years(_cast(texts)) if _all(_ends_in_z(texts)) else _mixed(texts, zone)
    if micros.null_count == texts.null_count:
        return micros, {}
    left = pc.indices_nonzero(pc.and_(texts.is_valid(), micros.is_null())).to_pylist()
    return _read_one_by_one(texts.to_pylist(), zone, micros, left)


def as_rfc3339(texts: pa.StringArray, form: TimeForm) -> pa.StringArray:
    """Write times of another form as RFC 3339 has them; a text that does not have it becomes empty."""
    regex = form.regex if isinstance(form, TimePattern) else _ISO8601
    parts = pc.extract_regex(texts, f"^(?:{regex})$")
    names = {field.name for field in parts.type}

    def part(name: str, before: str, otherwise: str) -> pa.StringArray | str:
        if name not in names:
            return otherwise
        found = pc.struct_field(parts, name)
        return pc.if_else(pc.equal(found, ""), otherwise, pc.binary_join_element_wise(before, found, ""))

    date = [part("year", "", ""), part("month", "-", ""), part("day", "-", "")]
    time = [
        part("hour", "T", "T00"),
        part("minute", ":", ":00"),
        part("second", ":", ":00"),
        part("fraction", ".", ""),
    ]
    zone = [part("utc", "", ""), part("hours", "", "")]
    if "hours" in names:
        zone.append(pc.if_else(pc.equal(zone[1], ""), "", part("minutes", ":", ":00")))
    written = pc.binary_join_element_wise(*date, *time, *zone, "")
    return pc.if_else(texts.is_valid(), pc.fill_null(written, ""), _NO_TEXT)


def _mixed(texts: pa.StringArray, zone: ZoneInfo | None) -> pa.Int64Array:
    """Read the forms that Arrow reads as RFC 3339 does; any other is null, and left to the slow path."""
    if pc.any(pc.match_substring_regex(texts, _LONG)).as_py():
        texts = pc.replace_substring_regex(texts, _LONG, r"\1")
    zoned = pc.or_(_ends_in_z(texts), pc.match_substring_regex(texts, _OFFSET))
    micros = within_years(_cast(pc.if_else(zoned, texts, _NO_TEXT)))
    if zone is None or _all(zoned):
        return micros
    local = pc.match_substring_regex(texts, _LOCAL)
    local_micros = _cast(pc.if_else(local, pc.binary_join_element_wise(texts, "Z", ""), _NO_TEXT))
    return pc.coalesce(micros, within_years(_shifted(within_years(local_micros), zone)))


def _shifted(local: pa.Int64Array, zone: ZoneInfo) -> pa.Int64Array:
    """Return the instants of local times; null within an hour in which the zone's offset changes."""
    hours, of_hour = np.unique(local.fill_null(0).to_numpy() // _HOUR, return_inverse=True)
    offsets = pa.array([_steady_offset(int(hour), zone) for hour in hours], pa.int64())
    return pc.subtract(local, offsets.take(pa.array(of_hour)))


def _steady_offset(hour: int, zone: ZoneInfo) -> int | None:
    """Return the offset that holds for a whole local hour since the epoch, or None.

    No zone ever changed its offset and back within one hour, so equal offsets at both ends are enough.
    """
    try:
        ends = [_local_offset(_EPOCH + timedelta(hours=end), zone) for end in (hour, hour + 1)]
    except OverflowError:
        return None
    return ends[0] if ends[0] == ends[1] else None


def _ends_in_z(texts: pa.StringArray) -> pa.BooleanArray:
    """Return which texts Arrow's cast, if it accepts them, reads as RFC 3339 does.

    An accepted text with a Z at its end and 20 to 27 characters has seconds, and at most six digits behind
    them.
    """
    ends, width = pc.ends_with(texts, "Z"), pc.binary_length(texts)
    if _between(width, 20, 27):
        return ends
    return pc.and_(ends, pc.and_(pc.greater_equal(width, 20), pc.less_equal(width, 27)))


def _between(numbers: pa.Array, least: int, most: int) -> bool:
    """Return whether all numbers, apart from null, lie between two bounds, both included."""
    edges = pc.min_max(numbers).as_py()
    return edges["min"] is None or (least <= edges["min"] and edges["max"] <= most)


def _all(flags: pa.BooleanArray) -> bool:
    return bool(pc.all(flags, min_count=0).as_py())


def _cast(texts: pa.StringArray) -> pa.Int64Array:
    """Read by Arrow; a text that it refuses and its neighbours are null, and left to the slow path."""
    try:
        return texts.cast(INSTANT).cast(pa.int64())
    except pa.ArrowInvalid:
        if len(texts) <= _FEW:
            return pa.nulls(len(texts), pa.int64())
    half = len(texts) // 2
    return pa.concat_arrays([_cast(texts[:half]), _cast(texts[half:])])


def within_years(micros: pa.Int64Array) -> pa.Int64Array:
    """Return the times, with null for those outside the years 1 to 9999."""
    return _within(micros, FIRST, LAST)


def _within(numbers: pa.Int64Array, least: int, most: int) -> pa.Int64Array:
    if _between(numbers, least, most):
        return numbers
    inside = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
    return pc.if_else(inside, numbers, pa.scalar(None, pa.int64()))


def _read_one_by_one(
    texts: list[str], zone: ZoneInfo | None, micros: pa.Int64Array, left: list[int]
) -> tuple[pa.Int64Array, Faults]:
    values, faults = micros.to_pylist(), Faults()
    for index in left:
        try:
            values[index] = instant(texts[index], zone)
        except ValueError as wrong:
            faults[index] = str(wrong)
    return pa.array(values, pa.int64()), faults


def epochs(counts: pa.Int64Array, format: TimeFormat) -> tuple[pa.Int64Array, Faults]:
    """Read counts since 1970, in the unit of their format; all are whole numbers."""
    if format is TimeFormat.EPOCH_NS:
        return _floor(counts, 1_000), {}
    unit = NANOSECONDS[format] // 1_000
    inside = _within(counts, -(-FIRST // unit), LAST // unit)
    outside = pc.and_(inside.is_null(), counts.is_valid())
    return pc.multiply(inside, unit), faults_where(outside, OUT_OF_YEARS)


def _floor(numbers: pa.Int64Array, unit: int) -> pa.Int64Array:
    """Divide to the next lower number: what is cut off never makes a time later."""
    towards_zero = pc.divide(numbers, unit)
    too_high = pc.greater(pc.multiply(towards_zero, unit), numbers)
    return pc.subtract(towards_zero, too_high.cast(pa.int64()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeReader:
    """Reads one column's times: RFC 3339 with a zone, unless its rule says otherwise."""

    format: TimeForm = TimeFormat.ISO8601
    zone: ZoneInfo | None = None

    @classmethod
    def of(cls, written: Written | None) -> TimeReader:
        """Return the reader for a rule of a config."""
        if written is None:
            return cls()
        zone = ZoneInfo(written.zone) if written.zone and not written.format.is_count else None
        return cls(format=written.format, zone=zone)

    @property
    def arrow(self) -> pa.DataType:
        """The type of the times as they are written."""
        return pa.int64() if self.format.is_count else pa.string()

    def read(self, values: Sequence[Any]) -> tuple[pa.Int64Array, Faults]:
        """Read times, given as an array or as values, to microseconds since the epoch."""
        written = values if isinstance(values, pa.Array) else pa.array(values, self.arrow)
        if isinstance(self.format, TimeFormat) and self.format.is_count:
            return epochs(written, self.format)
        if self.format is TimeFormat.ISO8601:
            return instants(written, self.zone)
        micros, faults = instants(as_rfc3339(written, self.format), self.zone)
        cause = f"Not a time as {self.format.value}" if isinstance(self.format, TimePattern) else NOT_ISO8601
        return micros, {at: cause if other == NOT_A_TIME else other for at, other in faults.items()}

    def read_dates(self, values: Sequence[Any]) -> tuple[pa.Date32Array, Faults]:
        """Read times, and return each one's date as it is written; of a count, the date in UTC."""
        written = pa.array(values, self.arrow)
        micros, faults = replace(self, zone=ZoneInfo("UTC")).read(written)
        if self.format.is_count:
            return _floor(micros, DAY).cast(pa.int32()).cast(pa.date32()), faults
        texts = written if self.format is TimeFormat.ISO8601 else as_rfc3339(written, self.format)
        read = pc.if_else(micros.is_valid(), texts, _NO_TEXT)
        return pc.utf8_slice_codeunits(read, 0, 10).cast(pa.date32()), faults


def read_event_times(
    written: pa.Array, reader: TimeReader, path: tuple[str, ...]
) -> tuple[pa.Int64Array, Faults]:
    """Read the event times of the field at `path`; a missing one is a fault too."""
    times, faults = reader.read(written)
    if written.null_count:
        faults |= faults_where(written.is_null(), NO_EVENT_TIME)
    return times, with_path(f"$.{'.'.join(path)}", faults)
