"""Loads one YAML file into frozen settings; reports every problem at once, each with its path.

Relies on the file, the environment that it is given, and the files that the configuration names.
Never calls Kafka or Spark, never imports a library that decodes or writes, never shows a secret.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from jobs.config.bucket import BucketSettings, bucket_settings
from jobs.config.checks import check, file_sizes, invalid, rules
from jobs.config.fields import is_bucket
from jobs.config.problems import KeyPath, Problems, dotted
from jobs.config.read import read
from jobs.config.schema import ConfigFile, DaySection, Evolve, InvalidSection, KafkaSection, LakeSection, Late
from jobs.config.secrets import References, ResolvedText, Secret, Unresolved, is_reference
from jobs.config.security import ClientOptions, Options, client_options
from jobs.config.strict_yaml import NotYaml, Tree, parse
from jobs.record.rules import Rules
from offsets.errors import ConfigError

CONFIG_VARIABLE = "KAFKA_DAILY_CONFIG"

CORRECT: Final = "Correct what is listed and run again; conf/example.yaml shows every key."

_SECURITY = ("kafka", "security")
_PASSWORDS = ("password", "key_password")
_STORE = ("lake", "store")
_HIDDEN = frozenset(
    {"username", "password", "key_password", "secret_access_key", "session_token", "account_key", "sas"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """How to reach the broker: `client` for librdkafka, `spark` as options of Spark's Kafka source.

    `timeout` is how long to wait for a silent broker.
    """

    bootstrap_servers: str
    timeout: timedelta
    client: Options = field(repr=False)
    spark: Options = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPart:
    """The `kafka` section alone: checked, and as it is `written`, with its references."""

    settings: KafkaSettings
    written: Mapping[str, Tree] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings:
    """Where days are written, and in which files; sizes in bytes.

    The path of a folder is relative where that of the config is, so that messages show it as it was given.
    """

    path: Path | BucketSettings
    target_file_size: int
    min_file_size: int
    compression: str
    keep: timedelta | None
    shared: bool
    success_file: bool = False

    @property
    def folder(self) -> Path:
        """The folder of a lake that is one."""
        if not isinstance(self.path, Path):
            raise TypeError(f"{self.path.url} is no folder")
        return self.path

    @property
    def place(self) -> str:
        """The lake's absolute path, or its address."""
        return str(self.path.absolute()) if isinstance(self.path, Path) else self.path.url

    @property
    def identity(self) -> str:
        """The same for two configs of one lake, whatever links lead to it."""
        return os.path.realpath(self.path) if isinstance(self.path, Path) else self.path.url


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The checked configuration in the file's own shape; `rules` hold record, event_time and validity."""

    path: Path
    topic: str
    kafka: KafkaSettings
    day: DaySection
    rules: Rules
    lake: LakeSettings
    invalid: InvalidSection
    late: Late
    evolve: Evolve
    spark: Mapping[str, str] = field(repr=False)


def load(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Read the configuration at `path`, else at $KAFKA_DAILY_CONFIG; raise ConfigError with every problem."""
    file = _find(path, environ)
    problems = Problems()
    tree = _tree(file, problems)
    folder = file.parent.absolute()
    filled = _fill(tree, (), References(folder, environ), problems)
    config = read(ConfigFile, filled, problems)
    check(config, problems)
    options = client_options(config.kafka.security, folder, problems)
    if problems:
        raise _wrong(file, problems)
    return _settings(file, config, options)


def load_kafka(file: Path, folder: Path, environ: Mapping[str, str]) -> KafkaPart:
    """Read the `kafka` section of a YAML, for a config that will lie in `folder`, and nothing else of it.

    Raises:
        ConfigError: it has problems, or holds a password itself.
    """
    noted = Problems()
    tree = _tree(file, noted)
    written = tree.get("kafka") if isinstance(tree, dict) else None
    problems = Problems({path: problem for path, problem in noted.items() if path[:1] == ("kafka",)})
    filled = _fill(written, ("kafka",), References(folder.absolute(), environ), problems)
    section = read(KafkaSection, filled, problems, ("kafka",))
    options = client_options(section.security, folder.absolute(), problems)
    _refuse_passwords(written, problems)
    if problems:
        do = (
            f"Correct what is listed and run again; its paths count from {folder}, where the config will lie."
        )
        raise _wrong(file, problems, do)
    return KafkaPart(settings=_kafka(section, options), written=written if isinstance(written, dict) else {})


def _refuse_passwords(kafka: Tree, problems: Problems) -> None:
    """Note each password that would be copied into another file."""
    security = kafka.get("security") if isinstance(kafka, dict) else None
    for key, value in security.items() if isinstance(security, dict) else ():
        if key in _PASSWORDS and isinstance(value, str) and not is_reference(value):
            problems.add(
                (*_SECURITY, key),
                "expected a reference, since this section is copied into another file, found a hidden value; "
                "write ${env:NAME} or ${file:PATH}",
            )


def _tree(file: Path, problems: Problems) -> Tree:
    try:
        return parse(_text(file), problems)
    except NotYaml as error:
        problems.add((), str(error))
        raise _wrong(file, problems) from None


def _find(path: Path | None, environ: Mapping[str, str]) -> Path:
    named = path or environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    raise ConfigError(
        expected=f"a configuration named by --config or {CONFIG_VARIABLE}",
        found="neither",
        do="Copy conf/example.yaml, change what is yours, and name the copy with --config.",
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        raise ConfigError(
            expected=f"a configuration at {file}",
            found="no such file",
            do="Copy conf/example.yaml there and change what is yours, or name another file with --config.",
        ) from None
    except OSError as error:
        raise NotYaml(f"cannot read the file: {error.strerror}") from None
    except ValueError:
        raise NotYaml("the file is not UTF-8 text") from None


def _wrong(file: Path, problems: Problems, do: str = CORRECT) -> ConfigError:
    lines = "\n".join(
        f"  {dotted(path)}: {problem}" if path else f"  {problem}" for path, problem in problems.items()
    )
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    return ConfigError(
        expected="a valid configuration",
        found=f"{count}:\n{lines}\nin {file}",
        do=do,
        problems=[{"path": dotted(path), "problem": problem} for path, problem in problems.items()],
    )


def _fill(tree: Tree, path: KeyPath, references: References, problems: Problems) -> object:
    """Replace the references in a tree; below kafka.security they and all credentials become Secrets."""
    match tree:
        case dict():
            return {key: _fill(value, (*path, key), references, problems) for key, value in tree.items()}
        case list():
            return [
                _fill(value, (*path, str(at)), references, problems) for at, value in enumerate(tree, start=1)
            ]
        case None:
            return None
        case str():
            try:
                return _hidden(references.fill(tree), path)
            except Unresolved as error:
                problems.add(path, str(error))
                return None


def _hidden(text: str, path: KeyPath) -> str | Secret:
    if path[:2] not in (_SECURITY, _STORE):
        return text
    if isinstance(text, ResolvedText):
        return Secret(text, text.origin)
    return Secret(text) if len(path) == len(_SECURITY) or path[2] in _HIDDEN else text


def _settings(file: Path, config: ConfigFile, options: ClientOptions) -> Settings:
    target, smallest = file_sizes(config)
    return Settings(
        path=file,
        topic=config.topic,
        kafka=_kafka(config.kafka, options),
        day=config.day,
        rules=rules(config),
        lake=LakeSettings(
            path=_path(file.parent, config.lake),
            target_file_size=int(target),
            min_file_size=int(smallest),
            compression=config.lake.compression,
            keep=config.lake.keep,
            shared=config.lake.shared,
            success_file=config.lake.success_file,
        ),
        invalid=invalid(config),
        late=config.late,
        evolve=config.record.evolve,
        spark={key: str(value) for key, value in config.spark.items()},
    )


def _path(folder: Path, lake: LakeSection) -> Path | BucketSettings:
    if is_bucket(lake.path):
        return bucket_settings(lake, folder)
    return _shortest(folder / lake.path)


def _shortest(path: Path) -> Path:
    """Return a path without `..` in it; as it is where a link on the way makes that another place."""
    short = os.path.normpath(path)
    return Path(short) if os.path.realpath(short) == os.path.realpath(path) else path


def _kafka(section: KafkaSection, options: ClientOptions) -> KafkaSettings:
    servers = section.bootstrap_servers
    java = {"bootstrap.servers": servers, **options.java}
    return KafkaSettings(
        bootstrap_servers=servers,
        timeout=section.timeout,
        client={"bootstrap.servers": servers, **options.librdkafka},
        spark={f"kafka.{name}": value for name, value in java.items()},
    )
