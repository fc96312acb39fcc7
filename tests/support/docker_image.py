"""The image of a Kafka broker: the official one, else one built from what this machine has.

The built image looks like `apache/kafka` to whoever starts it: `/etc/kafka/docker/run` makes a broker of
the `KAFKA_*` variables. It holds a Java runtime, this machine's C library and shell, and the broker's jars,
so that the same tests run where no image registry can be reached.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import docker
from docker.errors import DockerException, ImageNotFound
from requests.exceptions import RequestException

from jobs.demo.broker import broker_jars, java

PULL_SECONDS: Final = 15
"""Seconds to wait for a silent registry before the image is built instead."""

MODULES: Final = (
    "java.base,java.desktop,java.logging,java.management,java.naming,java.security.jgss,java.security.sasl,"
    "java.sql,java.xml,jdk.management,jdk.unsupported,jdk.crypto.ec,jdk.net,jdk.zipfs"
)

# As in the official image, a container that is started again finds its storage formatted.
RUN: Final = """#!/bin/sh
set -e
java="/opt/java/bin/java ${KAFKA_HEAP_OPTS:--Xmx512m} -cp /opt/kafka/libs/*"
set -f
said=$($java kafka.docker.KafkaDockerWrapper setup \\
  -D /etc/kafka/docker -M /mnt/shared/config -F /opt/kafka/config 2>&1) ||
  case $said in *"already formatted"*) ;; *) echo "$said"; exit 1 ;; esac
cd /opt/kafka/config
exec $java -Dlog4j2.configurationFile=log4j2.yaml kafka.Kafka server.properties
"""

LOG4J2: Final = """Configuration:
  Appenders:
    Console:
      name: out
      PatternLayout:
        pattern: "%d %p %m (%c)%n"
  Loggers:
    Root:
      level: INFO
      AppenderRef:
        ref: out
"""

FILES: Final = {
    "etc/kafka/docker/run": RUN,
    "etc/kafka/docker/server.properties": "",
    "etc/kafka/docker/log4j2.yaml": LOG4J2,
    "etc/kafka/docker/tools-log4j2.yaml": LOG4J2,
    "etc/passwd": "root:x:0:0:root:/:/bin/sh\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
FOLDERS: Final = ("mnt/shared/config", "opt/kafka/config", "tmp")

# libraries of a runtime that only a screen, a printer or a loudspeaker needs
NEEDLESS: Final = re.compile(r"awt|font|splash|lcms|mlib|javajpeg|freetype|jsound|attach|jdwp|saproc|prefs")


def kafka_image() -> str:
    """Return the name of an image of Kafka 4 in the Docker daemon; pull or build it first if necessary."""
    client = docker.from_env(timeout=PULL_SECONDS)
    try:
        official = f"apache/kafka:{kafka_version()}"
        for name in (official, built_name()):
            if _has(client, name):
                return name
        try:
            client.images.pull(official)
        except (DockerException, RequestException):
            return build(client)
        return official
    finally:
        client.close()


def kafka_version() -> str:
    """Return the version of the broker's jars."""
    [jar] = broker_jars().glob("kafka_2.13-*.jar")
    return jar.stem.removeprefix("kafka_2.13-")


def built_name() -> str:
    """Return a name that depends on all contents of the image, so that an outdated one is not used."""
    jars = sorted(jar.name for jar in broker_jars().glob("*.jar"))
    runtime = Path(java()).resolve()
    content = repr((jars, str(runtime), runtime.stat().st_mtime_ns, MODULES, FILES))
    return f"kafka-daily-test/kafka:{kafka_version()}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def build(client: docker.DockerClient) -> str:
    """Import the image into the daemon, within some ten seconds."""
    name = built_name()
    repository, tag = name.rsplit(":", 1)
    with tempfile.TemporaryDirectory(prefix="kafka-daily-image-") as folder:
        archive = Path(folder) / "image.tar"
        runtime = _runtime(Path(folder) / "java")
        with tarfile.open(archive, "w", dereference=True) as tar:
            tar.add(runtime, "opt/java", filter=_reproducible)
            tar.add(broker_jars(), "opt/kafka/libs", filter=_reproducible)
            for path in _libraries([*_binaries(runtime), Path("/bin/sh")]):
                tar.add(path, str(path).lstrip("/"), filter=_reproducible)
            tar.add("/bin/sh", "bin/sh", filter=_reproducible)
            for path_in_image, text in FILES.items():
                _add_text(tar, path_in_image, text)
            for folder_in_image in FOLDERS:
                _add_folder(tar, folder_in_image)
        client.api.timeout = 300
        client.api.import_image_from_file(
            str(archive),
            repository=repository,
            tag=tag,
            changes=['CMD ["/etc/kafka/docker/run"]', "EXPOSE 9092"],
        )
    return name


def _has(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def _runtime(into: Path) -> Path:
    """Link a small runtime with jlink; copy the machine's runtime where it has no jlink."""
    home = Path(java()).resolve().parents[1]
    if not (home / "bin" / "jlink").exists() or not (home / "jmods").is_dir():
        shutil.copytree(
            home, into, ignore=shutil.ignore_patterns("jmods", "*.zip", "man", "legal", "docs", "include")
        )
        return into
    options = [
        "--strip-java-debug-attributes",
        "--no-header-files",
        "--no-man-pages",
        "--add-modules",
        MODULES,
    ]
    subprocess.run([str(home / "bin" / "jlink"), *options, "--output", str(into)], check=True)
    return into


def _binaries(runtime: Path) -> list[Path]:
    libraries = [path for path in runtime.glob("lib/**/*.so") if not NEEDLESS.search(path.name)]
    return [runtime / "bin" / "java", *libraries]


def _libraries(binaries: list[Path]) -> list[Path]:
    """Return the paths of all system libraries that the binaries load."""
    command = ["ldd", *map(str, binaries)]
    listed = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
    )
    libraries = {Path(path) for path in re.findall(r"(?:=> |^\s+)(/\S+) \(0x", listed.stdout, re.MULTILINE)}
    inside = binaries[0].parents[1]
    return sorted(path for path in libraries if not path.is_relative_to(inside))


def _reproducible(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    return entry


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text), 0o755 if text.startswith("#!") else 0o644
    tar.addfile(entry, io.BytesIO(text.encode()))


def _add_folder(tar: tarfile.TarFile, name: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
    tar.addfile(entry)
