"""The forms in which a record may write a time: formats that have a name, and patterns.

Relies on the standard library alone, because every command and every task imports it. Never guesses: a
pattern that is not understood to its last letter is a ValueError.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class TimeFormat(StrEnum):
    """How a time is written in a record. ISO8601 is RFC 3339; all contracts have it by this name."""

    ISO8601 = "iso8601"
    ISO8601_LENIENT = "iso8601_lenient"
    EPOCH_D = "epoch_d"
    EPOCH_S = "epoch_s"
    EPOCH_MS = "epoch_ms"
    EPOCH_US = "epoch_us"
    EPOCH_NS = "epoch_ns"

    @classmethod
    def _missing_(cls, value: object) -> TimeFormat | None:
        return cls.ISO8601 if value == "rfc3339" else None

    @property
    def is_count(self) -> bool:
        """Whether a time is a number, not a text."""
        return self.value.startswith("epoch")


NANOSECONDS = {
    TimeFormat.EPOCH_D: 86_400_000_000_000,
    TimeFormat.EPOCH_S: 1_000_000_000,
    TimeFormat.EPOCH_MS: 1_000_000,
    TimeFormat.EPOCH_US: 1_000,
    TimeFormat.EPOCH_NS: 1,
}
"""The length of an epoch format's unit."""

_PARTS = {
    "yyyy": r"(?P<year>[0-9]{4})",
    "MM": r"(?P<month>[0-9]{2})",
    "dd": r"(?P<day>[0-9]{2})",
    "HH": r"(?P<hour>[0-9]{2})",
    "mm": r"(?P<minute>[0-9]{2})",
    "ss": r"(?P<second>[0-9]{2})",
    "X": r"(?:(?P<utc>Z)|(?P<hours>[+-][0-9]{2})(?P<minutes>[0-9]{2})?)",
    "XX": r"(?:(?P<utc>Z)|(?P<hours>[+-][0-9]{2})(?P<minutes>[0-9]{2}))",
    "XXX": r"(?:(?P<utc>Z)|(?P<hours>[+-][0-9]{2}):(?P<minutes>[0-9]{2}))",
}
"""The letters of a pattern, as in Java's DateTimeFormatter, and what they match."""
_TOKEN = re.compile(r"(?P<text>'(?:[^']|'')*')|(?P<letters>([A-Za-z])\3*)|(?P<sign>.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TimePattern:
    """How a time is written, as a pattern such as `dd/MM/yyyy HH:mm:ss`.

    Raises:
        ValueError: the pattern is not understood.
    """

    value: str

    def __post_init__(self) -> None:
        """Check that the pattern is understood, and names a date."""
        try:
            groups = re.compile(self.regex).groupindex
        except re.error:
            raise ValueError("a part of the pattern is there twice") from None
        if not {"year", "month", "day"} <= groups.keys():
            raise ValueError("a pattern needs yyyy, MM and dd")

    @property
    def is_count(self) -> bool:
        """Whether a time is a number, not a text."""
        return False

    @property
    def has_zone(self) -> bool:
        """Whether each time names its offset."""
        return "(?P<hours>" in self.regex

    @property
    def regex(self) -> str:
        """What matches a whole time, with a named group for each part."""
        return "".join(map(_regex_of, _TOKEN.finditer(self.value)))


def _regex_of(token: re.Match[str]) -> str:
    letters = token["letters"]
    if token["sign"] == "'":
        raise ValueError("a quote of the pattern has no end")
    if letters is None:
        text = token["text"]
        return re.escape(token["sign"] if text is None else text[1:-1].replace("''", "'") or "'")
    if letters in _PARTS:
        return _PARTS[letters]
    if set(letters) == {"S"}:
        return f"(?P<fraction>[0-9]{{{len(letters)}}})"
    raise ValueError(f"{letters} is not read; there are {', '.join(_PARTS)}, S; quote other letters: 'at'")


TimeForm: TypeAlias = TimeFormat | TimePattern


def time_form(text: str) -> TimeForm:
    """Read the name of a format, or a pattern; raise ValueError where it is neither."""
    try:
        return TimeFormat(text)
    except ValueError:
        if "yyyy" not in text:
            raise
        return TimePattern(text)


@dataclass(frozen=True, slots=True)
class Written:
    """How times are written, and the zone of timestamps that name none; without it they are refused."""

    format: TimeForm
    zone: str | None = None
