"""Sets of offsets behave as Python's sets do, whatever the ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets.ranges import Offsets, Range

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
