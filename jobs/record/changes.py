"""What a change of the contract means for those who read the lake.

Pure. A change that it does not know counts as breaking.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from jobs.record.columns import Array, ColumnType, Decimal, Kind, Map, Scalar, Struct, parse_type
from offsets.contract import Contract


class ChangeKind(StrEnum):
    """How far a change reaches, the least first."""

    ADDITIVE = "additive"
    WIDENING = "widening"
    BREAKING = "breaking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One changed term; `text` is `term: old -> new`, and `readers` says who notices."""

    text: str
    kind: ChangeKind
    readers: str

    def __str__(self) -> str:
        """Return the change in one line."""
        return f"{self.text} ({self.kind}: {self.readers})"


ADDED = (
    "rows of earlier days lack it, but for late rows that still come, "
    "so who reads several days joins their columns by name"
)
WIDER = (
    "earlier days hold the narrower type, so who reads several days names the wider one: "
    "some readers cut what does not fit, without a word"
)
REMOVED = (
    "later days, and late rows that come to earlier days from now on, lack it, "
    "so a query that names it fails there or finds null"
)
RETYPED = (
    "days before and after hold different types: some readers convert one, others, Spark among them, "
    "refuse to read both"
)
OTHERWISE = "the columns stay; later records are read or filed by another rule"

_COLUMNS, _KAFKA_COLUMNS = "record.columns", "record.kafka_columns"
_READERS = {ChangeKind.ADDITIVE: ADDED, ChangeKind.WIDENING: WIDER, ChangeKind.BREAKING: RETYPED}
_ORDER = tuple(ChangeKind)
_WIDER = {
    Kind.INT: (Kind.BIGINT, Kind.DOUBLE),
    Kind.FLOAT: (Kind.DOUBLE,),
}


def contract_changes(old: Contract, new: Contract) -> tuple[Change, ...]:
    """Return each term in which the new contract differs from the old one, with what it means."""
    others = (text for text in new.changes_from(old) if not text.startswith(f"{_COLUMNS}."))
    return (*_column_changes(old, new), *(_other_change(text, old, new) for text in others))


def _column_changes(old: Contract, new: Contract) -> Iterator[Change]:
    before, after = _columns(old), _columns(new)
    for name in sorted(before.keys() | after.keys()):
        was, becomes = before.get(name), after.get(name)
        if was != becomes:
            kind, readers = _column_change(was, becomes)
            text = f"{_COLUMNS}.{name}: {_shown(was)} -> {_shown(becomes)}"
            yield Change(text=text, kind=kind, readers=readers)


def _columns(contract: Contract) -> dict[str, object]:
    columns = _record(contract).get("columns")
    return columns if isinstance(columns, dict) else {}


def _record(contract: Contract) -> dict[str, object]:
    record = contract.terms.get("record")
    return record if isinstance(record, dict) else {}


def _shown(value: object) -> str:
    return "(none)" if value is None else json.dumps(value)


def _column_change(old: object, new: object) -> tuple[ChangeKind, str]:
    if old is None:
        return ChangeKind.ADDITIVE, ADDED
    if new is None:
        return ChangeKind.BREAKING, REMOVED
    (old_type, old_rule), (new_type, new_rule) = _parts(old), _parts(new)
    kind = _type_change(parse_type(old_type), parse_type(new_type))
    if old_rule != new_rule:
        return ChangeKind.BREAKING, RETYPED if kind is ChangeKind.BREAKING else OTHERWISE
    return kind, _READERS[kind]


def _parts(term: object) -> tuple[str, dict[str, object]]:
    """Return a column's type, and how else it is read."""
    if not isinstance(term, dict):
        return str(term), {}
    return str(term["type"]), {key: value for key, value in term.items() if key != "type"}


def _other_change(text: str, old: Contract, new: Contract) -> Change:
    if text.startswith(f"{_KAFKA_COLUMNS}:"):
        before, after = (set(_strings(_record(each).get("kafka_columns"))) for each in (old, new))
        kind, readers = (ChangeKind.ADDITIVE, ADDED) if before <= after else (ChangeKind.BREAKING, REMOVED)
        return Change(text=text, kind=kind, readers=readers)
    return Change(text=text, kind=ChangeKind.BREAKING, readers=OTHERWISE)


def _strings(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _type_change(old: ColumnType, new: ColumnType) -> ChangeKind:
    """Return the kind of a change from one type to another; of equal types it is ADDITIVE."""
    match old, new:
        case _ if old == new:
            return ChangeKind.ADDITIVE
        case Scalar(before), Scalar(after) if after in _WIDER.get(before, ()):
            return ChangeKind.WIDENING
        case Decimal(), Decimal() if _holds(old, new):
            return ChangeKind.WIDENING
        case (Array(before), Array(after)) | (Map(before), Map(after)):
            return _type_change(before, after)
        case Struct(), Struct():
            return _struct_change(old, new)
        case _:
            return ChangeKind.BREAKING


def _holds(old: Decimal, new: Decimal) -> bool:
    return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale


def _struct_change(old: Struct, new: Struct) -> ChangeKind:
    after = {field.name: field.type for field in new.fields}
    kinds = [
        _type_change(field.type, after[field.name]) if field.name in after else ChangeKind.BREAKING
        for field in old.fields
    ]
    return max(kinds, key=_ORDER.index, default=ChangeKind.ADDITIVE)
