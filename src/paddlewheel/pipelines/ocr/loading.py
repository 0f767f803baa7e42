"""Builds the OCR pipeline from the files of a pulled pack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddlewheel import engines
from paddlewheel.catalog.dictionary import read_dictionary
from paddlewheel.catalog.installed import InstalledPack
from paddlewheel.catalog.pack import Role
from paddlewheel.engines.predictor import LoadOptions, ModelFiles, Predictor
from paddlewheel.pipelines.ocr.detection import TextDetector
from paddlewheel.pipelines.ocr.orientation import OrientationClassifier
from paddlewheel.pipelines.ocr.pipeline import OcrPipeline
from paddlewheel.pipelines.ocr.recognition import TextRecogniser


def load_ocr(
    installed: InstalledPack, engine: str, options: LoadOptions, *, defaults: Mapping[str, Any], max_pixels: int
) -> OcrPipeline:
    """Load the networks of a pack; raises :class:`ModelLoadError`.

    `engine` is a real engine's name; `defaults` are the model's own for the parameters of a call.
    """

    def network(role: Role) -> Predictor:
        files = installed.network(role)
        return engines.load(ModelFiles(files.format, files.model, files.parameters), engine, options)

    return OcrPipeline(
        detection=TextDetector(network("detection"), installed.pack.detection),
        orientation=OrientationClassifier(network("orientation")),
        recognition=TextRecogniser(network("recognition"), read_dictionary(installed.dictionary)),
        defaults=defaults,
        max_pixels=max_pixels,
    )
