"""Writes what docs/ has from the code (CONFIG, MANIFEST, the examples of TYPES): `python -m tests.documents`.

Relies on the text below each field: of the config's schema, and of the values that a manifest is made of.
tests/unit/project/test_documents.py fails where a file is not what this writes, or a field has no text.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from pydantic import ByteSize
from pydantic.fields import FieldInfo

from jobs.config.problems import Problems
from jobs.config.read import section_of
from jobs.config.schema import ColumnSection, ConfigFile, RecordSection, Section
from jobs.config.strict_yaml import Tree, parse
from offsets.contract import Contract
from offsets.manifest import FORMAT_VERSION, Manifest
from offsets.manifest_text import LONG
from offsets.ranges import Listing
from tests import type_examples
from tests.support.local_engine import RULES

ROOT: Final = Path(__file__).parents[1]
COMMAND: Final = ".kafka-daily/venv/bin/python -m tests.documents"
EXAMPLE: Final = ROOT / "conf" / "example.yaml"
MANIFEST: Final = ROOT / "tests" / "data" / "manifest-of-the-demo.json"
COLUMN: Final = "delivered_at"
"""The column of the example that has every key of a column."""
COMMENTED_OUT: Final = re.compile(r"^(\s*)# (?=[a-z_]+: \S+$)", re.MULTILINE)
WIDTH: Final = 110
UNITS: Final = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}
HEAD: Final = (
    (
        "`format_version`",
        "number",
        f"The format, {FORMAT_VERSION} today. Formats 1 to {FORMAT_VERSION} are read.",
    ),
    (
        "`checksum`",
        "text",
        "The SHA-256 of the fields below, as JSON with sorted keys and no blanks, in UTF-8.",
    ),
)
"""What the text of a manifest says before the manifest's own fields."""

CONFIG_INTRO: Final = """\
# Every key of the configuration

Written from `jobs/config/schema.py` by `{command}`.
Do not edit it: edit the schema. [conf/example.yaml](../conf/example.yaml) is a file to begin with.

- **Names.** A key that is not here is an error, and so is one that is there twice. All problems are told at
  once, with exit code 2. A section may be left out where nothing in it is needed.
- **Text.** Each scalar is read by its key: `no`, `010` and `1:30` are never turned into something else.
- **References.** Each value may hold `${{env:NAME}}`, a variable of the environment, and
  `${{file:PATH}}`, the text of a file without the line ends after it. `$${{` stands for `${{`. A reference
  that leads nowhere is an error. A message about the configuration never repeats what came from one.
- **Secrets.** Below `kafka.security` the values of `username`, `password` and `key_password`, and all that
  came from a reference, are hidden from logs and messages. A password may stand in the file itself; a
  reference keeps it out of it.
- **Paths** count from the folder of the configuration. `~` is not read.
- **Durations** are `90s`, `15m`, `1h30m`, `30d`, `2w`, `250ms`, or ISO 8601's `PT1H`. **Sizes** are `256MiB`,
  `1GB` or a number of bytes. **Shares** are `0.1%` or `0.001`.
- **Later** says whether a lake that has days takes another value. yes: from the next run on. asks: it changes
  how records are read, so the next day ends with 25 until `--accept-contract` takes it. never: it needs a
  new lake.
"""
NEVER: Final = frozenset({("topic",), ("day", "first")})
"""The keys that a lake keeps."""

MANIFEST_INTRO: Final = """\
# Every field of a manifest

Written from `offsets/manifest.py` by `{command}`. Do not edit it: edit the text below the field.
`date=D/_manifest.json` is the commit record of day D, and the only truth about offsets. It is JSON, and is
read strictly: a field more or less, or a checksum that does not fit, is `LedgerBroken` (22). Ranges of
offsets are half-open, and instants are ISO 8601 in UTC.

## A real one
Of the second day of `./run.sh demo`. Lists are cut to their first entry here; all of it is in
[tests/data/manifest-of-the-demo.json](../tests/data/manifest-of-the-demo.json).
```
{excerpt}
```
"""

OFFSETS_TEXT: Final = """\
A set of offsets: sorted, half-open ranges that do not touch, as `[[28, 30], [41, 42]]`. A set of more than
{long} ranges is not in the text: in its place is a [Listing](#listing), and the set lies in
`_offsets.roaring` beside the manifest, in a bucket in `_ledger/D/RUN.lists`."""


def attribute_docs(of: type[object]) -> dict[str, str]:
    """Read the text below each field of a class, as it stands in its source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(of))).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def table(*rows: tuple[str, ...]) -> str:
    """Write a table; the first row is its head."""
    head, *others = (tuple(map(escaped, row)) for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *others))


def escaped(cell: str) -> str:
    """Escape what Markdown would read as its own signs, outside of code."""
    parts = cell.replace("|", "\\|").split("`")
    return "`".join(
        re.sub(r"[*<]", r"\\\g<0>", part) if at % 2 == 0 else part for at, part in enumerate(parts)
    )


# The configuration


def config_reference() -> str:
    """Write docs/CONFIG.md."""
    examples = parse(COMMENTED_OUT.sub(r"\1", EXAMPLE.read_text(encoding="utf-8")), Problems())
    parts = [CONFIG_INTRO.format(command=COMMAND)]
    for path, section in described():
        rows = [("key", "expected", "default", "later", "example", "meaning")]
        for name, field, meaning in keys(section):
            here = (*path, name)
            cells = (
                field.description or "",
                shown_default(field),
                later(here),
                shown_example(at(examples, here)),
                meaning,
            )
            rows.append((f"`{'.'.join(here)}`", *cells))
        title = f"`{'.'.join(path)}`" if path else "At the top"
        parts.append(f"## {title}\n{inspect.getdoc(section)}\n\n{table(*rows)}\n")
    return "\n".join(parts)


def described() -> Iterator[tuple[tuple[str, ...], type[Section]]]:
    """Return all sections, with that of one column after the section that columns are in."""
    for path, section in sections(ConfigFile):
        yield path, section
        if section is RecordSection:
            yield (*path, "columns", COLUMN), ColumnSection


def sections(
    of: type[Section], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], type[Section]]]:
    """Return a section and those below it, each with its path."""
    yield path, of
    for name, field in of.model_fields.items():
        if inner := section_of(field.annotation):
            yield from sections(inner, (*path, name))


def keys(section: type[Section]) -> Iterator[tuple[str, FieldInfo, str]]:
    """Return the keys of a section that hold values, each with what it means."""
    docs = attribute_docs(section)
    for name, field in section.model_fields.items():
        if not section_of(field.annotation):
            yield field.alias or name, field, docs.get(name, "")


def later(path: tuple[str, ...]) -> str:
    """Return whether a lake that has days takes another value of a key: yes, asks or never."""
    if path in NEVER:
        return "never"
    asking = contract_keys()
    return "asks" if any(path[:length] in asking for length in range(1, len(path) + 1)) else "yes"


def contract_keys() -> set[tuple[str, ...]]:
    """Return the keys that a contract is made of, by its own terms."""
    terms = RULES.contract("UTC", date.min).terms
    paths: set[tuple[str, ...]] = {("record", "key")}  # a term of its own where it is used
    for name, term in terms.items():
        inner = (
            [(name, key.removesuffix("_seconds")) for key in term] if isinstance(term, dict) else [(name,)]
        )
        paths.update(inner)
    return paths - {("decoder",)}


def at(tree: Tree, path: tuple[str, ...]) -> Tree:
    """Return what a tree holds at a path."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree


def shown_example(value: Tree) -> str:
    """Write an example as a line of YAML; of a mapping its first entry."""
    match value:
        case None:
            return ""
        case dict():
            return next((f"`{key}: {inner}`" for key, inner in value.items()), "")
        case list():
            return f"`[{', '.join(map(str, value))}]`"
        case _:
            return f"`{value}`"


def shown_default(field: FieldInfo) -> str:
    """Write a default as a configuration would."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    return f"`{default_text(value)}`" if value or isinstance(value, bool | int | float) else "none"


def default_text(value: object) -> str:
    """Write a value as a configuration would."""
    match value:
        case StrEnum():
            return value.value
        case bool():
            return str(value).lower()
        case timedelta():
            unit = next((unit for unit, length in UNITS.items() if not value % length), None)
            return f"{value // UNITS[unit]}{unit}" if unit else f"{value.total_seconds():g}s"
        case ByteSize():
            return f"{value // 2**20}MiB"
        case float():
            return f"{value * 100:g}%"
        case _:
            return str(value)


# The manifest


def manifest_reference() -> str:
    """Write docs/MANIFEST.md."""
    excerpt = "\n".join(laid_out(cut(json.loads(MANIFEST.read_text(encoding="utf-8")))))
    parts = [MANIFEST_INTRO.format(command=COMMAND, excerpt=excerpt)]
    for kind in kinds():
        rows = [("field", "type", "meaning"), *(HEAD if kind is Manifest else ())]
        rows += [(f"`{name}`", type_text(hint), meaning) for name, hint, meaning in fields(kind)]
        parts.append(f"## {kind.__name__}\n{first_paragraph(kind)}\n\n{table(*rows)}\n")
    for choices in enums():
        values = ", ".join(f"`{value}`" for value in choices)
        parts.append(f"## {choices.__name__}\nOne of {values}. {joined_doc(choices)}\n")
    parts.append("## Offsets\n" + OFFSETS_TEXT.format(long=LONG) + "\n")
    return "\n".join(parts)


def kinds() -> list[type[Any]]:
    """Return the dataclasses of a manifest's text, in the order in which they are met."""
    met: dict[type[Any], None] = {Manifest: None}
    waiting: list[type[Any]] = [Manifest]
    while waiting:
        for _, hint, _ in fields(waiting.pop(0)):
            for inner in parts_of(hint):
                if dataclasses.is_dataclass(inner) and inner not in met:
                    met[inner] = None
                    waiting.append(inner)
    return [*met, Listing]


def enums() -> list[type[StrEnum]]:
    """Return the enums of a manifest's text, in the order in which they are met."""
    inner = (part for kind in kinds() for _, hint, _ in fields(kind) for part in parts_of(hint))
    return list(dict.fromkeys(part for part in inner if issubclass(part, StrEnum)))


def fields(kind: type[Any]) -> Iterator[tuple[str, Any, str]]:
    """Return the fields of a dataclass with their types and meanings."""
    docs, hints = attribute_docs(kind), get_type_hints(kind)
    for field in dataclasses.fields(kind):
        yield field.name, hints[field.name], docs.get(field.name, "")


def parts_of(hint: Any) -> Iterator[type[Any]]:
    """Return the classes that a type is made of."""
    if get_origin(hint):
        for inner in get_args(hint):
            yield from parts_of(inner)
    elif isinstance(hint, type):
        yield hint


def type_text(hint: Any) -> str:
    """Write a type as the manifest's JSON has it."""
    plain = {str: "text", int: "number", bool: "true or false", datetime: "instant", date: "date"}
    if hint in plain:
        return plain[hint]
    if hint is Contract:
        return "object"
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if each is type(None) else type_text(each) for each in inner)
    if origin is tuple:
        return f"list of {type_text(inner[0])}"
    if origin is not None and issubclass(origin, Mapping):
        return "object of texts"
    return f"[{hint.__name__}](#{hint.__name__.lower()})"


def joined_doc(kind: type[object]) -> str:
    """Return the text of a class as one paragraph."""
    return " ".join((inspect.getdoc(kind) or "").split())


def first_paragraph(kind: type[object]) -> str:
    """Return the first paragraph of a class's text."""
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def cut(value: Any) -> Any:
    """Cut lists of values to the first one, and say how many there were."""
    match value:
        case dict():
            return {key: cut(inner) for key, inner in value.items()}
        case [first, _, *_] if not isinstance(first, int):
            return [cut(first), f"... and {len(value) - 1:,} more"]
        case list():
            return [cut(each) for each in value]
        case _:
            return value


def laid_out(value: Any, before: str = "", after: str = "", depth: int = 0) -> Iterator[str]:
    """Write JSON in lines, each as full as it can be."""
    indent = " " * depth
    line = f"{indent}{before}{json.dumps(value, ensure_ascii=False)}{after}"
    if not value or not isinstance(value, dict | list) or (depth and len(line) <= WIDTH):
        yield line
        return
    if isinstance(value, dict):
        entries = [(f"{json.dumps(name)}: ", inner) for name, inner in value.items()]
    else:
        entries = [("", inner) for inner in value]
    opened, closed = "{}" if isinstance(value, dict) else "[]"
    yield f"{indent}{before}{opened}"
    for number, (name, inner) in enumerate(entries, start=1):
        yield from laid_out(inner, name, "," if number < len(entries) else "", depth + 1)
    yield f"{indent}{closed}{after}"


DOCUMENTS: Final[Mapping[Path, Callable[[], str]]] = {
    ROOT / "docs" / "CONFIG.md": config_reference,
    ROOT / "docs" / "MANIFEST.md": manifest_reference,
    type_examples.PAGE: type_examples.type_reference,
}

if __name__ == "__main__":
    for path, written in DOCUMENTS.items():
        path.write_text(written(), encoding="utf-8")
        print(path)
