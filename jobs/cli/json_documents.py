"""What programs see, with --json: one document on stdout.

Formats only: reads neither lake nor broker. The names in a document stay: programs rely on them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from offsets.manifest import Manifest
from offsets.manifest_text import to_jsonable
from offsets.verdict import Verdict

if TYPE_CHECKING:
    from jobs.daily import Outcome
    from jobs.day.plan import Preview
    from jobs.topics import TopicResult


def print_document(value: object) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(to_jsonable(value), indent=1, ensure_ascii=False) + "\n")


def preview_document(preview: Preview, files: int | None) -> dict[str, object]:
    """Return what a run would do."""
    committed, planned, contract = preview.committed, preview.planned, preview.contract
    return {
        "due": preview.due,
        "next_day": preview.next_day,
        "due_at": preview.due_at,
        "committed": committed_document(committed, already=True) if committed else None,
        "unfinished_moves": preview.unfinished_moves,
        "plan": planned.plan if planned else None,
        "contract_changes": planned.changes if planned else contract.changes,
        "will_fail": contract.error.document() if contract.error else None,
        "warnings": planned.warnings if planned else (),
        "expected_rows": planned.plan.offsets if planned else None,
        "expected_files": files,
    }


def topics_document(results: Sequence[TopicResult], exit_code: int) -> dict[str, object]:
    """Return the result of each topic."""
    return {
        "topics": [
            {
                "topic": result.topic,
                "config": str(result.config),
                "days": [outcome_document(outcome) for outcome in result.outcomes],
                "failure": result.failure.document() if result.failure else None,
                "exit_code": result.exit_code,
            }
            for result in results
        ],
        "exit_code": exit_code,
    }


def outcome_document(outcome: Outcome) -> dict[str, object]:
    """Return what became of one day's records."""
    return {
        **committed_document(outcome.manifest, already=outcome.already),
        "amended": {str(day): rows for day, rows in outcome.amended.items()},
        "expired": outcome.expired,
        "also": {str(day): revision for day, revision in outcome.also.items()},
        "seconds": dict(outcome.seconds),
    }


def committed_document(manifest: Manifest, *, already: bool) -> dict[str, object]:
    """Return what a manifest holds about its day's records."""
    return {
        "day": manifest.day,
        "already": already,
        "revision": manifest.revision,
        "lossy": [str(lost) for lost in manifest.accepted.loss],
        "lost_offsets": manifest.accepted.lost_offsets,
        "run_id": manifest.run_id,
        "rows": {verdict.value: manifest.rows(verdict) for verdict in Verdict},
        "late_expired": manifest.late_expired,
        "gaps": sum(len(gap.offsets) for gap in manifest.gaps),
        "causes": manifest.causes,
        "files": manifest.files,
        "next": manifest.next,
    }
