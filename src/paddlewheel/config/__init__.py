"""The settings: one tree, checked once at start, with the source of every value."""

from paddlewheel.config.loading import LoadedSettings, load_model_settings, load_settings
from paddlewheel.config.settings import (
    Batching,
    FetchSettings,
    JobSettings,
    Limits,
    ModelSettings,
    PoolSettings,
    RepositorySettings,
    ServerSettings,
    Settings,
    Telemetry,
)

__all__ = [
    "Batching",
    "FetchSettings",
    "JobSettings",
    "Limits",
    "LoadedSettings",
    "ModelSettings",
    "PoolSettings",
    "RepositorySettings",
    "ServerSettings",
    "Settings",
    "Telemetry",
    "load_model_settings",
    "load_settings",
]
