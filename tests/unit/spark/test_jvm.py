"""What a JVM leaves behind that did not start, or died: told by processes that do as it does."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from jobs.spark.jvm import Jvm

REFUSED = """WARNING: Using incubator modules: jdk.incubator.vector
Invalid maximum heap size: -Xmxlots
Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
"""
NO_MASTER = (
    'Exception in thread "main" org.apache.spark.SparkException: Master must start with spark\n\tat Main\n'
)
LOGGED = "2026-11-22T11:57:42.716Z ERROR spark Main: gone\norg.apache.spark.SparkException: gone\n\tat Main\n"
EXECUTOR = "org.apache.spark.SparkException: Executor memory must be a positive number"
TOO_LARGE = """Error occurred during initialization of VM
Could not reserve enough space for 104857600KB object heap
"""


def ended(script: str, *arguments: str) -> Jvm:
    jvm = Jvm()
    with jvm.launching() as how:
        jvm.process = subprocess.Popen(["sh", "-c", script, "sh", *arguments], stdin=subprocess.PIPE, **how)  # type: ignore[call-overload]
    jvm.process.wait()
    return jvm


@pytest.mark.parametrize(
    "words, complaint",
    [
        (REFUSED, "Invalid maximum heap size: -Xmxlots"),
        (NO_MASTER, "org.apache.spark.SparkException: Master must start with spark"),
        ("JAVA_HOME is not set\n", "JAVA_HOME is not set"),
        (TOO_LARGE, "Could not reserve enough space for 104857600KB object heap"),
        ("# There is insufficient memory for the Java Runtime Environment.\nError: gone\n", None),
        (f'Exception in thread "main" {EXECUTOR}\n', EXECUTOR),
        (f"Picked up JAVA_TOOL_OPTIONS: -Dx=y\n{REFUSED}", "Invalid maximum heap size: -Xmxlots"),
        (f"NOTE: Picked up JDK_JAVA_OPTIONS: -Dx=y\n{REFUSED}", "Invalid maximum heap size: -Xmxlots"),
        (LOGGED, None),
        ("WARNING: Using incubator modules: jdk.incubator.vector\n", None),
        ("", None),
    ],
)
def test_what_java_says_of_its_options_is_found_and_passed_on(
    words: str, complaint: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    jvm = ended('printf %s "$1" >&2; exit 1', words)
    assert jvm.complaint() == complaint
    assert capfd.readouterr().err == words


def test_after_a_signal_nothing_more_is_heard(capfd: pytest.CaptureFixture[str]) -> None:
    jvm = Jvm()
    with jvm.launching() as how:
        script = "echo before >&2; read line; echo after >&2; sleep 0.3; seq 100000 >&2"
        jvm.process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, **how)  # type: ignore[call-overload]
    said = ""
    while not said:
        said += capfd.readouterr().err
    jvm.silence()
    assert jvm.end(10) == 0
    assert said + capfd.readouterr().err == "before\n"


@pytest.mark.parametrize(
    "script, death",
    [
        ("kill -9 $$", "it was killed by signal 9 (SIGKILL)"),
        ("kill -40 $$", "it was killed by signal 40"),
        ("exit 53", "it ended by itself with exit code 53"),
    ],
)
def test_a_death_is_told_by_its_signal_or_its_code(script: str, death: str) -> None:
    assert ended(script).death() == death


def test_a_jvm_that_lives_has_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.spark.jvm.A_MOMENT", 0.05)
    jvm = Jvm()
    assert jvm.death() is None
    with jvm.launching() as how:
        jvm.process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, **how)  # type: ignore[call-overload]
    assert jvm.death() is None
    assert jvm.end(10) == 0


def test_lines_of_the_jvm_go_through_pythons_stream_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Written beside it they stood behind the progress line."""

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", screen := Screen())
    ended("echo a warning >&2").last_words()
    assert screen.getvalue() == "a warning\n"
