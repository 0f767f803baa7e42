"""The models: where they are, which versions are loaded, and loading and unloading them while the server runs."""

from paddlewheel.repository.description import IndexEntry, ModelDescription
from paddlewheel.repository.model_repository import ModelRepository
from paddlewheel.repository.resolution import engines_of, resolve
from paddlewheel.repository.served_model import ServedModel

__all__ = ["IndexEntry", "ModelDescription", "ModelRepository", "ServedModel", "engines_of", "resolve"]
