"""OCR: detection, orientation, recognition, reading order."""
