"""Reads a tree into the sections of a configuration, key by key, so that one wrong key hides no other.

Relies on pydantic for single fields. Never uses pydantic's error texts, since they repeat values: only
`shown` puts a value into a message. `checks` has the rules between keys.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from jobs.config.fields import InvalidValue
from jobs.config.problems import KeyPath, Problems, close_to, shown
from jobs.config.schema import ConfigFile, Section
from jobs.config.secrets import Secret

Model = TypeVar("Model", bound=BaseModel)


def section_of(annotation: object) -> type[Section] | None:
    """Return the section that a field holds, or None where it holds a value."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def keys_of(model: type[BaseModel]) -> list[str]:
    """Return the names that a config has for the fields; `from` cannot be the name of a field in Python."""
    return [field.alias or name for name, field in model.model_fields.items()]


def read(model: type[Model], tree: object, problems: Problems, path: KeyPath = ()) -> Model:
    """Read a tree into a model, key by key, so that one wrong key hides no other.

    The model holds each key that could be read and the defaults of the others. A required key that could not
    be read is absent, and `problems` has it.
    """
    if not isinstance(tree, dict | None):
        problems.add(path, f"expected a mapping of {', '.join(keys_of(model))}, found {shown(tree)}")
    unread = any(path[:depth] in problems for depth in range(len(path) + 1))
    branch = tree if isinstance(tree, dict) and not unread else {}
    values: dict[str, Any] = {}
    for name in [name for name in branch if name not in keys_of(model)]:
        problems.add((*path, name), "unknown key" + _known_keys(name, model))
    for (name, field), key in zip(model.model_fields.items(), keys_of(model), strict=True):
        key_path = (*path, key)
        if inner := section_of(field.annotation):
            values[name] = read(inner, branch.get(key), problems, key_path)
        elif key in branch and key_path not in problems:
            _read_value(model, name, branch[key], problems, key_path, values)
        elif field.is_required() and not unread:
            problems.add(key_path, f"is missing; expected {field.description}")
    return model.model_construct(set(branch) & set(values), **values)


def _read_value(
    model: type[BaseModel], name: str, value: object, problems: Problems, path: KeyPath, into: dict[str, Any]
) -> None:
    field = model.model_fields[name]
    try:
        assigned = model.__pydantic_validator__.validate_assignment(model.model_construct(), name, value)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        hint = "" if isinstance(value, Secret) else _hint(wrong)
        found = wrong["input"] if isinstance(value, list) else value  # of a list, the item that is wrong
        problems.add(path, f"expected {field.description}, found {shown(found)}{hint}")
    else:
        into[name] = getattr(cast(BaseModel, assigned), name)


def _hint(error: ErrorDetails) -> str:
    given, context = error["input"], error.get("ctx", {})
    if error["type"] in ("enum", "literal_error") and isinstance(given, str):
        return close_to(given, re.findall("'(.*?)'", context["expected"]))
    cause = context.get("error")
    return f"; {cause.hint}" if isinstance(cause, InvalidValue) and cause.hint else ""


def _known_keys(name: str, model: type[BaseModel]) -> str:
    elsewhere = {key.rpartition(".")[2]: key for key in all_keys(ConfigFile)}
    return close_to(name, keys_of(model)) or (
        f"; did you mean {elsewhere[name]}?"
        if name in elsewhere
        else f"; known are {', '.join(keys_of(model))}"
    )


def all_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """List the dotted paths of all keys, sections included."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        keys.append(f"{prefix}{name}")
        if inner := section_of(field.annotation):
            keys += all_keys(inner, f"{prefix}{name}.")
    return keys
