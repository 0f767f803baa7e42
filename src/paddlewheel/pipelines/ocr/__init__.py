"""OCR: detection, orientation, recognition, reading order."""

from paddlewheel.pipelines.ocr.loading import load_ocr
from paddlewheel.pipelines.ocr.parameters import OcrParameters, parse_parameters
from paddlewheel.pipelines.ocr.pipeline import OcrPipeline

__all__ = ["OcrParameters", "OcrPipeline", "load_ocr", "parse_parameters"]
