"""The parts of random histories: plain data, and hypothesis strategies for it.

Relies on nothing. A script holds what happens, and never the expected result. Numbers are small, so that a
failing script shrinks to one that can be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Final

from hypothesis import strategies as st

FIRST: Final = date(2026, 3, 28)
"""In Europe/Amsterdam the next day has 23 hours."""

SHIFTS: Final = {
    "on time": 0, "disorder": -2, "late": -24, "very late": -50, "early": 20, "at the limit": 24,
    "days ahead": 40, "too early": 80, "half a day old": -13, "too old": -31 * 24, "days late": -74,
}  # fmt: skip
"""Hours between Kafka's stamp and the event time."""
STAMPS: Final = {"stray ahead": 40, "stray far ahead": 4000, "stray back": -20}
"""Hours between arrival and Kafka's stamp; the event time follows the stamp, unless that is far off."""
KINDS: Final = (
    *SHIFTS, *STAMPS, "text", "broken", "tombstone", "no stamp",
    "on time", "on time", "on time", "disorder", "late", "late", "very late", "days late", "early", "early",
)  # fmt: skip
ENDINGS: Final = ("", "", "", "", "", "commit", "abort", "open", "marker far ahead")
CHANGES: Final = (
    "add partition", "compact", "retain", "retain", "columns", "past", "future", "tombstones", "zone",
    "zone database", "late", "truncate", "recreate", "other anchor", "forget pending", "reader drops",
    "reader doubles", "too soon", "too far", "rerun", "rebuild", "rebuild", "rebuild", "power loss",
    "expire", "expire", "expire", "upgrade", "upgrade",
)  # fmt: skip
AFTERWARDS: Final = (
    "rebuild", "rebuild", "rebuild", "past", "columns", "tombstones", "compact", "retain", "rerun", "expire",
    "upgrade",
)  # fmt: skip
FAULTS: Final = ("crash", "lost answer", "power loss", "EIO", "EIO after", "kill")
DAMAGES: Final = ("", "late", "gone", "removed", "cut", "late", "gone")
"""`late` is a late file in the day to which it was brought, if there is one; else it is `cut`."""
ZONES: Final = ("Europe/Amsterdam", "UTC", "Asia/Tokyo", "America/New_York")


@dataclass(frozen=True, slots=True)
class Arrival:
    """One record to produce: its partition, its hour of the day, and its kind of event time."""

    partition: int
    hour: int
    kind: str
    micros: int
    ending: str


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happens between two runs; `how` says where or how much."""

    kind: str
    how: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run that fails: at about so many thousandths of its changes, or at a step."""

    fault: str
    at: int
    late_switched: bool


@dataclass(frozen=True, slots=True)
class DayScript:
    """All that happens on one day, before it is settled."""

    arrivals: list[Arrival]
    changes: list[Change]
    attempts: list[Attempt]
    batch_rows: int
    tasks: int
    failing: bool


@dataclass(frozen=True, slots=True)
class Script:
    """A history."""

    compacted: bool
    amend: bool
    days: list[DayScript]
    afterwards: list[Change]
    """What happens when all days are settled."""


arrivals = st.builds(
    Arrival,
    st.integers(0, 2),
    st.integers(0, 23),
    st.sampled_from(KINDS),
    st.sampled_from((0, -1, 1, 400)),
    st.sampled_from(ENDINGS),
)
changes = st.builds(Change, st.sampled_from(CHANGES), st.integers(0, 255))
attempts = st.builds(Attempt, st.sampled_from(FAULTS), st.integers(0, 999), st.booleans())
days = st.builds(
    DayScript,
    st.lists(arrivals, min_size=2, max_size=8),
    st.lists(changes, max_size=2),
    st.lists(attempts, max_size=2),
    st.integers(2, 7),
    st.integers(1, 2),
    st.booleans(),
)
scripts = st.builds(
    Script,
    st.booleans(),
    st.booleans(),
    st.lists(days, min_size=2, max_size=4),
    st.lists(st.builds(Change, st.sampled_from(AFTERWARDS), st.integers(0, 255)), max_size=3),
)
