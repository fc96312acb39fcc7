"""What a column type may say, and what its name may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.record.columns import (
    Array,
    Column,
    ColumnType,
    Decimal,
    Kind,
    Map,
    Scalar,
    Struct,
    ddl,
    duplicate_name,
    field_problem,
    name_problem,
    parse_type,
)

NAMES = st.text(min_size=1, max_size=6).filter(lambda name: field_problem(name) is None)


def structs(inner: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[ColumnType]:
    fields = st.lists(st.builds(Column, NAMES, inner), min_size=1, max_size=4).map(tuple)
    return fields.filter(lambda found: duplicate_name(found) is None).map(Struct)


TYPES: st.SearchStrategy[ColumnType] = st.recursive(
    st.sampled_from(Kind).map(Scalar)
    | st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s))),
    lambda inner: inner.map(Array) | inner.map(Map) | structs(inner),
    max_leaves=6,
)


@given(TYPES)
def test_a_type_is_read_back_from_its_canonical_text(type: ColumnType) -> None:
    assert parse_type(ddl(type)) == type


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("STRING", "string"),
        ("long", "bigint"),
        (" array < integer > ", "array<int>"),
        ("struct<city string, zip: string>", "struct<city:string,zip:string>"),
        ("struct<`my-col`:json,class:decimal( 10 , 2 )>", "struct<`my-col`:json,class:decimal(10,2)>"),
        ("struct<`a``b`:int,日本:date>", "struct<`a``b`:int,日本:date>"),
        ("map<string,array<struct<map:map<string,json>>>>",) * 2,
    ],
)
def test_a_type_has_one_canonical_text(text: str, canonical: str) -> None:
    assert ddl(parse_type(text)) == canonical


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "ends too early"),
        ("strng", "did you mean `string`"),
        ("array<strng>", "did you mean `string`"),
        ("bool", "write `boolean`"),
        ("array", "expected `<`, found its end"),
        ("array<string", "expected `>`, found its end"),
        ("string>", "`>` is too much"),
        ("string not null", "`not` is too much"),
        ("array<string,int>", "expected `>`, found `,`"),
        ("map<int,string>", "keys of a map are strings"),
        ("struct<>", "expected the name of a field"),
        ("struct<my-col:string>", "stand in backticks"),
        ("struct<a:int,A:int>", "`a` and `A`"),
        ("struct<`a\\`:int>", "backslash"),
        ("decimal", "how many digits"),
        ("decimal(39,2)", "1 <= p <= 38"),
        ("decimal(5,9)", "0 <= s <= p"),
        ("decimal(99999999999999999999,1)", "1 <= p <= 38"),
        ("decimal(a,b)", "number of digits"),
        ("array<" * 10_000, "at most 32 levels"),
    ],
)
def test_a_type_that_is_not_understood_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="type") as refused:
        parse_type(text)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["date", "DATE", "Event_Time", "kafka_offset", "KAFKA_", ""])
def test_the_lakes_own_names_are_reserved_in_any_case(name: str) -> None:
    assert name_problem(name)


@pytest.mark.parametrize("name", ["", "  ", 'a"b', "a\\b", "a\nb", "\x7f", "\ud800"])
def test_names_that_json_or_parquet_cannot_carry_are_refused(name: str) -> None:
    assert field_problem(name)


@pytest.mark.parametrize("name", ["class", "my-col", "a.b", "日本", "f0", "dates", "it's", "kafka"])
def test_any_other_name_is_a_column(name: str) -> None:
    assert name_problem(name) is None
