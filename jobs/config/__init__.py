"""The configuration: one YAML file, loaded into frozen settings."""

from jobs.config.loader import (
    CONFIG_VARIABLE,
    KafkaPart,
    KafkaSettings,
    LakeSettings,
    Settings,
    load,
    load_kafka,
)
from jobs.config.schema import Evolve, Late

__all__ = [
    "CONFIG_VARIABLE",
    "Evolve",
    "KafkaPart",
    "KafkaSettings",
    "LakeSettings",
    "Late",
    "Settings",
    "load",
    "load_kafka",
]
