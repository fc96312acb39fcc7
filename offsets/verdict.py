"""The verdicts: each record gets exactly one."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What becomes of one record in one run, in the order of the rule; the manifest counts each verdict.

    ALREADY_SETTLED is in an earlier day, and is not written again. SKIPPED and BEFORE_FIRST are not written
    either. LATER_DAY stays in Kafka, and its offset is pending. The others are rows of files in the day's
    folder.
    """

    ALREADY_SETTLED = "already_settled"
    SKIPPED = "skipped"
    INVALID = "invalid"
    BEFORE_FIRST = "before_first"
    LATER_DAY = "later_day"
    LATE = "late"
    IN_DAY = "in_day"


IN_FILES = (Verdict.IN_DAY, Verdict.LATE, Verdict.INVALID)
"""The verdicts whose rows a day keeps in files."""
