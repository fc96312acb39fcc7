"""Sets of offsets behave as Python's sets do, whatever the ranges."""

from __future__ import annotations

import hashlib
import pickle
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets.ranges import Offsets, Range, joined

few = st.frozensets(st.integers(0, 40))


def offsets_of(numbers: frozenset[int]) -> Offsets:
    return Offsets.of((number, number + 1) for number in numbers)


def members(offsets: Offsets) -> set[int]:
    return {number for from_, until in offsets for number in range(from_, until)}


@given(few)
def test_a_set_survives_the_way_through_ranges(numbers: frozenset[int]) -> None:
    offsets = offsets_of(numbers)
    assert members(offsets) == numbers
    assert len(offsets) == len(numbers)
    assert {number for number in range(45) if number in offsets} == numbers
    assert Offsets(list(map(list, offsets))) == offsets, "its ranges are canonical"


@given(few, few)
def test_and_and_minus_are_those_of_sets(a: frozenset[int], b: frozenset[int]) -> None:
    left, right = offsets_of(a), offsets_of(b)
    assert members(left & right) == a & b
    assert members(left - right) == a - b
    assert (left == right) == (a == b)
    assert (hash(left) == hash(right)) or a != b


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6))
def test_ranges_join_in_any_order_and_an_offset_that_occurs_twice_is_refused(ranges: list[Range]) -> None:
    numbers = [number for from_, until in ranges for number in range(from_, until)]
    if len(numbers) != len(set(numbers)):
        with pytest.raises(ValueError, match="twice"):
            Offsets.of(ranges)
    else:
        assert members(Offsets.of(ranges)) == set(numbers)


@pytest.mark.parametrize(
    "ranges",
    [[(0, 0)], [(2, 1)], [(0, 2), (2, 4)], [(0, 2), (1, 4)], [(5, 6), (0, 1)], [(-1, 2)], [(0, 1), (0, 1)]],
)
def test_ranges_that_are_not_canonical_are_refused(ranges: list[Range]) -> None:
    with pytest.raises(ValueError, match="sorted"):
        Offsets(ranges)


def test_a_set_of_many_ranges_shows_the_first_of_them_only() -> None:
    many = Offsets((number, number + 1) for number in range(0, 100, 2))
    assert repr(Offsets([(1, 3)])) == "Offsets([[1, 3)])"
    assert repr(many).endswith("[16, 17), ...])")


def test_nothing_is_a_set_too() -> None:
    assert Offsets.between(5, 5) == Offsets()
    assert not len(Offsets() - Offsets.between(0, 9))


@given(few, few)
def test_or_within_and_edges_are_those_of_sets(a: frozenset[int], b: frozenset[int]) -> None:
    left, right = offsets_of(a), offsets_of(b)
    assert members(left | right) == a | b
    assert members(left.within(5, 30)) == {number for number in a if 5 <= number < 30}
    assert list(zip(*left.edges(), strict=True)) == list(left.ranges)
    assert left.range_count == len(left.ranges)
    assert not a or (left.first, left.until) == (min(a), max(a) + 1)


@given(few)
def test_a_set_comes_back_from_another_process(numbers: frozenset[int]) -> None:
    offsets = offsets_of(numbers)
    assert pickle.loads(pickle.dumps(offsets)) == offsets
    assert Offsets.holding(sorted(numbers)) == offsets


@given(few, few)
def test_sets_join_where_they_are_disjoint_and_nowhere_else(a: frozenset[int], b: frozenset[int]) -> None:
    if a & b:
        with pytest.raises(ValueError, match=f"offset {min(a & b)} occurs twice"):
            joined([offsets_of(a), offsets_of(b)])
    else:
        assert members(joined([offsets_of(a), offsets_of(b)])) == a | b


def test_a_million_ranges_take_kilobytes_and_not_a_list_of_numbers() -> None:
    """The gaps of a topic that is written by transactions, ten times a second: one offset of eleven."""
    every = Offsets.between(0, 11_000_000)
    gaps = Offsets.holding(range(10, 11_000_000, 11))
    tracemalloc.start()
    rest = every - gaps
    text = pickle.dumps(rest)
    found = [rest.range_count, len(rest & gaps), (rest | gaps) == every, len(pickle.loads(text))]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [1_000_000, 0, True, 10_000_000]
    assert len(text) < 2 << 20
    assert peak < 16 << 20


def test_the_digest_of_a_set_is_that_of_its_ranges_as_text() -> None:
    """Manifests of format 2 keep it: it may never change."""
    many = [(at, at + 2) for at in range(0, 600_000, 5)]
    text = ",".join(f"{from_}-{until}" for from_, until in many)
    assert Offsets(many).digest() == hashlib.sha256(text.encode()).hexdigest()
    assert Offsets().digest() == hashlib.sha256(b"").hexdigest()


def test_a_range_longer_than_any_log_is_refused_before_it_takes_the_memory() -> None:
    with pytest.raises(ValueError, match="longer than any"):
        Offsets.between(0, 1 << 60)
    assert len(Offsets.between(10**15, 10**15 + 9)) == 9
