"""Sets of offsets of one partition.

Pure. A set is a compressed bitmap (Roaring, https://roaringbitmap.org), so that ten million ranges take some
megabytes and every operation is exact. A set that is listed beside its manifest is read when it is needed.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pyroaring import BitMap64

Range = tuple[int, int]
SHOWN: Final = 9
"""How many ranges a message shows."""
LONGEST: Final = 1 << 40
"""A bitmap takes memory for every 65,536 offsets of a range: a typing error must not take all memory."""
AT_ONCE: Final = 100_000
"""How many ranges are made into text at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a manifest says of a set that is listed beside it."""

    offsets: int
    """How many offsets it has."""
    ranges: int
    """How many ranges they make."""
    from_offset: int
    """The first offset."""
    until_offset: int
    """The offset after the last."""
    at: int
    """The byte of the list file at which it begins."""
    bytes: int
    """How many bytes it takes there, in Roaring's portable 64-bit format."""
    sha256: str
    """The SHA-256 of these bytes."""


class Offsets:
    """A set of offsets, shown as sorted half-open ranges that neither touch nor overlap."""

    __slots__ = ("_bits", "_read", "listing")

    listing: Final[Listing | None]
    """Where the set lies beside the manifest that it was read from; None where it is held in memory."""

    def __init__(self, ranges: Iterable[Iterable[int]] = ()) -> None:
        """Take ranges that are canonical already; anything else is a ValueError."""
        self.listing = None
        self._read: Callable[[], bytes] | None = None
        self._bits: BitMap64 | None = ranges.bits if isinstance(ranges, Offsets) else _canonical(ranges)

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
        """Return all offsets of one half-open range, which may be empty."""
        return cls.of([(from_, until)])

    @classmethod
    def holding(cls, offsets: Iterable[int]) -> Offsets:
        """Return the set of single offsets; one that occurs twice is a ValueError."""
        each = offsets if isinstance(offsets, array) else array("Q", offsets)
        bits = BitMap64(each)
        if len(bits) != len(each):
            raise ValueError(f"offset {_first_repeated(each)} occurs twice")
        return _holding(bits)

    @classmethod
    def listed(cls, listing: Listing, read: Callable[[], bytes]) -> Offsets:
        """Return a set whose bytes are read whenever it is compared, combined or walked through."""
        made = cls.__new__(cls)
        made._bits, made._read = None, read
        made.listing = listing  # type: ignore[misc]
        return made

    @property
    def bits(self) -> BitMap64:
        """The bitmap, which nobody may change; a listed set is read each time, so that it takes no memory."""
        if self._bits is not None:
            return self._bits
        assert self._read is not None, "a set is held, or says how it is read"
        return BitMap64.deserialize(self._read())

    def __eq__(self, other: object) -> bool:
        """Compare as sets."""
        return isinstance(other, Offsets) and bool(self.bits == other.bits)

    def __hash__(self) -> int:
        """Hash by size."""
        return hash(len(self))

    def __repr__(self) -> str:
        """Show the first ranges."""
        shown = [*islice(self, SHOWN + 1)]
        more = ", ..." if len(shown) > SHOWN else ""
        return f"Offsets([{', '.join(f'[{f}, {u})' for f, u in shown[:SHOWN])}{more}])"

    def __reduce__(self) -> tuple[Callable[[bytes], Offsets], tuple[bytes]]:
        """Send the compressed bitmap to another process."""
        return from_bytes, (self.to_bytes(),)

    def to_bytes(self) -> bytes:
        """Return the set in Roaring's portable 64-bit format, compressed as far as it goes."""
        packed = self.bits.copy()
        packed.run_optimize()
        return bytes(packed.serialize())

    def digest(self) -> str:
        """Return the SHA-256 of the ranges as text, by which two sets are compared without keeping either."""
        found, ranges = hashlib.sha256(), iter(self)
        before = ""
        while some := [f"{from_}-{until}" for from_, until in islice(ranges, AT_ONCE)]:
            found.update((before + ",".join(some)).encode())
            before = ","
        return found.hexdigest()

    def __len__(self) -> int:
        """Count the offsets."""
        return self.listing.offsets if self.listing else len(self.bits)

    @property
    def range_count(self) -> int:
        """How many ranges the set has."""
        return self.listing.ranges if self.listing else len(self.bits - self.bits.shift(1))

    @property
    def first(self) -> int:
        """The least offset; an empty set has none, which is a ValueError."""
        return self.listing.from_offset if self.listing else int(self.bits.min())

    @property
    def until(self) -> int:
        """The end of the last range; an empty set has none, which is a ValueError."""
        return self.listing.until_offset if self.listing else int(self.bits.max()) + 1

    @property
    def ranges(self) -> tuple[Range, ...]:
        """All ranges at once: for sets that are known to have few."""
        return tuple(self)

    def edges(self) -> tuple[array[int], array[int]]:
        """Return the starts and the ends of all ranges, eight bytes each."""
        after = self.bits.shift(1)
        return (self.bits - after).to_array(), (after - self.bits).to_array()

    def __iter__(self) -> Iterator[Range]:
        """Iterate over the ranges, in order."""
        return zip(*self.edges(), strict=True)

    def __contains__(self, offset: int) -> bool:
        """Check whether an offset is in the set."""
        return offset in self.bits

    def __and__(self, other: Offsets) -> Offsets:
        """Keep what both hold."""
        return _holding(self.bits & other.bits)

    def __or__(self, other: Offsets) -> Offsets:
        """Return what one of them holds, or both."""
        return _holding(self.bits | other.bits)

    def __sub__(self, other: Offsets) -> Offsets:
        """Keep what the other does not hold."""
        return _holding(self.bits - other.bits)

    def within(self, from_: int, until: int) -> Offsets:
        """Keep what lies in a half-open range, however wide that is."""
        if not len(self) or (from_ <= self.first and self.until <= until):
            return self
        bits = self.bits.copy()
        bits.remove_range(0, max(from_, 0))
        bits.remove_range(max(until, 0), self.until)
        return _holding(bits)


class Gathering:
    """Joins disjoint sets of offsets, one after the other."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        """Start empty."""
        self._bits = BitMap64()

    def add(self, offsets: Offsets) -> None:
        """Take more offsets; one that is there already is a ValueError."""
        if not self._bits.isdisjoint(offsets.bits):
            raise ValueError(f"offset {(self._bits & offsets.bits).min()} occurs twice")
        self._bits.update(offsets.bits)

    def overlap(self, offsets: Offsets) -> Offsets:
        """Return which of these offsets are there already."""
        return _holding(self._bits & offsets.bits)

    def gathered(self) -> Offsets:
        """Return all offsets that were added so far."""
        return _holding(self._bits.copy())


def joined(sets: Iterable[Offsets]) -> Offsets:
    """Join disjoint sets; an offset that two of them hold is a ValueError."""
    gathering = Gathering()
    for each in sets:
        gathering.add(each)
    return gathering.gathered()


def from_bytes(text: bytes) -> Offsets:
    """Return the set that `to_bytes` wrote."""
    return _holding(BitMap64.deserialize(text))


def _holding(bits: BitMap64) -> Offsets:
    made = Offsets()
    made._bits = bits
    return made


def _canonical(ranges: Iterable[Iterable[int]]) -> BitMap64:
    bits, previous = BitMap64(), -1
    for from_, until in ranges:
        if not previous < from_ < until:
            raise ValueError(f"ranges of offsets must be sorted, apart and not empty: [{from_}, {until})")
        if until - from_ > LONGEST:
            raise ValueError(f"[{from_}, {until}) is longer than any partition's log")
        bits.add_range(from_, until)
        previous = until
    return bits


def _first_repeated(offsets: array[int]) -> int:
    seen: set[int] = set()
    return next(each for each in offsets if each in seen or seen.add(each))  # type: ignore[func-returns-value]
