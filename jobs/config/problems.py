"""What is wrong with a configuration, collected until all of it is known.

Pure. A problem names the path of the key, what was expected and what was found. Never shows a value that may
be secret, and never raises.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from jobs.config.secrets import ResolvedText, Secret

KeyPath = tuple[str, ...]

SHOWN_LENGTH = 60


class Problems(dict[KeyPath, str]):
    """What a person must correct, by the paths of keys; the first problem at a path counts."""

    def add(self, path: KeyPath, problem: str) -> None:
        """Note a problem, unless its path has one already."""
        self.setdefault(path, problem)

    def touch(self, *paths: KeyPath) -> bool:
        """Return whether a problem lies at, above or below one of the paths."""
        return any(_share(path, known) for path in paths for known in self)


def _share(a: KeyPath, b: KeyPath) -> bool:
    return all(x == y for x, y in zip(a, b, strict=False))


def dotted(path: KeyPath) -> str:
    """Write a path as `day.grace`; a key that cannot be printed is written with escapes."""
    return ".".join(key if key.isprintable() else repr(key) for key in path)


def shown(value: object) -> str:
    """Return a value as text for a message, without the value itself where it may be a secret."""
    match value:
        case None:
            return "nothing"
        case Secret() | ResolvedText():
            return value.origin
        case str() if "\n" in value or "-----" in value:
            return f"a text of {len(value)} characters"
        case str() if len(value) > SHOWN_LENGTH:
            return repr(value[:SHOWN_LENGTH]) + "..."
        case str():
            return repr(value)
        case dict():
            return "a mapping"
        case list():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def close_to(word: str, choices: Iterable[str]) -> str:
    """Return `; did you mean X?` for the choice that is nearest to a word, or an empty text."""
    by_lower = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""
