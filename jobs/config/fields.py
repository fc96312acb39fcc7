"""How the text of one key becomes a value: durations, sizes, shares, dates, zones, names.

Pure, except for the zone database. Every reader takes a value of the YAML and raises InvalidValue with a
reason, which never repeats the value.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BeforeValidator, ByteSize

from jobs.config.problems import close_to
from jobs.config.secrets import ResolvedText, Secret
from jobs.record.time_format import TimeForm, TimeFormat, TimePattern, time_form

LONGEST = timedelta(days=20_000)
"""Every look-up by time stays after 1970, where Kafka's timestamps begin."""
DEEPEST = 64
"""How deep objects and arrays of a record may nest."""
FEWEST_KEPT = timedelta(days=2)
SHORTEST_PATIENCE = timedelta(seconds=1)
"""A request gets a third of this, and librdkafka refuses less than 10 ms."""

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhdw])\s*)+")
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_ISO_DURATION = re.compile(
    r"P(?=.)(?:(\d+)W)?(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)?", re.IGNORECASE)
_LARGEST = 1 << 50
_SHARE = re.compile(r"(\d*\.?\d+)\s*(%?)")
_COUNT = re.compile(r"\d{1,15}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SERVER = re.compile(r"(?:\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9._-]+):(\d{1,5})")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
_KEY = re.compile(r"[a-zA-Z0-9._=-]+")
_BUCKET = re.compile(r"(?:s3|gs|az)://[^/?#]+(?:/[^?#]*)?")
_MACHINE_ZONES = ("localtime", "posixrules", "Factory", "posix/", "right/")


class InvalidValue(ValueError):
    """A value is not what its key expects; `hint` may hold more, but never the value."""

    def __init__(self, hint: str = "") -> None:
        """Take the hint."""
        super().__init__(hint)
        self.hint = hint


def revealed(value: object) -> object:
    """Return the text of a secret, where the key needs no secret; any other value as it is."""
    return value.reveal() if isinstance(value, Secret) else value


def required_text(value: object) -> str:
    """Return a text that is not empty."""
    text = revealed(value)
    if not isinstance(text, str) or not text.strip():
        raise InvalidValue
    return str(text)


def _match(pattern: re.Pattern[str], value: object, hint: str = "") -> re.Match[str]:
    if match := pattern.fullmatch(required_text(value).strip()):
        return match
    raise InvalidValue(hint)


def duration(value: object) -> timedelta:
    """Read `90s`, `1h30m`, `30d` or ISO 8601's `PT1H`."""
    text = required_text(value).strip()
    if text.lstrip("+-").replace(".", "").isdigit():
        raise InvalidValue("a duration needs a unit: ms, s, m, h, d or w")
    if text.startswith("-"):
        raise InvalidValue("it cannot be negative")
    span = _iso_seconds(text) if text.startswith("P") else _seconds(text)
    if span > LONGEST.total_seconds():
        raise InvalidValue(f"it cannot be longer than {LONGEST.days}d")
    return timedelta(seconds=span)


def keep(value: object) -> timedelta:
    """Read how many days a lake keeps."""
    span = duration(value)
    if span % timedelta(days=1) or span < FEWEST_KEPT:
        raise InvalidValue(f"it must be whole days, and at least {FEWEST_KEPT.days}d")
    return span


def patience(value: object) -> timedelta:
    """Read how long to wait for a silent broker."""
    span = duration(value)
    if span < SHORTEST_PATIENCE:
        raise InvalidValue(f"it must be at least {SHORTEST_PATIENCE.total_seconds():g}s")
    return span


def _seconds(text: str) -> float:
    if not _DURATION.fullmatch(text):
        raise InvalidValue("the units are ms, s, m, h, d and w")
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION_PART.findall(text))


def _iso_seconds(text: str) -> float:
    match = _ISO_DURATION.fullmatch(text)
    if not match:
        raise InvalidValue("of ISO 8601's durations only weeks, days, hours, minutes and seconds are read")
    return sum(
        float(number or 0) * _UNITS[unit] for number, unit in zip(match.groups(), "wdhms", strict=True)
    )


def size(value: object) -> ByteSize:
    """Read `256MiB`, `1GB` or a number of bytes; at least one byte."""
    match = _match(_SIZE, value, "the units are B, KB, MB, GB, TB and KiB, MiB, GiB, TiB")
    exponent = "BKMGT".index((match[2] or "B")[0].upper())
    base = 1024 if "i" in (match[2] or "").lower() else 1000
    number = float(match[1]) * base**exponent
    if number > _LARGEST or round(number) < 1:
        raise InvalidValue("it must lie between one byte and 1024 TiB")
    return ByteSize(round(number))


def share(value: object) -> float:
    """Read `0.1%` or `0.001` as a share between 0 and 1."""
    match = _match(_SHARE, value)
    number = float(match[1]) / (100 if match[2] else 1)
    if number > 1:
        raise InvalidValue("it must lie between 0% and 100%" + ("" if match[2] else "; write the % sign"))
    return number


def number(value: object) -> int:
    """Read a number of records."""
    return int(_match(_COUNT, value)[0])


def calendar_date(value: object) -> date:
    """Read `2026-11-01`."""
    text = _match(_DATE, value)[0]
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidValue("the calendar has no such day") from None
    if not 1970 <= day.year < 9999:
        raise InvalidValue("Kafka's timestamps begin in 1970; the years 1970 to 9998 can be read")
    return day


def zone(value: object) -> str:
    """Read the name of a zone that means the same on every machine."""
    name = required_text(value)
    if name.startswith(_MACHINE_ZONES):
        raise InvalidValue("that zone differs between machines")
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        raise InvalidValue(_zone_hint(name)) from None
    return name


def _zone_hint(name: str) -> str:
    zones = available_timezones()
    city = {known.rpartition("/")[2]: known for known in sorted(zones)}
    near = close_to(name, zones) or close_to(name, city)
    word = near.removeprefix("; did you mean ").removesuffix("?")
    return f"did you mean {city.get(word, word)}?" if near else ""


def time_format(value: object) -> TimeForm:
    """Read the name of a format of times, or a pattern."""
    text = required_text(value)
    try:
        return time_form(text)
    except ValueError as error:
        near = close_to(text, [*TimeFormat, "rfc3339"]).removeprefix("; ")
        hint = str(error) if "yyyy" in text else near
        raise InvalidValue("" if isinstance(value, ResolvedText) else hint) from None


def topic_name(value: object) -> str:
    """Read a topic's name as Kafka allows it."""
    name = required_text(value)
    if name in (".", "..") or not _TOPIC.fullmatch(name):
        raise InvalidValue("a name has 1 to 249 of the characters a-z A-Z 0-9 . _ - and is not . or ..")
    return name


def servers(value: object) -> str:
    """Read `host:port`, several of them with commas or as a list, into one text with commas."""
    parts = value if isinstance(value, list) else required_text(value).split(",")
    if not parts:
        raise InvalidValue
    return ",".join(_server(part, at) for at, part in enumerate(parts, start=1))


def _server(part: object, at: int) -> str:
    text = part.strip() if isinstance(part, str) else ""
    match = _SERVER.fullmatch(text)
    if not match or not 0 < int(match[1]) < 65_536:
        raise InvalidValue(
            f"look at number {at}: both clients need a port, and take no protocol before the host"
        )
    return text


def lake_path(value: object) -> str:
    """Read the path of a folder, or the address of a prefix in a bucket, without checking that it exists."""
    text = required_text(value)
    if match := _URL.match(text):
        return _bucket(text, match[0].lower())
    if text.startswith("~"):
        raise InvalidValue("~ is not read; write ${env:HOME} or the whole path")
    if "\0" in text:
        raise InvalidValue("a path holds no NUL")
    return text


def _bucket(text: str, scheme: str) -> str:
    if scheme == "file://":
        raise InvalidValue("a plain path has no file://")
    if scheme in ("s3a://", "s3n://"):
        raise InvalidValue("write s3://")
    if not _BUCKET.fullmatch(text):
        raise InvalidValue("a bucket is s3://bucket/prefix, gs://bucket/prefix or az://container/prefix")
    names = text.partition("://")[2].rstrip("/").split("/")
    if any(name in ("", ".", "..") or not _KEY.fullmatch(name) for name in names):
        raise InvalidValue("each name between two slashes has only the characters a-z A-Z 0-9 . _ - =")
    return text.rstrip("/")


def is_bucket(path: str) -> bool:
    """Return whether a lake's path is the address of a bucket."""
    return bool(_URL.match(path))


def field_path(value: object) -> tuple[str, ...]:
    """Read `meta.created_at` as the names between its dots, and `[meta, created.at]` as two names."""
    names = value if isinstance(value, list) else required_text(value).split(".")
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        between = "of the list" if isinstance(value, list) else "between two dots"
        raise InvalidValue(f"a name {between} is empty")
    if len(names) > DEEPEST:
        raise InvalidValue(f"a record nests at most {DEEPEST} levels deep")
    return tuple(names)


def truth(value: object) -> bool:
    """Read `true` or `false`."""
    text = required_text(value).lower()
    if text not in ("true", "false"):
        raise InvalidValue
    return text == "true"


def secret(value: object) -> Secret:
    """Return a text as a Secret."""
    text = required_text(value)
    return value if isinstance(value, Secret) else Secret(text)


def text_or_secret(value: object) -> str | Secret:
    """Read a text, and leave a secret hidden."""
    text = required_text(value)
    return value if isinstance(value, Secret) else text


def mapping(value: object) -> object:
    """Return an empty mapping for a key that has nothing below it."""
    return {} if value is None else value


Flag = Annotated[bool, BeforeValidator(truth)]
Duration = Annotated[timedelta, BeforeValidator(duration)]
Keep = Annotated[timedelta, BeforeValidator(keep)]
Patience = Annotated[timedelta, BeforeValidator(patience)]
Size = Annotated[ByteSize, BeforeValidator(size)]
Count = Annotated[int, BeforeValidator(number)]
Share = Annotated[float, BeforeValidator(share)]
CalendarDate = Annotated[date, BeforeValidator(calendar_date)]
Zone = Annotated[str, BeforeValidator(zone)]
TopicName = Annotated[str, BeforeValidator(topic_name)]
Servers = Annotated[str, BeforeValidator(servers)]
LakePath = Annotated[str, BeforeValidator(lake_path)]
FieldPath = Annotated[tuple[str, ...], BeforeValidator(field_path)]
TimeText = Annotated[TimeFormat | TimePattern, BeforeValidator(time_format)]
Text = Annotated[str, BeforeValidator(required_text)]
HiddenText = Annotated[Secret, BeforeValidator(secret)]
Mapped = Annotated[dict[str, object], BeforeValidator(mapping)]
TextOrSecret = Annotated[str | Secret, BeforeValidator(text_or_secret)]
Revealed = BeforeValidator(revealed)
