"""Sets of offsets of one partition.

Pure. A set is a compressed bitmap (Roaring, https://roaringbitmap.org): ten million ranges take some
megabytes, and every operation is exact. A set in the list file of a manifest is read only when it is used.
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
"""The longest range: a bitmap takes memory for each 65,536 offsets, and a typing error must not take all."""
AT_ONCE: Final = 100_000
"""How many ranges are turned into text at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a manifest says of a set in its list file."""

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
    """A set of offsets; it iterates as sorted half-open ranges that neither touch nor overlap."""

    __slots__ = ("_bits", "_read", "listing")

    listing: Final[Listing | None]
    """Where the set lies beside the manifest that it was read from; None if it is held in memory."""

    def __init__(self, ranges: Iterable[Iterable[int]] = ()) -> None:
        """Take ranges that are sorted and apart; any others are a ValueError."""
        self.listing = None
        self._read: Callable[[], bytes] | None = None
        self._bits: BitMap64 | None = ranges.bits if isinstance(ranges, Offsets) else _canonical(ranges)

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Offsets:
        """Join disjoint ranges in any order; an offset that occurs twice is a ValueError."""
        joined: list[Range] = []
        for from_, until in sorted(range_ for range_ in ranges if range_[0] < range_[1]):
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
        numbers = offsets if isinstance(offsets, array) else array("Q", offsets)
        bits = BitMap64(numbers)
        if len(bits) != len(numbers):
            raise ValueError(f"offset {_first_repeated(numbers)} occurs twice")
        return _holding(bits)

    @classmethod
    def listed(cls, listing: Listing, read: Callable[[], bytes]) -> Offsets:
        """Return a set whose bytes are read each time it is compared, combined or iterated."""
        made = cls.__new__(cls)
        made._bits, made._read = None, read
        made.listing = listing  # type: ignore[misc]  # final, but this is its other constructor
        return made

    @property
    def bits(self) -> BitMap64:
        """The bitmap, which must not be changed; a listed set is read each time, and held nowhere."""
        if self._bits is not None:
            return self._bits
        assert self._read is not None, "a set holds its bits, or a function that reads them"
        return BitMap64.deserialize(self._read())

    def __eq__(self, other: object) -> bool:
        """Compare as sets."""
        return isinstance(other, Offsets) and bool(self.bits == other.bits)

    def __hash__(self) -> int:
        """Hash by size."""
        return hash(len(self))

    def __str__(self) -> str:
        """Show the first ranges."""
        shown = [*islice(self, SHOWN + 1)]
        more = ", ..." if len(shown) > SHOWN else ""
        return f"{', '.join(f'[{f}, {u})' for f, u in shown[:SHOWN])}{more}"

    def __repr__(self) -> str:
        """Show the first ranges, and what they are."""
        return f"Offsets([{self}])"

    def __reduce__(self) -> tuple[Callable[[bytes], Offsets], tuple[bytes]]:
        """Pickle the compressed bitmap."""
        return from_bytes, (self.to_bytes(),)

    def to_bytes(self) -> bytes:
        """Return the set in Roaring's portable 64-bit format, run-length compressed."""
        packed = self.bits.copy()
        packed.run_optimize()
        return bytes(packed.serialize())

    def digest(self) -> str:
        """Return the SHA-256 of the ranges as text, to compare two sets without storing them."""
        hashed, ranges = hashlib.sha256(), iter(self)
        before = ""
        while texts := [f"{from_}-{until}" for from_, until in islice(ranges, AT_ONCE)]:
            hashed.update((before + ",".join(texts)).encode())
            before = ","
        return hashed.hexdigest()

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
        """All ranges as a tuple, for sets that are known to have few."""
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
        """Return the offsets that both sets hold."""
        return _holding(self.bits & other.bits)

    def __or__(self, other: Offsets) -> Offsets:
        """Return the offsets that either set holds."""
        return _holding(self.bits | other.bits)

    def __sub__(self, other: Offsets) -> Offsets:
        """Return the offsets that the other set does not hold."""
        return _holding(self.bits - other.bits)

    def within(self, from_: int, until: int) -> Offsets:
        """Return the offsets that lie in a half-open range of any width."""
        if not len(self) or (from_ <= self.first and self.until <= until):
            return self
        bits = self.bits.copy()
        bits.remove_range(0, max(from_, 0))
        bits.remove_range(max(until, 0), self.until)
        return _holding(bits)

    def least(self, count: int) -> Offsets:
        """Return the first offsets, up to a count."""
        return _holding(self.bits[: max(count, 0)])


class Gathering:
    """Joins disjoint sets of offsets, one after the other."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        """Start empty."""
        self._bits = BitMap64()

    def add(self, offsets: Offsets) -> None:
        """Add offsets; one that was added before is a ValueError."""
        if not self._bits.isdisjoint(offsets.bits):
            raise ValueError(f"offset {(self._bits & offsets.bits).min()} occurs twice")
        self._bits.update(offsets.bits)

    def overlap(self, offsets: Offsets) -> Offsets:
        """Return those of the offsets that were added before."""
        return _holding(self._bits & offsets.bits)

    def gathered(self) -> Offsets:
        """Return all offsets that were added so far."""
        return _holding(self._bits.copy())


def joined(sets: Iterable[Offsets]) -> Offsets:
    """Join disjoint sets; an offset that two of them hold is a ValueError."""
    gathering = Gathering()
    for offsets in sets:
        gathering.add(offsets)
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
    for offset in offsets:
        if offset in seen:
            return offset
        seen.add(offset)
    raise ValueError("no offset occurs twice")
