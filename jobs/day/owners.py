"""The owners of damaged late files: the days whose manifests name them, which alone write them again.

Relies on the lake, and asks the broker whether it still holds what an owner was made of. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date

from jobs.context import Pipeline
from jobs.day.carry_over import find_carried_over
from jobs.day.old_day import OldDay
from jobs.day.plan_again import require_retained
from jobs.lake.refusals import in_short
from jobs.record.rules import Rules, rules_of
from offsets.errors import KafkaDailyError, OffsetsLost, TopicChanged
from offsets.manifest import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A day that brought late files to another, `into`, which lost them; `wanted` is built in the end."""

    manifest: Manifest
    targets: tuple[str, ...]
    into: date
    wanted: date

    @property
    def day(self) -> date:
        """The owner's own date."""
        return self.manifest.day.date

    def rules(self) -> Rules:
        """Return the recorded rules of the day.

        Raises:
            OffsetsLost: they cannot be read.
        """
        try:
            return rules_of(self.manifest.contract)
        except ValueError as error:
            raise OffsetsLost(expected="its contract", found=str(error), do="") from None

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the owner in the error that stops its rebuild, and what else helps."""
        try:
            yield
        except KafkaDailyError as stopped:
            files = in_short(self.targets)
            again = f"build {self.wanted} again (`run --date {self.wanted} --force`)."
            gone = isinstance(stopped, OffsetsLost | TopicChanged)
            raise type(stopped)(
                expected=f"{self.day}, which brought late rows to {self.into} that are damaged, to be built "
                f"again: {stopped.expected}",
                found=stopped.found,
                do=f"{self.day} stays as it is. Restore {files} from a backup, then {again}"
                if gone
                else f"{stopped.do} Then, or once {files} came back from a backup, {again}",
                **stopped.facts,
            ) from stopped


def find_owners(pipeline: Pipeline, owned: Mapping[str, Manifest], day: date) -> list[Owner]:
    """Return the owners of a day's files, theirs, and so on, the newest first.

    In this order each finds its own owners rebuilt. To rebuild them as they are found would take a level of
    the stack for each day, where a chain of days lost its late files. None is rebuilt if Kafka no longer
    holds what another was made of.
    """
    found = dict[date, Owner]()
    unread = list(_owners(owned, day, day))
    for owner in unread:
        if owner.day not in found:
            found[owner.day] = owner
            with owner.named():
                require_retained(pipeline, owner.manifest.spans)
                old = OldDay.read(pipeline.lake, pipeline.settings.topic, owner.day)
                unread += _owners(find_carried_over(old).owners, owner.day, day)
    return [found[date] for date in sorted(found, reverse=True)]


def require_owners_known(pipeline: Pipeline, owned: Mapping[str, Manifest], day: date) -> None:
    """Check that the days can be rebuilt which must follow the day itself, whose folder is gone."""
    for owner in _owners(owned, day, day):
        with owner.named():
            owner.rules()
            require_retained(pipeline, owner.manifest.spans)


def _owners(owned: Mapping[str, Manifest], into: date, wanted: date) -> Iterator[Owner]:
    for manifest in {manifest.day.date: manifest for manifest in owned.values()}.values():
        targets = tuple(target for target, owner in owned.items() if owner is manifest)
        yield Owner(manifest=manifest, targets=targets, into=into, wanted=wanted)
