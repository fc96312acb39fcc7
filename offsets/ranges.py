"""Sets of offsets of one partition.

Pure. Millions of offsets are held as a few ranges; every operation walks the ranges once and is exact.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

Range = tuple[int, int]


class Offsets:
    """A set of offsets, as sorted half-open ranges that neither touch nor overlap."""

    __slots__ = ("ranges",)

    def __init__(self, ranges: Iterable[Iterable[int]] = ()) -> None:
        """Take ranges that are canonical already; anything else is a ValueError."""
        self.ranges: Final[tuple[Range, ...]] = tuple((from_, until) for from_, until in ranges)
        previous = -1
        for from_, until in self.ranges:
            if not previous < from_ < until:
                raise ValueError(f"ranges of offsets must be sorted, apart and not empty: {self.ranges[:9]}")
            previous = until

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Offsets:
        """Join disjoint ranges in any order; an offset that occurs twice is a ValueError."""
        joined: list[Range] = []
        for from_, until in sorted(each for each in ranges if each[0] < each[1]):
            if joined and from_ < joined[-1][1]:
                raise ValueError(f"offset {from_} occurs twice")
            if joined and from_ == joined[-1][1]:
                joined[-1] = (joined[-1][0], until)
            else:
                joined.append((from_, until))
        return cls(joined)

    @classmethod
    def between(cls, from_: int, until: int) -> Offsets:
        """All offsets of one half-open range, which may be empty."""
        return cls.of([(from_, until)])

    def __eq__(self, other: object) -> bool:
        """Compare as sets."""
        return isinstance(other, Offsets) and self.ranges == other.ranges

    def __hash__(self) -> int:
        """Hash the canonical ranges."""
        return hash(self.ranges)

    def __repr__(self) -> str:
        """Show the first ranges."""
        more = ", ..." if len(self.ranges) > 9 else ""
        return f"Offsets([{', '.join(f'[{f}, {u})' for f, u in self.ranges[:9])}{more}])"

    def digest(self) -> str:
        """Give the SHA-256 of the ranges, by which two sets can be compared without keeping either."""
        text = ",".join(f"{from_}-{until}" for from_, until in self.ranges)
        return hashlib.sha256(text.encode()).hexdigest()

    def __len__(self) -> int:
        """Count the offsets."""
        return sum(until - from_ for from_, until in self.ranges)

    def __iter__(self) -> Iterator[Range]:
        """Give the ranges."""
        return iter(self.ranges)

    def __contains__(self, offset: int) -> bool:
        """Tell whether an offset is in the set."""
        return any(from_ <= offset < until for from_, until in self.ranges)

    def __and__(self, other: Offsets) -> Offsets:
        """Keep what both hold."""
        return Offsets(_overlaps(self.ranges, other.ranges))

    def __sub__(self, other: Offsets) -> Offsets:
        """Keep what the other does not hold."""
        return Offsets(_remains(self.ranges, (self & other).ranges))


def _overlaps(a: tuple[Range, ...], b: tuple[Range, ...]) -> Iterator[Range]:
    i = j = 0
    while i < len(a) and j < len(b):
        from_, until = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if from_ < until:
            yield from_, until
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1


def _remains(ranges: tuple[Range, ...], holes: tuple[Range, ...]) -> Iterator[Range]:
    """Cut holes out of ranges; each hole lies within one range."""
    i = 0
    for from_, until in ranges:
        at = from_
        while i < len(holes) and holes[i][0] < until:
            if at < holes[i][0]:
                yield at, holes[i][0]
            at = holes[i][1]
            i += 1
        if at < until:
            yield at, until
