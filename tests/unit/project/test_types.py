"""The examples of docs/TYPES.md: what is said to be taken is taken, and each type has one."""

from __future__ import annotations

import json
import re
from decimal import Decimal

import pytest

from jobs.record.columns import Kind
from tests.type_examples import AT, HEADS, PAGE, ROW, decoded, outcome

TEXT = PAGE.read_text(encoding="utf-8")
TAKEN, REFUSED = (ROW.findall(TEXT.split(head)[1].split("\n## ")[0]) for head in HEADS)


@pytest.mark.parametrize("rows, taken", [(TAKEN, True), (REFUSED, False)])
def test_an_example_stands_in_the_table_that_it_belongs_to(rows: list[tuple[str, ...]], taken: bool) -> None:
    assert len(rows) > 10
    assert [row for row in rows if outcome(row[1], row[2]).startswith("`") is not taken] == []


def test_the_page_has_an_example_of_each_type() -> None:
    kinds = {kind.value for kind in Kind} | {"decimal", "array", "struct", "map"}
    assert kinds - {re.split(r"[(<]", row[1])[0] for row in TAKEN} == set()


def test_the_whole_record_of_the_page_is_valid() -> None:
    (columns,) = re.findall(r"<!-- columns: (.+) -->", TEXT)
    types = dict(pair.split(" ", 1) for pair in re.split(r", (?=\w+ )", columns))
    (text,) = re.findall(r"```json\n(.+?)```", TEXT, re.DOTALL)
    found = decoded(types, json.dumps(json.loads(text) | {"happened": AT}))
    assert found.cause.to_pylist() == [None]
    values = {name: column[0].as_py() for name, column in zip(types, found.columns, strict=True)}
    assert values["address"] == {"city": "Utrecht", "zip": None}
    assert values["tags"] == ["new", None]
    assert values["amount"] == Decimal("12.50")
    assert values.keys() == types.keys()
