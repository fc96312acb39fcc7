"""Whether a run may settle a day under another contract than the day before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import structlog

from jobs.config import Evolve
from jobs.context import Pipeline
from jobs.record.changes import Change, ChangeKind, contract_changes
from offsets.contract import Contract
from offsets.errors import ContractChanged
from offsets.manifest import Manifest

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextContract:
    """What the config's contract means for the next day: the changes that it takes, or its run's error."""

    changes: tuple[Change, ...] = ()
    error: ContractChanged | None = None

    def lines(self) -> list[str]:
        """Return a line for each change, or for the error."""
        lines = [
            f"would be accepted, {change.kind} {change.text}: {change.readers}" for change in self.changes
        ]
        if (error := self.error) is not None:
            lines.append(f"the next day will end with {error.exit_code} ({type(error).__name__}): {error}")
        return lines


def next_contract(pipeline: Pipeline, newest: Manifest | None) -> NextContract:
    """Compare the config's contract with that of the newest day, before the next one is due."""
    try:
        return NextContract(changes=changes_since(pipeline, newest))
    except ContractChanged as error:
        return NextContract(error=error)


def changes_since(pipeline: Pipeline, newest: Manifest | None) -> tuple[Change, ...]:
    """Return how the config's contract differs from that of the newest day, where that is accepted.

    Raises:
        ContractChanged: nobody accepts it.
    """
    if newest is None:
        return ()
    settings = pipeline.settings
    return accepted_changes(
        pipeline,
        newest.contract,
        settings.rules.contract(settings.day.zone, settings.day.first),
        expected=f"the contract of {newest.day.date}, the day before",
        do="Undo the change, or settle from the next day on under the new contract with --accept-contract; "
        "`plan --accept-contract` shows that day first.",
    )


def accepted_changes(
    pipeline: Pipeline, old: Contract, new: Contract, *, expected: str, do: str
) -> tuple[Change, ...]:
    """Return how the contract changed from an old one, where a person or `record.evolve` accepts that.

    Raises:
        ContractChanged: nobody does.
    """
    changes = contract_changes(old, new)
    adds = all(change.kind is ChangeKind.ADDITIVE for change in changes)
    if pipeline.accept.contract or (adds and pipeline.settings.evolve is Evolve.ADD) or not changes:
        return changes
    raise ContractChanged(
        expected=expected,
        found="; ".join(map(str, changes)),
        do=do + (" Or write record.evolve: add, which takes what only adds." if adds else ""),
        changes=[change.text for change in changes],
    )


def warn_of_changes(changes: tuple[Change, ...], day: date) -> None:
    """Log each accepted change of the contract, and what readers of the lake see of it."""
    for change in changes:
        log.warning(
            "the contract changed", day=str(day), change=change.text, kind=change.kind, readers=change.readers
        )
