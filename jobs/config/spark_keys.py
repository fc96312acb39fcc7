"""Which of Spark's settings a configuration may hold, and which the job fixes, each with its reason.

Checks names only: Spark itself checks the values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_JARS = "the jars are pinned and resolved at set-up"
_PYTHON = "the workers must run this very interpreter and this code"
_SECRETS = "it keeps secrets out of logs and plans"
_CLASSIC = "the tasks need a classic session, not Spark Connect"

FIXED: Mapping[str, str] = {
    "spark.sql.session.timezone": "instants are compared in UTC; a day's zone is day.zone",
    "spark.speculation": "a second attempt at a task would read and write the same records again",
    "spark.sql.execution.arrow.*": "the job bounds its batches itself",
    "spark.sql.sources.usev1sourcelist": "exact spans need the V2 Kafka source",
    "spark.submit.deploymode": "this process is the driver, and holds the lake's lock",
    "spark.submit.pyfiles": _PYTHON,
    "spark.jars": _JARS,
    "spark.jars.*": _JARS,
    "spark.driver.extraclasspath": _JARS,
    "spark.executor.extraclasspath": _JARS,
    "spark.pyspark.*": _PYTHON,
    "spark.python.use.daemon": _PYTHON,
    "spark.python.daemon.module": _PYTHON,
    "spark.python.worker.module": _PYTHON,
    "spark.executorenv.pyspark_python": _PYTHON,
    "spark.executorenv.pythonpath": _PYTHON,
    "spark.executorenv.pythonsafepath": _PYTHON,
    "spark.redaction.regex": _SECRETS,
    "spark.sql.redaction.*": _SECRETS,
    "spark.remote": _CLASSIC,
    "spark.api.mode": _CLASSIC,
    "spark.ui.showconsoleprogress": "its bar would run through the job's own",
}
"""A lower-case key, or a prefix that ends in `.*`, and the reason why the user cannot set it."""

_LOCAL = re.compile(r"local|local\[\s*(\*|[1-9]\d*)\s*(?:,\s*[1-9]\d*\s*)?\]")


def why_fixed(key: str) -> str | None:
    """Return the reason why the job fixes a key, or None where the user may set it; case does not matter."""
    lower = key.lower()
    for fixed, reason in FIXED.items():
        if lower == fixed or (fixed.endswith("*") and lower.startswith(fixed[:-1])):
            return reason
    return None


def is_local(master: str) -> bool:
    """Return whether a master runs all tasks in one process on this machine."""
    return _LOCAL.fullmatch(master.strip()) is not None


def local_cores(master: str) -> int:
    """Count the tasks that a local master runs at once."""
    match = _LOCAL.fullmatch(master.strip())
    cores = match[1] if match else None
    return (os.cpu_count() or 1) if cores == "*" else int(cores or 1)
