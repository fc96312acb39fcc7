"""The soak's eye and hand: where a run is by its log, which moments are drawn, and what a run may end with.

That the wanted process of a run dies, and no other, is shown on real ones in `test_kills.py`.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
from pathlib import Path

import pytest

from offsets.errors import VerifyFailed
from tests.soak.kill_points import Mark, Moment, Pace, Step, Steps
from tests.soak.processes import Victim, kill_one
from tests.soak.run import _require_lawful


def test_a_step_begins_with_its_line_and_with_no_half_of_one(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("")
    steps = Steps(log)
    assert steps.look() is Step.START
    line = json.dumps({"event": "stage ended", "stage": "plan"}) + "\n"
    with log.open("a") as file:
        file.write(f"WARNING: no JSON\n[]\n{line}" + line[:9])
    assert steps.look() is Step.SPARK
    assert steps.began(Step.SPARK, 0) is not None
    assert steps.began(Step.SPARK, 1) is None
    with log.open("a") as file:
        file.write(line[9:] + '{"stage": "commit"}\n')
    assert steps.look() is Step.AMEND
    assert steps.began(Step.SPARK, 1) is not None
    assert Moment(step=Step.SPARK, nth=1, delay=0).reached(steps)
    assert not Moment(step=Step.SPARK, nth=1, delay=60).reached(steps)
    assert not Moment(step=Step.COMMIT, nth=0, delay=0).reached(steps)


def test_every_step_is_drawn_and_no_moment_beyond_the_run() -> None:
    """A run of two days: a second for the start, then six steps of a second a day."""
    day = [Step.SPARK, Step.TASKS, Step.AUDIT, Step.COMMIT, Step.AMEND, Step.NEXT]
    pace = Pace([Mark(step, at) for at, step in enumerate([Step.START, *day, *day])], ended=13)
    rng = random.Random(1)
    for days, length in ((1, 7), (2, 13)):
        drawn = [pace.draw(rng, days) for _ in range(2000)]
        uniform = [each.delay for each in drawn if each.step is Step.START and each.delay > 1]
        assert length - 1 < max(uniform) <= length
        assert {(each.step, each.nth) for each in drawn} == {
            (Step.START, 0), *((step, nth) for step in day for nth in range(days))
        }  # fmt: skip
        assert all(0 <= each.delay <= 1 for each in drawn if each.step is not Step.START)


@pytest.mark.parametrize("victim", Victim)
def test_the_driver_dies_where_the_wanted_process_is_not_there(victim: Victim) -> None:
    with subprocess.Popen(["sleep", "60"]) as driver:
        try:
            assert kill_one(driver.pid, victim, random.Random(1)) is Victim.DRIVER
            assert driver.wait(10) == -signal.SIGKILL
        finally:
            driver.kill()


@pytest.mark.parametrize(
    "hit, code, lawful",
    [
        (None, 0, True), (None, 15, False), (None, -9, False),
        (Victim.DRIVER, -9, True), (Victim.DRIVER, 0, False),
        (Victim.WORKER, 0, True), (Victim.WORKER, 15, True), (Victim.WORKER, 70, False),
        (Victim.JVM, 15, True), (Victim.JVM, 23, False),
    ],
)  # fmt: skip
def test_a_run_may_end_only_as_its_kill_explains(
    hit: Victim | None, code: int, lawful: bool, tmp_path: Path
) -> None:
    (log := tmp_path / "run.log").write_text("the end\n")
    if lawful:
        _require_lawful(hit, code, log)
    else:
        with pytest.raises(VerifyFailed, match="the end"):
            _require_lawful(hit, code, log)
