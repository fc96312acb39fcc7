"""Plays the long proof, some two hours, and writes its seeds and counts into docs/PROOF.md.

Relies on pytest's JUnit report, in which tests record what they counted, and on the soak's JSON document.
Never writes a figure of a run that failed, and never leaves a process behind.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from tests.lanes import PYTEST, Lane, run
from tests.support.sampled import ALL

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "PROOF.md"
HISTORIES: Final = 2_000
OBJECT_HISTORIES: Final = 10_000
STORES: Final = ("folder", "s3")
SUITES: Final = (
    "tests/faults",
    "tests/unit/test_copy_lake.py",
    "tests/integration/test_kills.py",
    "tests/integration/test_two_runs.py",
    "tests/integration/test_bucket_faults.py",
)
BEGIN: Final = "<!-- what follows is written by ./run.sh prove -->"
END: Final = "<!-- until here -->"
Figures = Mapping[str, Mapping[str, int]]


def main() -> None:
    """Run the tests and the soak, and write what they counted."""
    parser = argparse.ArgumentParser(prog="./run.sh prove", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="SIGKILLs in the soak (default: 100)")
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory(prefix="kafka-daily-proof-") as folder:
        report = Path(folder) / "report.xml"
        play(tests(report))
        soaked = {store: Path(folder) / f"soak-{store}.json" for store in STORES}
        for store, document in soaked.items():
            play(soak(kills, store, document))
        found = {store: json.loads(document.read_text()) for store, document in soaked.items()}
        section = written(figures(report), found, datetime.now(UTC))
    PAGE.write_text(replaced(PAGE.read_text(), section))
    print(section)


def play(lane: Lane) -> None:
    """Run a lane to its end; where it fails, or somebody asks for an end, that is ours too."""
    if code := run([lane]):
        raise SystemExit(code)


def tests(report: Path) -> Lane:
    """Return the suites as a lane that leaves a report."""
    counts = (
        *("env", f"KAFKA_DAILY_HISTORIES={HISTORIES}"),
        *(f"KAFKA_DAILY_OBJECT_HISTORIES={OBJECT_HISTORIES}", f"{ALL}=1"),
    )
    written = ("-o", "junit_family=legacy", f"--junitxml={report}")
    suites = (str(ROOT / suite) for suite in SUITES)
    return Lane(name="tests", command=(*counts, *PYTEST, *written, *suites))


def soak(kills: int, store: str, document: Path) -> Lane:
    """Return the soak of lakes of one kind as a lane that leaves its document."""
    command = (str(ROOT / "run.sh"), "soak", "--kills", str(kills), "--store", store, "--json")
    return Lane(
        name=f"soak {store}", command=("sh", "-c", 'exec "$@" >"$0"', str(document), *command), tests=False
    )


def figures(report: Path) -> Figures:
    """Add up what the tests of each module recorded, beside how many passed."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for case in ElementTree.parse(report).iter("testcase"):
        module = sums[case.get("classname", "")]
        module["tests"] += case.find("skipped") is None
        for each in case.iter("property"):
            module[each.get("name", "")] += int(each.get("value", ""))
    return sums


def written(counted: Figures, soaked: Mapping[str, Mapping[str, Any]], now: datetime) -> str:
    """Return the section: one line for each module, and one for each soak."""
    lines = [BEGIN, "", f"## The last whole run: {now:%Y-%m-%d}", "| where | counted |", "|---|---|"]
    for module, numbers in sorted(counted.items()):
        said = "; ".join(_said(name, number) for name, number in sorted(numbers.items()))
        lines.append(f"| `{module.replace('.', '/')}.py` | {said} |")
    for store, found in soaked.items():
        said = "; ".join(_said(name, value) for name, value in found.items() if isinstance(value, int))
        lines.append(f"| `./run.sh soak --store {store}` | {said} |")
    return "\n".join([*lines, "", END])


def _said(name: str, number: int) -> str:
    seed = name.lower().endswith("seed") or isinstance(number, bool)
    return f"{name} {number if seed else f'{number:,}'}"


def replaced(page: str, section: str) -> str:
    """Put a section in the place of the last one, or at the end."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2] or "\n"
    return f"{before.rstrip()}\n\n{section}{after}"


if __name__ == "__main__":
    main()
