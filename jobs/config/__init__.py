"""The configuration: one YAML file, loaded into frozen settings."""

from jobs.config.loader import CONFIG_VARIABLE, KafkaSettings, LakeSettings, Settings, load
from jobs.config.schema import Evolve, Late

__all__ = ["CONFIG_VARIABLE", "Evolve", "KafkaSettings", "LakeSettings", "Late", "Settings", "load"]
