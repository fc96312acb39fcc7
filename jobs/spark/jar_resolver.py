"""Fetch the jars of Spark's Kafka source, for an installation without run.sh, such as a wheel's.

Relies on a Java, and on the Ivy that pyspark brings. Writes below `jobs.paths.home()` alone; a fetch that
was cut short leaves what was there before.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from jobs.paths import conf_folder, home, jars
from offsets.errors import ConfigError, RunFailed

NEW: Final = ".spark-new"


def resolve() -> list[Path]:
    """Fetch the pinned jars, and list them.

    Raises:
        ConfigError: there is no Java, or the jars' folder cannot be written.
        RunFailed: Ivy did not find them all.
    """
    folder, java = home() / "jars", _java()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            shutil.rmtree(folder / NEW, ignore_errors=True)
            _fetch(java, folder)
            shutil.rmtree(folder / "spark", ignore_errors=True)
            (folder / NEW).rename(folder / "spark")
            shutil.rmtree(folder / ".ivy", ignore_errors=True)
    except OSError as error:
        raise ConfigError(
            expected=f"to write {folder}",
            found=str(error),
            do="Set KAFKA_DAILY_HOME to a folder that can be written, for `setup` and for each run.",
        ) from error
    return jars("spark")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one at a time write there: of two at once the second fetches once more."""
    file = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def _java() -> str:
    java_home = os.environ.get("JAVA_HOME")
    if found := shutil.which("java", path=f"{java_home}/bin" if java_home else None):
        return found
    raise ConfigError(
        expected="Java 17 to 23, in JAVA_HOME or on the path",
        found="none",
        do="Install one, such as openjdk-17-jre-headless, or set JAVA_HOME.",
    )


def _fetch(java: str, folder: Path) -> None:
    """Run Ivy in the folder: it reads brackets in a pattern as its own, so no path of ours may be in it."""
    ivy = _pyspark_jars("ivy-*.jar", "commons-cli-*.jar")
    options = {
        "-settings": conf_folder() / "ivysettings.xml",
        "-ivy": conf_folder() / "ivy.xml",
        "-cache": folder / ".ivy" / "cache",
        "-confs": "spark",
        "-retrieve": f"{NEW}/[artifact]-[revision].[ext]",
    }
    arguments = [str(each) for option in options.items() for each in option]
    user_dir = f"-Divy.default.ivy.user.dir={folder / '.ivy'}"
    command = [java, user_dir, "-cp", ivy, "org.apache.ivy.Main", "-verbose", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode or not any((folder / NEW).glob("*.jar")):
        raise RunFailed(
            expected=f"Ivy to fetch the jars of {conf_folder() / 'ivy.xml'}",
            found=_why(done.stdout + done.stderr) or f"exit code {done.returncode}",
            do="Run `kafka-daily setup` again once the cause is gone; what was there is kept.",
        )


def _why(said: str) -> str:
    """Return the last line in which Ivy names a cause, else its last line with words.

    Passwords are left out: those of a proxy, in Java's note of its options, and of a repository's address.
    """
    lines = [line.strip() for line in said.splitlines() if re.search("^(?!.*Picked up ).*[a-z]", line)]
    causes = [line for line in lines if re.search("ERROR: |Exception: |^Host |requires authentication", line)]
    return re.sub("//[^ ]*@", "//", (causes or lines or [""])[-1])


def _pyspark_jars(*patterns: str) -> str:
    spec = find_spec("pyspark")  # without importing it
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else Path()
    return os.pathsep.join(str(path) for pattern in patterns for path in folder.glob(pattern))
