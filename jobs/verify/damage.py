"""Sort the problems of a lake by what brings its days back: which are gone, unreadable, or hold other files.

Reads names alone, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import date
from itertools import pairwise

from jobs.lake.names import OURS, RUN, below, brought_by, day_ref
from jobs.lake.port import Lake
from jobs.verify.advice import Damage, is_not_ours
from jobs.verify.manifests import Chain
from offsets.days import ONE_DAY
from offsets.errors import StoreFailed


def find_damage(lake: Lake, chain: Chain, problems: Mapping[date | None, Collection[str]]) -> Damage:
    """Sort the days with problems; those under None, of names beside the days, are of a whole lake."""
    if None not in problems:
        return Damage(partial=any(problems.values()))
    own = {day: of_day for day, of_day in problems.items() if day}
    days = _Days(lake, chain)
    gone = days.gone(look_for_late=any(problems.values()))
    damaged = [day for day in own if day in chain.known and not all(map(is_not_ours, own[day]))]
    return Damage(
        gone=tuple(gone),
        unreadable=tuple(day for day in own if day in chain.broken and days.is_ours(day)),
        others=tuple(day for day in damaged if day - ONE_DAY not in gone),
        holds_others=tuple(day for day in own if any(map(is_not_ours, own[day]))),
    )


class _Days:
    """The days of a lake, by what its ledger, its manifests and its files say."""

    def __init__(self, lake: Lake, chain: Chain) -> None:
        self._lake, self._chain, self._entered = lake, chain, set(lake.entries())

    def gone(self, *, look_for_late: bool) -> list[date]:
        """List the committed days without a folder: with an entry, between others, or known by late files."""
        days = [day for day in self._chain.days if self.is_ours(day)]
        entered = {day for day in self._entered if not self._chain.has_expired(day)}
        between = {first + ONE_DAY for first, after in pairwise(days) if after != first + ONE_DAY}
        brought = self._brought_by_none() if look_for_late else set()
        first = {self._chain.named_first} if self._chain.named_first else set()
        missing = (entered | between | brought | first) - set(self._chain.days)
        return sorted(day for day in missing if not self._is_new(day))

    def _is_new(self, day: date) -> bool:
        """Return whether a run has committed a day since the chain was read."""
        with suppress(StoreFailed):
            return self._lake.has_manifest(day)
        return False

    def _brought_by_none(self) -> set[date]:
        """Return days after the newest readable one whose late files lie in others, as `plan` finds them."""
        newest = max(self._chain.known, default=None)
        if newest is None:
            return set()
        with suppress(StoreFailed):
            late = self._lake.late_files(self._chain.known, newest, None)
            ours = (brought_by(ref) for ref in late if RUN.search(ref))
            return {day for day in ours if day and day > newest}
        return set()

    def is_ours(self, day: date) -> bool:
        """Return whether a folder is that of a committed day, and not one that somebody else made."""
        known, folder = self._chain.known, day_ref(day)
        first = self._chain.named_first or min(known, default=date.max)
        if day in known or day in self._entered or first <= day < max(known, default=date.min):
            return True
        with suppress(StoreFailed):
            return any(OURS.fullmatch(below(ref, folder)) for ref in self._lake.files_below(folder))
        return False
