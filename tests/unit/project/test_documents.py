"""The references below docs/ are what the code gives, and leave out no key and no field."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from jobs.config.problems import Problems, dotted
from jobs.config.read import read
from jobs.config.schema import ColumnSection, ConfigFile
from offsets.manifest import Manifest
from offsets.manifest_text import from_json, to_json
from offsets.ranges import Listing, Offsets
from tests import documents
from tests.support.manifests import full

PAGES = [
    documents.ROOT / "README.md",
    *(page for page in (documents.ROOT / "docs").rglob("*.md") if page.name != "MANIFEST.md"),
]
LINK = re.compile(r"\]\(([^)#]+)\)")
NAMED = re.compile(r"`((?:jobs|offsets|tests|docs|conf)/[\w./-]+)`")
LEAVES = [
    (path, name, field)
    for path, section in documents.sections(ConfigFile)
    for name, field, _ in documents.keys(section)
]


@pytest.mark.parametrize("path", documents.DOCUMENTS, ids=lambda path: path.name)
def test_a_reference_is_what_the_code_gives(path: Path) -> None:
    if path.read_text(encoding="utf-8") != documents.DOCUMENTS[path]():
        pytest.fail(
            f"expected {path.name} as the code gives it, found another text; run `{documents.COMMAND}`"
        )


def test_every_key_of_the_configuration_says_what_it_means_and_what_is_expected() -> None:
    silent = [
        dotted((*path, name))
        for path, section in documents.described()
        for name, field, meaning in documents.keys(section)
        if not (meaning and field.description)
    ]
    assert silent == []


def test_every_field_of_a_manifest_says_what_it_means() -> None:
    silent = [
        f"{kind.__name__}.{name}"
        for kind in documents.kinds()
        for name, _, meaning in documents.fields(kind)
        if not meaning
    ]
    assert silent == []


def test_every_key_has_an_example_in_the_reference() -> None:
    rows = [line.split(" | ") for line in documents.config_reference().splitlines() if line.startswith("| `")]
    assert len(rows) == len(LEAVES) + len(ColumnSection.model_fields)
    assert [row[0] for row in rows if not row[4].strip()] == []


def test_each_term_of_the_contract_is_a_key_that_asks_or_that_a_lake_keeps() -> None:
    asking = {(*path, name) for path, name, _ in LEAVES if documents.later((*path, name)) == "asks"}
    terms = documents.contract_keys() - {("day", "first")}
    assert {term for term in terms for path in asking if path[: len(term)] == term} == terms
    assert documents.later(("lake", "path")) == documents.later(("invalid", "limit")) == "yes"


def test_a_default_in_the_reference_reads_as_the_default() -> None:
    unlike = []
    for path, name, field in LEAVES:
        if (shown := documents.shown_default(field)) not in ("required", "none"):
            problems = Problems()
            written = read(ConfigFile, nested((*path, name), shown.strip("`")), problems)
            default = field.get_default(call_default_factory=True, validated_data={})
            if value_at(written, (*path, name)) != default or problems.touch((*path, name)):
                unlike.append(dotted((*path, name)))
    assert unlike == []


def test_a_key_is_required_in_the_reference_where_the_loader_misses_it() -> None:
    problems = Problems()
    read(ConfigFile, {}, problems)
    required = [(*path, name) for path, name, field in LEAVES if documents.shown_default(field) == "required"]
    assert sorted(required) == sorted(problems)


def test_each_name_in_a_written_manifest_is_in_the_reference() -> None:
    listed = {f"`{field.name}`" for field in dataclasses.fields(Listing)}
    rows = [line.split(" | ") for line in documents.manifest_reference().splitlines()]
    known = {row[0].removeprefix("| ") for row in rows if row[0].startswith("| `")}
    long = dataclasses.replace(full(), gaps=tuple(many_gaps()))
    assert listed <= {f"`{name}`" for name in names(json.loads(to_json(long)))} <= known


def test_the_manifest_that_is_shown_is_one_that_can_be_read() -> None:
    text = documents.MANIFEST.read_bytes()
    assert isinstance(from_json(text, documents.MANIFEST.name), Manifest)


def test_each_file_that_a_page_names_is_there() -> None:
    named: set[tuple[str, Path]] = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        links = (link for link in LINK.findall(text) if "://" not in link)
        named |= {(page.name, page.parent / link) for link in links}
        named |= {(page.name, documents.ROOT / name) for name in NAMED.findall(text)}
    assert len(named) > 50, "the patterns find no names any more"
    assert sorted((page, str(path)) for page, path in named if not path.exists()) == []


def test_the_architecture_names_each_room_and_the_floors_as_they_are_held() -> None:
    text = (documents.ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = {
        path.parent for room in ("jobs", "offsets") for path in documents.ROOT.glob(f"{room}/**/__init__.py")
    }
    rooms = {f"`{path.relative_to(documents.ROOT)}/`" for path in packages}
    assert {room for room in rooms if f"| {room} |" not in text} == set()
    project = tomllib.loads((documents.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    held = {each["containers"][0]: each["layers"] for each in contracts if each["type"] == "layers"}
    head, *lines = text.split("```")[1].strip().splitlines()
    names = [*re.finditer(r"\S+", head)]
    columns = {
        name[0]: [line[name.start() : after.start() if after else None] for line in lines]
        for name, after in zip_longest(names, names[1:])
    }
    assert {name: [cell.strip() for cell in cells if cell.strip()] for name, cells in columns.items()} == held


def test_what_the_readme_shows_of_a_manifest_is_in_the_real_one() -> None:
    manifest = from_json(documents.MANIFEST.read_bytes(), documents.MANIFEST.name)
    readme = (documents.ROOT / "README.md").read_text(encoding="utf-8")
    before, file = manifest.consumed.partitions[0], manifest.files[0]
    first = next(iter(before.pending))
    offsets = json.dumps(dataclasses.asdict(file.offsets[0]))
    assert f'"seen_until": {before.seen_until}, "pending": [{list(first)}' in readme
    assert f'"path": "{file.path}", "verdict": "{file.verdict}", "rows": {file.rows}' in readme
    assert f'"bytes": {file.bytes}, "sha256": "{file.sha256[:8]}' in readme
    assert f'"offsets": [{offsets}' in readme


def nested(path: tuple[str, ...], value: str) -> object:
    tree: object = value
    for name in reversed(path):
        tree = {name: tree}
    return tree


def value_at(config: object, path: tuple[str, ...]) -> object:
    for name in path:
        config = getattr(config, name)
    return config


def many_gaps() -> Iterator[Any]:
    offsets = Offsets([(at, at + 1) for at in range(0, 400, 2)])
    for gap in full().gaps:
        yield dataclasses.replace(gap, offsets=offsets)


def names(value: object) -> Iterator[str]:
    """Return the names of a manifest's text, but those of the contract and of the versions."""
    match value:
        case dict():
            yield from value
            for name, inner in value.items():
                if name not in ("contract", "versions"):
                    yield from names(inner)
        case list():
            for inner in value:
                yield from names(inner)
        case _:
            pass
