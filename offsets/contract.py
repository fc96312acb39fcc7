"""The contract that decides how records are decoded, and what a person accepted for one run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from offsets.checkpoint import LostOffsets


class Contract:
    """All settings that decide a record's verdict and bytes, as JSON; the order of keys does not matter."""

    def __init__(self, terms: Mapping[str, object]) -> None:
        """Take the terms; they must be JSON."""
        self.terms: dict[str, object] = json.loads(json.dumps(terms))

    def __eq__(self, other: object) -> bool:
        """Compare the canonical forms."""
        return isinstance(other, Contract) and self.canonical == other.canonical

    def __hash__(self) -> int:
        """Hash the canonical form."""
        return hash(self.canonical)

    @cached_property
    def canonical(self) -> str:
        """The terms with sorted keys and no blanks."""
        return json.dumps(self.terms, sort_keys=True, separators=(",", ":"))

    @property
    def first_day(self) -> date | None:
        """The lake's first day, if the terms name it."""
        day = self.terms.get("day")
        first = day.get("first") if isinstance(day, dict) else None
        return date.fromisoformat(first) if isinstance(first, str) else None

    def changes_from(self, older: Contract) -> tuple[str, ...]:
        """List each key that differs, as `key: old -> new`."""
        old, new = dict(_leaves((), older.terms)), dict(_leaves((), self.terms))
        keys = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
        return tuple(f"{_text(key)}: {old.get(key, '(none)')} -> {new.get(key, '(none)')}" for key in keys)


def _leaves(path: tuple[str, ...], value: object) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves((*path, key), inner)
    else:
        yield path, json.dumps(value)


def _text(path: tuple[str, ...]) -> str:
    """Write a path; a name with a dot in it stands in backticks, so that no two paths look alike."""
    return ".".join(f"`{name}`" if "." in name else name for name in path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What a person accepted for this one run."""

    contract: tuple[str, ...] = ()
    """Each changed term of the contract, as `key: old -> new` (`--accept-contract`); after a rebuild without
    a manifest also that nobody knows by which event time the day's late files were dated."""
    start: tuple[str, ...] = ()
    """New partitions that begin above offset 0, each as a sentence (`--accept-start`)."""
    loss: tuple[LostOffsets, ...] = ()
    """Offsets that Kafka lost before a day settled them (`--accept-loss`)."""

    @property
    def lost_offsets(self) -> int | None:
        """How many unsettled offsets were lost; None if a manifest up to format 3 does not say."""
        counts = [loss.unsettled for loss in self.loss]
        return None if None in counts else sum(filter(None, counts))
