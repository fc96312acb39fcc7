"""What run.sh decides: which Python, what of pip's settings, which line of a failure, what a kill leaves.

Stand-ins take the place of what needs minutes or a network: an environment is a folder with one program.
The shell, the script that asks a Python what it is, and pip where its own rules matter are the real ones: pip
looks for settings only where there are some, since it takes longer to load than all else takes to run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pip
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.unprivileged import NOBODY

ROOT = Path(__file__).parents[3]
PROGRAMS = (
    "awk bash cat cut dirname env find flock id ln locale ls mkdir mv readlink rm sed sha256sum tail touch wc"
)

PYTHON = """#!/bin/bash
case $2 in
  -c) exec "{real}" -I -c 'import sys; sys.version_info = ({version}, 0); sys.executable = sys.argv[2]
{lacks}
exec(sys.argv[1])' "$3" "$0" ;;
  -m) echo "$0" >>"{said}/made" && mkdir -p "$4/bin" && ln -s "{pip}" "$4/bin/python"
    ln -s "{program}" "$4/bin/kafka-daily" ;;
esac
"""
JAVA = """#!/bin/bash
[[ $* != *-retrieve* ]] || { into=${*: -1} && mkdir "${into%%/*}"; }
"""
APT = """#!/bin/bash
[[ $3 != update ]] || echo update >>"{said}/apt"
[[ $3 != update ]] || echo "$LC_ALL ${*:4}" >>"{said}/language"
[[ $3 != update || $(wc -l <"{said}/apt") -ge {succeeds} ]] || { echo "{failing}" && exit 100; }
[[ $3 != install ]] || echo "${*: -1}" >>"{said}/installed"
[[ $3 != install || ${*: -1} != {helping} ]] || cp "{fits}" "{python}"
"""
LACKS_VENV = 'sys.modules["ensurepip"] = None'

SAYING_PIP = """#!/bin/bash
[[ $3 != ensurepip ]] || exit 0
if [[ $2 == -c ]]; then
  [[ -z $(compgen -e PIP_)$(compgen -G ~/.pip/pip.conf)$(compgen -G ~/.config/pip/pip.conf) ]] ||
    exec "{real}" "$@"
  exit 0
fi
echo "$@" >>"{said}/pip"
env >>"{said}/environment"
touch "{said}/begun"
while [[ -e "{said}/wait" ]]; do "{sleep}" 0.02; done
[[ ! -e "{said}/output" ]] || { cat "{said}/output" && exit 1; }
"""
REAL_PIP = """#!/bin/bash
[[ $2 != -c ]] || exec "{real}" "$@"
[[ $* == *run.txt* ]] || exit 0
"{real}" -I -m venv --without-pip "{said}/real"
exec "{said}/real/bin/python" -I -c 'import runpy, sys; sys.path.append(sys.argv.pop(1))
runpy.run_module("pip", run_name="__main__", alter_sys=True)' "{site}" "${@:4}"
"""
TOOLS_PIP = """#!/bin/bash
[[ $2 != -c ]] || exec "{real}" "$@"
[[ $* == *test.txt* ]] || exit 0
"{real}" -I -m venv --without-pip "{said}/real"
exec "{said}/real/bin/python" -I -c 'import runpy, sys; sys.path += sys.argv[1:3]; del sys.argv[1:3]
runpy.run_module("pip", run_name="__main__", alter_sys=True)' "{site}" "{theirs}" "${@:4}"
"""


class Machine:
    """A copy of run.sh, and a path on which there is only what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.checkout, self.said = folder, folder / "a checkout", folder / "said"
        self.user: int | None = None
        for made in (self.checkout / "conf" / "lock", self.said, folder / "bin", folder / "java" / "bin"):
            made.mkdir(parents=True)
        for name in ("run.sh", "pyproject.toml", "conf/ivy.xml", "conf/ivysettings.xml"):
            shutil.copy(ROOT / name, self.checkout / name)
        for lock in ("build", "run", "test"):
            self.lock(lock).touch()
        for program in PROGRAMS.split():
            (folder / "bin" / program).symlink_to(str(shutil.which(program)))
        self.script("bin/sleep", "#!/bin/bash\n")
        self.script("java/bin/java", JAVA)
        (folder / "java" / "release").write_text('JAVA_VERSION="17.0.1"\n')
        self.cacerts.parent.mkdir(parents=True)
        self.cacerts.write_text("certificates")
        self.script("pip", SAYING_PIP)
        self.script("kafka-daily", "#!/bin/bash\n")

    @property
    def cacerts(self) -> Path:
        return self.folder / "java" / "lib" / "security" / "cacerts"

    def lock(self, name: str) -> Path:
        return self.checkout / "conf" / "lock" / f"{name}.txt"

    def script(self, name: str, text: str, **filled: object) -> Path:
        filled |= {"said": self.said, "real": sys.executable, "pip": self.folder / "pip"}
        filled |= {"program": self.folder / "kafka-daily"}
        filled |= {"sleep": shutil.which("sleep"), "site": Path(pip.__file__).parents[1]}
        for key, value in filled.items():
            text = text.replace(f"{{{key}}}", str(value))
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(
            missing_ok=True
        )  # it may be a link to the machine's own program, which must stay as it is
        path.write_text(text)
        path.chmod(0o755)
        return path

    def python(self, name: str, version: str, lacks: str = "") -> Path:
        return self.script(f"bin/{name}", PYTHON, version=version.replace(".", ", "), lacks=lacks)

    def apt(self, helping: str, failing: str = "", succeeds: int = 1) -> None:
        """Make this user root, with a Python that lacks venv until one package is installed."""
        python = self.python("python3", "3.12", LACKS_VENV)
        fits = self.python("fits", "3.12").rename(self.folder / "fits")
        self.script("bin/id", "#!/bin/bash\necho 0\n")
        (self.folder / "bin" / "cp").symlink_to(str(shutil.which("cp")))
        filled = {
            "helping": helping,
            "failing": failing,
            "succeeds": succeeds,
            "fits": fits,
            "python": python,
        }
        self.script("bin/apt-get", APT, **filled)
        self.script("bin/dpkg", '#!/bin/bash\necho "$@" >>"{said}/dpkg"\n')

    def start(self, *command: str, **extra: str) -> subprocess.Popen[str]:
        environment = {"HOME": self.folder, "PATH": self.folder / "bin", "JAVA_HOME": self.folder / "java"}
        return subprocess.Popen(
            command or [self.checkout / "run.sh", "setup", "env"],
            env={key: str(value) for key, value in environment.items()} | extra,
            cwd=self.folder,
            user=self.user,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def set_up(self, *command: str, **extra: str) -> tuple[int, list[str]]:
        with self.start(*command, **extra) as child:
            said = child.communicate()[1]
        return child.returncode, said.splitlines()

    def heard(self, name: str) -> list[str]:
        path = self.said / name
        return path.read_text().splitlines() if path.exists() else []

    def wait(self, name: str) -> None:
        deadline = time.monotonic() + 30
        while not (self.said / name).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Make one below a folder with a space, as the tests' own Python may be."""
    folder = tmp_path / "a machine"
    folder.mkdir()
    return Machine(folder)


# -- which Python


def test_the_first_python_that_fits_is_taken(machine: Machine) -> None:
    machine.python("python3", "3.14")
    machine.python("python3.13", "3.13", LACKS_VENV)
    fits = machine.python("python3.12", "3.12")
    machine.python("python3.11", "3.11")
    assert machine.set_up()[0] == 0
    assert machine.heard("made") == [str(fits)]


def test_a_newer_python_alone_gets_a_sentence(machine: Machine) -> None:
    newer = machine.python("python3", "3.14")
    bare = machine.python("python3.13", "3.13", LACKS_VENV)
    code, (said,) = machine.set_up()
    assert code == 2
    assert "Python 3.11, 3.12 or 3.13 with venv is needed" in said
    assert f"{newer} (Python 3.14), {bare} (ModuleNotFoundError" in said


def test_an_environment_whose_python_is_gone_is_made_again(machine: Machine) -> None:
    machine.python("python3", "3.12")
    assert machine.set_up()[0] == 0
    next(machine.checkout.glob(".kafka-daily/venv-*/bin/python")).unlink()
    assert machine.set_up()[0] == 0
    assert len(machine.heard("made")) == 2


def test_what_a_shim_warns_of_is_no_part_of_the_path(machine: Machine) -> None:
    """As pyenv's do, scripts that bash warns in where a locale is not installed: set-up failed every time."""
    fits = machine.python("python3", "3.12")
    text = fits.read_text().replace("\n", "\necho 'bash: warning: setlocale' >&2\n", 1)
    fits.write_text(text)
    assert machine.set_up()[0] == 0
    assert machine.heard("made") == [str(fits)]


def test_a_java_behind_a_shim_is_found(machine: Machine) -> None:
    """As jenv's and asdf's: a script that starts the Java that was chosen, far from Java's own folder."""
    machine.python("python3", "3.12")
    machine.script("bin/java", f"#!/bin/bash\necho '    java.home = {machine.folder}/java' >&2\n")
    code, said = machine.set_up(str(machine.checkout / "run.sh"), "setup", JAVA_HOME="")
    assert (code, said[0]) == (0, f"set-up: Java: {machine.folder}/java")


def test_a_java_that_apt_was_killed_over_is_not_taken(machine: Machine) -> None:
    """It was taken for good, could fetch no jar, and nobody asked apt to finish it."""
    machine.apt("none")
    machine.python("python3", "3.12")
    machine.script("bin/java", f"#!/bin/bash\necho '    java.home = {machine.folder}/java' >&2\n")
    machine.cacerts.unlink()
    said = machine.set_up(str(machine.checkout / "run.sh"), "setup", JAVA_HOME="")[1]
    assert f"set-up: Java: {machine.folder}/java" not in said
    if "installing openjdk-17-jre-headless" in said[0]:  # no other Java is below /usr/lib/jvm
        assert machine.heard("dpkg") == ["--configure -a"]


def test_the_java_of_a_set_up_is_known_where_its_variable_is_not_set(machine: Machine) -> None:
    """As in cron: after a set-up by JAVA_HOME the first run had no Java, or installed another one."""
    machine.python("python3", "3.12")
    run = str(machine.checkout / "run.sh")
    assert machine.set_up(run, "setup")[0] == 0
    assert machine.set_up(run, "setup", JAVA_HOME="") == (0, [])


def test_a_java_that_is_named_from_where_we_are_called_is_found(machine: Machine) -> None:
    """Ivy starts in another folder, and cron in a third: set-up failed at the jars, at each try."""
    machine.python("python3", "3.12")
    run = str(machine.checkout / "run.sh")
    assert machine.set_up(run, "setup", JAVA_HOME="java")[0] == 0
    assert (machine.checkout / ".kafka-daily" / "java-home").read_text() == f"{machine.folder}/java\n"


def test_a_java_that_fits_no_more_is_looked_for_again(machine: Machine) -> None:
    """As behind `default-java`, after the system's update: each run failed, with the advice to run again."""
    machine.python("python3", "3.12")
    run = str(machine.checkout / "run.sh")
    assert machine.set_up(run, "setup")[0] == 0
    machine.script("newer/bin/java", JAVA)
    shutil.copytree(machine.folder / "java" / "lib", machine.folder / "newer" / "lib")
    (machine.folder / "newer" / "release").write_text('JAVA_VERSION="21.0.1"\n')
    machine.script("bin/java", f"#!/bin/bash\necho '    java.home = {machine.folder}/newer' >&2\n")
    (machine.folder / "java" / "release").write_text('JAVA_VERSION="25.0.1"\n')
    code, said = machine.set_up(run, "setup", JAVA_HOME="")
    assert (code, said[0]) == (0, f"set-up: Java: {machine.folder}/newer")


def test_a_set_up_by_another_java_remembers_it(machine: Machine) -> None:
    """All else was there, so it wrote nothing: cron's next run was left with the Java that is gone."""
    machine.python("python3", "3.12")
    run = str(machine.checkout / "run.sh")
    assert machine.set_up(run, "setup")[0] == 0
    newer = (machine.folder / "java").rename(machine.folder / "newer")
    assert machine.set_up(run, "setup", JAVA_HOME=str(newer))[0] == 0
    assert machine.set_up(run, "setup", JAVA_HOME="") == (0, [])


def test_a_java_without_certificates_that_was_named_once_is_not_taken_again(machine: Machine) -> None:
    """It was remembered before it had fetched a jar, and each later set-up failed at the jars."""
    machine.python("python3", "3.12")
    run = str(machine.checkout / "run.sh")
    shutil.copytree(machine.folder / "java", machine.folder / "bare")
    (machine.folder / "bare" / "lib" / "security" / "cacerts").unlink()
    machine.script("bare/bin/java", "#!/bin/bash\necho 'ERROR: the trustAnchors parameter' && exit 1\n")
    assert machine.set_up(run, "setup", JAVA_HOME=f"{machine.folder}/bare")[0] == 2
    machine.script("bin/java", f"#!/bin/bash\necho '    java.home = {machine.folder}/java' >&2\n")
    code, said = machine.set_up(run, "setup", JAVA_HOME="")
    assert (code, said[0]) == (0, f"set-up: Java: {machine.folder}/java")


def test_a_java_without_certificates_fetches_no_jars_of_an_update_where_another_can(machine: Machine) -> None:
    """Jars of before the update made it trusted, and each set-up failed at the new ones."""
    machine.python("python3", "3.12")
    run = str(machine.checkout / "run.sh")
    assert machine.set_up(run, "setup")[0] == 0
    shutil.copytree(machine.folder / "java", machine.folder / "bare")
    (machine.folder / "bare" / "lib" / "security" / "cacerts").unlink()
    assert machine.set_up(run, "setup", JAVA_HOME=f"{machine.folder}/bare") == (0, ["set-up: ready"])
    machine.script("bin/java", f"#!/bin/bash\necho '    java.home = {machine.folder}/java' >&2\n")
    (machine.checkout / "conf/lock/run.txt").write_text("# an update\n")
    code, said = machine.set_up(run, "setup", JAVA_HOME="")
    assert (code, said[0]) == (0, f"set-up: Java: {machine.folder}/java")


def test_the_same_java_by_another_name_is_no_other_one(machine: Machine) -> None:
    """A set-up with everything in place failed where the home could not be written."""
    machine.python("python3", "3.12")
    run = str(machine.checkout / "run.sh")
    assert machine.set_up(run, "setup")[0] == 0
    assert machine.set_up(run, "setup", JAVA_HOME=f"{machine.folder}/java/") == (0, [])


@pytest.mark.skipif(os.getuid() != 0, reason="another user's home takes two users")
def test_another_java_than_that_of_a_home_which_is_not_ours_is_taken(machine: Machine) -> None:
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        theirs = Machine(Path(open_to_all) / "theirs")
        theirs.python("python3", "3.12")
        run = str(theirs.checkout / "run.sh")
        assert theirs.set_up(run, "setup")[0] == 0
        shutil.copytree(theirs.folder / "java", theirs.folder / "newer")
        newer = str(theirs.folder / "newer")
        theirs.user = NOBODY
        assert theirs.set_up(run, "setup", JAVA_HOME=newer) == (0, [])


# -- what apt-get says


@pytest.mark.parametrize(
    "failing, succeeds, tries",
    [
        ("E: Unable to lock directory /var/lib/apt/lists/", 2, 2),
        ("E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)", 20, 20),
        ("E: The repository 'file:/theirs Release' does not have a Release file.", 9, 1),
    ],
    ids=["another is at it", "another is long at it", "somebody's repository is gone"],
)
def test_an_update_of_lists_that_fails_stops_no_installation(
    failing: str, succeeds: int, tries: int, machine: Machine
) -> None:
    """apt-get waits for dpkg's lock alone, and fails for one list of many: set-up ended at the first try."""
    machine.apt("python3-venv", failing, succeeds)
    code, said = machine.set_up()
    assert (code, said[-1], len(machine.heard("apt"))) == (0, "set-up: ready", tries)
    assert len(said) < 9


def test_what_an_update_of_lists_failed_for_is_told(machine: Machine) -> None:
    machine.apt("none", "E: no disk", 9)
    code, said = machine.set_up()
    assert (code, said[-1].partition("apt-get: ")[2]) == (2, "E: no disk")


def test_lists_that_cannot_be_fetched_are_tried_again_and_told(machine: Machine) -> None:
    """apt-get ends an update without a network with 0, and only then says that it knows no such package."""
    machine.apt("none", "E: Failed to fetch http://x  Could not resolve x\nE: Some index files failed.", 9)
    code, said = machine.set_up(LANG="de_DE.UTF-8")
    assert (code, len(machine.heard("apt"))) == (2, 3)
    assert said[-1].endswith("apt-get: E: Failed to fetch http://x  Could not resolve x")
    assert set(machine.heard("language")) == {"C -o APT::Update::Error-Mode=any"}


def test_a_python_beside_the_system_s_own_gets_its_venv(machine: Machine) -> None:
    """`python3-venv` is for the system's `python3` alone, which was too old: code 2, at each try."""
    machine.apt("python3.12-venv")
    assert machine.set_up()[0] == 0
    assert machine.heard("installed") == ["python3-venv", "python3.13-venv", "python3.12-venv"]


def test_what_was_installed_in_vain_is_told(machine: Machine) -> None:
    """The message said `not tried`."""
    machine.apt("none")
    code, said = machine.set_up()
    assert (code, said[-1].partition("apt-get: ")[2]) == (2, "python3.11-venv does not help")


# -- what is set up


@pytest.mark.parametrize(
    "more", [("tests",), ("--help", "env"), ("demo", "test"), ("env", "demo"), ("soak", "test"), ("",)]
)
def test_a_set_up_of_what_is_unknown_is_refused(more: tuple[str, ...], machine: Machine) -> None:
    """It set up something else and ended with 0: what was meant was missing once the network was gone."""
    machine.python("python3", "3.12")
    code, said = machine.set_up(str(machine.checkout / "run.sh"), "setup", *more)
    assert (code, machine.heard("made"), len(said)) == (2, [], 1)
    assert "setup test" in said[0]


@pytest.mark.parametrize("command", [("run", "--config", "demo"), ("status", "--config", "my soak")])
def test_a_config_called_demo_asks_for_no_broker(command: tuple[str, ...], machine: Machine) -> None:
    """It was downloaded for it; offline, the command ended there."""
    machine.python("python3", "3.12")
    run = str(machine.checkout / "run.sh")
    assert machine.set_up(run, "setup")[0] == 0
    assert machine.set_up(run, *command) == (0, [])


# -- where it lies, and where it is called


def test_a_folder_that_is_closed_to_us_can_be_where_we_are_called(machine: Machine) -> None:
    """`sudo -u somebody run.sh` in root's home: Ivy's folder could not be left again, at each try."""
    machine.python("python3", "3.12")
    gone = 'mkdir gone; cd gone; rm -r ../gone; exec "$0" setup'
    assert machine.set_up("bash", "-c", gone, str(machine.checkout / "run.sh"))[0] == 0
    assert (machine.checkout / ".kafka-daily" / "venv" / "jars" / "spark" / ".stamp").exists()


def test_pip_makes_no_home_where_there_is_none(machine: Machine) -> None:
    """For a user without HOME and without a name it made a folder called `~`: none to remove in haste."""
    machine.python("python3", "3.12")
    assert machine.set_up("env", "-u", "HOME", str(machine.checkout / "run.sh"), "setup", "env")[0] == 0
    assert [line for line in machine.heard("environment") if line.startswith("HOME=/")]


@pytest.mark.parametrize(
    "given, taken",
    [
        ({}, ["LC_ALL=C.UTF-8"]),
        ({"LANG": "C.UTF-8"}, ["LANG=C.UTF-8"]),
        ({"LC_ALL": "nn_NN.UTF-8"}, ["LC_ALL=C.UTF-8"]),
    ],
    ids=["none", "UTF-8", "not installed"],
)
def test_paths_are_read_as_utf_8(machine: Machine, given: dict[str, str], taken: list[str]) -> None:
    """Below a folder such as `Büro` Java found no jar where no locale was set, as in cron and containers."""
    machine.python("python3", "3.12")
    assert machine.set_up(**given)[0] == 0
    heard = machine.heard("environment")
    assert [line for line in heard if line.startswith(("LANG=", "LC_"))][: len(taken)] == taken


def test_an_environment_that_was_moved_is_made_again(machine: Machine) -> None:
    """Its programs name the Python of the place in which they were made."""
    machine.python("python3", "3.12")
    for name in ("one", "one/", "../said/one"):
        assert machine.set_up(KAFKA_DAILY_HOME=f"{machine.said}/{name}")[0] == 0
    assert len(machine.heard("made")) == 1
    (machine.said / "one").rename(machine.said / "two")
    assert machine.set_up(KAFKA_DAILY_HOME=f"{machine.said}/two")[0] == 0
    assert len(machine.heard("made")) == 2


def test_another_language_asks_for_no_other_environment(machine: Machine) -> None:
    """In a terminal's a pattern finds `ivysettings.xml` before `ivy.xml`: cron's run set all up again."""
    machine.python("python3", "3.12")
    language = machine.said / "en_US.UTF-8"
    if maker := shutil.which("localedef"):  # where what it reads is not installed, there is one order alone
        subprocess.run([maker, "-i", "en_US", "-f", "UTF-8", language], capture_output=True, check=False)
    assert machine.set_up(LOCPATH=str(machine.said), LANG=language.name)[0] == 0
    assert machine.set_up() == (0, [])


def test_a_file_beside_the_pins_is_none(machine: Machine) -> None:
    """As what an editor leaves: it asked for another environment."""
    machine.python("python3", "3.12")
    assert machine.set_up()[0] == 0
    (machine.checkout / "conf" / "ivy copy.xml").write_text("not ours")
    machine.lock("run copy").write_text("not ours")
    assert machine.set_up() == (0, [])


def test_two_versions_in_one_home_each_have_their_jars(machine: Machine) -> None:
    """Each run of one fetched its jars again, and took them from the other, perhaps from under a run."""
    machine.python("python3", "3.12")
    other = machine.folder / "new version"
    shutil.copytree(machine.checkout, other)
    with (other / "conf" / "ivy.xml").open("a") as pins:
        pins.write("<!-- other jars -->\n")
    runs = [str(folder / "run.sh") for folder in (machine.checkout, other)]
    home = {"KAFKA_DAILY_HOME": str(machine.said / "home")}
    assert [machine.set_up(run, "setup", **home)[0] for run in runs] == [0, 0]
    assert [machine.set_up(run, "status", **home) for run in runs] == [(0, []), (0, [])]


def test_an_update_removes_the_environment_before_the_last_and_nothing_else(machine: Machine) -> None:
    """A run may still be in the last one, whose age says nothing where another user runs it."""
    machine.python("python3", "3.12")
    home = machine.checkout / ".kafka-daily"
    (home / "venv-of-mine").mkdir(parents=True)
    (home / ".lock").touch()
    made = list[Path]()
    for version in range(3):
        machine.lock("test").write_text(f"# {version}\n")
        assert machine.set_up()[0] == 0
        made.append((home / "venv").resolve())
        for folder in home.glob("venv-*"):
            os.utime(folder, (0, 0))
    assert [folder.exists() for folder in made] == [False, True, True]
    assert (home / "venv-of-mine").exists()


def test_an_environment_in_use_outlives_an_update_that_took_two_tries(machine: Machine) -> None:
    """The first try had moved the link, so the second took the new one for the last."""
    machine.python("python3", "3.12")
    run, home = str(machine.checkout / "run.sh"), machine.checkout / ".kafka-daily"
    assert machine.set_up()[0] == 0
    last = (home / "venv").resolve()
    os.utime(last, (0, 0))
    machine.lock("test").write_text("# an update\n")
    machine.script("java/bin/java", "#!/bin/bash\nexit 1\n")
    assert machine.set_up(run, "setup")[0] == 2
    machine.script("java/bin/java", JAVA)
    assert machine.set_up(run, "setup")[0] == 0
    assert last.exists()


def test_an_old_environment_that_is_not_ours_to_remove_stops_nothing(machine: Machine) -> None:
    """As root's, after `sudo ./run.sh setup`: it ended with 1 before `ready`, and well at the next try."""
    machine.python("python3", "3.12")
    old = machine.checkout / ".kafka-daily" / "venv-0123456789ab"
    old.mkdir(parents=True)
    os.utime(old, (0, 0))
    (old.parent / ".lock").touch()
    refusing = '#!/bin/bash\n[[ $* != *venv-0123456789ab* ]] || exit 1\nexec "{ours}" "$@"\n'
    ours = shutil.which("rm")
    (machine.folder / "bin" / "rm").unlink()
    machine.script("bin/rm", refusing, ours=ours)
    code, said = machine.set_up()
    assert (code, said[-1]) == (0, "set-up: ready")
    assert old.exists()


# -- pip's settings


def test_settings_that_install_elsewhere_do_not_reach_pip(machine: Machine) -> None:
    """With the real pip: one small wheel, found where the user's settings say, lands in the environment."""
    wheel = _wheel(machine.folder / "wheels")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    machine.lock("run").write_text(f"small==1.0 --hash=sha256:{digest}\n")
    machine.python("python3", "3.12")
    machine.script("pip", REAL_PIP)
    file = machine.folder / "pip.conf"
    file.write_text(
        f"[global]\nno-index = true\nfind-links = {wheel.parent.as_uri()}\nno-binary = :all:\n"
        "[install]\nuser = true\nconstraint = /nowhere\nrequire-hashes = true\nbuild-constraint = /nowhere\n"
        f"root = {machine.folder}/elsewhere\ndry-run = true\nquiet = 3\n"
        "[config]\nquiet = 3\nlog = /nowhere/log\n"
    )
    elsewhere = str(machine.folder / "elsewhere")
    code, said = machine.set_up(
        PIP_CONFIG_FILE=str(file),
        PIP_TARGET=elsewhere,
        PIP_PREFIX=elsewhere,
        PIP_ROOT=elsewhere,
        PIP_USER="1",
        PIP_DRY_RUN="1",
        PIP_REQUIREMENT="/nowhere",
        PIP_CONSTRAINT="/nowhere",
        PIP_ONLY_BINARY=":none:",
        PIP_PYTHON="/nowhere",
        PYTHONPATH="/nowhere",
    )
    assert code == 0, said
    assert len(list(machine.said.glob("real/lib/*/*/small.py"))) == 1
    assert not Path(elsewhere).exists()


@pytest.mark.parametrize(
    "text, line",
    [
        ("[global]\noops\n", "pip.conf'"),
        ("index-url = https://user:pass@host/\n", "File contains no section headers."),
    ],
)
def test_settings_that_pip_cannot_read_are_told_in_its_words(text: str, line: str, machine: Machine) -> None:
    machine.python("python3", "3.12")
    (machine.folder / "pip.conf").write_text(text)
    code, said = machine.set_up(PIP_CONFIG_FILE=str(machine.folder / "pip.conf"))
    assert code == 2
    assert said[-2].endswith(line)


def test_a_setting_that_pip_refuses_is_told_in_its_words(machine: Machine) -> None:
    """With the real pip, which says this on stdout: the line was empty, and so was the log."""
    machine.python("python3", "3.12")
    machine.script("pip", REAL_PIP)
    code, said = machine.set_up(PIP_DEFAULT_TIMEOUT="60s")
    assert code == 2
    assert said[-2].endswith("option default-timeout: invalid floating-point value: '60s'")


def test_of_two_files_the_one_that_pip_obeys_holds(machine: Machine) -> None:
    """What `pip config list` prints last is the file whose path sorts last, from pip 25.2 on."""
    machine.python("python3", "3.12")
    for name, index in ((".pip/pip.conf", "old"), (".config/pip/pip.conf", "new")):
        path = machine.folder / name
        path.parent.mkdir(parents=True)
        path.write_text(f"[global]\nindex-url = {index}\n")
    assert machine.set_up()[0] == 0
    assert "PIP_INDEX_URL=new" in machine.heard("environment")


def test_a_setting_that_is_empty_holds_nowhere(machine: Machine) -> None:
    """As `ENV PIP_INDEX_URL=$PIP_INDEX_URL` makes it: the file's index was passed over, which pip obeys."""
    machine.python("python3", "3.12")
    (machine.folder / "pip.conf").write_text("[global]\nindex-url = a\ncert = b\n[install]\ncert =\n")
    assert machine.set_up(PIP_CONFIG_FILE=str(machine.folder / "pip.conf"), PIP_INDEX_URL="")[0] == 0
    heard = machine.heard("environment")
    assert "PIP_INDEX_URL=a" in heard
    assert "PIP_CERT=b" in heard


def test_settings_that_say_where_packages_come_from_reach_pip(machine: Machine) -> None:
    machine.python("python3", "3.12")
    kept = {
        "PIP_INDEX_URL": "a",
        "PIP_FIND_LINKS": "b c",
        "PIP_NO_INDEX": "1",
        "PIP_CERT": "d",
        "PIP_PROXY": "e",
    }
    dropped = {"PIP_INDEX": "f", "PIP_NO_BUILD_ISOLATION": "0", "PYTHONPATH": "/nowhere"}
    assert machine.set_up(**kept, **dropped)[0] == 0
    heard = machine.heard("environment")
    assert all(f"{name}={value}" in heard for name, value in kept.items())
    assert "PIP_CONFIG_FILE=/dev/null" in heard
    assert not [line for line in heard if line.partition("=")[0] in dropped]


def _wheel(folder: Path) -> Path:
    folder.mkdir()
    wheel, info = folder / "small-1.0-py3-none-any.whl", "small-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("small.py", "")
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return wheel


# -- failures

BROKEN = """WARNING: Retrying (Retry(total=0)) after connection broken by 'NameResolutionError("x")': /x/
"""
NOT_FOUND = """ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)
ERROR: No matching distribution found for x==1
"""
NOT_BUILT = """  error: subprocess-exited-with-error

  * Building wheel for pyspark (pyproject.toml) did not run successfully.
  ╰─> [4 lines of output]
      running build
      error: invalid command 'bdist_wheel'
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
  ERROR: Failed building wheel for pyspark
error: failed-wheel-build-for-install
ERROR: Failed to build installable wheels for some pyproject.toml based projects (pyspark)
"""
WARNED = """      UserWarning: x
      setuptools.warnings.SetuptoolsDeprecationWarning: License classifiers are deprecated.
      !!
  note: This error originates from a subprocess, and is likely not a problem with pip.
error: metadata-generation-failed

* Encountered error while generating package metadata.
*-> See above for output.

hint: See above for details.
"""
HASHES = """ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.
    x==1 from file:
        Expected sha256 0
             Got        1
"""
IVY = """:: problems summary ::
	Host x not found. url=x/x.pom

		::          UNRESOLVED DEPENDENCIES         ::
"""
# what Ivy 2.5 says of a repository that answers with a 4xx
FORBIDDEN = """		tried http://x/x.pom
CLIENT ERROR: Too Many Requests url=http://x/x.pom
WARN: 	module not found: x#x;1
WARN: ==== central: tried
WARN:   http://x/x.pom
		:: x#x;1: not found
		::::::::::::::::::::::::::::::::::::::::::::::

:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
"""
NO_JAR = "CLIENT ERROR: Not Found url=http://x/parent-1.jar\n"
CUT = """		[FAILED     ] x: Downloaded file size (1) doesn't match expected Content Length (2) for x.jar.
		::              FAILED DOWNLOADS            ::
		:: x#x;1!x.jar
"""
OPTION = """Unrecognized VM option 'x'
Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
"""
JAVA_OPTIONS = """last words
Picked up JAVA_TOOL_OPTIONS: -Dhttps.proxyPassword=s3cret
NOTE: Picked up JDK_JAVA_OPTIONS: -Dhttps.proxyPassword=s3cret
"""
UNTRUSTED = """WARNING: The repository located at x is not a trusted or secure host and is being ignored.
"""
PROXY = """WARN: Your proxy requires authentication.
WARN: 	module not found: x#x;1
		::::::::::::::::::::::::::::::::::::::::::::::

:: USE VERBOSE OR DEBUG MESSAGE LEVEL FOR MORE DETAILS
"""


@pytest.mark.parametrize(
    "output, line, attempts",
    [
        (BROKEN + NOT_FOUND, BROKEN.strip(), 3),
        (NOT_FOUND, NOT_FOUND.splitlines()[0], 1),
        (NOT_BUILT, "error: invalid command 'bdist_wheel'", 1),
        (WARNED, WARNED.splitlines()[1].strip(), 1),
        (HASHES, HASHES.splitlines()[0], 3),
        (IVY, "Host x not found. url=x/x.pom", 3),
        (FORBIDDEN, "CLIENT ERROR: Too Many Requests url=http://x/x.pom", 3),
        (
            FORBIDDEN.replace("Too Many Requests", "Not Found"),
            "CLIENT ERROR: Not Found url=http://x/x.pom",
            1,
        ),
        (FORBIDDEN + NO_JAR, "CLIENT ERROR: Too Many Requests url=http://x/x.pom", 3),
        (
            CUT,
            "FAILED     ] x: Downloaded file size (1) doesn't match expected Content Length (2) for x.jar.",
            3,
        ),
        (OPTION, "Unrecognized VM option 'x'", 1),
        (PROXY, "WARN: Your proxy requires authentication.", 1),
        ("OSError: [Errno 28] No space left on device\n\n", "OSError: [Errno 28] No space left on device", 1),
        ("something\nelse\n", "else", 1),
        ("ERROR: Failed to parse: http://u:s3c#r/t@proxy:1", "ERROR: Failed to parse: http://proxy:1", 1),
        ("ERROR: Invalid URL 'http:/u:s3c/t@x/': No host", "ERROR: Invalid URL 'http:/x/': No host", 1),
        (
            "ValueError: Port could not be cast to integer value as 's3c'",
            "ValueError: Port could not be cast",
            1,
        ),
        (JAVA_OPTIONS, "last words", 1),
        (UNTRUSTED + NOT_FOUND, UNTRUSTED.strip(), 1),
        (
            "E: Could not open lock (28: No space left on device)\nE: Unable to lock directory x\n",
            "E: Could not open lock (28: No space left on device)",
            1,
        ),
    ],
    ids=[
        "network",
        "not found",
        "not built",
        "warned",
        "hashes",
        "ivy",
        "429",
        "404",
        "429 before a jar that need not be",
        "cut short",
        "java's options",
        "407",
        "disk",
        "unknown",
        "password",
        "password behind one slash",
        "password with a slash",
        "password in Java's options",
        "index without TLS",
        "lock",
    ],
)
def test_a_failure_is_told_by_the_one_line_that_matters(
    machine: Machine, output: str, line: str, attempts: int
) -> None:
    machine.python("python3", "3.12")
    (machine.said / "output").write_text(output)
    code, said = machine.set_up()
    assert (code, said[-2]) == (2, f"set-up: {line}")
    log = machine.checkout / ".kafka-daily" / "setup.log"
    assert str(log) in said[-1]
    assert log.stat().st_mode & 0o77 == 0
    assert len([call for call in machine.heard("pip") if "--log" not in call]) == attempts


class _Refusing(BaseHTTPRequestHandler):
    """An index whose token has run out, and one of a team, which has other packages alone."""

    def do_GET(self) -> None:
        self.send_error(404 if self.path.startswith("/team") else 401)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_index_that_refuses_is_told(machine: Machine) -> None:
    """With the real pip, whose own words are: from versions: none."""
    machine.lock("run").write_text("small==1.0 --hash=sha256:00\n")
    machine.script("pip", REAL_PIP)
    machine.python("python3", "3.12")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://me:secret@127.0.0.1:{server.server_port}/simple"
        team = f"http://127.0.0.1:{server.server_port}/team"
        code, said = machine.set_up(PIP_INDEX_URL=index, PIP_EXTRA_INDEX_URL=team)
        server.shutdown()
    assert (code, "secret" in str(said)) == (2, False)
    assert "pip could not fetch" in said[-2]
    assert "401 Client Error" in said[-2]


BACKEND = """
def get_requires_for_build_wheel(settings=None):
    return []
def build_wheel(folder, settings=None, metadata=None):
    raise OSError(28, "No space left on device")
"""


def test_what_a_build_said_is_told(machine: Machine) -> None:
    """With the real pip, which keeps it to itself where it writes a log of its own."""
    folder = machine.folder / "sources" / "small-1.0"
    folder.mkdir(parents=True)
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
    build = '[build-system]\nrequires = []\nbuild-backend = "ours"\nbackend-path = ["."]\n'
    (folder / "pyproject.toml").write_text(build + '[project]\nname = "small"\nversion = "1.0"\n')
    (folder / "ours.py").write_text(BACKEND)
    source = folder.with_name("small-1.0.tar.gz")
    with tarfile.open(source, "w:gz") as file:
        file.add(folder, "small-1.0")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    machine.lock("run").write_text(f"small==1.0 --hash=sha256:{digest}\n")
    machine.script("pip", REAL_PIP)
    machine.python("python3", "3.12")
    code, said = machine.set_up(PIP_NO_INDEX="1", PIP_FIND_LINKS=source.parent.as_uri())
    assert (code, said[-2]) == (2, "set-up: OSError: [Errno 28] No space left on device")


POM = """<project><modelVersion>4.0.0</modelVersion><groupId>org</groupId><artifactId>{name}</artifactId>
<version>1</version><dependencies>{needs}</dependencies></project>"""
NEEDS = "<dependency><groupId>org</groupId><artifactId>two</artifactId><version>1</version></dependency>"
IVY_XML = """<ivy-module version="2.0"><info organisation="x" module="jars"/><configurations>
<conf name="spark"/></configurations><dependencies>
<dependency org="org" name="one" rev="1" conf="spark->default"/></dependencies>
</ivy-module>"""


class _Repository(BaseHTTPRequestHandler):
    """Two modules, of which the first needs the second, and whose pom is refused once."""

    refusals: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        name = self.path.rsplit("/", 1)[-1]
        if name in self.refusals:
            self.refusals.remove(name)
            self.send_error(503)
        elif name in ("one-1.pom", "two-1.pom", "one-1.jar", "two-1.jar"):
            text = POM.format(name=name[:3], needs=NEEDS if name == "one-1.pom" else "").encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(text)
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


def pyspark_jars_in(machine: Machine) -> Path:
    """Link the real pyspark's jars, Ivy's among them, into the environment; return that."""
    [venv] = machine.checkout.glob(".kafka-daily/venv-*")
    theirs = venv / "lib" / "python3.12" / "site-packages" / "pyspark"
    theirs.mkdir(parents=True)
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    (theirs / "jars").symlink_to(Path(spec.origin).parent / "jars")
    return venv


def test_a_pom_that_was_refused_once_leaves_no_jar_out(machine: Machine) -> None:
    """With the real Ivy, which took the module for one without dependencies: set-up said `ready`."""
    machine.python("python3", "3.12")
    conf, run = machine.checkout / "conf", str(machine.checkout / "run.sh")
    (conf / "ivy.xml").write_text(IVY_XML)
    java = os.environ.get("JAVA_HOME") or str(Path(str(shutil.which("java"))).resolve().parents[1])
    with ThreadingHTTPServer(("127.0.0.1", 0), _Repository) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        _Repository.refusals.append("one-1.pom")
        root = f'<ibiblio root="http://127.0.0.1:{server.server_port}/" '
        text = (conf / "ivysettings.xml").read_text()
        (conf / "ivysettings.xml").write_text(text.replace("<ibiblio ", root))
        assert machine.set_up()[0] == 0
        venv = pyspark_jars_in(machine)
        code, said = machine.set_up(run, "setup", JAVA_HOME=java)
        server.shutdown()
    assert (code, _Repository.refusals) == (0, []), said
    assert "trying again" in str(said)
    assert sorted(path.name for path in venv.glob("jars/spark/*.jar")) == ["one-1.jar", "two-1.jar"]


def test_a_repository_that_is_silent_is_given_up(machine: Machine) -> None:
    """With the real Ivy, which waited for ever: set-up held its lock, and said nothing."""
    machine.python("python3", "3.12")
    conf, run = machine.checkout / "conf", str(machine.checkout / "run.sh")
    (conf / "ivy.xml").write_text(IVY_XML)
    java = os.environ.get("JAVA_HOME") or str(Path(str(shutil.which("java"))).resolve().parents[1])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        text = (conf / "ivysettings.xml").read_text()
        assert 'readTimeout="60000"' in text
        text = text.replace("<ibiblio ", f'<ibiblio root="http://127.0.0.1:{silent.getsockname()[1]}/" ')
        (conf / "ivysettings.xml").write_text(text.replace('"60000"', '"200"'))
        assert machine.set_up()[0] == 0
        pyspark_jars_in(machine)
        code, said = machine.set_up(run, "setup", JAVA_HOME=java)
    assert code == 2
    assert "trying again" in str(said)
    assert "Read timed out" in said[-2]


def test_an_environment_that_cannot_start_is_not_ready(machine: Machine) -> None:
    """Below a folder that is mounted noexec set-up ended with 0, and the first command with 126."""
    machine.python("python3", "3.12")
    machine.script("kafka-daily", "#!/bin/bash\necho 'x: Permission denied' >&2; exit 126\n")
    code, said = machine.set_up()
    assert (code, said[-2]) == (2, "set-up: x: Permission denied")


def test_a_file_system_without_locks_is_told(machine: Machine) -> None:
    """As NFS without its lock daemon: it waited for another set-up that was none."""
    machine.python("python3", "3.12")
    (machine.folder / "bin" / "flock").unlink()
    machine.script("bin/flock", "#!/bin/bash\necho 'flock: 9: No locks available' >&2; exit 71\n")
    code, said = machine.set_up()
    assert (code, len(said)) == (2, 1)
    assert "cannot lock" in said[0]


def test_an_environment_that_was_copied_as_a_folder_is_replaced(machine: Machine) -> None:
    """As after `cp -rL`: each set-up made the environment anew, and then failed."""
    machine.python("python3", "3.12")
    home = machine.checkout / ".kafka-daily"
    (home / "venv" / "bin").mkdir(parents=True)
    (home / ".lock").touch()
    assert machine.set_up()[0] == 0
    assert (home / "venv").is_symlink()


def test_words_that_found_no_room_are_told(machine: Machine) -> None:
    """On a full disk the log has no error: pip's note that it could not log was told as the cause."""
    machine.python("python3", "3.12")
    (machine.said / "output").write_text("running build\n--- Logging error ---\n")
    code, said = machine.set_up()
    assert code == 2
    assert said[-2].endswith("setup.log; there may have been no space left")


@pytest.mark.parametrize("words, told", [("", "none"), ("Building wheels", "Building wheels")])
def test_a_program_that_a_signal_ends_is_told_by_its_number(words: str, told: str, machine: Machine) -> None:
    """As pip that ran out of memory: the line was empty, or what it did last."""
    machine.python("python3", "3.12")
    killed = (
        '#!/bin/bash\n[[ $2 != -c ]] || exec "{real}" "$@"\necho >>"{said}/pip"; echo "{words}"; kill -9 $$\n'
    )
    machine.script("pip", killed, words=words)
    code, said = machine.set_up(KAFKA_DAILY_HOME=str(machine.folder / "kafka-connect"))
    assert (code, len(machine.heard("pip"))) == (2, 1)  # where it lies does not say that it was the network
    assert said[-2].endswith(f"bin/python ended with code 137; its last words: {told}")


def test_a_home_that_cannot_be_written_is_named(machine: Machine) -> None:
    code, said = machine.set_up(KAFKA_DAILY_HOME="/dev/null/home")
    assert (code, len(said)) == (2, 1)
    assert "cannot write /dev/null/home" in said[0]


def test_a_home_that_is_closed_to_us_is_named_as_that(machine: Machine) -> None:
    """Of a home that root had made under umask 077 it said that its files are not of set-up."""
    (machine.checkout / ".kafka-daily").mkdir()
    machine.script("bin/ls", "#!/bin/bash\necho 'Permission denied' >&2; exit 2\n")
    code, said = machine.set_up()
    assert (code, len(said)) == (2, 1)
    assert "cannot list " in said[0]


@pytest.mark.parametrize("theirs", ["venv/bin/python", ".notes"])
def test_a_folder_with_files_of_others_is_no_home(machine: Machine, theirs: str) -> None:
    """A virtualenv in it that was called `venv` was removed without a word."""
    machine.python("python3", "3.12")
    kept = machine.folder / "project" / theirs
    kept.parent.mkdir(parents=True)
    kept.touch()
    code, said = machine.set_up(KAFKA_DAILY_HOME=str(machine.folder / "project"))
    assert (code, kept.exists(), len(said)) == (2, True, 1)
    assert "Set KAFKA_DAILY_HOME to a new one" in said[0]
    assert machine.set_up(KAFKA_DAILY_HOME=str(machine.folder / "project" / "new"))[0] == 0


@pytest.mark.parametrize("refusing", [None, "#!/bin/bash\necho 'Permission denied' >&2; exit 2\n"])
def test_a_folder_that_cannot_be_listed_is_no_home(refusing: str | None, machine: Machine) -> None:
    """Where `find` was not installed, or had no rights, a `venv` of others was removed."""
    machine.python("python3", "3.12")
    kept = machine.folder / "project" / "venv" / "mine"
    kept.parent.mkdir(parents=True)
    kept.touch()
    for lister in ("find", "ls"):
        (machine.folder / "bin" / lister).unlink()
        if refusing:
            machine.script(f"bin/{lister}", refusing)
    code, said = machine.set_up(KAFKA_DAILY_HOME=str(machine.folder / "project"))
    assert (code, kept.exists(), len(said)) == (2, True, 1)


def test_a_path_below_which_pyspark_cannot_be_built_is_told(machine: Machine) -> None:
    code, said = machine.set_up(KAFKA_DAILY_HOME=str(machine.folder / "a$x"))
    assert (code, len(said)) == (2, 1)
    assert "Set KAFKA_DAILY_HOME to another" in said[0]


@pytest.mark.parametrize("program, when", [("rm", "*.spark-new*"), ("mv", "*java-home*")])
def test_what_nobody_foresaw_ends_with_our_code_too(program: str, when: str, machine: Machine) -> None:
    """As jars of root's in our home: it ended with 1 and with rm's words alone."""
    machine.python("python3", "3.12")
    refusing = '#!/bin/bash\n[[ $* != {when} ]] || { echo "no rights" >&2; exit 1; }\nexec "{ours}" "$@"\n'
    ours = shutil.which(program)
    (machine.folder / "bin" / program).unlink()
    machine.script(f"bin/{program}", refusing, ours=ours, when=when)
    code, said = machine.set_up(str(machine.checkout / "run.sh"), "setup")
    assert (code, said[-2]) == (2, "no rights")
    assert "It stopped at that." in said[-1]


@pytest.mark.parametrize("deaf", ["2>&-", "2> >(exec 0<&-; :)", "2>&1 | head -1; exit ${PIPESTATUS[0]}"])
def test_a_set_up_that_nobody_can_hear_does_its_work(deaf: str, machine: Machine) -> None:
    """Behind a pipe that is closed it ended with 141, or with 1."""
    machine.python("python3", "3.12")
    (machine.folder / "bin" / "head").symlink_to(str(shutil.which("head")))
    code, said = machine.set_up("/bin/bash", "-c", f'"{machine.checkout}/run.sh" setup env {deaf}')
    assert (code, said) == (0, [])
    assert (machine.checkout / ".kafka-daily" / "venv").exists()


# -- kills, and two at once


def test_a_killed_set_up_is_made_whole_by_the_next_one(machine: Machine) -> None:
    """What the killed one began would write into the same environment, so the next one waits for its end."""
    machine.python("python3", "3.12")
    (machine.said / "wait").touch()
    with machine.start() as child:
        machine.wait("begun")
        child.send_signal(signal.SIGKILL)
        child.wait()
        with machine.start() as second:
            assert second.stderr
            assert "waiting for it" in second.stderr.readline()
            assert len(machine.heard("made")) == 1
            (machine.said / "wait").unlink()
            second.communicate()
    assert second.returncode == 0
    assert len(machine.heard("made")) == 2
    assert machine.set_up() == (0, [])


@pytest.mark.parametrize("command", [("setup", "env"), ("setup",)], ids=["pip", "ivy"])
def test_ctrl_c_ends_with_its_own_code(command: tuple[str, ...], machine: Machine) -> None:
    """The programs that set-up waits for end with a code of their own then, and it told their last words."""
    stubborn = '#!/bin/bash\n[[ $2 != -c ]] || exec "{real}" "$@"\ntrap "exit 2" INT; touch "{said}/begun"\n'
    stubborn += 'for _ in {1..1500}; do "{sleep}" 0.02; done\n'
    machine.script("pip" if "env" in command else "java/bin/java", stubborn)
    machine.python("python3", "3.12")
    with machine.start("env", "--default-signal=INT", str(machine.checkout / "run.sh"), *command) as child:
        machine.wait("begun")
        os.killpg(child.pid, signal.SIGINT)
        said = child.communicate(timeout=20)[1]
    assert (child.returncode, "It stopped" in said) == (130, False)


def test_a_tool_that_was_installed_by_half_is_installed_whole(machine: Machine) -> None:
    """With the real pip, which takes it for whole: `mypy` had no program, and each set-up said `ready`."""
    wheel = _wheel(machine.folder / "wheels")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    machine.lock("test").write_text(f"small==1.0 --hash=sha256:{digest}\n")
    machine.python("python3", "3.12")
    run = str(machine.checkout / "run.sh")
    assert machine.set_up(run, "setup")[0] == 0
    [venv] = machine.checkout.glob(".kafka-daily/venv-*")
    theirs = venv / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(theirs)
    (theirs / "small.py").unlink()
    machine.script("pip", TOOLS_PIP, theirs=theirs)
    found = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheel.parent.as_uri()}
    code, said = machine.set_up(run, "setup", "test", **found)
    assert code == 0, said
    assert len(list(machine.said.glob("real/lib/*/*/small.py"))) == 1


def test_what_comes_after_the_last_part_is_done_after_a_kill_too(machine: Machine) -> None:
    """The link to the environment was never made: what the README says of it found nothing."""
    machine.python("python3", "3.12")
    killing = '#!/bin/bash\n[[ $1 != -sfn && $2 != */.ivy ]] || kill -KILL "$PPID"\nexec "{ours}" "$@"\n'
    for program in ("ln", "rm"):
        ours = shutil.which(program)
        (machine.folder / "bin" / program).unlink()
        machine.script(f"bin/{program}", killing, ours=ours)
    assert machine.set_up()[0] == -signal.SIGKILL
    for program in ("ln", "rm"):
        (machine.folder / "bin" / program).unlink()
        (machine.folder / "bin" / program).symlink_to(str(shutil.which(program)))
    assert machine.set_up()[0] == 0
    assert (machine.checkout / ".kafka-daily" / "venv" / "bin" / "python").exists()


def test_of_two_set_ups_at_once_one_does_the_work(machine: Machine) -> None:
    machine.python("python3", "3.12")
    with machine.start() as one, machine.start() as other:
        one.communicate()
        other.communicate()
    assert (one.returncode, other.returncode, len(machine.heard("made"))) == (0, 0, 1)


# -- the tests' tools


@pytest.mark.parametrize("command", [("format", "--check"), ("check",)], ids=["format", "lint"])
def test_an_environment_below_the_checkout_is_not_checked(command: tuple[str, ...], tmp_path: Path) -> None:
    """Ruff obeys .gitignore in a repository alone: in an unpacked archive pyspark failed our checks."""
    for name in ("pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, tmp_path / name)
    for home in (".kafka-daily", "another home"):
        theirs = tmp_path / home / "venv-0123456789ab" / "bin" / "theirs.py"
        theirs.parent.mkdir(parents=True)
        theirs.write_text("import os;x = ( 1 )\n")
    ruff = Path(sys.executable).parent / "ruff"
    done = subprocess.run([ruff, *command, "."], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# -- the locks


def test_the_locks_pin_and_hash_all_that_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = {"run": project["project"]["dependencies"], **project["dependency-groups"]}
    for name, requirements in asked.items():
        pins = _pins(ROOT / "conf" / "lock" / f"{name}.txt")
        for requirement in map(Requirement, requirements):
            assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def _pins(lock: Path) -> dict[str, Version]:
    """Return the versions of a lock, each of which must have a hash; no address may stand in it."""
    text = lock.read_text().replace("\\\n", " ")
    assert "://" not in text
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert all("==" in line and "--hash=sha256:" in line for line in lines)
    pinned = [line.split(" ")[0].split("==") for line in lines]
    return {canonicalize_name(name): Version(version) for name, version in pinned}
