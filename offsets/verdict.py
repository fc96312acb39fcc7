"""What becomes of a record: one verdict each."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What becomes of one record in one run, in the order of the rule; each is counted in the manifest.

    ALREADY_SETTLED: an earlier day holds it, and it goes nowhere. SKIPPED and BEFORE_FIRST go nowhere either.
    LATER_DAY stays in Kafka, and its offset is pending. The others are rows of files, below the day's folder.
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
