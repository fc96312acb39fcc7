"""Reads a tree into the sections of a configuration, key by key, so that one wrong key hides no other.

Relies on pydantic for single fields, never for their error texts: only `shown` puts a value into a
message. Rules between keys are not here but in `checks`.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from jobs.config.fields import InvalidValue
from jobs.config.problems import KeyPath, Problems, close_to, shown
from jobs.config.schema import ConfigFile, Section

Model = TypeVar("Model", bound=BaseModel)


def section_of(annotation: object) -> type[Section] | None:
    """Return the section that a field holds, or None where it holds a value."""
    return annotation if isinstance(annotation, type) and issubclass(annotation, Section) else None


def read(model: type[Model], tree: object, problems: Problems, path: KeyPath = ()) -> Model:
    """Read a tree into a model, key by key, so that one wrong key hides no other.

    What comes back holds each key that could be read and the defaults of the rest; a required key that
    could not be read is absent, and `problems` says so.
    """
    branch = tree if isinstance(tree, dict) else {}
    if tree is not None and branch is not tree:
        problems.add(path, f"expected a mapping of {', '.join(model.model_fields)}, found {shown(tree)}")
    if problems.at(path):
        return _unread(model)
    values: dict[str, Any] = {}
    for name in [name for name in branch if name not in model.model_fields]:
        problems.add((*path, name), "unknown key" + _place_of(name, model))
    for name, field in model.model_fields.items():
        here = (*path, name)
        if inner := section_of(field.annotation):
            values[name] = read(inner, branch.get(name), problems, here)
        elif name in branch and not problems.at(here):
            _read_value(model, name, branch[name], problems, here, values)
        elif field.is_required():
            problems.add(here, f"is missing; expected {field.description}")
    return model.model_construct(set(branch) & set(values), **values)


def _unread(model: type[Model]) -> Model:
    inner = {name: section_of(field.annotation) for name, field in model.model_fields.items()}
    return model.model_construct(
        set(), **{name: _unread(section) for name, section in inner.items() if section}
    )


def _read_value(
    model: type[BaseModel], name: str, value: object, problems: Problems, path: KeyPath, into: dict[str, Any]
) -> None:
    field = model.model_fields[name]
    try:
        one = model.__pydantic_validator__.validate_assignment(model.model_construct(), name, value)
    except ValidationError as error:
        cause = error.errors(include_url=False, include_input=False)[0].get("ctx", {}).get("error")
        hint = cause.hint if isinstance(cause, InvalidValue) else ""
        problems.add(
            path, f"expected {field.description}, found {shown(value)}" + (f"; {hint}" if hint else "")
        )
    else:
        into[name] = getattr(cast(BaseModel, one), name)


def _place_of(name: str, model: type[BaseModel]) -> str:
    elsewhere = {key.rpartition(".")[2]: key for key in all_keys(ConfigFile)}
    return close_to(name, model.model_fields) or (
        f"; did you mean {elsewhere[name]}?"
        if name in elsewhere
        else f"; known are {', '.join(model.model_fields)}"
    )


def all_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """List the dotted paths of all keys, sections included."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        keys.append(f"{prefix}{name}")
        if inner := section_of(field.annotation):
            keys += all_keys(inner, f"{prefix}{name}.")
    return keys
