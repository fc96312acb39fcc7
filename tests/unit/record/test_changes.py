"""A change of the contract is called by what it does to those who read the lake."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.record.changes import (
    ADDED,
    OTHERWISE,
    REMOVED,
    RETYPED,
    WIDER,
    Change,
    ChangeKind,
    contract_changes,
)
from jobs.record.columns import Column, parse_type
from jobs.record.rules import Rules
from jobs.record.time_format import TimeFormat, Written
from offsets.contract import Contract
from tests.support.local_engine import RULES

FIRST = date(2026, 5, 1)


def contract(rules: Rules, **columns: str) -> Contract:
    typed = tuple(Column(name, parse_type(type)) for name, type in columns.items())
    return replace(rules, columns=typed).contract("UTC", FIRST)


def elsewhere(type: str, *path: str, written: Written | None = None) -> Column:
    return Column("x", parse_type(type), path, written)


def the_change(old: str | None, new: str | None) -> Change:
    before = contract(RULES, id="string", **({"x": old} if old else {}))
    after = contract(RULES, id="string", **({"x": new} if new else {}))
    [change] = contract_changes(before, after)
    return change


@pytest.mark.parametrize(
    "old, new, kind, readers",
    [
        (None, "string", ChangeKind.ADDITIVE, ADDED),
        ("string", None, ChangeKind.BREAKING, REMOVED),
        ("int", "bigint", ChangeKind.WIDENING, WIDER),
        ("int", "double", ChangeKind.WIDENING, WIDER),
        ("float", "double", ChangeKind.WIDENING, WIDER),
        ("bigint", "int", ChangeKind.BREAKING, RETYPED),
        ("bigint", "double", ChangeKind.BREAKING, RETYPED),  # above 2^53 it is another number
        ("int", "float", ChangeKind.BREAKING, RETYPED),
        ("int", "string", ChangeKind.BREAKING, RETYPED),
        ("date", "timestamp", ChangeKind.BREAKING, RETYPED),
        ("decimal(10,2)", "decimal(12,2)", ChangeKind.WIDENING, WIDER),
        ("decimal(10,2)", "decimal(12,4)", ChangeKind.WIDENING, WIDER),
        ("decimal(10,2)", "decimal(11,4)", ChangeKind.BREAKING, RETYPED),  # a digit before the point is lost
        ("decimal(10,2)", "decimal(12,1)", ChangeKind.BREAKING, RETYPED),
        ("array<int>", "array<bigint>", ChangeKind.WIDENING, WIDER),
        ("map<string,int>", "map<string,string>", ChangeKind.BREAKING, RETYPED),
        ("struct<a:int>", "struct<a:int,b:string>", ChangeKind.ADDITIVE, ADDED),
        ("struct<a:int>", "struct<b:string,a:int>", ChangeKind.ADDITIVE, ADDED),
        ("struct<a:int,b:string>", "struct<a:int>", ChangeKind.BREAKING, RETYPED),
        ("struct<a:int>", "struct<a:bigint,b:string>", ChangeKind.WIDENING, WIDER),
        ("array<struct<a:int>>", "array<struct<a:int,b:int>>", ChangeKind.ADDITIVE, ADDED),
        ("struct<a:struct<b:int>>", "struct<a:struct<b:string>,c:int>", ChangeKind.BREAKING, RETYPED),
    ],
)
def test_a_column_s_change_is_called_by_what_readers_see(
    old: str | None, new: str | None, kind: ChangeKind, readers: str
) -> None:
    change = the_change(old, new)
    assert (change.kind, change.readers) == (kind, readers)


@pytest.mark.parametrize(
    "changed, kind, readers",
    [
        ({"kafka_columns": frozenset({"key", "headers"})}, ChangeKind.ADDITIVE, ADDED),
        ({"past": timedelta(days=60)}, ChangeKind.BREAKING, OTHERWISE),
    ],
)
def test_every_other_term_has_its_kind_too(
    changed: dict[str, object], kind: ChangeKind, readers: str
) -> None:
    before = replace(RULES, kafka_columns=frozenset({"key"}))
    after = replace(before, **changed)  # type: ignore[arg-type]  # each key is a field of Rules
    [change] = contract_changes(before.contract("UTC", FIRST), after.contract("UTC", FIRST))
    assert (change.kind, change.readers) == (kind, readers)
    [back] = contract_changes(after.contract("UTC", FIRST), before.contract("UTC", FIRST))
    assert back.kind is ChangeKind.BREAKING


@pytest.mark.parametrize(
    "old, new, kind, readers",
    [
        (None, elsewhere("bigint", "a"), ChangeKind.ADDITIVE, ADDED),
        (elsewhere("int", "a"), elsewhere("bigint", "a"), ChangeKind.WIDENING, WIDER),
        (elsewhere("int", "a"), elsewhere("int", "b"), ChangeKind.BREAKING, OTHERWISE),
        (elsewhere("int"), elsewhere("int", "a"), ChangeKind.BREAKING, OTHERWISE),
        (elsewhere("int"), elsewhere("string", "a"), ChangeKind.BREAKING, RETYPED),
        (
            elsewhere("timestamp"),
            elsewhere("timestamp", written=Written(TimeFormat.EPOCH_MS)),
            ChangeKind.BREAKING,
            OTHERWISE,
        ),
    ],
)
def test_a_column_that_is_read_otherwise_keeps_its_readers(
    old: Column | None, new: Column, kind: ChangeKind, readers: str
) -> None:
    before, after = (
        replace(RULES, columns=(*RULES.columns, each) if each else RULES.columns).contract("UTC", FIRST)
        for each in (old, new)
    )
    [change] = contract_changes(before, after)
    assert (change.kind, change.readers) == (kind, readers)


def test_a_renamed_column_is_one_that_goes_and_one_that_comes() -> None:
    changes = contract_changes(contract(RULES, a="int"), contract(RULES, b="int"))
    assert [(change.text, change.kind) for change in changes] == [
        ('record.columns.a: "int" -> (none)', ChangeKind.BREAKING),
        ('record.columns.b: (none) -> "int"', ChangeKind.ADDITIVE),
    ]


TYPES = st.sampled_from(["int", "bigint", "struct<a:int>", "json"])
TERMS = st.dictionaries(st.sampled_from("abc"), TYPES, min_size=1)


@given(TERMS, TERMS)
def test_the_changes_are_those_that_the_contracts_list(old: dict[str, str], new: dict[str, str]) -> None:
    """No change is left out: what nobody classified would be accepted without a word."""
    before, after = contract(RULES, **old), contract(RULES, **new)
    changes = tuple(change.text for change in contract_changes(before, after))
    assert changes == after.changes_from(before)
    assert bool(changes) == (before != after)
