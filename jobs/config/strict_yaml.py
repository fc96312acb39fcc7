"""YAML as it is written: every scalar stays text until a field of the schema reads it.

So `no`, `1:30` and `0010` keep their text. Relies on PyYAML's event parser. Refuses duplicate keys, keys that
are not text, anchors, aliases and tags, each with its line. Never repeats a value, which may be a secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import yaml

from jobs.config.problems import KeyPath, Problems

Tree: TypeAlias = "str | list[Tree] | dict[str, Tree] | None"

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_NO_TEXT = "?"
_DEEPEST = 20
_FLOW_HINT = "inside { } or [ ] put the value in quotes, or write one key a line instead"


class NotYaml(ValueError):
    """The text cannot be parsed; the message names the line."""


def parse(text: str, problems: Problems) -> Tree:
    """Read one YAML document; add refusals to `problems`; raise NotYaml where nothing can be read."""
    try:
        return _Builder(yaml.parse(text, Loader=yaml.SafeLoader), problems).document()
    except yaml.MarkedYAMLError as error:
        raise NotYaml(_syntax(error, text)) from None
    except yaml.YAMLError:
        raise NotYaml("the file holds characters that YAML does not allow") from None
    except NotYaml:
        raise
    except (ValueError, OverflowError):  # PyYAML raises these for "\UFFFFFFFF"
        raise NotYaml("it is not YAML: an escape names a character that there is not") from None


def _syntax(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark or error.context_mark
    number = mark.line + 1 if mark else 1
    line = text.splitlines()[number - 1] if mark and mark.line < len(text.splitlines()) else ""
    problem = "a tag (!) is not read" if "tag" in (error.problem or "") else error.problem or "not YAML"
    flow = "flow" in (error.context or "") or ("${" in line and "{" in line.replace("${", ""))
    begun = error.context_mark.line + 1 if error.context_mark else number
    since = f" of what begins in line {begun}" if begun != number else ""
    return f"line {number} is not YAML: {problem}{since}" + (f"; {_FLOW_HINT}" if flow else "")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def _marked(event: yaml.Event) -> bool:
    return bool(getattr(event, "anchor", None) or getattr(event, "tag", None))


def _kind(key: yaml.ScalarEvent) -> str:
    """Return the kind that YAML 1.1 reads a plain key as: str, bool, int, null, timestamp, merge..."""
    if not key.implicit[0]:
        return "str"
    # PyYAML's stubs leave its resolver untyped
    tag = yaml.resolver.Resolver().resolve(yaml.ScalarNode, key.value, key.implicit)  # type: ignore[no-untyped-call]
    return str(tag).rpartition(":")[2]


class _Builder:
    """Turns parser events into a tree, and adds refusals to the problems."""

    def __init__(self, events: Iterator[yaml.Event], problems: Problems) -> None:
        self._events, self._problems = events, problems

    def document(self) -> Tree:
        """Read the only document of a stream."""
        tree: Tree = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise NotYaml(
                        f"line {_line(event)} starts a second document; one file describes one topic"
                    )
                tree = self._node(next(self._events), ())
        return tree

    def _node(self, event: yaml.Event, path: KeyPath) -> Tree:
        if len(path) > _DEEPEST:
            raise NotYaml(f"line {_line(event)} is nested deeper than {_DEEPEST} levels")
        if isinstance(event, yaml.AliasEvent) or _marked(event):
            self._problems.add(
                path,
                f"line {_line(event)} begins with *, & or !, signs of YAML itself; put it in quotes",
            )
        match event:
            case yaml.ScalarEvent():
                self._require_whole(event, path)
                return None if event.implicit[0] and event.value in _NULLS else str(event.value)
            case yaml.SequenceStartEvent():
                return self._list(path)
            case yaml.MappingStartEvent():
                return self._mapping(path, flow=bool(event.flow_style), line=_line(event))
            case _:
                return None

    def _require_whole(self, event: yaml.ScalarEvent, path: KeyPath) -> None:
        if any("\ud800" <= char <= "\udfff" for char in event.value):
            self._problems.add(
                path,
                f"line {_line(event)} holds half a character (\\uD800 to \\uDFFF); write the whole one",
            )

    def _list(self, path: KeyPath) -> Tree:
        items: list[Tree] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, str(len(items) + 1))))
        return items

    def _mapping(self, path: KeyPath, *, flow: bool, line: int) -> Tree:
        keys: list[tuple[str, yaml.Event]] = []
        values: list[Tree] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = event.value if isinstance(event, yaml.ScalarEvent) else _NO_TEXT
            if not isinstance(event, yaml.ScalarEvent):
                self._node(event, (*path, key))
            keys.append((key, event))
            values.append(self._node(next(self._events), (*path, key)))
        pairs = {key: value for (key, _), value in zip(keys, values, strict=True)}
        if flow and any(
            value is None or _half_bracketed(key) or _half_bracketed(value) for key, value in pairs.items()
        ):
            # the problem names no key, since a key may be the rest of a secret: {password: one,two}
            self._problems.add(path, f"a comma ends a value in the {{ }} of line {line}; {_FLOW_HINT}")
        else:
            self._check_keys(keys, path)
        return pairs

    def _check_keys(self, keys: list[tuple[str, yaml.Event]], path: KeyPath) -> None:
        """Add the keys that are not text, and duplicate keys, to the problems."""
        lines: dict[str, int] = {}
        for key, event in keys:
            line = _line(event)
            if isinstance(event, yaml.ScalarEvent):
                self._require_whole(event, (*path, key))
            if not isinstance(event, yaml.ScalarEvent):
                self._problems.add((*path, key), f"the key in line {line} is no text; {_FLOW_HINT}")
            elif (kind := _kind(event)) != "str":
                self._problems.add(
                    (*path, key),
                    f'the key in line {line} is a YAML {kind}, not text; write "{key}", in quotes',
                )
            elif key in lines:
                self._problems.add(
                    (*path, key), f"is there twice, in lines {lines[key]} and {line}; keep one"
                )
            lines.setdefault(key, line)


def _half_bracketed(part: Tree) -> bool:
    """Return whether a text has half a pair of brackets, as in `decimal(10`."""
    return isinstance(part, str) and any(part.count(a) != part.count(b) for a, b in ("()", "<>"))
