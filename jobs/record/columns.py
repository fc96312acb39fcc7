"""The types that a column of a record can have, and the names that it cannot.

Relies on `time_format` and the standard library, because every command and every task imports it. Never
guesses: a type that is not understood to its last character is a ValueError with the correct form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from jobs.record.time_format import Written


class Kind(StrEnum):
    """The types without parts."""

    STRING = "string"
    BOOLEAN = "boolean"
    INT = "int"
    BIGINT = "bigint"
    FLOAT = "float"
    DOUBLE = "double"
    DATE = "date"
    TIMESTAMP = "timestamp"
    BINARY = "binary"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts; `written` is for times that are not read as their kind is by default."""

    kind: Kind
    written: Written | None = None


@dataclass(frozen=True, slots=True)
class Decimal:
    """An exact number of `precision` digits, `scale` of them behind the point."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class Array:
    """A list of values of one type."""

    element: ColumnType


@dataclass(frozen=True, slots=True)
class Struct:
    """An object with known fields."""

    fields: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Map:
    """An object with unknown fields, all of one type; the keys are strings."""

    value: ColumnType


@dataclass(frozen=True, slots=True)
class Column:
    """A named field of a record or of a struct; only a record's have more than name and type.

    `source` is the path in the record, empty where it is the name alone. `written` holds for all times in it.
    """

    name: str
    type: ColumnType
    source: tuple[str, ...] = ()
    written: Written | None = None

    @property
    def path(self) -> tuple[str, ...]:
        """Where the record holds the value."""
        return self.source or (self.name,)


ColumnType = Scalar | Decimal | Array | Struct | Map

MAX_PRECISION = 38
MAX_DEPTH = 32
"""How deep a type may nest; a record may nest 64 levels deep."""

RESERVED = ("date", "event_time", "kafka_")
"""Names of the lake's own columns, in any case; the last is a prefix. Readers take `date` from the folder."""

_KINDS = {kind.value: kind for kind in Kind} | {
    "integer": Kind.INT,
    "long": Kind.BIGINT,
    "real": Kind.FLOAT,
    "timestamp_ltz": Kind.TIMESTAMP,
}
_DECIMALS = ("decimal", "dec", "numeric")
_OTHERS = {
    "int": "tinyint byte smallint short int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64 number",
    "boolean": "bool",
    "string": "str text varchar char",
    "binary": "bytes",
    "timestamp": "datetime timestamp_ntz",
    "array<...>": "list",
    "struct<...>": "object",
    "json": "variant",
}
_INSTEAD = {other: ours for ours, others in _OTHERS.items() for other in others.split()}
_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<mark>[<>(),:]))")
_WORD = re.compile(r"\w+")


def name_problem(name: str) -> str | None:
    """Return why a column of a record cannot have a name, or None."""
    folded = name.casefold()
    if folded in RESERVED or folded.startswith(RESERVED[-1]):
        why = f"`{name}` is reserved (date, event_time and kafka_* in any case); the lake has its own"
        return f"{why}. Name the column otherwise, and write from: {name}"
    return field_problem(name)


def field_problem(name: str) -> str | None:
    """Return why neither a column nor a field can have a name, or None."""
    if not name.strip():
        return "a name must not be empty"
    if any(char in '"\\' or ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in name):
        return f"a name must not hold a double quote, a backslash or a control character: {name!r}"
    if any(0xD800 <= ord(char) < 0xE000 for char in name):
        return f"a name must be valid Unicode: {name!r}"
    return None


def duplicate_name(columns: tuple[Column, ...]) -> str | None:
    """Return which two names are equal or differ in case only, or None; most readers ignore case."""
    seen: dict[str, str] = {}
    for column in columns:
        if twin := seen.get(column.name.casefold()):
            return f"two fields of one name, without regard to case: `{twin}` and `{column.name}`"
        seen[column.name.casefold()] = column.name
    return None


def parse_type(text: str) -> ColumnType:
    """Read a type in the syntax of Spark's DDL, to its last character.

    A field name with other characters than letters, digits and `_` needs backticks.
    """
    parser = _Parser(text)
    type = parser.type(depth=1)
    parser.end()
    return type


def quoted(name: str) -> str:
    """Return a name in backticks, as any name may stand in a type."""
    return f"`{name.replace('`', '``')}`"


def _bare(name: str) -> str:
    return name if _WORD.fullmatch(name) else quoted(name)


def ddl(type: ColumnType, name: Callable[[str], str] = _bare) -> str:
    """Write a type in its canonical form; `parse_type` reads it back as the same type."""
    match type:
        case Scalar(kind):
            return kind.value
        case Decimal(precision, scale):
            return f"decimal({precision},{scale})"
        case Array(element):
            return f"array<{ddl(element, name)}>"
        case Map(value):
            return f"map<string,{ddl(value, name)}>"
        case Struct(fields):
            return f"struct<{','.join(f'{name(field.name)}:{ddl(field.type, name)}' for field in fields)}>"


def as_stored(type: ColumnType) -> ColumnType:
    """Return a type as files hold it: JSON is text there."""
    match type:
        case Scalar(kind):
            return Scalar(Kind.STRING if kind is Kind.JSON else kind)
        case Array(element):
            return Array(as_stored(element))
        case Map(value):
            return Map(as_stored(value))
        case Struct(fields):
            return Struct(tuple(Column(field.name, as_stored(field.type)) for field in fields))
        case _:
            return type


def kinds_in(type: ColumnType) -> set[Kind]:
    """Return the types without parts that a type is made of."""
    match type:
        case Scalar(kind):
            return {kind}
        case Array(inner) | Map(inner):
            return kinds_in(inner)
        case Struct(fields):
            return {kind for field in fields for kind in kinds_in(field.type)}
        case _:
            return set()


class _Parser:
    """Reads a type from left to right, one token ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._tokens()
        self.at = 0

    def _tokens(self) -> list[tuple[str, str]]:
        tokens, at, end = [], 0, len(self.text.rstrip())
        while at < end:
            token = _TOKEN.match(self.text, at)
            if token is None:
                bad = self.text[at:].lstrip()[:1]
                raise self.wrong(f"{bad!r} is not understood; names with such a character stand in backticks")
            tokens.append((token.lastgroup or "", token[token.lastgroup or 0]))
            at = token.end()
        return tokens

    def wrong(self, why: str) -> ValueError:
        return ValueError(f"type `{self.text.strip()}`: {why}")

    def take(self) -> tuple[str, str]:
        if self.at == len(self.tokens):
            raise self.wrong("it ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def sees(self, mark: str) -> bool:
        """Return whether a mark is the next token, and take it."""
        is_next = self.at < len(self.tokens) and self.tokens[self.at] == ("mark", mark)
        self.at += is_next
        return is_next

    def need(self, mark: str) -> None:
        if not self.sees(mark):
            next_token = f"`{self.tokens[self.at][1]}`" if self.at < len(self.tokens) else "its end"
            raise self.wrong(f"expected `{mark}`, found {next_token}")

    def end(self) -> None:
        if self.at < len(self.tokens):
            raise self.wrong(f"`{self.tokens[self.at][1]}` is too much")

    def type(self, depth: int) -> ColumnType:
        if depth > MAX_DEPTH:
            raise ValueError(f"a type may nest at most {MAX_DEPTH} levels deep")
        group, token = self.take()
        word = token.lower() if group == "word" else ""
        if word in _KINDS:
            return Scalar(_KINDS[word])
        if word in _DECIMALS:
            return self.decimal()
        match word:
            case "array":
                return Array(self.enclosed(depth))
            case "struct":
                return self.struct(depth)
            case "map":
                return self.map(depth)
            case _:
                raise self.wrong(f"there is no type `{token}`{_suggestion(word)}")

    def decimal(self) -> Decimal:
        if not self.sees("("):
            raise self.wrong("say how many digits, as in decimal(10,2)")
        precision = self.number()
        self.need(",")
        scale = self.number()
        self.need(")")
        if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
            raise self.wrong(f"decimal(p,s) needs 1 <= p <= {MAX_PRECISION} and 0 <= s <= p")
        return Decimal(precision, scale)

    def number(self) -> int:
        _, token = self.take()
        if not (token.isascii() and token.isdigit()):
            raise self.wrong(f"expected a number of digits, found `{token}`")
        return int(token) if len(token) < 9 else MAX_PRECISION + 1

    def enclosed(self, depth: int) -> ColumnType:
        self.need("<")
        element = self.type(depth + 1)
        self.need(">")
        return element

    def map(self, depth: int) -> Map:
        self.need("<")
        if self.type(depth + 1) != Scalar(Kind.STRING):
            raise self.wrong("the keys of a map are strings: map<string,...>")
        self.need(",")
        value = self.type(depth + 1)
        self.need(">")
        return Map(value)

    def struct(self, depth: int) -> Struct:
        self.need("<")
        fields = [self.field(depth)]
        while self.sees(","):
            fields.append(self.field(depth))
        self.need(">")
        if problem := duplicate_name(tuple(fields)):
            raise self.wrong(problem)
        return Struct(tuple(fields))

    def field(self, depth: int) -> Column:
        group, token = self.take()
        if group == "mark":
            raise self.wrong(f"expected the name of a field, found `{token}`")
        name = token[1:-1].replace("``", "`") if group == "quoted" else token
        if problem := field_problem(name):
            raise self.wrong(problem)
        self.sees(":")
        return Column(name, self.type(depth + 1))


def _suggestion(word: str) -> str:
    if word in _INSTEAD:
        return f"; write `{_INSTEAD[word]}`"
    near = get_close_matches(word, [*_KINDS, "decimal", "array", "struct", "map"], n=1)
    if near:
        return f"; did you mean `{near[0]}`?"
    return (
        f"; there are {', '.join(kind.value for kind in Kind)}, decimal(p,s), array<>, struct<>, map<string,>"
    )
