"""What `kafka-daily setup` says of a repository of jars that refuses."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jobs.spark import jar_resolver
from offsets.errors import RunFailed

FORBIDDEN = """
		tried http://x/x.pom
CLIENT ERROR: Unauthorized url=http://x/x.pom
		:: x#x;1: not found
		::::::::::::::::::::::::::::::::::::::::::::::
:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
"""


@pytest.mark.parametrize(
    "said, told",
    [
        (FORBIDDEN, "CLIENT ERROR: Unauthorized url=http://x/x.pom"),
        ("what\n::::\n", "what"),
        ("", "exit code 1"),
        ("Picked up JAVA_TOOL_OPTIONS: -Dhttps.proxyPassword=s3cret\n", "exit code 1"),
        ("Exception: http://me:s3c/ret@x/y\n", "Exception: http://x/y"),
    ],
    ids=["refused", "unknown", "nothing", "password in Java's options", "password"],
)
def test_why_the_jars_did_not_come_is_told(said: str, told: str, tmp_path: Path) -> None:
    """It named the last three lines, in which there is a bar of colons."""
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\ncat <<'END'\n{said}END\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "jars").mkdir()
    with pytest.raises(RunFailed) as refused:
        jar_resolver._fetch(os.fspath(java), tmp_path / "jars")
    assert refused.value.found == told


def test_of_two_at_once_each_finds_the_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They shared their folders: both failed, with a line about a jar that was there."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nset -e\nmkdir .spark-new .ivy\nsleep 0.3\n: >.spark-new/one.jar\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", os.fspath(tmp_path))
    monkeypatch.setattr(jar_resolver, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(jar_resolver, "jars", lambda _: [])
    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(jar_resolver.resolve) for _ in range(2)]:
            done.result()
    assert [path.name for path in (tmp_path / "home" / "jars").rglob("*.jar")] == ["one.jar"]
