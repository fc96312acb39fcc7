"""What a soak counted, and how it is shown.

Relies on rich to draw. Counts only what was done: a kill that came too late to hit anything is none.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from tests.soak.kill_points import Step
from tests.soak.processes import Victim


@dataclass(slots=True)
class Tally:
    """What has been done so far."""

    kills: Counter[tuple[Victim, Step]] = field(default_factory=Counter)
    runs: int = 0
    ended: int = 0
    lakes: int = 0
    checks: int = 0
    checked: int = 0
    orphans: int = 0

    @property
    def dealt(self) -> int:
        """How many kills there were."""
        return self.kills.total()


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """What a soak found; it ends with one only where every lake was exact at every look."""

    seed: int
    produced: int
    tally: Tally
    seconds: float
    kept: Path | None

    def document(self) -> dict[str, object]:
        """Give the result as one JSON-able document."""
        return {
            "exact": True,
            "seed": self.seed,
            "kills": self.tally.dealt,
            "by_victim_and_step": {
                victim.value: {step.value: self.tally.kills[victim, step] for step in Step}
                for victim in Victim
            },
            "runs": self.tally.runs,
            "ended_by_themselves": self.tally.ended,
            "lakes": self.tally.lakes,
            "produced": self.produced,
            "checks": self.tally.checks,
            "records_checked": self.tally.checked,
            "orphans": self.tally.orphans,
            "seconds": round(self.seconds, 1),
            "kept": str(self.kept) if self.kept else None,
        }

    def table(self) -> Table:
        """Draw the kills, by victim and step."""
        table = Table(title=f"{self.tally.dealt} kills, by victim and step")
        for name in ("", *(victim.value for victim in Victim), "all"):
            table.add_column(name, justify="right" if name else "left")
        kills = self.tally.kills
        for step in Step:
            row = [kills[victim, step] for victim in Victim]
            table.add_row(step.value, *map(str, row), str(sum(row)))
        sums = [sum(kills[victim, step] for step in Step) for victim in Victim]
        table.add_section()
        table.add_row("all", *map(str, sums), str(sum(sums)))
        return table

    def summary(self) -> str:
        """Say the rest in a few lines."""
        tally = self.tally
        return (
            f"{tally.runs} runs over {tally.lakes} lakes, {tally.ended} of them ended by themselves; "
            f"{self.produced:,} records, exact at each of {tally.checks} looks "
            f"({tally.checked:,} records looked at)\n"
            f"{tally.orphans} orphans in staging, {self.seconds:,.0f} s, seed {self.seed}"
            + (f"\nKept: {self.kept}" if self.kept else "")
        )
