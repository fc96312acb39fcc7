"""One YAML file to frozen settings: what a run knows before it looks at anything."""

from jobs.config.loader import CONFIG_VARIABLE, KafkaSettings, LakeSettings, Settings, load
from jobs.config.schema import Late

__all__ = ["CONFIG_VARIABLE", "KafkaSettings", "LakeSettings", "Late", "Settings", "load"]
