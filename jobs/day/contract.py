"""Whether a run may settle a day under another contract than the day before."""

from __future__ import annotations

from datetime import date

from jobs.config import Evolve
from jobs.context import Pipeline
from jobs.record.changes import Change, ChangeKind, contract_changes
from offsets.contract import Contract
from offsets.errors import ContractChanged


def accepted_changes(
    pipeline: Pipeline, old: Contract, new: Contract, day: date, *, do: str
) -> tuple[Change, ...]:
    """Return how the contract changed from that of a day, where a person or `record.evolve` accepts that.

    Raises:
        ContractChanged: nobody does.
    """
    changes = contract_changes(old, new)
    adds = all(change.kind is ChangeKind.ADDITIVE for change in changes)
    if pipeline.accept.contract or (adds and pipeline.settings.evolve is Evolve.ADD) or not changes:
        return changes
    raise ContractChanged(
        expected=f"the contract of {day}",
        found="; ".join(map(str, changes)),
        do=do + (" Or write record.evolve: add, which takes what only adds." if adds else ""),
        changes=[change.text for change in changes],
    )
